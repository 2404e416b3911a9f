package checker

import (
	"slices"
	"strings"
	"testing"

	"tornwire/history"
)

// One of twenty times in which the hint need not have been dropped is one too few.
func TestNoLeaderDropsHintNeedsEachTime(t *testing.T) {
	for name, last := range map[string]func(s *script, client string, session int){
		"not active": func(s *script, client string, session int) {
			s.pass(s.word(session, "L", "b:1")).wait(quiet).pass(s.word(session, "E", "not_active")).seen(session, "fin")
		},
		"an M in between": func(s *script, client string, session int) {
			s.pass(s.word(session, "L", "b:1")).pass(s.word(session, "M", "b:1")).wait(quiet).pass(s.word(session, "E", "no_leader")).seen(session, "fin")
		},
		"we ended it": func(s *script, client string, session int) {
			s.pass(s.word(session, "L", "b:1")).wait(quiet).pass(s.word(session, "E", "no_leader")).sent(session, "fin").seen(session, "fin")
		},
		"another's notice": func(s *script, client string, session int) {
			s.openAt(500, "c9", "a:1").pass(s.word(500, "L", "b:1")).wait(quiet).pass(s.word(session, "E", "no_leader")).seen(session, "fin")
		},
		"on another session": func(s *script, client string, session int) {
			s.openAt(500, client, "a:1").pass(s.word(500, "L", "b:1")).wait(quiet).pass(s.word(session, "E", "no_leader")).seen(session, "fin")
		},
		"its session stays": func(s *script, client string, session int) {
			s.pass(s.word(session, "L", "b:1")).wait(quiet).pass(s.word(session, "E", "no_leader"))
		},
		"turned away": func(s *script, client string, session int) {
			s.add(history.Event{Kind: history.Fired, Session: session, Fault: "drop", Frame: &history.FrameRef{Op: "open"}})
			s.pass(s.word(session, "L", "b:1")).wait(quiet).pass(s.word(session, "E", "no_leader")).seen(session, "fin")
		},
		"where it went is not known": func(s *script, client string, session int) {
			s.add(history.Event{Kind: history.SessionOpened, Session: session, Client: client})
			s.pass(s.word(session, "L", "b:1")).wait(quiet).pass(s.word(session, "E", "no_leader")).seen(session, "fin")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1)
			for n := range 19 {
				round{n: n + 1, hint: hinted(n), quiet: quiet, dials: hinted(n)}.play(s)
			}
			s.given("h20", "a:1", "b:1", "c:1").openAt(40, "h20", "a:1")
			last(s, "h20", 40)
			s.openAt(41, "h20", "b:1")
			wantChecked(t, s.want(s.ofCluster()), "no-leader-drops-hint", false)
		})
	}
	for _, late := range []bool{false, true} {
		s := rounds(t, nil)
		if late {
			s.add(history.Event{Kind: history.RanLate, N: 300})
			wantChecked(t, s.want(s.ofCluster()), "no-leader-drops-hint", false)
			continue
		}
		s.openAt(400, "h3", "a:1") // later than the first
		s.want(s.ofCluster(), "no-leader-drops-hint hygiene")
	}
}

// Several words on a session are left once, so that there is one finding.
func TestClosesAfterOnce(t *testing.T) {
	s := asked(t, v1)
	s.pass(s.word(1, "M", "b:1")).told(1, indet).pass(s.word(1, "M", "b:1")).next(1, 2).next(1, 3)
	s.want(s.ofCluster(), "moved-closes contract")
}

func TestMovedAllowlistOfLateAddresses(t *testing.T) {
	s := asked(t, v1)
	s.pass(s.word(1, "M", "x:1"))
	canarySet(s, "x:1").ask(2, "c1", "k2", 5*sec, 30*sec).openAt(2, "c1", "x:1")
	wantChecked(t, s.want(s.ofCluster()), "moved-allowlist", false)
	s = canarySet(asked(t, v1), "b:1") // it was given that one
	s.pass(s.word(1, "M", "b:1")).ask(2, "c1", "k2", 5*sec, 30*sec).openAt(2, "c1", "b:1")
	wantChecked(t, s.want(s.ofCluster()), "moved-allowlist", false)
}

// What else a client got between its request and its word.
func TestUncorrelatedAmongOtherCalls(t *testing.T) {
	for op, rule := range uncorrelatedRules {
		for name, c := range map[string]struct {
			play  func(s *script)
			found bool
		}{
			"the token came on another session behind it": {func(s *script) {
				s.openAt(2, "c1", "b:1").pass(s.word(1, op, "b:1")).pass(s.got(2, "k1", 79, 9)).acquired(1, "k1", 9)
			}, false},
			"another key's grant elsewhere": {func(s *script) {
				s.openAt(2, "c1", "b:1").ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(2, "k2", 5, 30, 72))
				s.pass(s.word(1, op, "b:1")).pass(s.got(2, "k2", 72, 8)).acquired(2, "k2", 8).told(1, "timeout")
			}, true},
			"another client's T": {func(s *script) {
				s.openAt(2, "c2", "b:1").ask(2, "c2", "k1", 5*sec, 30*sec).pass(s.req(2, "k1", 5, 30, 72))
				s.pass(s.word(1, op, "b:1")).pass(s.answer(2, "T", "k1", 72)).told(2, "timeout").told(1, "timeout")
			}, true},
			"an R before the request": {func(s *script) {
				s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 72)).told(1, "timeout")
			}, false},
			"told long before": {func(s *script) { s.told(1, "timeout").wait(sec).pass(s.word(1, op, "b:1")) }, false},
			"sent twice":       {func(s *script) { s.pass(s.req(1, "k1", 5, 30, 71)).pass(s.word(1, op, "b:1")).told(1, "timeout") }, false},
			"sent after it":    {func(s *script) {}, false},
		} {
			t.Run(op+" "+name, func(t *testing.T) {
				s := asked(t, v1)
				if name == "sent after it" {
					s = newScript(t, v1).given("c1", "a:1", "b:1").openAt(1, "c1", "a:1").ask(1, "c1", "k1", 5*sec, 30*sec)
					s.pass(s.word(1, op, "b:1")).pass(s.req(1, "k1", 5, 30, 71)).told(1, "timeout")
				}
				c.play(s)
				var want []string
				if c.found {
					want = []string{rule + " safety"}
				}
				s.want(s.ofCluster(), want...)
			})
		}
	}
}

// Of three rounds one proves nothing.
func TestExactSessionOneOfThree(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *script, own, beside, quiet, other int)
		found  bool
	}{
		"none":      {func(s *script, own, beside, quiet, other int) {}, true},
		"cancelled": {func(s *script, own, beside, quiet, other int) { s.event(history.CancelAsked, quiet, "") }, false},
		"a request that came twice": {func(s *script, own, beside, quiet, other int) {
			s.pass(s.req(own, "quiet", 1, 22, 92))
		}, false},
		"unread": {func(s *script, own, beside, quiet, other int) {
			s.add(history.Event{Kind: history.WentOpaque, Session: own, Dir: c2s})
		}, false},
		"a fault on its own": {func(s *script, own, beside, quiet, other int) {
			s.add(history.Event{Kind: history.Fired, Session: own, Dir: s2c, Fault: "drop"})
		}, true},
		"a notice on the other": {func(s *script, own, beside, quiet, other int) { s.stray(s.line(beside, s2c, "L", "b:1")) }, true},
		"a release with its answer": {func(s *script, own, beside, quiet, other int) {
			s.pass(s.rel(beside, "k9", 9)).pass(s.answer(beside, "N", "k9", 9))
		}, true},
		"a release with another's answer": {func(s *script, own, beside, quiet, other int) {
			s.pass(s.rel(beside, "k9", 9)).pass(s.answer(beside, "N", "k9", 8)).pass(s.answer(beside, "N", "k8", 9))
		}, false},
		"a release with half an answer": {func(s *script, own, beside, quiet, other int) {
			m := s.answer(beside, "N", "k9", 9)
			s.pass(s.rel(beside, "k9", 9)).cut(m, len(m.b)-1)
		}, false},
		"the other's outcome was told": {func(s *script, own, beside, quiet, other int) { s.told(other, "busy") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1)
			for n := range 3 {
				s.besides(n, func(own, beside, quiet, other int) {
					if n == 2 {
						c.before(s, own, beside, quiet, other)
					}
					s.seen(own, history.RST).seen(beside, history.RST).told(quiet, indet).told(other, indet)
				})
				s.wait(sec)
			}
			p, want := s.alone("exact-session"), []string{}
			if c.found {
				want = append(want, "exact-session hygiene")
			}
			wantChecked(t, s.tick().want(p, want...), "exact-session", c.found)
		})
	}
}

// What another client does is no excuse.
func TestRegisterFirstBesideAnotherClient(t *testing.T) {
	s := newScript(t, v1).open(1, "c1").open(2, "c2").ask(2, "c2", "k2", 5*sec, 30*sec).pass(newScript(t, v1).req(2, "k2", 5, 30, 72))
	s.early(50, 2*sec).seen(1, history.FIN).told(1, indet)
	s.want(judged(s, registeredRule, true), registeredRule+" contract")
	// Nor is a call that had ended before.
	s = newScript(t, v1).open(1, "c1").ask(2, "c1", "k2", 5*sec, 30*sec).told(2, "unsent").early(50, 2*sec).seen(1, history.FIN).told(1, indet)
	s.want(judged(s, registeredRule, true), registeredRule+" contract")
	// A lease that is soon over may make a client do anything.
	s = newScript(t, v1).open(1, "c1").ask(1, "c1", "k1", 5*sec, sec).pass(newScript(t, v1).req(1, "k1", 5, 1, 7))
	s.pass(s.got(1, "k1", 7, 9)).seen(1, history.FIN).told(1, indet)
	wantChecked(t, s.want(judged(s, registeredRule, true)), registeredRule, false)
	// Half a request is not one that was written.
	s = newScript(t, v1).open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
	m := s.req(1, "k1", 5, 30, 7)
	s.recv(m, 0, 12).pass(s.got(1, "k1", 7, 9)).seen(1, history.FIN).told(1, indet)
	wantChecked(t, s.want(judged(s, registeredRule, true)), registeredRule, false)
	// Without pongs nobody knows that the client was alive.
	s = newScript(t, v1).open(1, "c1").early(50, 5*sec).wait(4*sec).told(1, indet)
	p := judged(s, registeredRule, true)
	p.NoPong = true
	wantChecked(t, s.want(p), registeredRule, false)
}

// The lease of a window is the shortest that may have been granted, and a lease that
// cannot be says nothing; the evidence shows the answer that came last.
func TestLinearizableLeases(t *testing.T) {
	play := func(first, second uint64) *script {
		s := newScript(t, v1).open(1, "c1").open(2, "c2")
		s.pass(s.req(1, "k1", 5, first, 7)).pass(s.req(1, "k1", 5, second, 7)).pass(s.got(1, "k1", 7, 3)).pass(s.answer(1, "T", "k1", 7))
		return s.wait(2 * sec).pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
	}
	for _, c := range []struct {
		first, second uint64
		found         bool
	}{{1, 30, false}, {30, 1, false}, {30, 30, true}, {0, 30, false}} {
		s := play(c.first, c.second)
		j := newJudge(s, Policy{Dialect: v1, ClosedWorld: true})
		j.linearizable()
		if got := len(j.res.Findings) > 0; got != c.found {
			t.Errorf("%d and %d: %v", c.first, c.second, got)
		}
		for _, f := range j.res.Findings {
			if f.Evidence.Frame != "s2c.A.2" || !strings.Contains(f.Message, "token 3 granted between") || strings.Count(f.Message, ";") != 1 {
				t.Errorf("%s %q", f.Evidence.Frame, f.Message)
			}
		}
	}
}

// An R or N too many says that the key cannot be judged.
func TestLinearizableAnswersTooMany(t *testing.T) {
	s := newScript(t, v1).open(1, "c1").open(2, "c2")
	s.pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 3)).pass(s.rel(1, "k1", 3)).pass(s.answer(1, "R", "k1", 3)).pass(s.answer(1, "R", "k1", 3))
	s.pass(s.req(2, "k1", 5, 30, 8)).pass(s.got(2, "k1", 8, 4))
	j := newJudge(s, Policy{Dialect: v1, ClosedWorld: true})
	if j.linearizable(); len(j.res.Findings) > 0 {
		t.Error(j.res.Findings[0].Message)
	}
}

// What an adapter without pongs tells may be older than the frame before it (P11).
func TestNoPongIsNoCause(t *testing.T) {
	told := func(d string, noPong bool, play func(s *script)) (Result, func(rule string) bool) {
		s := asked(t, d)
		play(s)
		p := s.policy()
		p.NoPong = noPong
		r := Check(s.ev, p)
		return r, func(rule string) bool {
			return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Rule == rule })
		}
	}
	for rule, play := range map[string]func(s *script){
		"moved-uncorrelated":  func(s *script) { s.pass(s.word(1, "M", "b:1")).told(1, "timeout") },
		"leader-uncorrelated": func(s *script) { s.pass(s.word(1, "L", "b:1")).told(1, "timeout") },
		"moved-closes":        func(s *script) { s.pass(s.word(1, "M", "b:1")).told(1, indet).next(1, 2) },
		"error-closes":        func(s *script) { s.pass(s.word(1, "E", "not_active")).told(1, indet).next(1, 2) },
		"match-triple":        func(s *script) { s.stray(s.answer(1, "T", "k1", 99)).told(1, "timeout") },
	} {
		if _, found := told(v1, false, play); !found(rule) {
			t.Errorf("%s is not found with pongs", rule)
		}
		r, found := told(v1, true, play)
		if found(rule) {
			t.Errorf("%s is found without pongs", rule)
		}
		if strings.HasSuffix(rule, "uncorrelated") {
			wantChecked(t, r, rule, false)
		}
	}
	release := func(s *script) {
		s.pass(s.got(1, "k1", 71, 9)).acquired(1, "k1", 9).ask2release(1).pass(s.rel(1, "k1", 9)).stray(s.answer(1, "T", "k1", 9)).released(1, "released")
	}
	for _, noPong := range []bool{false, true} {
		if _, found := told(v1, noPong, release); found("match-triple") == noPong {
			t.Errorf("a release, without pongs %v", noPong)
		}
	}
}

// The evidence shows each session that the message speaks of.
func TestServerEvidenceShowsBothSessions(t *testing.T) {
	for rule, play := range map[string]func(s *script){
		"lease-ends": func(s *script) {
			s.pass(s.req(1, "k1", 5, 2, 71)).pass(s.got(1, "k1", 71, 9)).pass(s.req(2, "k1", 60, 30, 72)).wait(4 * sec).tick()
		},
		"token-increases": func(s *script) {
			s.pass(s.req(1, "k1", 5, 2, 71)).pass(s.got(1, "k1", 71, 9)).pass(s.req(2, "k2", 5, 30, 72)).pass(s.got(2, "k2", 72, 8))
		},
		"repeat-is-new-attempt": func(s *script) {
			s.pass(s.req(1, "k1", 5, 2, 71)).pass(s.got(1, "k1", 71, 9)).pass(s.req(2, "k1", 5, 2, 71)).pass(s.got(2, "k1", 71, 9))
		},
		"release-needs-exact-token": func(s *script) {
			s.pass(s.req(1, "k1", 5, 30, 71)).pass(s.got(1, "k1", 71, 9)).pass(s.rel(2, "k1", 5)).pass(s.answer(2, "R", "k1", 5))
		},
	} {
		s := newScript(t, v1).open(1, "c1").open(2, "c2")
		play(s)
		r := Check(s.ev, Policy{Dialect: v1, ClosedWorld: true, Only: map[string]bool{rule: true}})
		if len(r.Findings) != 1 {
			t.Fatalf("%s: %d findings", rule, len(r.Findings))
		}
		lines := strings.Join(r.Findings[0].Evidence.Timeline, "\n")
		if !strings.Contains(lines, "session 1: c2s.A.1") || !strings.Contains(lines, "session 2: c2s.") {
			t.Errorf("%s: %s", rule, lines)
		}
	}
}
