package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

// sessioned is the policy under which the rules about sessions are judged alone.
func (s *script) sessioned() Policy {
	p := s.policy()
	p.Profile, p.Only = ProfileOfficial, map[string]bool{}
	for _, r := range sessionRules() {
		p.Only[r.ID] = true
	}
	return p
}

// hung plays a call with a wait of 1 s whose request gets no answer, up to its result.
func hung(t *testing.T, dialect string) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).pass(s.req(1, "k1", 1, 5, 77))
	return s.wait(sec).told(1, indet)
}

func TestDeadlineCloses(t *testing.T) {
	s := hung(t, v1).wait(4 * sec).tick()
	r := s.want(s.sessioned(), "deadline-closes contract")
	const message = `call 1 on key "k1" was told indeterminate at 1014.000 ms and session 1, on which c2s.A.1 had no answer, was still open at 4509.000 ms, 3500.000 ms after the call's deadline`
	if got := r.Findings[0].Message; got != message {
		t.Errorf("message %q", got)
	}
	if r.Verdict() != Nonconforming {
		t.Error(r.Verdict())
	}
	p := s.sessioned()
	p.Profile = ProfileAny
	s.want(p, "deadline-closes hygiene")
	s = hung(t, v0).wait(4 * sec).tick()
	s.want(s.sessioned(), "deadline-closes hygiene")
	s = hung(t, v1).wait(4*sec).event(history.RanLate, 0, "")
	s.want(s.sessioned(), "deadline-closes contract suspect")

	// A wait of 0 has a deadline of 5 s.
	s = newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 0, 5*sec).pass(s.req(1, "k1", 0, 5, 77)).wait(5*sec).told(1, indet).wait(4 * sec).tick()
	s.want(s.sessioned(), "deadline-closes contract")
	// Part of a request is one that was possibly sent, part of an answer is none.
	s = newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).recv(s.req(1, "k1", 1, 5, 77), 0, 12).wait(sec).told(1, indet).wait(4 * sec).tick()
	s.want(s.sessioned(), "deadline-closes contract")
	s = newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).pass(s.req(1, "k1", 1, 5, 77)).cut(s.got(1, "k1", 77, 7), 18)
	s.wait(sec).told(1, indet).wait(4 * sec).tick()
	s.want(s.sessioned(), "deadline-closes contract")
}

func TestDeadlineClosesPolicy(t *testing.T) {
	d := func(d time.Duration) *time.Duration { return &d }
	s := hung(t, v1).wait(2*sec).seen(1, history.FIN).wait(5 * sec).tick() // 2 s after the deadline
	for _, c := range []struct {
		grace, tolerance *time.Duration
		found            bool
	}{
		{nil, nil, false},
		{d(0), nil, true},
		{d(0), d(2500 * time.Millisecond), false},
		{d(sec), d(sec / 2), true},
		{d(0), d(0), true}, // but not at once: a second is left to what is under way
	} {
		p := s.sessioned()
		p.Grace, p.Tolerance = c.grace, c.tolerance
		if c.found {
			s.want(p, "deadline-closes contract")
		} else {
			wantChecked(t, s.want(p), "deadline-closes", true)
		}
	}
	s = hung(t, v1).wait(sec/2).seen(1, history.FIN).wait(5 * sec).tick()
	p := s.sessioned()
	p.Grace, p.Tolerance = d(0), d(0)
	s.want(p)
}

func TestDeadlineClosesAcquittals(t *testing.T) {
	play := func(name string, checked bool, f func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := hung(t, v1)
			f(s)
			wantChecked(t, s.want(s.sessioned()), "deadline-closes", checked)
		})
	}
	play("closed with FIN", true, func(s *script) { s.seen(1, history.FIN).wait(5 * sec).tick() })
	play("closed with RST", true, func(s *script) { s.seen(1, history.RST).wait(5 * sec).tick() })
	play("closed with the last of its patience", true, func(s *script) { s.wait(3400*time.Millisecond).seen(1, history.FIN).wait(sec).tick() })
	play("a T within the grace", false, func(s *script) { s.wait(sec).pass(s.answer(1, "T", "k1", 77)).wait(4 * sec).tick() })
	play("an A within it", false, func(s *script) { s.wait(3 * sec).pass(s.got(1, "k1", 77, 7)).wait(4 * sec).tick() })
	play("cut by us", false, func(s *script) { s.sent(1, history.RST).wait(5 * sec).tick() })
	play("asked to close", false, func(s *script) { s.event(history.CloseAsked, 0, "c1").wait(5 * sec).tick() })
	play("the history ends", false, func(s *script) { s.wait(3 * sec).tick() })
	play("unread bytes", false, func(s *script) { s.write(s.got(1, "k1", 77, 7), 0, 26).wait(5 * sec).tick() })
	t.Run("no outcome", func(t *testing.T) { // settles judges that
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).pass(s.req(1, "k1", 1, 5, 77)).wait(9 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("an outcome just before", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).pass(s.req(1, "k1", 1, 5, 77)).wait(4400*time.Millisecond).told(1, indet)
		s.wait(sec/2).seen(1, history.FIN).wait(sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", true)
	})
	t.Run("answered and told", func(t *testing.T) {
		s, a := single(t, v1, 7)
		s.pass(a).acquired(1, "k1", 7).wait(12 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("cancelled", func(t *testing.T) { // cancel-closes judges that
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).pass(s.req(1, "k1", 1, 5, 77)).event(history.CancelAsked, 1, "").told(1, indet).wait(9 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("clamped", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 300*sec, 5*sec).pass(s.req(1, "k1", 255, 5, 77)).wait(300*sec).told(1, indet).wait(9 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("without an end", func(t *testing.T) { // W = 0 of ticketing-v0
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", 0, 5*sec).pass(s.req(1, "k1", 0, 5, 0)).wait(5*sec).told(1, indet).wait(9 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("nothing was sent", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).wait(sec).told(1, "unsent").wait(9 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("sent past its deadline", func(t *testing.T) { // expired-unsent judges that
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).wait(2*sec).pass(s.req(1, "k1", 1, 5, 77)).told(1, indet).wait(9 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("closed before its deadline", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 5*sec).pass(s.req(1, "k1", 1, 5, 77)).seen(1, history.FIN).told(1, indet).wait(9 * sec).tick()
		wantChecked(t, s.want(s.sessioned()), "deadline-closes", false)
	})
	t.Run("no pong", func(t *testing.T) {
		s := hung(t, v1).wait(5 * sec).tick()
		p := s.sessioned()
		p.NoPong = true
		wantChecked(t, s.want(p), "deadline-closes", false)
	})
}

// dropped plays a call that is cancelled before its answer, up to its result.
func dropped(t *testing.T, dialect string) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77))
	return s.event(history.CancelAsked, 1, "").told(1, indet)
}

// again plays a further call of the client, whose A comes on a session.
func (s *script) again(session int) *script {
	return s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(session, "k2", 5, 30, 78))
}

func TestCancelCloses(t *testing.T) {
	s := dropped(t, v1).again(1)
	r := s.want(s.sessioned(), "cancel-closes contract")
	const message = `call 1 on key "k1" was told indeterminate after its cancel, with 14 bytes of c2s.A.1 received and no answer begun, ` +
		`and c2s.A.2 of call 2, which was asked for 1.000 ms later, came on the same session 1`
	if got := r.Findings[0].Message; got != message {
		t.Errorf("message %q", got)
	}
	if r.Verdict() != Nonconforming {
		t.Error(r.Verdict())
	}
	p := s.sessioned()
	p.Profile = ProfileAny
	s.want(p, "cancel-closes contract") // not only official clients
	s = dropped(t, v0).again(1)
	s.want(s.sessioned(), "cancel-closes hygiene")
	s = dropped(t, v1) // a late answer does not mend it
	s.pass(s.got(1, "k1", 77, 7)).again(1)
	s.want(s.sessioned(), "cancel-closes contract")
	s = newScript(t, v1) // nor does the grant that nobody read the end of
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77)).event(history.CancelAsked, 1, "").cut(s.got(1, "k1", 77, 7), 19)
	s.told(1, indet).again(1)
	s.want(s.sessioned(), "cancel-closes contract")
}

func TestCancelClosesAcquittals(t *testing.T) {
	play := func(name string, checked bool, s *script) {
		t.Run(name, func(t *testing.T) { wantChecked(t, s.want(s.sessioned()), "cancel-closes", checked) })
	}
	play("a new session", true, dropped(t, v1).seen(1, history.RST).open(2, "c1").again(2))
	play("another session, the first left open", true, dropped(t, v1).open(2, "c1").again(2))
	play("no further call", false, dropped(t, v1))
	s := dropped(t, v1)
	play("another client's call", false, s.open(2, "c2").ask(2, "c2", "k2", 5*sec, 30*sec).pass(s.req(2, "k2", 5, 30, 78)))

	sent := func() *script {
		s := newScript(t, v1)
		return s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77))
	}
	s = sent()
	play("a definite word", false, s.event(history.CancelAsked, 1, "").told(1, "timeout").again(1)) // for indeterminate-stays
	s = sent()
	play("the grant came first", false, s.event(history.CancelAsked, 1, "").pass(s.got(1, "k1", 77, 7)).told(1, indet).again(1))
	s = sent()
	play("acquired all the same", false, s.event(history.CancelAsked, 1, "").pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7).again(1))
	s = sent()
	play("a T", false, s.event(history.CancelAsked, 1, "").pass(s.answer(1, "T", "k1", 77)).told(1, "timeout").again(1))
	s = sent()
	play("its deadline had passed", false, s.event(history.CancelAsked, 1, "").wait(5*sec).told(1, indet).again(1))
	s = sent()
	play("the other call was under way", false, s.ask(2, "c1", "k2", 5*sec, 30*sec).event(history.CancelAsked, 1, "").told(1, indet).pass(s.req(1, "k2", 5, 30, 78)))
	s = sent()
	play("no cancel", false, s.told(1, indet).again(1))
	s = newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).event(history.CancelAsked, 1, "").pass(s.req(1, "k1", 5, 30, 77)).told(1, indet)
	play("sent after the cancel was asked for", false, s.again(1))
	s = sent()
	play("unread bytes", false, s.write(s.got(1, "k1", 77, 7), 0, 20).event(history.CancelAsked, 1, "").told(1, indet).again(1))
}

func TestCloseProvesNothing(t *testing.T) {
	// lost plays a release whose session ends before its answer.
	lost := func(dialect string) *script {
		s, a := single(t, dialect, 7)
		s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7))
		return s.sent(1, history.FIN).seen(1, history.FIN)
	}
	for _, dialect := range []string{v1, v0} {
		for _, word := range []string{"released", "not_held"} {
			s := lost(dialect).released(1, word)
			r := s.want(s.sessioned(), "close-proves-nothing contract")
			if got := r.Findings[0].Message; !strings.Contains(got, `the release of call 1 on key "k1" (token 7) was told `) || !strings.HasSuffix(got, "session 1 had ended with c2s.R.1 unanswered") {
				t.Error(got)
			}
			s = lost(dialect) // half an answer is none
			m := s.answer(1, "R", "k1", 7)
			s.cut(m, len(m.b)-1).released(1, word)
			s.want(s.sessioned(), "close-proves-nothing contract")
		}
		s := lost(dialect).released(1, indet)
		wantChecked(t, s.want(s.sessioned()), "close-proves-nothing", true)
		s = lost(dialect).open(2, "c1") // sent again, and answered
		s.pass(s.rel(2, "k1", 7)).pass(s.answer(2, "N", "k1", 7)).released(1, "not_held")
		s.want(s.sessioned())
		s = lost(dialect).open(2, "c2") // another's answer
		s.pass(s.answer(2, "R", "k1", 7)).released(1, "released")
		s.want(s.sessioned(), "close-proves-nothing contract")
	}
	s, a := single(t, v1, 7) // without an R, too
	s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1).released(1, "released")
	if r := s.want(s.sessioned(), "close-proves-nothing contract"); !strings.HasSuffix(r.Findings[0].Message, "no R for it had been received") {
		t.Error(r.Findings[0].Message)
	}
	s, a = single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7)).pass(s.answer(1, "R", "k1", 7)).released(1, "released")
	wantChecked(t, s.want(s.sessioned()), "close-proves-nothing", false) // no end to prove anything
	s = lost(v1)
	s.write(s.answer(1, "R", "k1", 7), 0, 12).released(1, "released") // unread bytes
	s.want(s.sessioned())
	s = releasing(t) // an answer that names a token which nobody released
	s.stray(s.answer(1, "N", "k1", 8)).seen(1, history.FIN).released(1, "released")
	s.want(s.sessioned(), "close-proves-nothing contract")
	s = releasing(t) // taken for the answer it is for match-triple
	s.stray(s.answer(1, "R", "k1", 8)).seen(1, history.FIN).released(1, "released")
	s.want(s.sessioned())
	s = lost(v1) // the same word again, for a release asked for again
	s.open(2, "c1").pass(s.rel(2, "k1", 7)).pass(s.answer(2, "R", "k1", 7)).released(1, "released").seen(2, history.FIN).ask2release(1).released(1, "released")
	s.want(s.sessioned())
}
