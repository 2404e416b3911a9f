package checker

import (
	"strings"
	"testing"

	"tornwire/history"
)

func TestNoRenewal(t *testing.T) {
	status := func() *script {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 4*sec, 30*sec).pass(s.req(1, "k1", 4, 30, 77))
		return s.wait(2 * sec)
	}
	s := status()
	s.pass(s.req(1, "k1", 2, 30, 77))
	r := s.want(s.sessioned(), "no-renewal contract")
	const message = `client c1 sent c2s.A.2 on session 1 with the owner 77 and the key of c2s.A.1 on session 1, 2003.000 ms later, although it was still waiting there`
	if got := r.Findings[0].Message; got != message {
		t.Errorf("message %q", got)
	}
	s = status() // as soon as the owner is there
	s.recv(s.req(1, "k1", 2, 30, 77), 0, 11)
	s.want(s.sessioned(), "no-renewal contract")

	held := func() *script {
		s, a := single(t, v1, 7)
		return s.pass(a).acquired(1, "k1", 7).wait(15 * sec)
	}
	s = held()
	s.pass(s.req(1, "k1", 5, 30, 77))
	if r := s.want(s.sessioned(), "no-renewal contract"); !strings.HasSuffix(r.Findings[0].Message, "although s2c.A.1 had answered it") {
		t.Error(r.Findings[0].Message)
	}
	s = held() // on another session, with another lease
	s.open(2, "c1").pass(s.req(2, "k1", 5, 60, 77))
	s.want(s.sessioned(), "no-renewal contract")
	s = status() // after a T
	s.pass(s.answer(1, "T", "k1", 77)).told(1, "timeout").open(2, "c1").pass(s.req(2, "k1", 2, 30, 77))
	s.want(s.sessioned(), "no-renewal contract")
	s = held() // another call of that key had its own A
	s.open(2, "c1").ask(2, "c1", "k1", 5*sec, 30*sec).pass(s.req(2, "k1", 5, 30, 78)).pass(s.req(1, "k1", 5, 30, 77))
	s.want(s.sessioned(), "no-renewal contract")
}

// What another call was told says whose an A is not.
func TestNoRenewalOtherOwner(t *testing.T) {
	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).ask(2, "c1", "k1", 5*sec, 30*sec)
	s.add(history.Event{Kind: history.CallResult, Call: 2, Outcome: "unsent", Owner: 78, HasOwner: true})
	s.pass(s.req(1, "k1", 5, 30, 77))
	s.want(s.sessioned(), "no-renewal contract")
}

func TestNoRenewalAcquittals(t *testing.T) {
	play := func(name string, checked bool, f func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s, a := single(t, v1, 7)
			s.pass(a).acquired(1, "k1", 7)
			f(s)
			wantChecked(t, s.want(s.sessioned()), "no-renewal", checked)
		})
	}
	play("held for over half of the lease", true, func(s *script) { s.wait(15*sec).leave(1, "k1", 7) })
	play("held past the lease", true, func(s *script) { s.wait(40 * sec).tick() }) // "Never a finding" 12
	play("held for less", false, func(s *script) { s.wait(14*sec).leave(1, "k1", 7) })
	play("another owner", false, func(s *script) {
		s.leave(1, "k1", 7).ask(2, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 78))
	})
	play("another key", false, func(s *script) {
		s.leave(1, "k1", 7).ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k2", 5, 30, 77))
	})
	play("another call with the same owner", false, func(s *script) { // owner-fresh judges that
		s.leave(1, "k1", 7).ask(2, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 77))
	})
	play("another client", false, func(s *script) {
		s.leave(1, "k1", 7).open(2, "c2").ask(2, "c2", "k1", 5*sec, 30*sec).pass(s.req(2, "k1", 5, 30, 77))
	})
	play("another client, of which no call is known", false, func(s *script) { s.open(2, "c2").pass(s.req(2, "k1", 5, 30, 77)) })
	play("another key, of which no call is known", false, func(s *script) { s.pass(s.req(1, "k2", 5, 30, 77)) })
	play("an owner in part", false, func(s *script) { s.recv(s.req(1, "k1", 5, 30, 77), 0, 10) })

	t.Run("no answer for half of the wait", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 4*sec, 30*sec).pass(s.req(1, "k1", 4, 30, 77)).wait(2*sec).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
		wantChecked(t, s.want(s.sessioned()), "no-renewal", true)
	})
	t.Run("on another session, unanswered", func(t *testing.T) { // no-resend judges that
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 4*sec, 30*sec).pass(s.req(1, "k1", 4, 30, 77)).sent(1, history.FIN)
		s.open(2, "c1").pass(s.req(2, "k1", 4, 30, 77))
		s.want(s.sessioned())
	})
	for _, name := range []string{"half an answer before", "an answer behind"} { // no-resend judges these
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1)
			s.open(1, "c1").ask(1, "c1", "k1", 4*sec, 30*sec).pass(s.req(1, "k1", 4, 30, 77)).open(2, "c1")
			m := s.got(1, "k1", 77, 7)
			if name == "an answer behind" {
				s.pass(s.req(2, "k1", 4, 30, 77)).pass(m)
			} else {
				s.cut(m, len(m.b)-1).pass(s.req(2, "k1", 4, 30, 77))
			}
			s.want(s.sessioned())
		})
	}
	t.Run("after a B", func(t *testing.T) { // busy-not-retried judges that
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 4*sec, 30*sec).pass(s.req(1, "k1", 4, 30, 77)).pass(s.answer(1, "B", "k1", 77)).pass(s.req(1, "k1", 4, 30, 77))
		s.want(s.sessioned())
	})
	t.Run("without owners", func(t *testing.T) {
		s, a := single(t, v0, 7)
		s.pass(a).acquired(1, "k1", 7).wait(20 * sec).pass(s.req(1, "k1", 5, 30, 0))
		wantChecked(t, s.want(s.sessioned()), "no-renewal", false)
	})
}
