package wrongclient

import (
	"testing"
	"time"

	"tornwire/adapter"
)

// What T and B are told as. They leave the session open, odd-closes-on-timeout
// excepted.
func TestFinalWords(t *testing.T) {
	for _, c := range []struct{ defect, dialect, op, outcome string }{
		{"", dialectCurrent, "T", timeout},
		{"", dialectCurrent, "B", busy},
		{"", dialectV0, "T", timeout},
		{"timeout-as-error", dialectCurrent, "T", failed},
		{"timeout-as-error", dialectCurrent, "B", busy},
		{"timeout-as-error", dialectV0, "T", failed},
		{"busy-as-timeout", dialectCurrent, "T", timeout},
		{"busy-as-timeout", dialectCurrent, "B", timeout},
		{"busy-retried", dialectCurrent, "T", timeout},
		{"odd-closes-on-timeout", dialectCurrent, "T", timeout},
		{"odd-closes-on-timeout", dialectCurrent, "B", busy},
		{"odd-closes-on-timeout", dialectV0, "T", timeout},
	} {
		play(t, c.dialect, c.defect, 2*time.Second, 5*time.Second,
			onAcquire(func(k *link, r request) { k.reply(c.op, r.key(), owner(r)) }),
			func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
				if r.Outcome != c.outcome || took != 0 || len(p.requests("A")) != 1 || r.Ticket != nil {
					t.Errorf("%q %s: %+v after %v", c.defect, c.op, r, took)
				}
				if closed := !p.endedAt(1).IsZero(); closed != (c.defect == "odd-closes-on-timeout") {
					t.Errorf("%q %s: session closed %v", c.defect, c.op, closed)
				}
			})
	}
}

// B is answered n times, then the call is granted.
func TestBusyRetried(t *testing.T) {
	for _, c := range []struct {
		defect   string
		wait     time.Duration
		n        int
		attempts int
		outcome  string
		took     time.Duration
	}{
		{"", time.Second, 2, 1, busy, 0},
		{"busy-retried", time.Second, 2, 3, acquired, 2 * busyPause},
		{"busy-retried", time.Second, 99, 20, busy, time.Second - busyPause},
		{"busy-retried", busyPause, 2, 1, busy, 0},
		{"busy-retried", 0, 2, 3, acquired, 2 * busyPause},
		{"busy-as-timeout", time.Second, 2, 1, timeout, 0},
	} {
		seen := 0
		play(t, dialectCurrent, c.defect, c.wait, 5*time.Second, onAcquire(func(k *link, r request) {
			if seen++; seen > c.n {
				k.grant(r)
				return
			}
			k.reply("B", r.key(), owner(r))
		}), func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			as := p.requests("A")
			owners := map[uint64]bool{}
			for _, a := range as {
				owners[a.uint("owner")] = true
			}
			if r.Outcome != c.outcome || took != c.took || len(as) != c.attempts || len(owners) != c.attempts || r.Owner != as[len(as)-1].uint("owner") {
				t.Errorf("%+v: %+v after %v, %d attempts, %d owners", c, r, took, len(as), len(owners))
			}
		})
	}
}

// An attempt after B that gets no answer is indeterminate, not busy; one that
// cannot be sent is busy.
func TestBusyRetriedEnds(t *testing.T) {
	for _, sent := range []bool{true, false} {
		want := map[bool]string{true: indeterminate, false: busy}[sent]
		play(t, dialectCurrent, "busy-retried", time.Second, 5*time.Second, func(p *peer) {
			p.greet = func(k *link) {
				if k.n == 1 {
					_ = k.send("greeting", []byte(greetLine))
				}
			}
			onAcquire(func(k *link, r request) {
				if len(p.requestsNow("A")) > 1 {
					return
				}
				k.reply("B", r.key(), owner(r))
				if !sent {
					k.end("FIN")
				}
			})(p)
		}, func(_ *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			if r.Outcome != want || took != time.Second {
				t.Errorf("sent %v: %+v after %v", sent, r, took)
			}
		})
	}
}

// The second release by key of a pair frees what another got with the first.
func TestReleaseTwice(t *testing.T) {
	for _, c := range []struct {
		defect, dialect string
		n               int
	}{{"", dialectV0, 1}, {"release-twice", dialectV0, 2}, {"release-twice", dialectCurrent, 1}} {
		play(t, c.dialect, c.defect, time.Second, 30*time.Second, nil, func(p *peer, cl adapter.Client, r adapter.Result, _ time.Duration) {
			start := time.Now()
			rel := r.Ticket.Release(p.t.Context())
			rs := p.requests("R")
			if rel.Outcome != released || len(rs) != c.n || !p.endedAt(1).IsZero() {
				t.Fatalf("%q %s: %+v, %+v", c.defect, c.dialect, rel, rs)
			}
			for _, q := range rs {
				if q.session != 1 || !q.at.Equal(start) {
					t.Errorf("%q: released on session %d at %v", c.defect, q.session, q.at.Sub(start))
				}
			}
			// The next round is not disturbed by the second answer.
			e := <-p.begin(cl, testKey, time.Second)
			if rel := e.Ticket.Release(p.t.Context()); rel.Outcome != released || len(p.requests("R")) != 2*c.n || len(p.dials()) != 1 {
				t.Errorf("%q: next round %+v, %d releases", c.defect, rel, len(p.requests("R")))
			}
		})
	}
}
