package wrongclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
	"tornwire/internal/memnet"
)

func TestHint(t *testing.T) {
	for _, c := range []struct {
		notices []string // frames before the session ends
		next    string   // address dialled then
	}{
		{nil, "10.0.0.1:7000"},
		{[]string{"M10.0.0.2:7000"}, "10.0.0.2:7000"},
		{[]string{"L10.0.0.2:7000"}, "10.0.0.2:7000"},
		{[]string{"M10.9.9.9:7000"}, "10.0.0.1:7000"},
		{[]string{"L10.9.9.9:7000"}, "10.0.0.1:7000"},
		{[]string{"L", "M"}, "10.0.0.1:7000"},
		{[]string{"L10.0.0.2:7000", "Eno_leader"}, "10.0.0.1:7000"},
		{[]string{"L10.0.0.2:7000", "Enot_active"}, "10.0.0.2:7000"},
	} {
		stage(t, dialectCurrent, "", func(p *peer, c0 adapter.Client) {
			if r := c0.Acquire(p.t.Context(), testKey, time.Second, 5*time.Second); r.Outcome != indeterminate {
				t.Errorf("%v: %+v", c.notices, r)
			}
			time.Sleep(time.Second) // over every back-off
			if r := c0.Acquire(p.t.Context(), "other", time.Second, 5*time.Second); r.Outcome != acquired {
				t.Errorf("%v: afterwards %+v", c.notices, r)
			}
			if d := p.dials(); len(d) != 2 || d[1] != c.next {
				t.Errorf("%v: dialled %v", c.notices, d)
			}
		}, onAcquire(func(k *link, r request) {
			if k.n > 1 {
				k.serve(r)
				return
			}
			for _, n := range c.notices {
				_ = k.send("raw", []byte(n+"\n"))
			}
			k.end("FIN")
		}))
	}
	play(t, dialectCurrent, "", time.Second, 5*time.Second, onAcquire(func(k *link, r request) {
		_ = k.send("raw", []byte("L10.0.0.2:7000\n\n")) // and a keep-alive
		k.serve(r)
	}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
		if r.Outcome != acquired || !p.endedAt(1).IsZero() {
			t.Errorf("with L: %+v, session ended at %v", r, p.endedAt(1))
		}
	})
}

// A grant that nobody waits for is released on another session; one that a call
// of this client has is not.
func TestUnmatchedGrant(t *testing.T) {
	for _, duplicate := range []bool{false, true} {
		play(t, dialectCurrent, "", 2*time.Second, 5*time.Second,
			onAcquire(func(k *link, r request) {
				k.grant(r)
				f := owner(r)
				f["token"] = 99
				if duplicate {
					f["token"] = 7
				}
				k.reply("A", r.key(), f)
			}),
			func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
				time.Sleep(time.Second)
				rs := p.requests("R")
				switch {
				case r.Outcome != acquired || p.endedAt(1).IsZero():
					t.Errorf("duplicate %v: %+v, session ended at %v", duplicate, r, p.endedAt(1))
				case duplicate && len(rs) != 0:
					t.Error("gave away the token that the application holds")
				case !duplicate && (len(rs) != 1 || rs[0].session == 1 || rs[0].uint("token") != 99):
					t.Errorf("releases: %+v", rs)
				}
			})
	}
}

func TestCancelAndClose(t *testing.T) {
	for _, closing := range []bool{false, true} {
		stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
			ctx, cancel := context.WithCancel(p.t.Context())
			defer cancel()
			after(time.Second, func() {
				if closing {
					_ = c.Close()
				} else {
					cancel()
				}
			})
			start := time.Now()
			r := c.Acquire(ctx, testKey, 10*time.Second, 5*time.Second)
			if r.Outcome != indeterminate || time.Since(start) != time.Second || p.endedAt(1).IsZero() {
				t.Errorf("closing %v: %+v after %v", closing, r, time.Since(start))
			}
			if r := c.Acquire(ctx, testKey, time.Second, 5*time.Second); r.Outcome != unsent {
				t.Errorf("closing %v: next call %+v", closing, r)
			}
			if !closing {
				return
			}
			// Close returns when the last goroutine has ended, not before.
			running := &c.(*client).running
			running.Add(1)
			after(time.Second, running.Done)
			start = time.Now()
			_ = c.Close()
			if took := time.Since(start); took != time.Second {
				t.Errorf("closed after %v", took)
			}
		}, onAcquire(func(*link, request) {}))
	}
}

// Many connections that end at once are paced.
func TestBackOff(t *testing.T) {
	play(t, dialectCurrent, "", 3*time.Second, 5*time.Second, func(p *peer) {
		p.greet = func(k *link) { _ = k.conn.Close() }
	}, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
		n := len(p.dials())
		if r.Outcome != unsent || took != 3*time.Second || n > 30 || n < 6 {
			t.Errorf("%+v after %v with %d connections", r, took, n)
		}
	})

	// An answer ends the back-off.
	stage(t, dialectCurrent, "", func(p *peer, c adapter.Client) {
		r := c.Acquire(p.t.Context(), testKey, 10*time.Second, 5*time.Second)
		if n := len(p.dials()); r.Outcome != acquired || n != 11 {
			t.Errorf("%+v with %d connections", r, n)
		}
		start := time.Now()
		r = c.Acquire(p.t.Context(), "last", 10*time.Second, 5*time.Second) // ends session 11
		r2 := c.Acquire(p.t.Context(), "next", 10*time.Second, 5*time.Second)
		if took := time.Since(start); r.Outcome != indeterminate || r2.Outcome != acquired || took > firstPause {
			t.Errorf("%+v and %+v after %v", r, r2, took)
		}
	}, func(p *peer) {
		p.greet = func(k *link) {
			if k.n <= 10 || k.addr == "10.0.0.2:7000" {
				_ = k.conn.Close()
				return
			}
			_ = k.send("greeting", []byte(greetLine))
		}
		p.script = func(k *link, r request) {
			if r.key() == "last" {
				k.end("FIN")
				return
			}
			k.serve(r)
		}
	})
}

// A release takes the session of its grant.
func TestReleaseSession(t *testing.T) {
	for _, dialect := range bothDialects {
		stage(t, dialect, "", func(p *peer, c adapter.Client) {
			var calls []<-chan ended
			for i := range maxCalls + 1 {
				calls = append(calls, p.begin(c, fmt.Sprint("key", i), 5*time.Second))
			}
			for _, call := range calls {
				e := <-call
				if rel := e.Ticket.Release(p.t.Context()); rel.Outcome != released {
					t.Errorf("%s: %+v", dialect, rel)
				}
			}
			if n := len(p.dials()); n != 2 {
				t.Errorf("%s: %d sessions", dialect, n)
			}
			for _, r := range p.requests("R") {
				for _, a := range p.requests("A") {
					if a.key() == r.key() && a.session != r.session {
						t.Errorf("%s: %s was granted on session %d, released on %d", dialect, r.key(), a.session, r.session)
					}
				}
			}
		}, onAcquire(func(k *link, r request) { after(time.Second, func() { k.grant(r) }) }))
	}
}

// The lease ends while a release by key waits for a session.
func TestReleaseLateSession(t *testing.T) {
	play(t, dialectV0, "", time.Second, 3*time.Second, func(p *peer) {
		p.greet = func(k *link) {
			if k.n > 1 {
				time.Sleep(4 * time.Second)
			}
			_ = k.send("greeting", []byte(greetLine))
		}
		size := p.g.MustShape(frames.ServerToClient, "A").Size(len(testKey))
		p.cut = &cut{frames.ServerToClient, "A", size, "FIN"}
	}, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
		time.Sleep(time.Second)
		rel := r.Ticket.Release(p.t.Context())
		if n := len(p.requests("R")); rel.Outcome != indeterminate || n != 0 || p.sessions != 2 {
			t.Errorf("%+v with %d releases on %d sessions", rel, n, p.sessions)
		}
	})
}

// In v0 only the token tells a duplicate from a new grant.
func TestDuplicateV0(t *testing.T) {
	stage(t, dialectV0, "", func(p *peer, c adapter.Client) {
		for i, want := range []string{acquired, indeterminate} {
			if r := c.Acquire(p.t.Context(), testKey, time.Second, 5*time.Second); r.Outcome != want {
				t.Errorf("call %d: %+v", i+1, r)
			}
		}
		if p.endedAt(1).IsZero() || len(p.requests("R")) != 0 {
			t.Error("session open, or the key released")
		}
	}, onAcquire(func(k *link, r request) { k.reply("A", r.key(), map[string]uint64{"token": 7}) }))
}

// A release in the background goes on until it is answered, but not for ever.
func TestOrphanLane(t *testing.T) {
	for _, answers := range []bool{true, false} {
		play(t, dialectCurrent, "", time.Second, 5*time.Second, func(p *peer) {
			p.script = func(k *link, r request) {
				switch {
				case r.op == "A":
					f := owner(r)
					f["owner"]++
					f["token"] = 99
					k.reply("A", r.key(), f)
				case answers && k.n > 3:
					k.serve(r)
				}
			}
		}, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			time.Sleep(time.Minute)
			n := len(p.requests("R"))
			time.Sleep(10 * time.Minute)
			rs := p.requests("R")
			if r.Outcome != indeterminate || rs[0].uint("token") != 99 || answers && (n != 3 || len(rs) != 3) || !answers && (len(rs) < 40 || len(rs) > 52) {
				t.Errorf("answers %v: %+v, %d releases, then %d", answers, r, n, len(rs))
			}
		})
	}
}

// The release of a stray grant does not take the session that it came on, although
// that is still open when the release begins.
func TestOrphanSession(t *testing.T) {
	stage(t, dialectCurrent, "", func(p *peer, a adapter.Client) {
		c := a.(*client)
		x := newExchange(acquireAnswers, 5, testKey)
		s, _ := c.claim(x, nil, nil)
		s.connect(p.t.Context())
		shape := p.g.MustShape(frames.ServerToClient, "A")
		raw, err := encode(shape, testKey, map[string]uint64{"owner": 9, "token": 99})
		if err != nil {
			t.Fatal(err)
		}
		c.orphan(s, frame{shape: shape, raw: raw})
		if rs := p.requests("R"); len(rs) != 1 || rs[0].session != 2 || rs[0].uint("token") != 99 {
			t.Errorf("releases: %+v", rs)
		}
	}, nil)
}

// Failed dials are paced, too; a connection that comes after the client was closed
// is closed.
func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, comes := range []bool{false, true} {
			mine, peers := memnet.Pipe(memnet.Options{})
			dials := 0
			lib, err := WithDial("", func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials++
				if !comes {
					return nil, syscall.ECONNREFUSED
				}
				<-ctx.Done()
				return mine, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			c, err := lib.Open(dialectCurrent, []string{"10.0.0.1:7000"}, "")
			if err != nil {
				t.Fatal(err)
			}
			after(time.Second, func() { _ = c.Close() })
			start := time.Now()
			r := c.Acquire(t.Context(), testKey, 3*time.Second, 5*time.Second)
			if r.Outcome != unsent || time.Since(start) != time.Second {
				t.Errorf("%+v after %v", r, time.Since(start))
			}
			if !comes && (dials < 3 || dials > 10) {
				t.Errorf("%d dials in 1 s", dials)
			}
			if comes {
				if _, err := peers.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("connection after the close: %v", err)
				}
			}
			_ = mine.Close()
			_ = peers.Close()
		}
	})
}
