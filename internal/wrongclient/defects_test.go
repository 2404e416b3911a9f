package wrongclient

import (
	"slices"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
)

// lacking sends the grant of the first session without its last n bytes and
// then ends that session.
func lacking(n int, how string) func(*peer) {
	return func(p *peer) {
		size := p.g.MustShape(frames.ServerToClient, "A").Size(len(testKey))
		p.cut = &cut{frames.ServerToClient, "A", size - n, how}
	}
}

// outcomes plays one acquire (W 5 s, lease 30 s) with the defect and with none.
func outcomes(t *testing.T, dialect, defect string, setup func(*peer), want, wantRight string) {
	t.Helper()
	for _, c := range []struct{ defect, want string }{{defect, want}, {"", wantRight}} {
		play(t, dialect, c.defect, 5*time.Second, 30*time.Second, setup, func(_ *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			if r.Outcome != c.want {
				t.Errorf("%s %q: %s (%s), not %s", dialect, c.defect, r.Outcome, r.Raw, c.want)
			}
			if (r.Ticket != nil) != (r.Outcome == acquired) {
				t.Errorf("%s %q: ticket %v with %s", dialect, c.defect, r.Ticket, r.Outcome)
			}
		})
	}
}

func TestEnds(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, how := range []string{"FIN", "RST"} {
			outcomes(t, dialect, "eof-is-timeout", lacking(1, how), timeout, indeterminate)
			outcomes(t, dialect, "eof-is-unsent", lacking(1, how), unsent, indeterminate)
			outcomes(t, dialect, "eof-is-busy", lacking(1, how), busy, indeterminate)
		}
		for _, how := range allEnds {
			outcomes(t, dialect, "enters-anyway", lacking(17, how), acquired, indeterminate)
		}
		for _, d := range []string{"eof-is-timeout", "eof-is-unsent", "eof-is-busy"} {
			outcomes(t, dialect, d, lacking(1, "silence"), indeterminate, indeterminate)
		}
	}
}

func TestPartialIsAcquired(t *testing.T) {
	for _, dialect := range bothDialects {
		keyed := len(testKey) + 1 // bytes behind the fixed fields
		for lack := 1; lack <= keyed; lack++ {
			outcomes(t, dialect, "partial-is-acquired", lacking(lack, "silence"), acquired, indeterminate)
		}
		outcomes(t, dialect, "partial-is-acquired", lacking(keyed+1, "silence"), indeterminate, indeterminate)

		// With the rest of the frame 50 ms behind it, the session goes on.
		play(t, dialect, "partial-is-acquired", time.Second, 30*time.Second, onAcquire(func(k *link, r request) {
			f := owner(r)
			f["token"] = trickyTok
			b, _ := encode(k.p.g.MustShape(frames.ServerToClient, "A"), r.key(), f)
			_, _ = k.conn.Write(b[:len(b)-1])
			time.Sleep(50 * time.Millisecond)
			_, _ = k.conn.Write(b[len(b)-1:])
		}), func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			if r.Outcome != acquired || r.Token != trickyTok || took != 0 {
				t.Errorf("%s: %+v after %v", dialect, r, took)
			}
			time.Sleep(time.Second)
			if rel := r.Ticket.Release(p.t.Context()); rel.Outcome != notHeld || len(p.dials()) != 1 {
				t.Errorf("%s: release %+v on %d sessions", dialect, rel, len(p.dials()))
			}
		})
	}
}

func TestResend(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, how := range []string{"FIN", "RST"} {
			for _, d := range []string{"resend-same", "resend-new-owner", ""} {
				play(t, dialect, d, 5*time.Second, 30*time.Second, func(p *peer) {
					p.cut = &cut{frames.ClientToServer, "A", p.g.MustShape(frames.ClientToServer, "A").Size(len(testKey)), how}
				}, func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
					as := p.requests("A")
					if d == "" {
						if len(as) != 1 || r.Outcome != indeterminate {
							t.Errorf("%s: %+v, %d attempts", dialect, r, len(as))
						}
						return
					}
					if r.Outcome != acquired || took > time.Second || len(as) != 2 || as[0].session == as[1].session {
						t.Fatalf("%s %s: %+v after %v, %d attempts", dialect, d, r, took, len(as))
					}
					if same := as[0].uint("owner") == as[1].uint("owner"); same != (d == "resend-same" || dialect == dialectV0) {
						t.Errorf("%s %s: same owner %v", dialect, d, same)
					}
				})
			}
		}
	}
}

// Every acquire is cut: resending stops at the deadline.
func TestResendDeadline(t *testing.T) {
	play(t, dialectCurrent, "resend-same", 2*time.Second, 30*time.Second, onAcquire(func(k *link, _ request) { k.end("FIN") }),
		func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			if r.Outcome != indeterminate || took != 2*time.Second || len(p.requests("A")) < 3 {
				t.Errorf("%+v after %v, %d attempts", r, took, len(p.requests("A")))
			}
		})
}

func TestNewlineFirst(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, d := range []string{"newline-first", ""} {
			play(t, dialect, d, 2*time.Second, 30*time.Second, func(p *peer) { p.token = trickyTok - 1 },
				func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
					want := uint64(trickyTok)
					if d != "" {
						want = 0
					}
					if r.Outcome != acquired || r.Token != want || p.endedAt(1).IsZero() != (d == "") {
						t.Errorf("%s %q: %+v, session ended %v", dialect, d, r, p.endedAt(1))
					}
				})
		}
	}
}

// A token or an owner with a newline byte at any place.
func TestNewlineFirstSplit(t *testing.T) {
	g := frames.MustBuiltin(dialectCurrent)
	for i := range 16 {
		raw := []byte("A\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18key\n")
		id := frame{shape: g.MustShape(frames.ServerToClient, "A"), raw: raw}
		raw[1+i] = '\n'
		x := newExchange(acquireAnswers, id.id(), "key")
		s := newlineFirst.splitter(g)
		if _, _, ok, err := s.next([]byte(greetLine)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		f, rest, ok, err := s.next(raw[:5])
		if !ok {
			f, rest, ok, err = s.next(raw[5:])
		}
		if !ok || err != nil || !f.cut || f.got != 1+i || !f.answers(x) || f.token() == id.token() {
			t.Fatalf("newline at %d: %+v, rest %q, %v, %v", i, f, rest, ok, err)
		}
	}
}

func TestWrongTokenReleased(t *testing.T) {
	play(t, dialectCurrent, "wrong-token-released", time.Second, 30*time.Second, nil,
		func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			rel := r.Ticket.Release(p.t.Context())
			rs := p.requests("R")
			if rel.Outcome != notHeld || len(rs) != 1 || rs[0].uint("token") != r.Owner {
				t.Errorf("%+v, then %+v", rel, rs)
			}
		})
}

func TestReleaseByKey(t *testing.T) {
	for _, d := range []string{"release-by-key", ""} {
		play(t, dialectV0, d, time.Second, 3*time.Second, nil, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			time.Sleep(4 * time.Second)
			rel := r.Ticket.Release(p.t.Context())
			n := len(p.requests("R"))
			if d == "" && (n != 0 || rel.Outcome != indeterminate) || d != "" && (n != 1 || rel.Outcome != released) {
				t.Errorf("%q after the lease: %+v with %d releases", d, rel, n)
			}
		})
		play(t, dialectV0, d, time.Second, 30*time.Second, func(p *peer) {
			p.cut = &cut{frames.ClientToServer, "R", p.g.MustShape(frames.ClientToServer, "R").Size(len(testKey)), "FIN"}
		}, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
			rel := r.Ticket.Release(p.t.Context())
			n := len(p.requests("R"))
			if d == "" && (n != 1 || rel.Outcome != indeterminate) || d != "" && (n != 2 || rel.Outcome != released) {
				t.Errorf("%q after a possible send: %+v with %d releases", d, rel, n)
			}
		})
	}
}

func TestNeverSettles(t *testing.T) {
	for _, dialect := range bothDialects {
		stage(t, dialect, "never-settles", func(p *peer, c adapter.Client) {
			after(time.Minute, func() { _ = c.Close() })
			start := time.Now()
			r := c.Acquire(p.t.Context(), testKey, 2*time.Second, 30*time.Second)
			if r.Outcome != indeterminate || time.Since(start) != time.Minute {
				t.Errorf("%s: %+v after %v", dialect, r, time.Since(start))
			}
		}, lacking(5, "RST"))
		outcomes(t, dialect, "never-settles", lacking(5, "FIN"), indeterminate, indeterminate)
		outcomes(t, dialect, "never-settles", lacking(5, "silence"), indeterminate, indeterminate)
	}
}

func TestStaleZero(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, d := range []string{"stale-zero", ""} {
			for _, lease := range []time.Duration{1, 2, 3} {
				play(t, dialect, d, 0, lease*time.Second, onAcquire(func(k *link, r request) {
					time.Sleep(2 * time.Second)
					k.grant(r)
				}), func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
					want, releases := acquired, 0
					if d == "" && lease <= 2 {
						want = indeterminate
						if dialect == dialectCurrent {
							releases = 1
						}
					}
					if n := len(p.requests("R")); r.Outcome != want || n != releases || !p.endedAt(1).IsZero() {
						t.Errorf("%s %q lease %d s: %+v with %d releases", dialect, d, lease, r, n)
					}
				})
			}
		}
	}
}

func TestEnterLate(t *testing.T) {
	for _, dialect := range bothDialects {
		for _, d := range []string{"enter-late", ""} {
			for _, wait := range []time.Duration{0, 2 * time.Second} {
				limit := wait
				if wait == 0 {
					limit = zeroLimit
				}
				play(t, dialect, d, wait, 30*time.Second, onAcquire(func(k *link, r request) {
					time.Sleep(limit + 1500*time.Millisecond)
					k.grant(r)
				}), func(p *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
					want, ends := indeterminate, limit
					if d != "" {
						want, ends = acquired, limit+1500*time.Millisecond
					}
					if r.Outcome != want || took != ends {
						t.Errorf("%s %q wait %v: %+v after %v", dialect, d, wait, r, took)
					}
				})
			}
		}
	}
	play(t, dialectCurrent, "enter-late", 2*time.Second, 30*time.Second, onAcquire(func(*link, request) {}),
		func(_ *peer, _ adapter.Client, r adapter.Result, took time.Duration) {
			if r.Outcome != indeterminate || took != 6*time.Second {
				t.Errorf("without an answer: %+v after %v", r, took)
			}
		})
}

// No defect changes an exchange without a fault, except the one in the token of
// a release.
func TestDefectsWithoutFault(t *testing.T) {
	names := map[string]bool{}
	for _, d := range Defects() {
		if names[d.Name] || d.Rule == "" || d.Sentence == "" || len(d.Dialects) == 0 {
			t.Errorf("incomplete: %+v", d)
		}
		names[d.Name] = true
		lib, err := Library(d.Name)
		if err != nil || lib.Info().Client != d.Name {
			t.Errorf("%s: %v", d.Name, err)
		}
		if d.Name == "newline-first" {
			continue // one owner in 32 has a newline byte
		}
		for _, dialect := range bothDialects {
			play(t, dialect, d.Name, time.Second, 5*time.Second, nil, func(p *peer, _ adapter.Client, r adapter.Result, _ time.Duration) {
				if r.Outcome != acquired || r.Token != 7 {
					t.Fatalf("%s %s: %+v", dialect, d.Name, r)
				}
				want := released
				if d.Name == "wrong-token-released" && slices.Contains(d.Dialects, dialect) {
					want = notHeld
				}
				if rel := r.Ticket.Release(p.t.Context()); rel.Outcome != want {
					t.Errorf("%s %s: release %+v", dialect, d.Name, rel)
				}
				releases := 1
				if d.Name == "release-twice" && dialect == dialectV0 {
					releases = 2
				}
				if len(p.dials()) != 1 || len(p.requests("A")) != 1 || len(p.requests("R")) != releases {
					t.Errorf("%s %s: %d sessions, %d releases", dialect, d.Name, len(p.dials()), len(p.requests("R")))
				}
			})
		}
	}
}
