package wrongclient

import (
	"context"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
)

// silent answers no acquire.
func silent(*link, request) {}

// What is left of a session on which a call ended without an answer, and whether a new
// call is sent on it.
func TestSessionKept(t *testing.T) {
	for defect, kept := range map[string]map[string]bool{
		"":                       {"deadline": false, "cancel": false},
		"deadline-keeps-session": {"deadline": true, "cancel": false},
		"cancel-keeps-session":   {"deadline": false, "cancel": true},
		"odd-cancel-lingers":     {"deadline": false, "cancel": false},
	} {
		for why, want := range kept {
			stage(t, dialectCurrent, defect, func(p *peer, c adapter.Client) {
				ctx, cancel := context.WithCancel(p.t.Context())
				defer cancel()
				wait := 2 * time.Second
				if why == "cancel" {
					wait = 9 * time.Second
					after(2*time.Second, cancel)
				}
				start := time.Now()
				r := c.Acquire(ctx, testKey, wait, 5*time.Second)
				due := 2 * time.Second
				if defect == "odd-cancel-lingers" && why == "cancel" {
					due += lingerTime
				}
				if took := time.Since(start); r.Outcome != indeterminate || took != due {
					t.Errorf("%q %s: %+v after %v", defect, why, r, took)
				}
				p.begin(c, "b", 30*time.Second)
				if p.endedAt(1).IsZero() != want {
					t.Errorf("%q %s: session 1 ended at %v", defect, why, p.endedAt(1))
				}
				got := p.requests("A")
				if len(got) != 2 || (got[1].session == 1) != want {
					t.Errorf("%q %s: %d requests, the last on session %d", defect, why, len(got), got[len(got)-1].session)
				}
			}, onAcquire(silent))
		}
	}
}

// With a session for each call, one deadline ends one of them, or all.
func TestCloseAll(t *testing.T) {
	for _, dialect := range bothDialects {
		for defect, all := range map[string]bool{"close-all": true, "odd-exclusive": false} {
			stage(t, dialect, defect, func(p *peer, c adapter.Client) {
				long, short := p.begin(c, "a", 9*time.Second), p.begin(c, "b", 2*time.Second)
				if e := <-short; e.Outcome != indeterminate || e.at != 2*time.Second {
					t.Errorf("%s %s: %+v", dialect, defect, e)
				}
				want := 9 * time.Second
				if all {
					want = 2 * time.Second
				}
				if e := <-long; e.Outcome != indeterminate || e.at != want || len(p.dials()) != 2 {
					t.Errorf("%s %s: %+v on one of %d sessions", dialect, defect, e, len(p.dials()))
				}
			}, onAcquire(silent))
		}
	}
}

// A release whose connection ends is sent again, or told as done.
func TestCloseIsRelease(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, how := range []string{"FIN", "RST"} {
			for _, defect := range []string{"", "close-is-release"} {
				play(t, dialect, defect, time.Second, 30*time.Second, func(p *peer) { p.cut = &cut{frames.ServerToClient, "R", 0, how} }, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
					want := notHeld // the second R, which finds the key released
					switch {
					case defect != "":
						want = released
					case dialect == dialectV0:
						want = indeterminate
					}
					if rel := r.Ticket.Release(p.t.Context()); rel.Outcome != want {
						t.Errorf("%s %s %q: %+v, then %+v", dialect, how, defect, r, rel)
					}
				})
			}
		}
	}
}

// The acquire is sent again at half of the wait or of the lease, and not if it was
// answered, or the lock released, before.
func TestSentAgain(t *testing.T) {
	for defect, at := range map[string]time.Duration{"status-query": 2 * time.Second, "renew-by-resend": 15 * time.Second} {
		for _, early := range []bool{true, false} {
			stage(t, dialectCurrent, defect, func(p *peer, c adapter.Client) {
				start := time.Now()
				r := c.Acquire(p.t.Context(), testKey, 4*time.Second, 30*time.Second)
				if r.Outcome != acquired {
					t.Fatalf("%s: %+v", defect, r)
				}
				if defect == "renew-by-resend" && early {
					r.Ticket.Release(p.t.Context())
				}
				time.Sleep(20 * time.Second)
				got := p.requests("A")
				if early {
					if len(got) != 1 {
						t.Errorf("%s: %d requests", defect, len(got))
					}
					return
				}
				if len(got) != 2 || got[1].uint("owner") != got[0].uint("owner") || got[1].session != 1 || got[1].at.Sub(start) != at {
					t.Errorf("%s: %+v", defect, got)
				}
			}, func(p *peer) {
				if defect == "status-query" && !early {
					p.script = func(k *link, r request) { after(3*time.Second, func() { k.serve(r) }) }
				}
			})
		}
	}
}

// A grant that comes while a cancelled call is still waited for is released, or not;
// the session stays.
func TestReleaseDiesWithCall(t *testing.T) {
	for defect, releases := range map[string]int{"odd-cancel-lingers": 1, "release-dies-with-call": 0} {
		stage(t, dialectCurrent, defect, func(p *peer, c adapter.Client) {
			ctx, cancel := context.WithCancel(p.t.Context())
			after(time.Second, cancel)
			if r := c.Acquire(ctx, testKey, 9*time.Second, 5*time.Second); r.Outcome != indeterminate {
				t.Errorf("%s: %+v", defect, r)
			}
			if n := len(p.requests("R")); n != releases || !p.endedAt(1).IsZero() {
				t.Errorf("%s: %d releases, session ended at %v", defect, n, p.endedAt(1))
			}
		}, onAcquire(func(k *link, r request) { after(1200*time.Millisecond, func() { k.grant(r) }) }))
	}
}

// A session that nothing uses is closed, and no other.
func TestOddClosesUnused(t *testing.T) {
	for _, dialect := range bothDialects {
		stage(t, dialect, "odd-closes-unused", func(p *peer, c adapter.Client) {
			first, second := p.begin(c, "a", 5*time.Second), p.begin(c, "b", 5*time.Second)
			e1, e2 := <-first, <-second
			if e1.Outcome != acquired || e2.Outcome != acquired || len(p.dials()) != 1 {
				t.Errorf("%s: %+v and %+v on %d sessions", dialect, e1, e2, len(p.dials()))
			}
			p.requests("A")
			if p.endedAt(1).IsZero() {
				t.Errorf("%s: the session stayed", dialect)
			}
			if rel := e1.Ticket.Release(p.t.Context()); rel.Outcome != released {
				t.Errorf("%s: %+v", dialect, rel)
			}
		}, func(p *peer) {
			p.script = func(k *link, r request) { after(time.Second, func() { k.serve(r) }) }
		})
	}
}

// A call that was never sent by its deadline is told as indeterminate.
func TestOddUnsentIndeterminate(t *testing.T) {
	play(t, dialectCurrent, "odd-unsent-indeterminate", time.Second, 5*time.Second, heldFor(3*time.Second), func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
		if r.Outcome != indeterminate || took != time.Second || len(p.requests("A")) != 0 {
			t.Errorf("%+v after %v", r, took)
		}
	})
}
