package wrongclient

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
)

// sum tells outcome and token.
func sum(e ended) string {
	if e.HasToken {
		return fmt.Sprint(e.Outcome, " ", e.Token)
	}
	return e.Outcome
}

// gather keeps acquires until there are n, and grants them last first.
func gather(n int) func(*peer) {
	return func(p *peer) {
		var links []*link
		var held []request
		p.script = func(k *link, r request) {
			if r.op != "A" {
				k.serve(r)
				return
			}
			p.mu.Lock()
			links, held = append(links, k), append(held, r)
			full := len(held) == n
			p.mu.Unlock()
			for i := range links {
				if j := n - 1 - i; full {
					links[j].grant(held[j])
				}
			}
		}
	}
}

// Acquires share a session, and each gets the answer that is its own.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		dialect, defect string
		keys            []string
		sessions        int
		want            []string
	}{
		{dialectCurrent, "", []string{"a", "b", "c"}, 1, []string{"acquired 9", "acquired 8", "acquired 7"}},
		{dialectCurrent, "", []string{"a", "a", "a"}, 1, []string{"acquired 9", "acquired 8", "acquired 7"}},
		{dialectCurrent, "fifo-connection", []string{"a", "b", "c"}, 1, []string{"acquired 7", "acquired 8", "acquired 9"}},
		{dialectCurrent, "fifo-key", []string{"a", "b", "a"}, 1, []string{"acquired 7", "acquired 8", "acquired 9"}},
		{dialectCurrent, "key-only", []string{"a", "b", "a"}, 1, []string{"acquired 7", "acquired 8", "acquired 9"}},
		{dialectCurrent, "op-blind", []string{"a", "a", "a"}, 1, []string{"acquired 9", "acquired 8", "acquired 7"}},
		{dialectV0, "", []string{"a", "b", "c"}, 1, []string{"acquired 9", "acquired 8", "acquired 7"}},
		{dialectV0, "", []string{"a", "b", "a"}, 2, []string{"acquired 9", "acquired 8", "acquired 7"}},
		{dialectV0, "", []string{"a", "a", "a"}, 3, []string{"acquired 9", "acquired 8", "acquired 7"}},
		{dialectV0, "fifo-connection", []string{"a", "b", "a"}, 1, []string{"acquired 7", "acquired 8", "acquired 9"}},
		{dialectV0, "fifo-key", []string{"a", "a", "b"}, 1, []string{"acquired 8", "acquired 9", "acquired 7"}},
	} {
		stage(t, c.dialect, c.defect, func(p *peer, cl adapter.Client) {
			var calls []<-chan ended
			for _, key := range c.keys {
				calls = append(calls, p.begin(cl, key, 5*time.Second))
			}
			var got []string
			for i, call := range calls {
				e := <-call
				got = append(got, sum(e))
				if c.defect == "" && p.grants[e.Token] != c.keys[i] {
					t.Errorf("%s: call %d of %v got the grant of %q", c.dialect, i+1, c.keys, p.grants[e.Token])
				}
			}
			if !slices.Equal(got, c.want) || len(p.dials()) != c.sessions {
				t.Errorf("%s %q %v: %v on %d sessions", c.dialect, c.defect, c.keys, got, len(p.dials()))
			}
		}, gather(3))
	}
}

// A release goes out on a session that an acquire of its key waits on, and is
// answered before that.
func TestShareRelease(t *testing.T) {
	for _, dialect := range bothDialects {
		granted := false
		stage(t, dialect, "", func(p *peer, c adapter.Client) {
			first := <-p.begin(c, "a", 5*time.Second)
			second := p.begin(c, "a", 2*time.Second)
			if rel := first.Ticket.Release(p.t.Context()); rel.Outcome != released || len(p.dials()) != 1 {
				t.Errorf("%s: %+v on %d sessions", dialect, rel, len(p.dials()))
			}
			if e := <-second; e.Outcome != indeterminate || e.at != 2*time.Second {
				t.Errorf("%s: %+v", dialect, e)
			}
		}, onAcquire(func(k *link, r request) {
			if !granted {
				granted = true
				k.grant(r)
			}
		}))
	}
}

// At most 16 calls use a session, and at most 8 sessions are kept unused.
func TestShareLimits(t *testing.T) {
	for _, c := range []struct {
		dialect               string
		calls, dialled, after int
	}{
		{dialectCurrent, maxCalls, 1, 1},
		{dialectCurrent, maxCalls + 1, 2, 2},
		{dialectV0, maxIdle, maxIdle, maxIdle}, // one key: a session for each
		{dialectV0, maxIdle + 1, maxIdle + 1, maxIdle},
	} {
		stage(t, c.dialect, "", func(p *peer, cl adapter.Client) {
			var calls []<-chan ended
			for range c.calls {
				calls = append(calls, p.begin(cl, testKey, 5*time.Second))
			}
			n := len(p.dials())
			for _, call := range calls {
				if e := <-call; e.Outcome != acquired {
					t.Errorf("%s: %+v", c.dialect, e)
				}
			}
			open := 0
			for i := range n {
				if p.endedAt(i + 1).IsZero() {
					open++
				}
			}
			if n != c.dialled || open != c.after {
				t.Errorf("%s: %d calls dialled %d sessions, and kept %d", c.dialect, c.calls, n, open)
			}
		}, gather(c.calls))
	}
}

// The end of a session for one call ends the others on it indeterminate, and no
// other session.
func TestShareEnds(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, how := range []string{"deadline", "cancel", "FIN", "stray"} {
			stage(t, dialect, "", func(p *peer, c adapter.Client) {
				ctx, cancel := context.WithCancel(p.t.Context())
				defer cancel()
				if how == "cancel" {
					after(time.Second, cancel)
				}
				long := p.begin(c, "long", 10*time.Second)
				start := time.Now()
				r := c.Acquire(ctx, how, time.Second, 5*time.Second)
				e := <-long
				if r.Outcome != indeterminate || e.Outcome != indeterminate || e.at != time.Second || time.Since(start) != time.Second || p.endedAt(1).IsZero() {
					t.Errorf("%s %s: %+v, and the other %+v", dialect, how, r, e)
				}
				if r := c.Acquire(p.t.Context(), "next", 2*time.Second, 5*time.Second); r.Outcome != acquired || len(p.dials()) != 2 {
					t.Errorf("%s %s: next call %+v", dialect, how, r)
				}
			}, onAcquire(func(k *link, r request) {
				switch {
				case k.n > 1:
					k.grant(r)
				case r.key() == "FIN":
					time.Sleep(time.Second)
					k.end("FIN")
				case r.key() == "stray":
					time.Sleep(time.Second)
					k.reply("T", "nobody", owner(r))
				}
			}))
		}
	}
}

// Two calls share a connection that is being made. If the call that makes it
// gives up, the other makes one of its own.
func TestShareConnection(t *testing.T) {
	stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
		short := p.begin(c, "a", time.Second)
		long := p.begin(c, "b", 10*time.Second)
		if n := len(p.dials()); n != 1 {
			t.Errorf("%d connections for two calls", n)
		}
		if e := <-short; e.Outcome != unsent || e.at != time.Second {
			t.Errorf("the first: %+v", e)
		}
		e := <-long
		as := p.requests("A")
		if e.Outcome != acquired || e.at > 2*time.Second || len(as) != 1 || as[0].session != 2 || as[0].uint("wait") != 9 {
			t.Errorf("the second: %+v, %+v", e, as)
		}
	}, func(p *peer) {
		p.greet = func(k *link) {
			if k.n > 1 {
				_ = k.send("greeting", []byte(greetLine))
			}
		}
	})
}

// A release does not wait for a connection that an acquire is making.
func TestReleaseAlone(t *testing.T) {
	stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
		first := <-p.begin(c, testKey, time.Second)
		time.Sleep(time.Second) // over the back-off
		second := p.begin(c, "other", 10*time.Second)
		start := time.Now()
		rel := first.Ticket.Release(p.t.Context())
		if rs := p.requests("R"); rel.Outcome != released || time.Since(start) != 0 || rs[0].session != 3 {
			t.Errorf("%+v after %v, %+v", rel, time.Since(start), rs)
		}
		if e := <-second; e.Outcome != unsent {
			t.Errorf("the other: %+v", e)
		}
	}, func(p *peer) {
		p.greet = func(k *link) {
			if k.n != 2 {
				_ = k.send("greeting", []byte(greetLine))
			}
		}
		size := p.g.MustShape(frames.ServerToClient, "A").Size(len(testKey))
		p.cut = &cut{frames.ServerToClient, "A", size, "FIN"}
	})
}

// A call that waits for another's write computes its wait after that; a write
// that takes 2 s ends its session.
func TestTurn(t *testing.T) {
	for _, held := range []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond} {
		stuck := held > writeLimit
		var conn interface{ LimitReceive(n int) }
		stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
			<-p.begin(c, "warm", time.Second)
			conn.LimitReceive(5)
			after(held, func() { conn.LimitReceive(-1) })
			first, second := p.begin(c, "a", 5*time.Second), p.begin(c, "b", 5*time.Second)
			e1, e2 := <-first, <-second
			as := p.requests("A")
			last := as[len(as)-1]
			if stuck {
				if e1.Outcome != indeterminate || e1.at != writeLimit || e2.Outcome != acquired || last.session != 2 || last.uint("wait") != 3 {
					t.Errorf("held %v: %+v and %+v, %+v", held, e1, e2, as)
				}
				return
			}
			if e1.Outcome != acquired || e2.Outcome != acquired || last.session != 1 || last.key() != "b" || last.uint("wait") != 4 {
				t.Errorf("held %v: %+v and %+v, %+v", held, e1, e2, as)
			}
		}, onAcquire(func(k *link, r request) {
			if conn == nil {
				conn = k.conn
			}
			k.grant(r)
		}))
	}
}

// A cancel in the middle of a write ends the session.
func TestCancelInWrite(t *testing.T) {
	var conn interface{ LimitReceive(n int) }
	stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
		<-p.begin(c, "warm", time.Second)
		conn.LimitReceive(5)
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		r := c.Acquire(ctx, "a", 5*time.Second, 5*time.Second)
		if r.Outcome != indeterminate || time.Since(start) != time.Second || p.endedAt(1).Sub(start) != time.Second {
			t.Errorf("%+v after %v, session ended at %v", r, time.Since(start), p.endedAt(1))
		}
	}, onAcquire(func(k *link, r request) {
		conn = k.conn
		k.grant(r)
	}))
}

// A call that waits for its turn until its deadline is not sent.
func TestTurnDeadline(t *testing.T) {
	var conn interface{ LimitReceive(n int) }
	stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
		<-p.begin(c, "warm", time.Second)
		conn.LimitReceive(5)
		first, second := p.begin(c, "a", 5*time.Second), p.begin(c, "b", time.Second)
		e := <-second
		if e.Outcome != unsent || e.at != time.Second || !p.endedAt(1).IsZero() {
			t.Errorf("%+v, session ended at %v", e, p.endedAt(1))
		}
		conn.LimitReceive(-1)
		if e := <-first; e.Outcome != acquired || len(p.requests("A")) != 2 {
			t.Errorf("%+v", e)
		}
		synctest.Wait()
	}, onAcquire(func(k *link, r request) {
		if conn == nil {
			conn = k.conn
		}
		k.grant(r)
	}))
}
