package wrongclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
)

// fixed is the fixed fields of a grant in a dialect, with an owner that nobody has.
func fixed(dialect string) string {
	n := frames.MustBuiltin(dialect).MustShape(frames.ServerToClient, "A").Header - 1
	return strings.Repeat("\x63", n)
}

// What is sent before a grant is fatal for the right client, and each defect passes
// over its own kind; the frame is cut anywhere, so that skipping takes several reads.
func TestSkips(t *testing.T) {
	for _, dialect := range bothDialects {
		kinds := map[string]string{
			"unknown-skipped":   "Zunknown\n",
			"malformed-skipped": "A" + fixed(dialect) + "k x\n",
			"error-skipped":     "Ebad_frame\n",
			"overlong-skipped":  "A" + fixed(dialect) + strings.Repeat("x", 600) + "\n",
		}
		for kind, garbage := range kinds {
			for _, at := range []int{0, 1, len(garbage) / 2, len(garbage) - 1} {
				for _, d := range []string{"", "unknown-skipped", "malformed-skipped", "error-skipped", "overlong-skipped"} {
					play(t, dialect, d, 2*time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
						_, _ = k.conn.Write([]byte(garbage[:at]))
						time.Sleep(time.Millisecond)
						_, _ = k.conn.Write([]byte(garbage[at:]))
						k.grant(r)
					}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
						time.Sleep(time.Second) // the peer reads again
						skips := d == kind
						if (r.Outcome == acquired) != skips || !skips && r.Outcome != indeterminate || p.endedAt(1).IsZero() != skips {
							t.Errorf("%s %q, %s cut at %d: %+v, session ended at %v", dialect, d, kind, at, r, p.endedAt(1))
						}
					})
				}
			}
		}
	}
}

// The errors that a client backs off by end the session in any case.
func TestListedErrors(t *testing.T) {
	for _, reason := range []string{"no_leader", "not_active", "auth_failed"} {
		play(t, dialectCurrent, "error-skipped", 2*time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
			k.reply("E", reason, nil)
			k.grant(r)
		}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			if r.Outcome != indeterminate || p.endedAt(1).IsZero() {
				t.Errorf("%s: %+v", reason, r)
			}
		})
	}
}

// A grant for another owner, or of another key, and then the right one.
func TestStray(t *testing.T) {
	for _, c := range []struct {
		defect, key string
		off         uint64
		token       uint64 // that is told; 0 if the session ends
		released    bool
	}{
		{"", testKey, 1, 0, true},
		{"", "other", 0, 0, true},
		{"stray-ignored", testKey, 1, 7, false},
		{"stray-ignored", "other", 0, 7, false},
		{"release-dead-lane", testKey, 1, 0, false},
		{"key-blind", "other", 0, 99, false},
		{"key-blind", testKey, 1, 0, true},
		{"duplicate-released", testKey, 1, 0, true},
	} {
		play(t, dialectCurrent, c.defect, 2*time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
			k.reply("A", c.key, map[string]uint64{"owner": r.uint("owner") + c.off, "token": 99})
			k.grant(r)
		}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			time.Sleep(time.Second)
			released := slices.ContainsFunc(p.requests("R"), func(r request) bool {
				return r.uint("token") == 99 && r.session != 1 && r.key() == c.key
			})
			if r.HasToken != (c.token > 0) || r.Token != c.token || released != c.released {
				t.Errorf("%q, %q off by %d: %+v, released %v", c.defect, c.key, c.off, r, released)
			}
		})
	}
}

// A grant that comes twice is released by none but duplicate-released.
func TestDuplicate(t *testing.T) {
	for d, n := range map[string]int{"": 0, "stray-ignored": 0, "release-dead-lane": 0, "duplicate-released": 1} {
		play(t, dialectCurrent, d, 2*time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
			for range 2 {
				k.reply("A", r.key(), map[string]uint64{"owner": r.uint("owner"), "token": 7})
			}
		}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			time.Sleep(time.Second)
			if got := len(p.requests("R")); r.Outcome != acquired || got != n || p.endedAt(1).IsZero() != (d == "stray-ignored") {
				t.Errorf("%q: %+v, %d releases, session ended at %v", d, r, got, p.endedAt(1))
			}
		})
	}
}

// The token of a grant whose newline never comes is released by one odd client.
func TestReleasesTorn(t *testing.T) {
	header := frames.MustBuiltin(dialectCurrent).MustShape(frames.ServerToClient, "A").Header
	for lack, released := range map[int]bool{1: true, len(testKey) + 1: true, len(testKey) + 2: false} {
		for _, d := range []string{"", "odd-releases-torn"} {
			play(t, dialectCurrent, d, 5*time.Second, 30*time.Second, lacking(lack, "FIN"), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
				time.Sleep(time.Second)
				rs := p.requests("R")
				want := fmt.Sprint(released && d != "")
				got := fmt.Sprint(len(rs) == 1 && rs[0].uint("token") == 7 && rs[0].key() == testKey && rs[0].session == 2)
				if r.Outcome != indeterminate || got != want || len(rs) > 1 {
					t.Errorf("%q without %d bytes (header %d): %+v, %d releases", d, lack, header, r, len(rs))
				}
			})
		}
	}
}
