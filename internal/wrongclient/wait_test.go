package wrongclient

import (
	"context"
	"testing"
	"time"

	"tornwire/adapter"
)

// heldFor holds every preface back.
func heldFor(d time.Duration) func(*peer) {
	return func(p *peer) {
		p.greet = func(k *link) {
			time.Sleep(d)
			_ = k.send("greeting", []byte(greetLine))
		}
	}
}

// The wire wait after a held preface, -1 for none sent.
func TestWireWait(t *testing.T) {
	const half = 500 * time.Millisecond
	for _, c := range []struct {
		wait, held time.Duration
		right      int
		wrong      map[string]int // where it differs
	}{
		{10 * time.Second, 0, 10, nil},
		{10 * time.Second, half, 10, map[string]int{"wait-rounded-down": 9}},
		{10 * time.Second, time.Second, 9, map[string]int{"wait-stale": 10}},
		{10 * time.Second, 3500 * time.Millisecond, 7, map[string]int{"wait-stale": 10, "wait-255": 255, "wait-rounded-down": 6}},
		{1500 * time.Millisecond, 0, 2, map[string]int{"wait-rounded-down": 1}},
		{time.Second, half, 1, nil},
		{999 * time.Second, half, 255, map[string]int{"wait-rounded-down": 254}},
		{time.Second, 1200 * time.Millisecond, -1, map[string]int{"send-expired": 1}},
		{time.Second, 2500 * time.Millisecond, -1, map[string]int{"send-expired": 1}},
		{time.Second, 5500 * time.Millisecond, -1, nil},
		{0, 0, 0, map[string]int{"zero-as-one": 1}},
		{0, 3500 * time.Millisecond, 0, map[string]int{"zero-as-one": 1}},
		{0, 7 * time.Second, -1, map[string]int{"zero-forever": 0, "send-expired": 0}},
		{0, 9500 * time.Millisecond, -1, map[string]int{"zero-forever": 0}},
	} {
		for _, d := range []string{"", "wait-stale", "wait-255", "wait-rounded-down", "send-expired", "zero-as-one", "zero-forever", "deadline-restarts"} {
			play(t, dialectCurrent, d, c.wait, 30*time.Second, heldFor(c.held), func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
				time.Sleep(c.held)
				want, ok := c.wrong[d]
				if !ok {
					want = c.right
				}
				got := -1
				if as := p.requests("A"); len(as) > 0 {
					got = int(as[0].uint("wait"))
				}
				limit := min(c.wait, maxWait)
				if c.wait == 0 {
					limit = zeroLimit
				}
				outcome := acquired
				switch {
				case want < 0:
					outcome = unsent
				case c.held >= limit && d == "send-expired":
					outcome = indeterminate // granted, and too late
				}
				if got != want || r.Outcome != outcome {
					t.Errorf("wait %v held %v %q: wire wait %d, not %d; %+v after %v", c.wait, c.held, d, got, want, r, took)
				}
			})
		}
	}
}

// The same in v0.
func TestWireWaitV0(t *testing.T) {
	for d, want := range map[string]uint64{"": 7, "wait-255": 255, "wait-stale": 10, "wait-rounded-down": 6} {
		play(t, dialectV0, d, 10*time.Second, 30*time.Second, heldFor(3500*time.Millisecond), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			if as := p.requests("A"); len(as) != 1 || as[0].uint("wait") != want || r.Outcome != acquired {
				t.Errorf("%q: %+v, %+v", d, r, as)
			}
		})
	}
}

// The wire wait is one thing and when the call ends without an answer another.
func TestWaitEnds(t *testing.T) {
	for d, want := range map[string]time.Duration{
		"": zeroLimit, "zero-as-one": zeroLimit, "wait-255": zeroLimit, "zero-forever": time.Minute,
	} {
		stage(t, dialectCurrent, d, func(p *peer, c adapter.Client) {
			ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			r := c.Acquire(ctx, testKey, 0, 5*time.Second)
			if took := time.Since(start); took != want || r.Outcome != indeterminate {
				t.Errorf("%q: %+v after %v", d, r, took)
			}
		}, onAcquire(func(*link, request) {}))
	}
	for _, d := range []string{"wait-stale", "wait-255", "wait-rounded-down", "deadline-restarts"} {
		play(t, dialectCurrent, d, 10*time.Second, 5*time.Second, func(p *peer) {
			heldFor(3500 * time.Millisecond)(p)
			onAcquire(func(*link, request) {})(p)
		}, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			if took != 10*time.Second || r.Outcome != indeterminate || p.endedAt(1).IsZero() {
				t.Errorf("%q: %+v after %v", d, r, took)
			}
		})
	}
}

// An immediate attempt that nobody lets in ends after 5 s, or not at all.
func TestZeroForeverDials(t *testing.T) {
	for d, want := range map[string]time.Duration{"": zeroLimit, "zero-forever": time.Minute} {
		stage(t, dialectCurrent, d, func(p *peer, c adapter.Client) {
			ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			r := c.Acquire(ctx, testKey, 0, 5*time.Second)
			if took := time.Since(start); took != want || r.Outcome != unsent {
				t.Errorf("%q: %+v after %v", d, r, took)
			}
		}, func(p *peer) { p.greet = func(k *link) { _ = k.conn.Close() } })
	}
}

// A first connection fails after 3.5 s: the second one's request asks for what is
// left, and the deadline stays.
func TestDeadlineRestarts(t *testing.T) {
	for d, c := range map[string]struct {
		wire uint64
		took time.Duration
	}{"": {7, 10 * time.Second}, "deadline-restarts": {10, 13500 * time.Millisecond}} {
		play(t, dialectCurrent, d, 10*time.Second, 30*time.Second, func(p *peer) {
			p.greet = func(k *link) {
				if k.n == 1 {
					time.Sleep(3500 * time.Millisecond)
					_ = k.conn.Close()
					return
				}
				_ = k.send("greeting", []byte(greetLine))
			}
			onAcquire(func(*link, request) {})(p)
		}, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			as := p.requests("A")
			if len(as) != 1 || as[0].uint("wait") != c.wire || took != c.took || r.Outcome != indeterminate {
				t.Errorf("%q: %+v after %v, %+v", d, r, took, as)
			}
		})
	}
}

// A grant that comes after the deadline, but within 4 s of it.
func TestLateNotReleased(t *testing.T) {
	for _, d := range []string{"", "late-not-released"} {
		for _, silent := range []bool{false, true} {
			play(t, dialectCurrent, d, 2*time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
				switch {
				case r.key() != testKey:
					k.grant(r)
				case !silent:
					after(3500*time.Millisecond, func() { k.grant(r) })
				}
			}), func(p *peer, c adapter.Client, r adapter.Result, took time.Duration) {
				if r.Outcome != indeterminate || took != 2*time.Second || p.endedAt(1).IsZero() != (d != "") {
					t.Errorf("%q: %+v after %v, session ended at %v", d, r, took, p.endedAt(1))
				}
				start := time.Now()
				time.Sleep(2 * time.Second)
				next := <-p.begin(c, "next", time.Second)
				if next.Outcome != acquired || (len(p.dials()) == 1) != (d != "") {
					t.Errorf("%q: next call %+v on %d sessions", d, next, len(p.dials()))
				}
				time.Sleep(3 * time.Second)
				closes := d != "" && silent
				if e := p.endedAt(1).Sub(start); len(p.requests("R")) != 0 || closes && e != 4*time.Second || d != "" && !silent && !p.endedAt(1).IsZero() {
					t.Errorf("%q silent %v: %d releases, session ended after %v", d, silent, len(p.requests("R")), e)
				}
			})
		}
		// The grant came in time, and the client was paused.
		stage(t, dialectCurrent, d, func(p *peer, a adapter.Client) {
			c := a.(*client)
			x := newExchange(acquireAnswers, 5, testKey)
			s, _ := c.claim(x, nil, nil)
			s.connect(p.t.Context())
			k := &call{key: testKey, lease: 10 * time.Second, owner: 5, deadline: time.Now(), stamp: time.Now()}
			r, _ := c.answer(p.t.Context(), s, k, answer{op: 'A', token: 77})
			c.leave(s, x)
			if n := len(p.requests("R")); r.Outcome != indeterminate || n == 0 != (d != "") {
				t.Errorf("%q: %+v with %d releases", d, r, n)
			}
			// One that a cancel came across is released by both.
			ctx, cancel := context.WithCancel(p.t.Context())
			cancel()
			before := len(p.requests("R"))
			k.deadline = time.Now().Add(time.Second)
			r, _ = c.answer(ctx, s, k, answer{op: 'A', token: 78})
			if n := len(p.requests("R")) - before; r.Outcome != indeterminate || n != 1 {
				t.Errorf("%q: cancelled: %+v with %d releases", d, r, n)
			}
		}, nil)
	}
}

// What late-not-released keeps open ends with its client at once, and is only what
// a deadline of an acquire left behind.
func TestLateNotReleasedKeeps(t *testing.T) {
	const d = "late-not-released"
	silent := onAcquire(func(*link, request) {})
	play(t, dialectCurrent, d, time.Second, 5*time.Second, silent, func(p *peer, c adapter.Client, _ adapter.Result, _ time.Duration) {
		start := time.Now()
		_ = c.Close()
		if took := time.Since(start); took != 0 || p.endedAt(1).IsZero() {
			t.Errorf("closed after %v", took)
		}
	})
	stage(t, dialectCurrent, d, func(p *peer, c adapter.Client) {
		ctx, cancel := context.WithCancel(p.t.Context())
		after(time.Second, cancel)
		if r := c.Acquire(ctx, testKey, 5*time.Second, 5*time.Second); r.Outcome != indeterminate || p.endedAt(1).IsZero() {
			t.Errorf("cancelled: %+v, session ended at %v", r, p.endedAt(1))
		}
	}, silent)
	play(t, dialectCurrent, d, time.Second, 30*time.Second, func(p *peer) {
		p.script = func(k *link, r request) {
			if r.op == "A" {
				k.grant(r)
			}
		}
	}, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
		if rel := r.Ticket.Release(p.t.Context()); rel.Outcome != indeterminate || p.endedAt(1).IsZero() {
			t.Errorf("released: %+v, session ended at %v", rel, p.endedAt(1))
		}
	})
}

// An acquire that was sent past its deadline still gets its answer, which cannot
// be entered on.
func TestSendExpired(t *testing.T) {
	for _, op := range []string{"T", "A"} {
		want := map[string]string{"T": timeout, "A": indeterminate}[op]
		play(t, dialectCurrent, "send-expired", time.Second, 30*time.Second, func(p *peer) {
			heldFor(1200 * time.Millisecond)(p)
			onAcquire(func(k *link, r request) {
				f := owner(r)
				f["token"] = 77
				after(time.Second, func() { k.reply(op, r.key(), f) })
			})(p)
		}, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			if n := len(p.requests("R")); r.Outcome != want || took != 2200*time.Millisecond || n == 1 != (op == "A") {
				t.Errorf("%s: %+v after %v, %d releases", op, r, took, n)
			}
		})
	}
}
