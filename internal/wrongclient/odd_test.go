package wrongclient

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
)

// Every oddity is taken by name, and is right when nothing goes wrong.
func TestOddWithoutFault(t *testing.T) {
	for i, d := range Odd() {
		lib, err := Library(d)
		if err != nil || lib.Info().Client != d || slices.Index(Odd(), d) != i {
			t.Errorf("%s: %v", d, err)
		}
		for _, dialect := range bothDialects {
			play(t, dialect, d, time.Second, 5*time.Second, nil, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
				rel := r.Ticket.Release(p.t.Context())
				if r.Outcome != acquired || r.Token != 7 || took != 2*defect(d).readsAfter()+defect(d).tellsAfter() || rel.Outcome != released || len(p.requests("A")) != 1 {
					t.Errorf("%s %s: %+v, then %+v", dialect, d, r, rel)
				}
			})
		}
	}
}

// Every oddity obeys the contract wherever its exchange is torn: no entry without
// a whole grant, one attempt, no release of another token.
func TestOddTorn(t *testing.T) {
	for _, d := range Odd() {
		for _, dialect := range bothDialects {
			g := frames.MustBuiltin(dialect)
			for _, dir := range []frames.Direction{frames.ClientToServer, frames.ServerToClient} {
				size := g.MustShape(dir, "A").Size(len(testKey))
				for _, at := range []int{0, 1, size - 1, size} {
					for _, how := range allEnds {
						oddTorn(t, dialect, d, cut{dir, "A", at, how}, dir == frames.ServerToClient && at == size)
					}
				}
			}
		}
	}
}

func oddTorn(t *testing.T, dialect, d string, at cut, granted bool) {
	play(t, dialect, d, 2*time.Second, 30*time.Second, func(p *peer) { p.cut = &at }, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
		want := defect(d).word(indeterminate)
		if granted {
			want = acquired
		}
		if r.Outcome != want || took > 3*time.Second || len(p.requests("A")) > 1 || r.HasToken && r.Token != 7 {
			t.Errorf("%s %s %+v: %+v after %v", dialect, d, at, r, took)
		}
		if r.Ticket == nil {
			return
		}
		rel := r.Ticket.Release(p.t.Context())
		for _, q := range p.requests("R") {
			if rel.Outcome == notHeld || q.whole && q.uint("token") != 7 && dialect == dialectCurrent {
				t.Errorf("%s %s %+v: release %+v of %d", dialect, d, at, rel, q.uint("token"))
			}
		}
	})
}

// Within 1 s of the deadline T and B count, and a grant is released.
func TestOddGrace(t *testing.T) {
	for _, c := range []struct {
		defect, op string
		at         time.Duration // of the answer, after the deadline
		outcome    string
		took       time.Duration
		releases   int
	}{
		{"", "T", 500 * time.Millisecond, indeterminate, 2 * time.Second, 0},
		{"", "A", 500 * time.Millisecond, indeterminate, 2 * time.Second, 0},
		{"odd-grace", "T", 500 * time.Millisecond, timeout, 2500 * time.Millisecond, 0},
		{"odd-grace", "B", 500 * time.Millisecond, busy, 2500 * time.Millisecond, 0},
		{"odd-grace", "A", 500 * time.Millisecond, indeterminate, 2500 * time.Millisecond, 1},
		{"odd-grace", "A", -500 * time.Millisecond, acquired, 1500 * time.Millisecond, 0},
		{"odd-grace", "T", 1500 * time.Millisecond, indeterminate, 3 * time.Second, 0},
	} {
		play(t, dialectCurrent, c.defect, 2*time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
			f := owner(r)
			f["token"] = 77
			after(2*time.Second+c.at, func() { k.reply(c.op, r.key(), f) })
		}), func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			rs := p.requests("R")
			if r.Outcome != c.outcome || took != c.took || len(rs) != c.releases || len(rs) > 0 && rs[0].uint("token") != 77 {
				t.Errorf("%+v: %+v after %v, releases %+v", c, r, took, rs)
			}
			if unanswered := c.took == 2*time.Second || c.took == 3*time.Second; p.endedAt(1).IsZero() == unanswered {
				t.Errorf("%+v: session ended at %v", c, p.endedAt(1))
			}
		})
	}
}

// How a session ends that has a call's deadline behind it.
func TestOddRST(t *testing.T) {
	for _, d := range []string{"", "odd-rst"} {
		play(t, dialectCurrent, d, time.Second, 5*time.Second, onAcquire(func(*link, request) {}),
			func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
				err := p.endedBy(1)
				if reset := errors.Is(err, syscall.ECONNRESET); reset != (d != "") || !reset && !errors.Is(err, io.EOF) {
					t.Errorf("%q: session ended with %v", d, err)
				}
				if r.Outcome != indeterminate || took != time.Second {
					t.Errorf("%q: %+v after %v", d, r, took)
				}
			})
	}
}

// A release is repeated after its answer, and not without one.
func TestOddRepeatRelease(t *testing.T) {
	play(t, dialectCurrent, "odd-repeat-release", time.Second, 30*time.Second, func(p *peer) {
		p.script = func(k *link, r request) {
			if r.op == "A" {
				k.grant(r)
			}
		}
	}, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
		start := time.Now()
		rel := r.Ticket.Release(p.t.Context())
		if n := len(p.requests("R")); rel.Outcome != indeterminate || time.Since(start) != releaseLimit || n != 1 {
			t.Errorf("silence: %+v after %v, %d releases", rel, time.Since(start), n)
		}
	})
	for _, c := range []struct {
		defect, dialect string
		n               int
	}{{"", dialectCurrent, 1}, {"odd-repeat-release", dialectCurrent, 2}, {"odd-repeat-release", dialectV0, 1}} {
		play(t, c.dialect, c.defect, time.Second, 5*time.Second, nil, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			rel := r.Ticket.Release(p.t.Context())
			rs := p.requests("R")
			if rel.Outcome != released || len(rs) != c.n || !p.endedAt(1).IsZero() {
				t.Errorf("%q %s: %+v, %+v", c.defect, c.dialect, rel, rs)
			}
			if c.n == 2 && rs[0].uint("token") != rs[1].uint("token") {
				t.Errorf("%q: released %+v", c.defect, rs)
			}
		})
	}
}

func TestOddSessionPerCall(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, c := range []struct {
			defect   string
			sessions int
		}{{"", 1}, {"odd-session-per-call", 4}} {
			stage(t, dialect, c.defect, func(p *peer, cl adapter.Client) {
				first, second := p.begin(cl, "a", 5*time.Second), p.begin(cl, "b", 5*time.Second)
				e1, e2 := <-first, <-second
				for _, e := range []ended{e1, e2} {
					if rel := e.Ticket.Release(p.t.Context()); e.Outcome != acquired || rel.Outcome != released {
						t.Errorf("%s %q: %+v, then %+v", dialect, c.defect, e, rel)
					}
				}
				if n := len(p.dials()); n != c.sessions {
					t.Errorf("%s %q: %d sessions", dialect, c.defect, n)
				}
				for i := range c.sessions {
					if p.endedAt(i+1).IsZero() != (c.defect == "") {
						t.Errorf("%s %q: session %d ended at %v", dialect, c.defect, i+1, p.endedAt(i+1))
					}
				}
			}, func(p *peer) {
				p.script = func(k *link, r request) { after(time.Second, func() { k.serve(r) }) }
			})
		}
	}
}

// Only a call that was never sent is told as timeout, and only at its deadline.
func TestOddTimeoutWhenUnsent(t *testing.T) {
	for d, want := range map[string]string{"": unsent, "odd-timeout-when-unsent": timeout} {
		play(t, dialectCurrent, d, time.Second, 5*time.Second, heldFor(3*time.Second), func(p *peer, c adapter.Client, r adapter.Result, took time.Duration) {
			if r.Outcome != want || took != time.Second || len(p.requests("A")) != 0 {
				t.Errorf("%q: %+v after %v", d, r, took)
			}
			second := p.begin(c, "b", 10*time.Second)
			_ = c.Close()
			if e := <-second; e.Outcome != unsent {
				t.Errorf("%q: closed %+v", d, e)
			}
		})
		play(t, dialectCurrent, d, time.Second, 5*time.Second, onAcquire(func(*link, request) {}), func(_ *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			if r.Outcome != indeterminate {
				t.Errorf("%q: sent, and told %+v", d, r)
			}
		})
	}
}

// M and L still do the rest of what they do: M ends its session, L does not.
func TestOddIgnoresHints(t *testing.T) {
	for d, next := range map[string]string{"": "10.0.0.2:7000", "odd-ignores-hints": "10.0.0.1:7000"} {
		for _, notice := range []string{"M", "L"} {
			stage(t, dialectCurrent, d, func(p *peer, c adapter.Client) {
				r := (<-p.begin(c, testKey, time.Second)).Outcome
				if want := map[string]string{"M": indeterminate, "L": acquired}[notice]; r != want || p.endedAt(1).IsZero() != (notice == "L") {
					t.Errorf("%q %s: %s, session ended at %v", d, notice, r, p.endedAt(1))
				}
				if notice == "L" {
					<-p.begin(c, "last", time.Second)
				}
				time.Sleep(time.Second)
				if e := <-p.begin(c, "other", time.Second); e.Outcome != acquired || p.dials()[1] != next {
					t.Errorf("%q %s: %+v, dialled %v", d, notice, e, p.dials())
				}
			}, onAcquire(func(k *link, r request) {
				if r.key() == "last" {
					k.end("FIN")
					return
				}
				if k.n == 1 {
					_ = k.send("raw", []byte(notice+"10.0.0.2:7000\n"))
				}
				k.grant(r)
			}))
		}
	}
}

// A release, that of a late grant too, takes another session than the grant did.
func TestOddReleaseElsewhere(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, d := range []string{"", "odd-release-elsewhere"} {
			play(t, dialect, d, time.Second, 30*time.Second, nil, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
				rel := r.Ticket.Release(p.t.Context())
				if rs := p.requests("R"); rel.Outcome != released || len(rs) != 1 || (rs[0].session == 1) != (d == "") || !p.endedAt(1).IsZero() {
					t.Errorf("%s %q: %+v, %+v", dialect, d, rel, rs)
				}
			})
		}
	}
	play(t, dialectCurrent, "odd-release-elsewhere", 0, time.Second, onAcquire(func(k *link, r request) {
		time.Sleep(2 * time.Second)
		k.grant(r)
	}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
		if rs := p.requests("R"); r.Outcome != indeterminate || len(rs) != 1 || rs[0].session != 2 || rs[0].uint("token") != 7 {
			t.Errorf("%+v, %+v", r, rs)
		}
	})
}

// A word that is missing is told as error, on a session of its own.
func TestOddFewWords(t *testing.T) {
	for d, want := range map[string][2]string{"": {timeout, notHeld}, "odd-few-words": {failed, failed}} {
		lib, err := Library(d)
		if err != nil || (lib.Info().Outcomes == nil) != (d == "") {
			t.Errorf("%q: %+v, %v", d, lib.Info(), err)
		}
		play(t, dialectCurrent, d, time.Second, 5*time.Second, onAcquire(func(k *link, r request) { k.reply("T", r.key(), owner(r)) }),
			func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
				if r.Outcome != want[0] || p.endedAt(1).IsZero() != (d == "") {
					t.Errorf("%q: %+v", d, r)
				}
			})
		play(t, dialectCurrent, d, time.Second, 5*time.Second, onAcquire(func(k *link, r request) {
			f := owner(r)
			f["token"] = 77 // of a lock that its table does not have
			k.reply("A", r.key(), f)
		}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			if rel := r.Ticket.Release(p.t.Context()); rel.Outcome != want[1] {
				t.Errorf("%q: %+v", d, rel)
			}
		})
	}
}

// An immediate attempt may have less than 5 s.
func TestOddShortZero(t *testing.T) {
	for d, want := range map[string]time.Duration{"": zeroLimit, "odd-short-zero": 2 * time.Second} {
		play(t, dialectCurrent, d, 0, 5*time.Second, onAcquire(func(*link, request) {}), func(_ *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			if r.Outcome != indeterminate || took != want {
				t.Errorf("%q: %+v after %v", d, r, took)
			}
		})
	}
}

// How a client writes, and whether it sends lone newlines, is its own affair.
func TestOddBytes(t *testing.T) {
	for d, want := range map[string][2]int{"": {2, 0}, "odd-byte-by-byte": {44 + 12 + len(testKey), 0}, "odd-keep-alives": {2 + 9, 9}} {
		writes, newlines := 0, 0
		count := func(b []byte) {
			writes++
			if string(b) == "\n" && d == "odd-keep-alives" {
				newlines++
			}
		}
		stage(t, dialectCurrent, d, func(p *peer, c adapter.Client) {
			cl := c.(*client)
			dial := cl.dialer
			cl.dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return counted{conn, count}, err
			}
			e := <-p.begin(c, testKey, 5*time.Second)
			time.Sleep(950 * time.Millisecond)
			if e.Outcome != acquired || !p.endedAt(1).IsZero() {
				t.Errorf("%q: %+v", d, e)
			}
		}, nil)
		if writes != want[0] || newlines != want[1] {
			t.Errorf("%q: %d writes, %d of them lone newlines, want %v", d, writes, newlines, want)
		}
	}
}

// counted tells of each write.
type counted struct {
	net.Conn
	wrote func([]byte)
}

func (c counted) Write(b []byte) (int, error) {
	c.wrote(b)
	return c.Conn.Write(b)
}
