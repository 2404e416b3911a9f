package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

// answered plays a call that is answered T or B at once: wait 0 for a T, 9 s for a B.
func answered(t *testing.T, op string) *script {
	wait := 9 * sec
	if op == "T" {
		wait = 0
	}
	s := waiting(t, v1, wait)
	return s.pass(s.answer(1, op, "k1", 77))
}

var finals = map[string]string{"T": "timeout-final", "B": "busy-final"}

func TestFinalWords(t *testing.T) {
	right := map[string]string{"T": "timeout", "B": "busy"}
	for op, rule := range finals {
		for _, word := range []string{"timeout", "busy", "error", indet, "unsent"} {
			s := answered(t, op).told(1, word)
			if word == right[op] {
				wantChecked(t, s.want(s.matching()), rule, true)
				continue
			}
			r := s.want(s.matching(), rule+" contract")
			if word == "error" && op == "T" && r.Findings[0].Message != `call 1 on key "k1" was told error although s2c.T.1, its Timeout, had been written 2.000 ms before, and nothing else had happened` {
				t.Error(r.Findings[0].Message)
			}
			// Closing on it is the client's own doing.
			s = answered(t, op).seen(1, "fin").told(1, word)
			s.want(s.matching(), rule+" contract")
			s = answered(t, op).seen(1, "fin").sent(1, "fin").told(1, word)
			s.want(s.matching(), rule+" contract")
			// A quick client tells before it is noted that our kernel took the frame.
			s = waiting(t, v1, map[string]time.Duration{"T": 0, "B": 9 * sec}[op])
			m := s.answer(1, op, "k1", 77)
			n := len(m.b)
			s.recv(m, 0, n).bytes(history.WriteBegun, m, 0, n).told(1, word).bytes(history.WriteAccepted, m, 0, n)
			s.want(s.matching(), rule+" contract")
		}
		// P15: where the right word cannot be said, error is not judged; another word is.
		p := answered(t, op).matching()
		p.Outcomes = []string{acq, "error", indet}
		s := answered(t, op).told(1, "error")
		wantChecked(t, s.want(p), rule, false)
		s = answered(t, op).told(1, indet)
		s.want(p)
		s = answered(t, op).told(1, "unsent")
		s.want(p, rule+" contract")
	}
}

// What was not read for certain, and what something else may have led to, acquits.
func TestFinalWordsAcquittals(t *testing.T) {
	for op, rule := range finals {
		for name, play := range map[string]func(s *script){
			"told before": func(s *script) { s.told(1, indet).pass(s.answer(1, op, "k1", 77)) },
			"not accepted": func(s *script) {
				m := s.answer(1, op, "k1", 77)
				s.recv(m, 0, 12).bytes(history.WriteBegun, m, 0, 12).told(1, indet)
			},
			"reset before":  func(s *script) { s.pass(s.answer(1, op, "k1", 77)).seen(1, "rst").told(1, indet) },
			"reset after":   func(s *script) { s.pass(s.answer(1, op, "k1", 77)).told(1, "error").wait(900*msec).seen(1, "rst") },
			"in part":       func(s *script) { s.cut(s.answer(1, op, "k1", 77), 11).told(1, indet) },
			"closed before": func(s *script) { s.seen(1, "fin").pass(s.answer(1, op, "k1", 77)).told(1, indet) },
			"cut":           func(s *script) { s.pass(s.answer(1, op, "k1", 77)).sent(1, "fin").told(1, indet) },
			"cancelled":     func(s *script) { s.pass(s.answer(1, op, "k1", 77)).event(history.CancelAsked, 1, "").told(1, indet) },
			"closing":       func(s *script) { s.pass(s.answer(1, op, "k1", 77)).event(history.CloseAsked, 0, "c1").told(1, indet) },
			"ran late": func(s *script) {
				s.pass(s.answer(1, op, "k1", 77)).add(history.Event{Kind: history.RanLate}).told(1, indet)
			},
			"at the end":     func(s *script) { s.wait(9*sec).pass(s.answer(1, op, "k1", 77)).told(1, indet) },
			"long after":     func(s *script) { s.pass(s.answer(1, op, "k1", 77)).wait(2*sec).told(1, "error") },
			"moved":          func(s *script) { s.pass(s.answer(1, op, "k1", 77)).pass(s.line(1, s2c, "M", "x")).told(1, indet) },
			"a stray before": func(s *script) { s.stray(s.answer(1, op, "k1", 78)).pass(s.answer(1, op, "k1", 77)).told(1, indet) },
			"two answers":    func(s *script) { s.pass(s.answer(1, op, "k1", 77)).pass(s.got(1, "k1", 77, 7)).told(1, indet) },
			"a foreign one":  func(s *script) { s.stray(s.answer(1, op, "k1", 78)).told(1, indet) },
			"a deadline of another call on the session": func(s *script) {
				s.ask(2, "c1", "k2", sec, 30*sec).pass(s.req(1, "k2", 1, 30, 78)).wait(sec)
				s.pass(s.answer(1, op, "k1", 77)).told(1, indet)
			},
			"a cancel of another call": func(s *script) {
				s.ask(2, "c1", "k2", 9*sec, 30*sec).pass(s.req(1, "k2", 9, 30, 78)).event(history.CancelAsked, 2, "")
				s.pass(s.answer(1, op, "k1", 77)).told(1, indet)
			},
		} {
			t.Run(op+" "+name, func(t *testing.T) {
				s := waiting(t, v1, 9*sec)
				play(s)
				wantChecked(t, s.want(s.matching()), rule, false)
			})
		}
		// A little late is right; the right word before the frame is another rule's.
		word := map[string]string{"T": "timeout", "B": "busy"}[op]
		s := waiting(t, v1, 9*sec)
		s.wait(9*sec).pass(s.answer(1, op, "k1", 77)).wait(sec).told(1, word)
		wantChecked(t, s.want(s.matching()), rule, true)
		s = waiting(t, v1, 9*sec)
		s.told(1, word).pass(s.answer(1, op, "k1", 77))
		wantChecked(t, s.want(s.matching()), rule, false)
	}
}

// A definite word that is not T's is wrong at any time; after a B, unless it is said to
// be final, a client may have meant to try again until its deadline.
func TestFinalWordsAfterTheDeadline(t *testing.T) {
	s := waiting(t, v1, 9*sec)
	s.wait(9*sec).pass(s.answer(1, "T", "k1", 77)).told(1, "unsent")
	s.want(s.matching(), "timeout-final contract")
	s = waiting(t, v1, 9*sec)
	s.pass(s.answer(1, "B", "k1", 77)).wait(9*sec).told(1, "timeout")
	p := s.matching()
	wantChecked(t, s.want(p), "busy-final", false)
	p.Busy = BusyFinal
	s.want(p, "busy-final contract")
	p.Busy = BusyRetry
	wantChecked(t, s.want(p), "busy-not-retried", false)
}

// The owner is a random choice: a client that stumbles over its newlines is found by
// header-by-count, where the token has them.
func TestFinalWordsWithNewlines(t *testing.T) {
	s := newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 0, 30*sec).pass(s.req(1, "k1", 0, 30, nls)).pass(s.answer(1, "T", "k1", nls)).told(1, "error")
	s.want(s.matching())
	s.ev[len(s.ev)-1].Outcome = "timeout"
	wantChecked(t, s.want(s.matching()), "timeout-final", true)
}

// In v0 the T must be for the one request that had no answer.
func TestTimeoutFinalWithoutOwners(t *testing.T) {
	play := func() *script {
		s, a := single(t, v0, 7)
		s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 0)).pass(s.answer(1, "R", "k1", 0)).released(1, "released")
		return s.ask(2, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 0)).wait(sec).pass(s.answer(1, "T", "k1", 0))
	}
	s := play().told(2, "timeout")
	wantChecked(t, s.want(s.matching()), "timeout-final", true)
	s = play().told(2, "unsent")
	s.want(s.matching(), "timeout-final contract")
	s = play().told(2, "error") // at its deadline
	s.want(s.matching())

	s = newScript(t, v0) // two requests
	s.open(1, "c1").ask(1, "c1", "k1", 9*sec, 3*sec).ask(2, "c1", "k1", sec, 30*sec)
	s.pass(s.req(1, "k1", 9, 3, 0)).pass(s.req(1, "k1", 1, 30, 0)).wait(sec).pass(s.answer(1, "T", "k1", 0)).told(2, "unsent")
	wantChecked(t, s.want(s.matching()), "timeout-final", false)
}

// retried plays a call that sends another A after a B.
func retried(t *testing.T, owner uint64) *script {
	s := answered(t, "B").wait(10 * ms1)
	return s.pass(s.req(1, "k1", 9, 30, owner)).granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", owner, 7)).acquired(1, "k1", 7)
}

const ms1 = sec / 1000

func TestBusyNotRetried(t *testing.T) {
	for policy, findings := range map[string][]string{
		"": {"busy-not-retried hygiene"}, BusyUnsettled: {"busy-not-retried hygiene"}, BusyFinal: {"busy-not-retried contract"}, BusyRetry: nil,
	} {
		s := retried(t, 78)
		p := s.matching()
		p.Busy = policy
		r := s.want(p, findings...)
		wantChecked(t, r, "busy-not-retried", policy != BusyRetry)
		if len(findings) > 0 && r.Findings[0].Message != `call 1 on key "k1" sent c2s.A.2 on session 1 although s2c.B.1 had answered its c2s.A.1 12.000 ms before` {
			t.Error(r.Findings[0].Message)
		}
		s = retried(t, 77) // the same owner again is direct
		s.want(p, append(findings, "no-resend contract")...)
	}
}

func TestBusyNotRetriedBounds(t *testing.T) {
	t.Run("twice", func(t *testing.T) {
		s := answered(t, "B")
		s.pass(s.req(1, "k1", 9, 30, 78)).pass(s.answer(1, "B", "k1", 78)).pass(s.req(1, "k1", 9, 30, 79)).told(1, indet)
		s.want(s.matching(), "busy-not-retried hygiene") // the call is told once
	})
	t.Run("after an attempt that was not answered", func(t *testing.T) {
		s := answered(t, "B")
		s.pass(s.req(1, "k1", 9, 30, 78)).sent(1, "rst").open(2, "c1").pass(s.req(2, "k1", 9, 30, 79)).told(1, indet)
		s.want(s.matching(), "busy-not-retried hygiene", "one-attempt contract")
	})
	t.Run("the B came in part", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		s.cut(s.answer(1, "B", "k1", 77), 11).pass(s.req(1, "k1", 9, 30, 78)).told(1, indet)
		s.want(s.matching(), "one-attempt contract")
	})
	t.Run("the B was on its way", func(t *testing.T) { // begun, not accepted: neither rule
		s := waiting(t, v1, 9*sec)
		m := s.answer(1, "B", "k1", 77)
		s.recv(m, 0, 12).bytes(history.WriteBegun, m, 0, 12).pass(s.req(1, "k1", 9, 30, 78)).bytes(history.WriteAccepted, m, 0, 12).told(1, indet)
		s.want(s.matching())
	})
	t.Run("a foreign B", func(t *testing.T) {
		s := waiting(t, v1, 9*sec)
		s.stray(s.answer(1, "B", "k1", 70)).pass(s.req(1, "k1", 9, 30, 78)).told(1, indet)
		s.want(s.matching(), "one-attempt contract")
	})
	t.Run("a new call of the application", func(t *testing.T) {
		s := answered(t, "B").told(1, "busy").ask(2, "c1", "k1", 9*sec, 30*sec)
		s.pass(s.req(1, "k1", 9, 30, 78)).pass(s.answer(1, "B", "k1", 78)).told(2, "busy")
		wantChecked(t, s.want(s.matching()), "busy-not-retried", true)
	})
	t.Run("after busy was told", func(t *testing.T) {
		s := answered(t, "B").told(1, "busy")
		s.pass(s.req(1, "k1", 9, 30, 78))
		s.want(s.matching(), "busy-not-retried hygiene")
	})
	t.Run("several calls run", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 9*sec, 30*sec).ask(2, "c1", "k1", 9*sec, 30*sec)
		s.pass(s.req(1, "k1", 9, 30, 1)).pass(s.answer(1, "B", "k1", 1)).pass(s.req(1, "k1", 9, 30, 2)).pass(s.req(1, "k1", 9, 30, 3))
		s.want(s.matching())
	})
	t.Run("without calls", func(t *testing.T) { // P13
		s := newScript(t, v1)
		s.open(1, "c1").pass(s.req(1, "k1", 9, 30, 1)).pass(s.answer(1, "B", "k1", 1)).pass(s.req(1, "k1", 9, 30, 2))
		wantChecked(t, s.want(s.matching()), "busy-not-retried", false)
	})
}
