package checker

import (
	"testing"

	"tornwire/history"
)

// acked records how many bytes of what was written to a client its kernel had
// acknowledged.
func (s *script) acked(session, n int) *script {
	return s.add(history.Event{Kind: history.Acked, Session: session, Dir: s2c, N: n, Total: 1000})
}

const prefaceSize = len("node-1 nonce\n")

// A T or B that the client's kernel never acknowledged was not read, whatever came
// after it.
func TestUnacknowledgedProvesNothing(t *testing.T) {
	for op, rule := range finals {
		for _, word := range []string{"error", "unsent"} {
			size := len(answered(t, op).answer(1, op, "k1", 77).b)
			s := answered(t, op).told(1, word)
			s.acked(1, prefaceSize+size)
			s.want(s.matching(), rule+" contract")
			s = answered(t, op).told(1, word)
			s.acked(1, prefaceSize+size-1)
			wantChecked(t, s.want(s.matching()), rule, false)
		}
	}
}

// Another definite word than the frame's is header-by-count's only where the frame was
// read; a client that tells a reset as a timeout is wrong in another way.
func TestHeaderByCountNeedsReading(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		for name, play := range map[string]func(s *script, a msg){
			"reset with it": func(s *script, a msg) { s.pass(a).sent(1, "rst").told(1, "timeout") },
			"long after":    func(s *script, a msg) { s.pass(a).wait(2*sec).told(1, "timeout") },
			"not acknowledged": func(s *script, a msg) {
				s.pass(a).told(1, "timeout").acked(1, prefaceSize+len(a.b)-1)
			},
			"moved": func(s *script, a msg) { s.pass(a).pass(s.line(1, s2c, "M", "x")).told(1, "timeout") },
		} {
			t.Run(name, func(t *testing.T) {
				s, a := single(t, d, nls)
				play(s, a)
				s.want(s.policy())
			})
		}
		s, a := single(t, d, nls)
		s.pass(a).told(1, "timeout").acked(1, prefaceSize+len(a.b))
		s.want(s.policy(), "header-by-count safety")
	})
	// A frame behind it whose effect was told before is proof at any time.
	s, a := single(t, v1, nls)
	s.pass(a).ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).granted(1, "k2", 9, 30*sec)
	s.pass(s.got(1, "k2", 78, 9)).acquired(2, "k2", 9).wait(2*sec).told(1, "timeout")
	s.want(s.policy(), "header-by-count safety")
	s, a = single(t, v1, nls) // one that was told later is none
	s.pass(a).ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).granted(1, "k2", 9, 30*sec)
	s.pass(s.got(1, "k2", 78, 9)).wait(2*sec).told(1, "timeout").acquired(2, "k2", 9)
	s.want(s.policy())
}

func TestHeaderByCountOfReleaseNeedsReading(t *testing.T) {
	play := func(more func(s *script, size int)) *script {
		s, a := single(t, v1, nls)
		s.pass(a).acquired(1, "k1", nls).leave(1, "k1", nls).ask2release(1)
		s.pass(s.rel(1, "k1", nls)).ended(1, "k1", nls).pass(s.answer(1, "R", "k1", nls))
		more(s, prefaceSize+len(a.b)+12)
		return s
	}
	for name, c := range map[string]struct {
		play  func(s *script, size int)
		found bool
	}{
		"at once":             {func(s *script, _ int) { s.released(1, "not_held") }, true},
		"acknowledged":        {func(s *script, size int) { s.released(1, "not_held").acked(1, size) }, true},
		"not acknowledged":    {func(s *script, size int) { s.released(1, "not_held").acked(1, size-1) }, false},
		"cut":                 {func(s *script, _ int) { s.sent(1, "fin").released(1, "not_held") }, false},
		"long after":          {func(s *script, _ int) { s.wait(2*sec).released(1, "not_held") }, false},
		"reset by the client": {func(s *script, _ int) { s.seen(1, "rst").released(1, "not_held") }, false},
	} {
		s := play(c.play)
		p := s.policy()
		p.Only = map[string]bool{"header-by-count": true}
		t.Run(name, func(t *testing.T) {
			s.t = t
			if c.found {
				s.want(p, "header-by-count safety")
			} else {
				s.want(p)
			}
		})
	}
}

// A client whose connection ended with the B may send again because it has not read it.
func TestBusyNotRetriedNeedsReading(t *testing.T) {
	play := func(how string) *script {
		s := waiting(t, v1, 9*sec)
		b := s.answer(1, "B", "k1", 77)
		s.pass(b)
		if how == "rst" {
			s.sent(1, "rst")
		}
		s.open(2, "c1").pass(s.req(2, "k1", 9, 30, 78))
		if how == "unacknowledged" {
			s.acked(1, prefaceSize+len(b.b)-1)
		}
		return s.told(1, indet)
	}
	p := play("").matching()
	p.Only = map[string]bool{"busy-not-retried": true, "one-attempt": true}
	for how, found := range map[string][]string{"": {"busy-not-retried hygiene"}, "rst": nil, "unacknowledged": nil} {
		s := play(how)
		s.want(p, found...)
	}
}

// The word of an adapter that may be late can be older than the frame (P11).
func TestLateWordsProveNothing(t *testing.T) {
	for op, rule := range finals {
		for word, found := range map[string]bool{"error": false, indet: false, "unsent": true} {
			s := answered(t, op).told(1, word)
			p := s.matching()
			p.NoPong = true
			if found {
				s.want(p, rule+" contract")
			} else {
				wantChecked(t, s.want(p), rule, false)
			}
		}
	}
	s, a := single(t, v1, nls)
	s.pass(a).told(1, "timeout")
	p := s.policy()
	p.NoPong = true
	s.want(p)

	s, a = single(t, v1, nls)
	s.pass(a).acquired(1, "k1", nls).leave(1, "k1", nls).ask2release(1)
	s.pass(s.rel(1, "k1", nls)).ended(1, "k1", nls).pass(s.answer(1, "R", "k1", nls)).released(1, "not_held")
	p.Only = map[string]bool{"header-by-count": true}
	s.want(p)
	p.NoPong = false
	s.want(p, "header-by-count safety")
}
