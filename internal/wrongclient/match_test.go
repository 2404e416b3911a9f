package wrongclient

import (
	"testing"
	"time"

	"tornwire/adapter"
)

// foreign answers the first acquire with op, for an owner that is off by so much.
func foreign(op, key string, off uint64) func(*peer) {
	return onAcquire(func(k *link, r request) {
		k.reply(op, key, map[string]uint64{"owner": r.uint("owner") + off, "token": 99})
	})
}

// Two calls are answered in reverse: a T for the second, a grant for the first.
func TestFIFO(t *testing.T) {
	for _, c := range []struct {
		defect string
		keys   [2]string
		want   [2]string
	}{
		{"", [2]string{"a", "a"}, [2]string{"acquired 7", timeout}},
		{"", [2]string{"a", "b"}, [2]string{"acquired 7", timeout}},
		{"fifo-key", [2]string{"a", "a"}, [2]string{timeout, "acquired 7"}},
		{"fifo-key", [2]string{"a", "b"}, [2]string{"acquired 7", timeout}},
		{"fifo-connection", [2]string{"a", "a"}, [2]string{timeout, "acquired 7"}},
		{"fifo-connection", [2]string{"a", "b"}, [2]string{timeout, "acquired 7"}},
		{"key-only", [2]string{"a", "a"}, [2]string{timeout, "acquired 7"}},
		{"key-only", [2]string{"a", "b"}, [2]string{"acquired 7", timeout}},
	} {
		var waits request
		stage(t, dialectCurrent, c.defect, func(p *peer, cl adapter.Client) {
			first := p.begin(cl, c.keys[0], 10*time.Second)
			second := p.begin(cl, c.keys[1], 0)
			if got := [2]string{sum(<-first), sum(<-second)}; got != c.want || len(p.dials()) != 1 || !p.endedAt(1).IsZero() {
				t.Errorf("%q %v: %v on %d sessions", c.defect, c.keys, got, len(p.dials()))
			}
		}, onAcquire(func(k *link, r request) {
			if r.uint("wait") > 0 {
				waits = r
				return
			}
			k.reply("T", r.key(), owner(r))
			k.grant(waits)
		}))
	}
}

// In v0 the waiter with the shorter wait times out first, at the wait that was
// rounded up; only who shares a session and waits for it takes it for another's.
func TestFIFOv0(t *testing.T) {
	for _, c := range []struct {
		defect   string
		keys     [2]string
		sessions int
		outcomes [2]string
		at       [2]time.Duration
		releases int
	}{
		{"", [2]string{"a", "a"}, 2, [2]string{"acquired 7", indeterminate}, [2]time.Duration{3 * time.Second, 1500 * time.Millisecond}, 0},
		{"fifo-key", [2]string{"a", "a"}, 1, [2]string{timeout, indeterminate}, [2]time.Duration{2 * time.Second, 3 * time.Second}, 1},
		{"fifo-key", [2]string{"a", "b"}, 1, [2]string{"acquired 7", timeout}, [2]time.Duration{3 * time.Second, 2 * time.Second}, 0},
		{"fifo-connection", [2]string{"a", "b"}, 1, [2]string{timeout, indeterminate}, [2]time.Duration{2 * time.Second, 3 * time.Second}, 1},
	} {
		stage(t, dialectV0, c.defect, func(p *peer, cl adapter.Client) {
			first := p.begin(cl, c.keys[0], 10*time.Second)
			second := p.begin(cl, c.keys[1], 1500*time.Millisecond)
			e1, e2 := <-first, <-second
			time.Sleep(time.Second)
			got, at := [2]string{sum(e1), sum(e2)}, [2]time.Duration{e1.at, e2.at}
			if got != c.outcomes || at != c.at || len(p.requests("R")) != c.releases {
				t.Errorf("%q %v: %v after %v, %d releases", c.defect, c.keys, got, at, len(p.requests("R")))
			}
			if n := p.requests("A"); n[len(n)-1].session != c.sessions {
				t.Errorf("%q %v: %d sessions", c.defect, c.keys, n[len(n)-1].session)
			}
		}, onAcquire(func(k *link, r request) {
			if r.uint("wait") == 10 {
				after(3*time.Second, func() { k.grant(r) })
				return
			}
			after(2*time.Second, func() { k.reply("T", r.key(), nil) })
		}))
	}
}

// Without an answer the session ends 3 s past the deadline, and a grant in that
// time is not entered.
func TestFIFOPatience(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, d := range []string{"fifo-key", "fifo-connection"} {
			play(t, dialect, d, 2*time.Second, 30*time.Second, onAcquire(func(*link, request) {}),
				func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
					if r.Outcome != indeterminate || took != 5*time.Second || p.endedAt(1).IsZero() {
						t.Errorf("%s %s: %+v after %v", dialect, d, r, took)
					}
				})
			play(t, dialect, d, 2*time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
				time.Sleep(2500 * time.Millisecond)
				k.grant(r)
			}), func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
				if n := len(p.requests("R")); r.Outcome != indeterminate || took != 2500*time.Millisecond || n != 1 {
					t.Errorf("%s %s: %+v after %v, %d releases", dialect, d, r, took, n)
				}
			})
		}
	}
}

// An answer for another owner of the key is taken by key-only and the fifo
// clients; one for another key only by fifo-connection.
func TestForeignAnswer(t *testing.T) {
	for _, op := range []string{"A", "T", "B"} {
		good := map[string]string{"A": "acquired", "T": timeout, "B": busy}[op]
		for _, c := range []struct {
			defect, key string
			taken       bool
		}{
			{"", testKey, false},
			{"key-only", testKey, true},
			{"key-only", "other", false},
			{"fifo-key", testKey, true},
			{"fifo-key", "other", false},
			{"fifo-connection", "other", true},
			{"op-blind", testKey, false},
		} {
			play(t, dialectCurrent, c.defect, 2*time.Second, 30*time.Second, foreign(op, c.key, 1),
				func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
					want := indeterminate
					if c.taken {
						want = good
					}
					if r.Outcome != want || p.endedAt(1).IsZero() != c.taken || r.HasToken && r.Token != 99 {
						t.Errorf("%q, %s on %s: %+v, session ended at %v", c.defect, op, c.key, r, p.endedAt(1))
					}
					time.Sleep(time.Second)
					if n := len(p.requests("R")); n > 0 != (op == "A" && !c.taken) {
						t.Errorf("%q, %s on %s: %d releases", c.defect, op, c.key, n)
					}
				})
		}
	}
}

// A release is answered by a T or a B whose owner is its token, or by an R for
// another token.
func TestForeignRelease(t *testing.T) {
	for _, c := range []struct {
		defect, op string
		off        uint64
		taken      bool
	}{
		{"", "T", 0, false},
		{"", "R", 1, false},
		{"op-blind", "T", 0, true},
		{"op-blind", "B", 0, true},
		{"op-blind", "T", 1, false},
		{"op-blind", "R", 1, false},
		{"key-only", "T", 0, false},
		{"key-only", "R", 1, false},
		{"fifo-key", "R", 1, true},
		{"fifo-connection", "R", 1, true},
	} {
		play(t, dialectCurrent, c.defect, time.Second, 30*time.Second, func(p *peer) {
			p.script = func(k *link, r request) {
				if r.op == "A" || k.n > 1 {
					k.serve(r)
					return
				}
				id := r.uint("token") + c.off
				k.reply(c.op, r.key(), map[string]uint64{"owner": id, "token": id})
			}
		}, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			rel := r.Ticket.Release(p.t.Context())
			last := p.requests("R")
			if rel.Outcome != released || p.endedAt(1).IsZero() != c.taken || last[len(last)-1].session == 1 != c.taken {
				t.Errorf("%q, %s off by %d: %+v on session %d", c.defect, c.op, c.off, rel, last[len(last)-1].session)
			}
		})
	}
}

// The owners of two calls on one session and of one on the next, for two clients.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		defect       string
		same, number bool
	}{{"", false, false}, {"owner-constant", true, false}, {"owner-restarts", false, true}} {
		var clients [2]uint64
		for i := range clients {
			stage(t, dialectCurrent, c.defect, func(p *peer, cl adapter.Client) {
				for _, key := range []string{"a", "last", "c"} {
					e := <-p.begin(cl, key, time.Second)
					if as := p.requests("A"); e.Owner != as[len(as)-1].uint("owner") {
						t.Errorf("%q: owner told is %d", c.defect, e.Owner)
					}
				}
				as := p.requests("A")
				o := [3]uint64{as[0].uint("owner"), as[1].uint("owner"), as[2].uint("owner")}
				clients[i] = o[0]
				if (o[0] == o[1]) != c.same || (o[0] == o[2]) != (c.same || c.number) || c.number && (o != [3]uint64{1, 2, 1}) {
					t.Errorf("%q: owners %v", c.defect, o)
				}
				if as[1].session != 1 || as[2].session != 2 {
					t.Errorf("%q: sessions %d and %d", c.defect, as[1].session, as[2].session)
				}
			}, onAcquire(func(k *link, r request) {
				if r.key() == "last" {
					k.end("FIN")
					return
				}
				k.grant(r)
			}))
		}
		if (clients[0] == clients[1]) != c.number {
			t.Errorf("%q: two clients have owners %v", c.defect, clients)
		}
	}
}
