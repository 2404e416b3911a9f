package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

// matching judges the rules of match.go and those that they must not overlap with.
func (s *script) matching() Policy {
	p := s.policy()
	p.Only = map[string]bool{"one-attempt": true, "no-resend": true}
	for _, r := range matchRules() {
		p.Only[r.ID] = true
	}
	return p
}

// stray writes a frame that the server never sent.
func (s *script) stray(m msg) *script { return s.write(s.withData(m)) }

func (s *script) event(k history.Kind, call int, client string) *script {
	return s.add(history.Event{Kind: k, Call: call, Client: client})
}

// waiting plays a call of client c1 on k1 that is queued, with owner 77.
func waiting(t *testing.T, dialect string, wait time.Duration) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").granted(0, "k1", 5, 60*sec).ask(1, "c1", "k1", wait, 30*sec)
	return s.pass(s.req(1, "k1", uint64(wait/sec), 30, 77))
}

func TestMatchTripleEntry(t *testing.T) {
	const message = `call 1 on key "k1" was told acquired (token 99) by s2c.A.1 on session 1, which names owner 78 and key "k1", while the call sent owner 77 and key "k1"`
	for _, own := range []bool{false, true} { // with the right A behind the stray one, and without
		s := waiting(t, v1, 9*sec)
		s.stray(s.got(1, "k1", 78, 99))
		if own {
			s.granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", 77, 7))
		}
		s.acquired(1, "k1", 99)
		r := s.want(s.matching(), "match-triple safety")
		if f := r.Findings[0]; f.Message != message || f.Evidence.Frame != "s2c.A.1" || f.Evidence.Call != 1 {
			t.Errorf("%+v", f)
		}
	}
	both(t, func(t *testing.T, d string) {
		s := waiting(t, d, 9*sec)
		s.stray(s.got(1, "k2", 77, 99)).acquired(1, "k1", 99)
		s.want(s.matching(), "match-triple safety")
	})
}

func TestMatchTripleEntryAcquittals(t *testing.T) {
	play := func(name string, checked bool, f func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			f(s)
			wantChecked(t, s.want(s.matching()), "match-triple", checked)
		})
	}
	play("the right one is told", true, func(s *script) {
		s.stray(s.got(1, "k1", 78, 99)).granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
	})
	play("closed on the stray one", true, func(s *script) {
		s.stray(s.got(1, "k1", 78, 99)).seen(1, "rst").told(1, indet)
	})
	play("both carry the token", true, func(s *script) {
		s.stray(s.got(1, "k1", 78, 99)).stray(s.got(1, "k1", 77, 99)).acquired(1, "k1", 99)
	})
	play("a token that nobody delivered", true, func(s *script) { // for exact-token
		s.stray(s.got(1, "k1", 78, 99)).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 98)
	})
	play("told before the stray one", false, func(s *script) { // for no-entry-unconfirmed
		m := s.got(1, "k1", 78, 99)
		s.acquired(1, "k1", 99).stray(m)
	})
	play("without its newline", false, func(s *script) { // for no-entry-unconfirmed
		m := s.got(1, "k1", 78, 99)
		m, _, n := s.withData(m)
		s.ev[len(s.ev)-1].N, s.ev[len(s.ev)-1].Data = n-1, m.b[:n-1]
		s.acquired(1, "k1", 99)
	})
	play("unread bytes", false, func(s *script) {
		s.stray(s.got(1, "k1", 78, 99)).write(s.got(1, "k1", 77, 7), 0, 20).acquired(1, "k1", 99)
	})
	play("the right triple on another session", false, func(s *script) { // for no-entry-unconfirmed
		s.open(2, "c1").stray(s.got(2, "k1", 77, 99)).acquired(1, "k1", 99)
	})
	play("nothing but its own", false, func(s *script) {
		s.granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
	})
	t.Run("the token of an earlier call", func(t *testing.T) { // for exact-token
		s, a := single(t, v1, 7)
		finish(s.pass(a), 7).ask(2, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 78))
		s.granted(1, "k1", 9, 30*sec).pass(s.got(1, "k1", 78, 9)).acquired(2, "k1", 7)
		s.want(s.matching())
	})
	t.Run("the owner is not known", func(t *testing.T) { // P2: 9 bytes of the request came
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).recv(s.req(1, "k1", 5, 30, 77), 0, 9)
		s.stray(s.got(1, "k1", 78, 99)).acquired(1, "k1", 99)
		s.want(s.matching())
	})
}

func TestMatchTripleEnd(t *testing.T) {
	for op, word := range map[string]string{"T": "timeout", "B": "busy"} {
		for name, m := range map[string]func(*script) msg{
			"owner": func(s *script) msg { return s.answer(1, op, "k1", 78) },
			"key":   func(s *script) msg { return s.answer(1, op, "k2", 77) },
			"op":    func(s *script) msg { return s.answer(1, "N", "k1", 77) },
		} {
			s := waiting(t, v1, 9*sec)
			s.stray(m(s)).told(1, word)
			r := s.want(s.matching(), "match-triple safety")
			if name == "op" && !strings.Contains(r.Findings[0].Message, `told `+word+` by s2c.N.1 on session 1, which names token 77 and key "k1"`) {
				t.Error(r.Findings[0].Message)
			}
			s.event(history.CloseAsked, 0, "c1").seen(1, "fin")
			s.want(s.matching(), "match-triple safety")
		}
	}
	s := waiting(t, v0, 9*sec)
	s.stray(s.answer(1, "T", "k2", 0)).told(1, "timeout")
	s.want(s.matching(), "match-triple safety")
}

// Whatever else may have led to the word acquits.
func TestMatchTripleEndAcquittals(t *testing.T) {
	foreign := func(s *script) *script { return s.stray(s.answer(1, "T", "k1", 78)) }
	for name, play := range map[string]func(s *script){
		"another word":           func(s *script) { foreign(s).told(1, "busy") },
		"indeterminate":          func(s *script) { foreign(s).told(1, indet) },
		"at its deadline":        func(s *script) { foreign(s.wait(9*sec)).told(1, "timeout") },
		"rounded down":           func(s *script) { foreign(s.wait(8900*time.Millisecond)).told(1, "timeout") },
		"long after":             func(s *script) { foreign(s).wait(2*sec).told(1, "timeout") },
		"before":                 func(s *script) { foreign(s.told(1, "timeout")) },
		"cancelled":              func(s *script) { foreign(s).event(history.CancelAsked, 1, "").told(1, "timeout") },
		"client closed":          func(s *script) { foreign(s).event(history.CloseAsked, 0, "c1").told(1, "timeout") },
		"session closed":         func(s *script) { foreign(s).seen(1, "fin").told(1, "timeout") },
		"closed just behind":     func(s *script) { foreign(s).told(1, "timeout").seen(1, "fin") },
		"session cut":            func(s *script) { foreign(s).sent(1, "rst").told(1, "timeout") },
		"moved":                  func(s *script) { foreign(s).pass(s.line(1, s2c, "M", "x")).told(1, "timeout") },
		"error":                  func(s *script) { foreign(s).pass(s.line(1, s2c, "E", "no_leader")).told(1, "timeout") },
		"its own, in part":       func(s *script) { foreign(s).cut(s.answer(1, "T", "k1", 77), 4).told(1, "timeout") },
		"its own":                func(s *script) { foreign(s).pass(s.answer(1, "T", "k1", 77)).told(1, "timeout") },
		"ran late":               func(s *script) { foreign(s).add(history.Event{Kind: history.RanLate}).told(1, "timeout") },
		"on another session":     func(s *script) { s.open(2, "c1").stray(s.answer(2, "T", "k1", 78)).told(1, "timeout") },
		"an N for another token": func(s *script) { s.stray(s.answer(1, "N", "k1", 76)).told(1, "timeout") },
		"a bad T among them": func(s *script) {
			m := s.answer(1, "T", "kk", 78)
			m.b[10] = ' '
			foreign(s.stray(m)).told(1, "timeout")
		},
		"told to its own call": func(s *script) {
			s.ask(2, "c1", "k2", 0, 30*sec).pass(s.req(1, "k2", 0, 30, 78)).pass(s.answer(1, "T", "k2", 78))
			s.told(2, "timeout").told(1, "timeout")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			play(s)
			s.want(s.matching())
		})
	}
}

// One stray T explains one word.
func TestMatchTripleOneFrameOneWord(t *testing.T) {
	s := waiting(t, v1, 9*sec)
	s.ask(2, "c1", "k2", 9*sec, 30*sec).pass(s.req(1, "k2", 9, 30, 79))
	s.stray(s.answer(1, "T", "k1", 78)).told(1, "timeout").told(2, "timeout")
	s.want(s.matching(), "match-triple safety")
}

// releasing plays a right exchange up to the R, which is passed.
func releasing(t *testing.T) *script {
	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1)
	return s.pass(s.rel(1, "k1", 7)).ended(1, "k1", 7)
}

func TestMatchTripleRelease(t *testing.T) {
	s := releasing(t).wait(waitShown)
	s.stray(s.answer(1, "T", "k1", 7)).released(1, "released").pass(s.answer(1, "R", "k1", 7))
	r := s.want(s.matching(), "match-triple safety")
	const message = `the release of call 1 on key "k1", with token 7, was told released by s2c.T.1 on session 1, which names owner 7 and key "k1"; no R or N with its token had been written to the client`
	if r.Findings[0].Message != message {
		t.Error(r.Findings[0].Message)
	}
	s = releasing(t).wait(waitShown)
	s.stray(s.answer(1, "N", "k1", 8)).released(1, "not_held")
	s.want(s.matching(), "match-triple safety")
	s = releasing(t).wait(waitShown)
	s.stray(s.answer(1, "R", "k2", 7)).released(1, "released")
	s.want(s.matching(), "match-triple safety")
	// At once it may be a client that waits for no answer.
	s = releasing(t)
	s.stray(s.answer(1, "N", "k1", 8)).released(1, "not_held")
	s.want(s.matching(), "match-triple safety suspect")
}

func TestMatchTripleReleaseAcquittals(t *testing.T) {
	blind := func(s *script) *script { return s.stray(s.answer(1, "T", "k1", 7)) }
	for name, play := range map[string]func(s *script){
		"right": func(s *script) { s.pass(s.answer(1, "R", "k1", 7)).released(1, "released") },
		"right behind a stray T": func(s *script) {
			blind(s).pass(s.answer(1, "R", "k1", 7)).released(1, "released")
		},
		"repeated on another session": func(s *script) {
			blind(s).seen(1, "fin").open(2, "c1").pass(s.rel(2, "k1", 7)).pass(s.answer(2, "N", "k1", 7)).released(1, "not_held")
		},
		"indeterminate":  func(s *script) { blind(s).released(1, indet) },
		"closed":         func(s *script) { blind(s).seen(1, "fin").released(1, "released") }, // for close-proves-nothing
		"cut":            func(s *script) { blind(s).sent(1, "fin").released(1, "released") },
		"lease over":     func(s *script) { blind(s.wait(30*sec)).released(1, "not_held") },
		"answer in part": func(s *script) { blind(s).cut(s.answer(1, "R", "k1", 7), 5).released(1, "released") },
		"closing":        func(s *script) { blind(s).event(history.CloseAsked, 0, "c1").released(1, "released") },
		"another word":   func(s *script) { s.stray(s.answer(1, "N", "k1", 8)).released(1, "released") },
		"long before":    func(s *script) { blind(s).wait(2*sec).released(1, "released") },
		"another key":    func(s *script) { s.stray(s.answer(1, "T", "k2", 7)).released(1, "released") },
	} {
		t.Run(name, func(t *testing.T) {
			s := releasing(t)
			play(s)
			s.want(s.matching())
		})
	}
	t.Run("no R was sent", func(t *testing.T) { // for close-proves-nothing
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1)
		s.stray(s.answer(1, "T", "k1", 7)).released(1, "released")
		s.want(s.matching())
	})
	t.Run("checked", func(t *testing.T) {
		s := releasing(t)
		s.stray(s.answer(1, "T", "k1", 7)).pass(s.answer(1, "R", "k1", 7)).released(1, "released")
		wantChecked(t, s.want(s.matching()), "match-triple", true)
	})
}
