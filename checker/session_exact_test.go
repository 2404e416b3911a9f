package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

func TestExactSession(t *testing.T) {
	for _, dialect := range []string{v1, v0} {
		s := newScript(t, dialect)
		for n := range 3 {
			s.tornRound(n, true)
		}
		s.wait(sec).tick()
		r := s.want(s.sessioned(), "exact-session hygiene")
		if got := r.Findings[0].Message; !strings.HasPrefix(got, "client c1 closed another session, too, each of the 3 times that a call's deadline passed: last, call 5 expired on session 12 and session 22, on which call 6 was waiting until ") {
			t.Error(got)
		}
		if r.Verdict() != NonStrict {
			t.Error(r.Verdict())
		}
		s = newScript(t, dialect)
		for n := range 3 {
			s.tornRound(n, false)
		}
		s.wait(sec).tick()
		wantChecked(t, s.want(s.sessioned()), "exact-session", true)
	}
	// Twice is not three times, and two of three is no habit.
	s := newScript(t, v1)
	s.tornRound(0, true).tornRound(1, true).wait(sec).tick()
	wantChecked(t, s.want(s.sessioned()), "exact-session", false)
	s = newScript(t, v1)
	s.tornRound(0, true).tornRound(1, false).tornRound(2, true).wait(sec).tick()
	wantChecked(t, s.want(s.sessioned()), "exact-session", true)
}

// tornRound is a round whose other session, a fresh one, is closed as well.
func (s *script) tornRound(n int, both bool) *script {
	return s.besides(n, func(own, beside int, quiet, other int) {
		s.seen(own, history.RST)
		if both {
			s.seen(beside, history.RST)
		}
		s.told(quiet, indet)
		if both {
			s.told(other, indet)
		}
		s.wait(sec)
	})
}

// besides plays a round with two sessions of its own, up to the deadline of the quiet
// call.
func (s *script) besides(n int, do func(own, beside, quiet, other int)) *script {
	own, beside, quiet, other := 10+n, 20+n, 2*n+1, 2*n+2
	key := "beside-" + string(rune('0'+n))
	s.open(beside, "c1").ask(other, "c1", key, 9*sec, 30*sec).pass(s.req(beside, key, 9, 30, uint64(70+n)))
	s.open(own, "c1").ask(quiet, "c1", "quiet", sec, quietLease(n)).pass(s.req(own, "quiet", 1, uint64(20+n), uint64(90+n)))
	s.wait(sec)
	do(own, beside, quiet, other)
	return s
}

// quietLease gives the nth quiet call a lease that no other has, as the workload does.
func quietLease(n int) time.Duration { return time.Duration(20+n) * sec }

// alone is the policy under which one rule is judged.
func (s *script) alone(rule string) Policy {
	p := s.sessioned()
	p.Only = map[string]bool{rule: true}
	return p
}

func TestExactSessionAcquittals(t *testing.T) {
	play := func(name string, do func(s *script, own, beside, quiet, other int)) {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1)
			for n := range 3 {
				s.besides(n, func(own, beside, quiet, other int) { do(s, own, beside, quiet, other) })
				s.wait(sec)
			}
			wantChecked(t, s.tick().want(s.alone("exact-session")), "exact-session", false)
		})
	}
	ends := func(s *script, own, beside, quiet, other int) {
		s.seen(own, history.RST).seen(beside, history.RST).told(quiet, indet).told(other, indet)
	}
	play("the other was cut by us", func(s *script, own, beside, quiet, other int) {
		s.sent(beside, history.RST)
		ends(s, own, beside, quiet, other)
	})
	play("both were asked to close", func(s *script, own, beside, quiet, other int) {
		s.event(history.CloseAsked, 0, "c1")
		ends(s, own, beside, quiet, other)
	})
	play("the other was told to go", func(s *script, own, beside, quiet, other int) {
		s.stray(s.line(beside, s2c, "M", "127.0.0.9:9"))
		ends(s, own, beside, quiet, other)
	})
	play("the other got an error", func(s *script, own, beside, quiet, other int) {
		s.stray(s.line(beside, s2c, "E", "not_active"))
		ends(s, own, beside, quiet, other)
	})
	play("a fault touched the other", func(s *script, own, beside, quiet, other int) {
		s.add(history.Event{Kind: history.Fired, Session: beside, Dir: s2c, Fault: "stall"})
		ends(s, own, beside, quiet, other)
	})
	play("the other was answered, and idle", func(s *script, own, beside, quiet, other int) {
		n := uint64(own - 10)
		s.pass(s.answer(beside, "B", "beside-"+string(rune('0'+n)), 70+n)).told(other, "busy")
		s.seen(own, history.RST).seen(beside, history.RST).told(quiet, indet)
	})
	play("the other was cancelled", func(s *script, own, beside, quiet, other int) {
		s.event(history.CancelAsked, other, "")
		ends(s, own, beside, quiet, other)
	})
	play("the deadline of the other had passed", func(s *script, own, beside, quiet, other int) {
		s.wait(9 * sec)
		ends(s, own, beside, quiet, other)
	})
	play("both were asked to close, and one was", func(s *script, own, beside, quiet, other int) {
		s.event(history.CloseAsked, 0, "c1").seen(own, history.RST).told(quiet, indet)
	})
	play("they were asked to close in between", func(s *script, own, beside, quiet, other int) {
		s.seen(own, history.RST).event(history.CloseAsked, 0, "c1").seen(beside, history.RST).told(quiet, indet).told(other, indet)
	})
	play("its own was cut by us", func(s *script, own, beside, quiet, other int) {
		s.sent(own, history.RST)
		ends(s, own, beside, quiet, other)
	})
	play("it closed its own much later", func(s *script, own, beside, quiet, other int) {
		s.wait(4 * sec)
		ends(s, own, beside, quiet, other)
	})
	play("a release on the other had no answer", func(s *script, own, beside, quiet, other int) {
		s.pass(s.rel(beside, "k9", 9))
		ends(s, own, beside, quiet, other)
	})
	play("the other began to wait after the deadline", func(s *script, own, beside, quiet, other int) {
		n := uint64(own - 10)
		s.pass(s.answer(beside, "B", "beside-"+string(rune('0'+n)), 70+n)).told(other, "busy")
		s.ask(other+20, "c1", "later", 9*sec, 30*sec).pass(s.req(beside, "later", 9, 30, 170+n))
		s.seen(own, history.RST).seen(beside, history.RST).told(quiet, indet).told(other+20, indet)
	})
	play("it did not close its own", func(s *script, own, beside, quiet, other int) {
		s.seen(beside, history.RST).told(quiet, indet).told(other, indet)
	})
	play("the quiet one was answered", func(s *script, own, beside, quiet, other int) {
		s.pass(s.answer(own, "T", "quiet", uint64(90+own-10))).told(quiet, "timeout")
		s.seen(own, history.RST).seen(beside, history.RST).told(other, indet)
	})
	t.Run("closed before the deadline", func(t *testing.T) {
		s := newScript(t, v1)
		for n := range 3 {
			s.open(20+n, "c1").ask(2*n+2, "c1", "beside", 9*sec, 30*sec).pass(s.req(20+n, "beside", 9, 30, uint64(70+n)))
			s.open(10+n, "c1").ask(2*n+1, "c1", "quiet", sec, quietLease(n)).pass(s.req(10+n, "quiet", 1, uint64(20+n), uint64(90+n)))
			ends(s, 10+n, 20+n, 2*n+1, 2*n+2)
			s.wait(2 * sec)
		}
		wantChecked(t, s.tick().want(s.alone("exact-session")), "exact-session", false)
	})
	// "Never a finding" 14: a call on the very session ends with it.
	t.Run("one session", func(t *testing.T) {
		s := newScript(t, v1)
		for n := range 3 {
			s.open(10+n, "c1").ask(2*n+1, "c1", "other", 9*sec, 30*sec).pass(s.req(10+n, "other", 9, 30, uint64(70+n)))
			s.ask(2*n+2, "c1", "quiet", sec, 5*sec).pass(s.req(10+n, "quiet", 1, 5, uint64(90+n)))
			s.wait(sec).seen(10+n, history.RST).told(2*n+1, indet).told(2*n+2, indet).wait(sec)
		}
		wantChecked(t, s.tick().want(s.alone("exact-session")), "exact-session", false)
	})
}
