package checker

import (
	"strings"
	"testing"

	"tornwire/history"
)

// lateKnown plays a call that ends indeterminate at its deadline, and whose A comes a
// little later on the session, which is still open.
func lateKnown(t *testing.T) *script {
	s := newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).pass(s.req(1, "k1", 1, 5, 77)).granted(1, "k1", 7, 5*sec)
	return s.wait(sec).told(1, indet).wait(sec / 2).pass(s.got(1, "k1", 77, 7))
}

// barrier plays a further call on the session, whose grant is told.
func (s *script) barrier() *script {
	s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).granted(1, "k2", 9, 30*sec)
	return s.pass(s.got(1, "k2", 78, 9)).acquired(2, "k2", 9)
}

// expire ends the lease of token 7, and goes on.
func (s *script) expire() *script {
	return s.wait(5*sec).ended(0, "k1", 7).wait(sec).event(history.CallStarted, 2, "")
}

func TestReleaseKnown(t *testing.T) {
	s := lateKnown(t).barrier().expire()
	r := s.want(s.matching(), "release-known hygiene")
	const message = `call 1 on key "k1" was told indeterminate and client c1 never sent an R with token 7, which it had read in s2c.A.1 ` +
		`(call 2 was told acquired by s2c.A.2 behind it at `
	if f := r.Findings[0]; !strings.HasPrefix(f.Message, message) || r.Verdict() != NonStrict {
		t.Error(f.Message)
	}
	p := s.matching()
	p.SawTable = false
	wantChecked(t, s.want(p), "release-known", false)
	p.SawTable, p.NoPong = true, true
	wantChecked(t, s.want(p), "release-known", false)

	s = lateKnown(t) // a T at once is a barrier too
	s.ask(2, "c1", "k2", 0, 30*sec).pass(s.req(1, "k2", 0, 30, 78)).pass(s.answer(1, "T", "k2", 78)).told(2, "timeout").expire()
	s.want(s.matching(), "release-known hygiene")

	s = newScript(t, v1) // or the result itself, with the token
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 5*sec).pass(s.req(1, "k1", 5, 5, 77)).granted(1, "k1", 7, 5*sec).pass(s.got(1, "k1", 77, 7))
	s.add(history.Event{Kind: history.CallResult, Call: 1, Outcome: indet, Token: 7, HasToken: true}).expire()
	s.want(s.matching(), "release-known hygiene")

	// A release that was answered behind it shows it too.
	s = newScript(t, v1)
	s.open(1, "c1").ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).granted(1, "k2", 6, 30*sec).pass(s.got(1, "k2", 78, 6)).acquired(2, "k2", 6)
	s.ask(1, "c1", "k1", 5*sec, 5*sec).pass(s.req(1, "k1", 5, 5, 77)).granted(1, "k1", 7, 5*sec)
	s.event(history.CancelAsked, 1, "").told(1, indet).pass(s.got(1, "k1", 77, 7))
	s.leave(2, "k2", 6).ask2release(2).pass(s.rel(1, "k2", 6)).pass(s.answer(1, "R", "k2", 6)).released(2, "released").expire()
	s.want(s.matching(), "release-known hygiene")
}

func TestReleaseKnownAcquittals(t *testing.T) {
	play := func(name string, checked bool, f func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := lateKnown(t)
			f(s)
			wantChecked(t, s.want(s.matching()), "release-known", checked)
		})
	}
	play("released", true, func(s *script) { s.barrier().pass(s.rel(1, "k1", 7)).ended(1, "k1", 7).expire() })
	play("its R shows that it was read", true, func(s *script) { s.open(2, "c1").pass(s.rel(2, "k1", 7)).ended(2, "k1", 7).expire() })
	play("released on another session", true, func(s *script) { s.barrier().open(2, "c1").pass(s.rel(2, "k1", 7)).expire() })
	play("released after the lease", true, func(s *script) { s.barrier().expire().pass(s.rel(1, "k1", 7)) })
	play("released in part", false, func(s *script) { s.barrier().expire().recv(s.rel(1, "k1", 7), 0, 6) })
	play("no proof that it was read", false, func(s *script) { s.expire() }) // "Never a finding" 13
	play("the barrier is on another session", false, func(s *script) {
		s.open(2, "c1").ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(2, "k2", 5, 30, 78)).granted(2, "k2", 9, 30*sec)
		s.pass(s.got(2, "k2", 78, 9)).acquired(2, "k2", 9).expire()
	})
	play("the barrier told another token", false, func(s *script) {
		s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 78)).pass(s.got(1, "k2", 78, 9)).acquired(2, "k2", 10).expire()
	})
	play("two frames have the barrier's token", false, func(s *script) {
		s.open(2, "c1").stray(s.got(2, "k2", 78, 9)).barrier().expire()
	})
	play("a T at its deadline is no barrier", false, func(s *script) {
		s.ask(2, "c1", "k2", sec, 30*sec).pass(s.req(1, "k2", 1, 30, 78)).wait(sec).pass(s.answer(1, "T", "k2", 78)).told(2, "timeout").expire()
	})
	play("the session closed", false, func(s *script) { s.barrier().seen(1, "fin").expire() })
	play("the session closed at the end", false, func(s *script) {
		s.barrier().wait(5*sec).seen(1, "fin").ended(0, "k1", 7).wait(sec).event(history.CallStarted, 2, "")
	})
	play("the session cut", false, func(s *script) { s.barrier().sent(1, "rst").expire() })
	play("the session silenced", false, func(s *script) {
		s.barrier().add(history.Event{Kind: history.Fired, Session: 1, Dir: s2c, Fault: "truncate-silence"}).expire()
	})
	play("the other session stays", false, func(s *script) { // it had no preface when it mattered
		s.barrier().seen(1, "fin").wait(sec).open(2, "c1").expire()
	})
	play("closing", false, func(s *script) { s.barrier().event(history.CloseAsked, 0, "c1").expire() })
	play("clearing up", false, func(s *script) { s.barrier().event(history.CaseEnding, 0, "").expire() })
	play("overdue", false, func(s *script) { s.barrier().event(history.CallOverdue, 2, "").expire() })
	play("ran late", false, func(s *script) { s.barrier().event(history.RanLate, 0, "").expire() })
	play("the lease goes on", false, func(s *script) { s.barrier().wait(4*sec).event(history.CallStarted, 2, "") })
	play("the history ends with the lease", false, func(s *script) { s.wait(4*sec).barrier().ended(0, "k1", 7) })
	play("released by the table", false, func(s *script) {
		s.barrier().ended(2, "k1", 7).wait(6*sec).event(history.CallStarted, 2, "")
	})
	play("the A is torn", false, func(s *script) { // "Never a finding" 6
		n := len(s.ev)
		for i := range s.ev[n-2:] {
			s.ev[n-2+i].N--
		}
		s.barrier().expire()
	})
	play("unread bytes", false, func(s *script) { s.barrier().write(s.got(1, "k1", 77, 7), 0, 20).expire() })
	t.Run("the application has the token", func(t *testing.T) {
		s := lateKnown(t)
		s.barrier().ask(3, "c1", "k1", sec, 5*sec).acquired(3, "k1", 7).expire()
		s.want(s.matching())
	})
	t.Run("acquired", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).barrier().wait(30*sec).ended(0, "k1", 7).wait(sec).event(history.CallStarted, 2, "")
		wantChecked(t, s.want(s.matching()), "release-known", false)
	})
	t.Run("another session with a preface", func(t *testing.T) {
		s := lateKnown(t)
		s.open(2, "c1").barrier().seen(1, "fin").expire()
		s.want(s.matching(), "release-known hygiene")
	})
}
