package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

// straying judges the rules about what nobody waits for, and nobody can read.
func (s *script) straying() Policy {
	p := s.policy()
	p.Profile, p.Only = ProfileOfficial, map[string]bool{}
	for _, r := range strayRules() {
		p.Only[r.ID] = true
	}
	return p
}

// foreignGrant plays a call on k1 with owner 77 that waits, and a grant of that key
// for owner 78, with token 99.
func foreignGrant(t *testing.T) *script {
	s := waiting(t, v1, 9*sec)
	return s.stray(s.got(1, "k1", 78, 99))
}

// granted1 plays the grant that the call on k1 waited for: it is a barrier.
func (s *script) granted1() *script {
	return s.granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
}

// more plays a further call, sent on a session after a time.
func (s *script) more(call, session int, after time.Duration) *script {
	s.ask(call, "c1", "k2", 5*sec, 30*sec).wait(after)
	return s.pass(s.req(session, "k2", 5, 30, uint64(100+call)))
}

func TestUnmatchedCloses(t *testing.T) {
	s := foreignGrant(t).granted1().more(2, 1, sec/4)
	r := s.want(s.straying(), "unmatched-closes contract")
	const message = `client c1 sent c2s.A.2 on session 1 for call 2, although it had read s2c.A.1 there, which names owner 78 and key "k1" ` +
		`and answers nothing it had sent (call 1 was told acquired by s2c.A.2 behind it, 254.000 ms before)`
	if f := r.Findings[0]; f.Message != message || f.Evidence.Frame != "s2c.A.1" || f.Evidence.Call != 2 {
		t.Errorf("%+v", f)
	}
	for name, stray := range map[string]func(s *script) msg{
		"another key":                func(s *script) msg { return s.got(1, "k9", 77, 99) },
		"a T":                        func(s *script) msg { return s.answer(1, "T", "k1", 78) },
		"a B":                        func(s *script) msg { return s.answer(1, "B", "k9", 77) },
		"the answer to no release":   func(s *script) msg { return s.answer(1, "R", "k1", 77) },
		"a not held for no release":  func(s *script) msg { return s.answer(1, "N", "k1", 5) },
		"a key that is only a start": func(s *script) msg { return s.got(1, "k", 77, 99) },
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			s.stray(stray(s)).granted1().more(2, 1, sec/4)
			s.want(s.straying(), "unmatched-closes contract")
		})
	}
	t.Run("an R with its token shows it", func(t *testing.T) {
		s := foreignGrant(t)
		s.open(2, "c1").pass(s.rel(2, "k1", 99)).pass(s.answer(2, "N", "k1", 99)).more(2, 1, sec/4)
		s.want(s.straying(), "unmatched-closes contract")
	})
	t.Run("the answer to a release shows it", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).stray(s.got(1, "k1", 78, 99)).leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7))
		s.pass(s.answer(1, "R", "k1", 7)).released(1, "released").more(2, 1, sec/4)
		s.want(s.straying(), "unmatched-closes contract")
	})
	t.Run("a grant that comes twice", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).stray(s.got(1, "k1", 77, 7)).barrier().more(3, 1, sec/4)
		s.want(s.straying(), "unmatched-closes contract")
	})
	t.Run("v0", func(t *testing.T) {
		s := waiting(t, v0, 9*sec)
		s.stray(s.got(1, "k9", 0, 99)).granted1().more(2, 1, sec/4)
		s.want(s.straying(), "unmatched-closes hygiene")
	})
}

func TestUnmatchedClosesAcquittals(t *testing.T) {
	play := func(name string, checked bool, f func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := foreignGrant(t)
			f(s)
			wantChecked(t, s.want(s.straying()), "unmatched-closes", checked)
		})
	}
	play("closed with a FIN", true, func(s *script) { s.seen(1, "fin").told(1, indet).open(2, "c1").more(2, 2, sec/4) })
	play("closed with an RST", true, func(s *script) { s.seen(1, "rst").told(1, indet).open(2, "c1").more(2, 2, sec/4) })
	play("closed after the barrier", true, func(s *script) { s.granted1().seen(1, "fin").open(2, "c1").more(2, 2, sec/4) })
	play("no proof that it was read", false, func(s *script) { s.told(1, indet).more(2, 1, sec/4) })
	play("asked for before the proof", false, func(s *script) { // P6
		s.ask(2, "c1", "k2", 5*sec, 30*sec).granted1().wait(sec / 4).pass(s.req(1, "k2", 5, 30, 102))
	})
	play("at once after the proof", false, func(s *script) { s.granted1().more(2, 1, 190*time.Millisecond) })
	play("on another session", false, func(s *script) { s.granted1().open(2, "c1").more(2, 2, sec/4) })
	play("an A that may be another call's", false, func(s *script) {
		s.ask(3, "c1", "k2", 5*sec, 30*sec).granted1().more(2, 1, sec/4)
	})
	play("the client is closed", false, func(s *script) { s.granted1().event(history.CloseAsked, 0, "c1").seen(1, "fin") })
	play("unread bytes", false, func(s *script) {
		s.write(s.got(1, "k1", 77, 7), 0, 20).granted1().more(2, 1, sec/4)
	})
	for name, play := range map[string]func(s *script){
		"the answer to its call, which has given up": func(s *script) { // §3.6
			s.told(1, indet).pass(s.got(1, "k1", 77, 7)).barrier().more(3, 1, sec/4)
		},
		"one of two answers to two releases": func(s *script) { // "Never a finding" 4
			s.granted1().leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7)).pass(s.rel(1, "k1", 7))
			s.pass(s.answer(1, "R", "k1", 7)).released(1, "released").pass(s.answer(1, "N", "k1", 7)).barrier().more(3, 1, sec/4)
		},
		"its request came in part": func(s *script) { // P2
			s.ask(4, "c1", "k4", 5*sec, 30*sec).recv(s.req(1, "k4", 5, 30, 79), 0, 9)
			s.stray(s.got(1, "k4", 79, 99)).granted1().more(2, 1, sec/4)
		},
		"told before it came": func(s *script) { s.granted1().stray(s.got(1, "k1", 78, 99)).more(2, 1, sec/4) },
		"not whole": func(s *script) {
			m, _, n := s.withData(s.got(1, "k1", 78, 99))
			s.ev[len(s.ev)-1].N, s.ev[len(s.ev)-1].Data = n-1, m.b[:n-1]
			s.granted1().more(2, 1, sec/4)
		},
		"requests that could not be read": func(s *script) {
			s.stray(s.got(1, "k1", 78, 99)).add(history.Event{Kind: history.WentOpaque, Session: 1, Dir: c2s}).granted1().more(2, 1, sec/4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t, v1, 9*sec)
			play(s)
			s.want(s.straying())
		})
	}
	t.Run("v0 answers by key", func(t *testing.T) {
		s := waiting(t, v0, 9*sec)
		s.stray(s.answer(1, "T", "k1", 0)).told(1, "timeout").ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 0))
		s.granted(1, "k2", 9, 30*sec).pass(s.got(1, "k2", 0, 9)).acquired(2, "k2", 9).more(3, 1, sec/4)
		s.want(s.straying())
	})
	t.Run("another A had the token", func(t *testing.T) { // the R may be for that one
		s := foreignGrant(t)
		s.open(2, "c1").stray(s.got(2, "k1", 78, 99)).pass(s.rel(2, "k1", 99)).more(2, 1, sec/4)
		s.want(s.straying())
	})
	t.Run("malformed", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		s.raw(1, breaches["a key with a space"]).granted1().more(2, 1, sec/4)
		s.want(s.straying(), "unknown-fatal safety")
	})
}
