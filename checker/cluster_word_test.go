package checker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

// ofCluster judges the rules about M, L and E alone.
func (s *script) ofCluster() Policy {
	p := s.policy()
	p.Only = map[string]bool{}
	for _, r := range clusterRules() {
		p.Only[r.ID] = true
	}
	return p
}

// given tells which addresses a client has.
func (s *script) given(client string, addrs ...string) *script {
	return s.add(history.Event{Kind: history.ClientOpened, Client: client, Addr: strings.Join(addrs, ",")})
}

// openAt opens a session of a client to an address.
func (s *script) openAt(session int, client, addr string) *script {
	n := len(s.ev)
	s.open(session, client)
	s.ev[n].Addr = addr
	return s
}

// word is an M, L or E.
func (s *script) word(session int, op, text string) msg { return s.line(session, s2c, op, text) }

// asked plays a call of 5 s on session 1 whose request has been passed.
func asked(t *testing.T, dialect string) *script {
	s := newScript(t, dialect)
	return s.given("c1", "a:1", "b:1").openAt(1, "c1", "a:1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 71))
}

var uncorrelatedRules = map[string]string{"M": "moved-uncorrelated", "L": "leader-uncorrelated"}

func TestUncorrelated(t *testing.T) {
	for op, rule := range uncorrelatedRules {
		dialects := []string{v1, v0}
		if op == "L" {
			dialects = dialects[:1]
		}
		for _, dialect := range dialects {
			for outcome, broken := range map[string]bool{acq: true, "timeout": true, "busy": true, indet: false, "error": false, "unsent": false} {
				s := asked(t, dialect)
				s.pass(s.word(1, op, "b:1")).told(1, outcome)
				if !broken {
					wantChecked(t, s.want(s.ofCluster()), rule, true)
					continue
				}
				r := s.want(s.ofCluster(), rule+" safety")
				if m := `call 1 on key "k1" was told timeout 2.000 ms after s2c.` + op + `.1 "b:1" on session 1, which answers no call, and nothing else had been written there since its request`; outcome == "timeout" && r.Findings[0].Message != m {
					t.Error(r.Findings[0].Message)
				}
				// Closing on it, and the end that this brings, is the client's own doing.
				s = asked(t, dialect)
				s.pass(s.word(1, op, "b:1")).seen(1, "fin").sent(1, "fin").told(1, outcome)
				s.want(s.ofCluster(), rule+" safety")
			}
		}
	}
}

// A call that was answered, or may have been told by something else, acquits.
func TestUncorrelatedAcquittals(t *testing.T) {
	for op, rule := range uncorrelatedRules {
		for name, play := range map[string]func(s *script){
			"answered": func(s *script) {
				s.pass(s.word(1, op, "b:1")).pass(s.got(1, "k1", 71, 9)).acquired(1, "k1", 9)
			},
			"answered in part": func(s *script) {
				s.pass(s.word(1, op, "b:1")).cut(s.got(1, "k1", 71, 9), 20).acquired(1, "k1", 9)
			},
			"answered before":    func(s *script) { s.pass(s.answer(1, "T", "k1", 71)).pass(s.word(1, op, "b:1")).told(1, "timeout") },
			"told before":        func(s *script) { s.told(1, "timeout").pass(s.word(1, op, "b:1")) },
			"in part":            func(s *script) { s.cut(s.word(1, op, "b:1"), 4).told(1, "timeout") },
			"at the deadline":    func(s *script) { s.wait(4990*time.Millisecond).pass(s.word(1, op, "b:1")).told(1, "timeout") },
			"long after":         func(s *script) { s.pass(s.word(1, op, "b:1")).wait(1100*time.Millisecond).told(1, "timeout") },
			"an end before":      func(s *script) { s.pass(s.word(1, op, "b:1")).sent(1, "rst").told(1, "timeout") },
			"left before":        func(s *script) { s.seen(1, "fin").pass(s.word(1, op, "b:1")).told(1, "timeout") },
			"an error as well":   func(s *script) { s.pass(s.word(1, op, "b:1")).pass(s.word(1, "E", "x")).told(1, "timeout") },
			"a foreign T":        func(s *script) { s.pass(s.word(1, op, "b:1")).pass(s.answer(1, "T", "k1", 5)).told(1, "timeout") },
			"another's T":        func(s *script) { s.pass(s.word(1, op, "b:1")).pass(s.answer(1, "T", "k9", 5)).told(1, "timeout") },
			"on another session": func(s *script) { s.openAt(2, "c1", "b:1").pass(s.word(2, op, "b:1")).told(1, "timeout") },
			"cancelled": func(s *script) {
				s.add(history.Event{Kind: history.CancelAsked, Call: 1}).pass(s.word(1, op, "b:1")).told(1, "timeout")
			},
			"closing": func(s *script) {
				s.pass(s.word(1, op, "b:1")).add(history.Event{Kind: history.CloseAsked, Client: "c1"}).told(1, "timeout")
			},
			"late": func(s *script) {
				s.pass(s.word(1, op, "b:1")).add(history.Event{Kind: history.RanLate, N: 300}).told(1, "timeout")
			},
			"a token that came elsewhere": func(s *script) {
				s.openAt(2, "c1", "b:1").pass(s.got(2, "k2", 9, 9)).pass(s.word(1, op, "b:1")).acquired(1, "k1", 9)
			},
			"a reply elsewhere": func(s *script) {
				s.openAt(2, "c1", "b:1").pass(s.word(1, op, "b:1")).pass(s.answer(2, "T", "k1", 9)).told(1, "timeout")
			},
			"unreadable": func(s *script) {
				s.pass(s.word(1, op, "b:1")).add(history.Event{Kind: history.WentOpaque, Session: 1, Dir: c2s}).told(1, "timeout")
			},
		} {
			t.Run(name, func(t *testing.T) {
				s := asked(t, v1)
				play(s)
				s.want(s.ofCluster())
			})
		}
		s := newScript(t, v1) // whose request it was is not certain
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 71)).pass(s.word(1, op, "b:1")).told(1, "timeout")
		s.want(s.ofCluster())
		s = asked(t, v1) // nothing of it came
		s.told(1, "timeout")
		wantChecked(t, s.want(s.ofCluster()), rule, false)
	}
}

// Where a keep-alive and a notice were written too, nothing else has happened.
func TestUncorrelatedAmongOthers(t *testing.T) {
	s := asked(t, v1)
	s.pass(s.word(1, "L", "b:1")).pass(s.line(1, s2c, "keepalive", "")).pass(s.word(1, "M", "b:1")).told(1, "timeout")
	s.want(s.ofCluster(), "moved-uncorrelated safety", "leader-uncorrelated safety")
}

// closing lists the words that close, with the rule that says so.
var closing = []struct{ op, text, rule string }{
	{"M", "b:1", "moved-closes"},
	{"E", "no_leader", "error-closes"},
	{"E", "not_active", "error-closes"},
	{"E", "auth_failed", "error-closes"},
}

// next asks for a key and passes its request on a session.
func (s *script) next(session, call int) *script {
	key := fmt.Sprint("k", call)
	s.ask(call, "c1", key, 5*sec, 30*sec)
	return s.pass(s.req(session, key, 5, 30, uint64(70+call)))
}

// grants answers the request of a call with its number as the token.
func (s *script) grants(session, call int) *script {
	return s.pass(s.got(session, fmt.Sprint("k", call), uint64(70+call), uint64(call)))
}

func (s *script) gets(call int) *script { return s.acquired(call, fmt.Sprint("k", call), uint64(call)) }

func TestClosesAfter(t *testing.T) {
	for _, c := range closing {
		for dialect, severity := range map[string]string{v1: " contract", v0: " hygiene"} {
			for name, play := range map[string]func(s *script){
				"a call ended by it": func(s *script) { s.pass(s.word(1, c.op, c.text)).told(1, indet) },
				"a token behind it":  func(s *script) { s.pass(s.word(1, c.op, c.text)).next(1, 2).grants(1, 2).gets(2) },
				"a token in one write with it": func(s *script) {
					m, g := s.word(1, c.op, c.text), s.got(1, "k1", 71, 1)
					s.recv(m, 0, len(m.b)).recv(g, 0, len(g.b)).write(m, 0, len(m.b)).write(g, 0, len(g.b)).gets(1)
				},
			} {
				t.Run(name, func(t *testing.T) {
					s := asked(t, dialect)
					play(s)
					r := s.next(1, 3).want(s.ofCluster(), c.rule+severity)
					if c.rule == "moved-closes" && name == "a call ended by it" && dialect == v1 &&
						r.Findings[0].Message != `client c1 sent c2s.A.2 on session 1 although it had read s2c.M.1 "b:1" there, which closes the connection (call 1 was told indeterminate, and nothing else had happened, 3.000 ms before)` {
						t.Error(r.Findings[0].Message)
					}
					s = asked(t, dialect)
					play(s)
					s.seen(1, "fin").openAt(2, "c1", "b:1").next(2, 3)
					wantChecked(t, s.want(s.ofCluster()), c.rule, true)
				})
			}
			s := asked(t, dialect) // closed without a word
			s.pass(s.word(1, c.op, c.text)).seen(1, "fin").openAt(2, "c1", "b:1").next(2, 3)
			wantChecked(t, s.want(s.ofCluster()), c.rule, true)
		}
		s := asked(t, v1) // the release with its token is as good as the word
		s.pass(s.word(1, c.op, c.text)).next(1, 2).grants(1, 2).openAt(2, "c1", "b:1").pass(s.rel(2, "k2", 2))
		s.next(1, 3).want(s.ofCluster(), c.rule+" contract")
	}
}

// P6, P3: what was under way, and what was not read for certain.
func TestClosesAfterAcquittals(t *testing.T) {
	for _, c := range closing {
		for name, play := range map[string]func(s *script){
			"in flight":          func(s *script) { s.pass(s.word(1, c.op, c.text)).next(1, 2).next(1, 3).told(1, indet) },
			"in flight, granted": func(s *script) { s.pass(s.word(1, c.op, c.text)).next(1, 2).grants(1, 2).gets(2) },
			"asked for before": func(s *script) {
				s.pass(s.word(1, c.op, c.text)).next(1, 2).grants(1, 2).ask(3, "c1", "k3", 5*sec, 30*sec).gets(2).pass(s.req(1, "k3", 5, 30, 73))
			},
			"in part":  func(s *script) { m := s.word(1, c.op, c.text); s.cut(m, len(m.b)-1).told(1, indet).next(1, 3) },
			"not read": func(s *script) { s.pass(s.word(1, c.op, c.text)).wait(6*sec).told(1, indet).next(1, 3) },
			"a token twice": func(s *script) {
				s.pass(s.word(1, c.op, c.text)).next(1, 2).grants(1, 2).grants(1, 2).gets(2).next(1, 3)
			},
			"before it": func(s *script) {
				s.next(1, 2).grants(1, 2).gets(2).pass(s.word(1, c.op, c.text)).next(1, 3)
			},
			"another session": func(s *script) {
				s.openAt(2, "c1", "b:1").pass(s.word(1, c.op, c.text)).told(1, indet).next(2, 3)
			},
			"unreadable elsewhere": func(s *script) {
				s.openAt(2, "c1", "b:1").add(history.Event{Kind: history.WentOpaque, Session: 2, Dir: c2s})
				s.pass(s.word(1, c.op, c.text)).told(1, indet).next(1, 3)
			},
			"another reason to end": func(s *script) {
				s.pass(s.word(1, c.op, c.text)).pass(s.word(1, "E", "bad_frame")).told(1, indet).next(1, 3)
			},
		} {
			t.Run(c.text+" "+name, func(t *testing.T) {
				s := asked(t, v1)
				play(s)
				s.want(s.ofCluster())
			})
		}
		s := asked(t, v1) // P13: without calls the application may have asked before
		s.pass(s.word(1, c.op, c.text)).pass(s.req(1, "k2", 5, 30, 72)).grants(1, 2)
		s.openAt(2, "c1", "b:1").pass(s.rel(2, "k2", 2)).pass(s.req(1, "k3", 5, 30, 73))
		wantChecked(t, s.want(s.ofCluster()), c.rule, false)
	}
	for _, text := range []string{"bad_frame", "no_token", ""} { // for unknown-fatal
		s := asked(t, v1)
		s.pass(s.word(1, "E", text)).told(1, indet).next(1, 3)
		wantChecked(t, s.want(s.ofCluster()), "error-closes", false)
	}
}

func canarySet(s *script, addr string) *script {
	return s.add(history.Event{Kind: history.CanarySet, Client: "c1", Addr: addr})
}

func TestMovedAllowlist(t *testing.T) {
	for _, dialect := range []string{v1, v0} {
		for _, op := range []string{"M", "L"} {
			if op == "L" && dialect == v0 {
				continue
			}
			begin := func() *script {
				s := canarySet(asked(t, dialect), "x:1")
				return s.pass(s.word(1, op, "x:1")).seen(1, "fin").told(1, indet).ask(2, "c1", "k2", 5*sec, 30*sec)
			}
			s := begin().openAt(2, "c1", "x:1")
			r := s.want(s.ofCluster(), "moved-allowlist contract")
			if m := "client c1 connected to x:1 as session 2, 6.000 ms after s2c." + op + ".1 had named it on session 1; it was given only a:1 and b:1"; r.Findings[0].Message != m {
				t.Error(r.Findings[0].Message)
			}
			s = begin().openAt(2, "c1", "b:1")
			wantChecked(t, s.want(s.ofCluster()), "moved-allowlist", true)
			s = begin().openAt(2, "c2", "x:1") // another's
			s.want(s.ofCluster())
		}
	}
}

func TestMovedAllowlistIsNotJudged(t *testing.T) {
	for name, play := range map[string]func(s *script){
		"a node": func(s *script) { s.pass(s.word(1, "M", "b:1")).next(1, 2).openAt(2, "c1", "b:1") },
		"nobody listens": func(s *script) {
			s.pass(s.word(1, "M", "y:1")).ask(2, "c1", "k2", 5*sec, 30*sec).openAt(2, "c1", "y:1")
		},
		"before it": func(s *script) { s.openAt(2, "c1", "x:1").pass(s.word(1, "M", "x:1")) },
		"in part":   func(s *script) { s.cut(s.word(1, "M", "x:1"), 3).openAt(2, "c1", "x:1") },
		"nothing asked": func(s *script) {
			s.pass(s.word(1, "M", "x:1")).openAt(2, "c1", "b:1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := canarySet(asked(t, v1), "x:1")
			play(s)
			wantChecked(t, s.want(s.ofCluster()), "moved-allowlist", false)
		})
	}
	s := newScript(t, v1) // what it was given is not known
	canarySet(s.open(1, "c1"), "x:1").pass(s.word(1, "M", "x:1")).ask(2, "c1", "k2", 5*sec, 30*sec).openAt(2, "c1", "x:1")
	wantChecked(t, s.want(s.ofCluster()), "moved-allowlist", false)
}
