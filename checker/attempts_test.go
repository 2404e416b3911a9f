package checker

import (
	"strings"
	"testing"

	"tornwire/history"
)

// resent plays a call whose A was received up to n bytes, then another A with the
// given owner on a second session.
func resent(t *testing.T, dialect string, n int, owner uint64) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
	s.recv(s.req(1, "k1", 5, 30, 77), 0, n).sent(1, "rst").open(2, "c1")
	return s.pass(s.req(2, "k1", 5, 30, owner)).told(1, indet)
}

func TestResend(t *testing.T) {
	for n := range 15 {
		s := resent(t, v1, n, 77)
		switch {
		case n == 0: // P1 and "Never a finding" 1
			s.want(s.policy())
		case n < 11: // P2: the owner is not known, but the call is
			s.want(s.policy(), "one-attempt contract")
		default:
			r := s.want(s.policy(), "one-attempt contract", "no-resend contract")
			if r.Verdict() != Nonconforming {
				t.Errorf("verdict %s", r.Verdict())
			}
		}
		s = resent(t, v1, n, 78)
		if n == 0 {
			s.want(s.policy())
		} else {
			s.want(s.policy(), "one-attempt contract")
		}
	}
	for n := range 9 {
		s := resent(t, v0, n, 0)
		if n == 0 {
			s.want(s.policy())
		} else {
			wantChecked(t, s.want(s.policy(), "one-attempt contract"), "no-resend", false)
		}
	}
}

func TestResendMessages(t *testing.T) {
	s := resent(t, v1, 12, 77)
	r := s.want(s.policy(), "one-attempt contract", "no-resend contract")
	for i, message := range []string{
		"client c1 sent c2s.A.2 on session 2 with owner 77 although 12 bytes of c2s.A.1 with the same owner had been received on session 1",
		`call 1 on key "k1" sent c2s.A.2 on session 2 although 12 bytes of c2s.A.1 on session 1 had been received`,
	} {
		if r.Findings[i].Message != message {
			t.Errorf("message %q", r.Findings[i].Message)
		}
	}
}

func TestResendAcquittals(t *testing.T) {
	t.Run("two clients count alike", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c2", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 1)).pass(s.req(2, "k1", 5, 30, 1))
		s.want(s.policy(), "owner-fresh contract")
	})
	t.Run("a new call after indeterminate", func(t *testing.T) { // "Never a finding" 9
		both(t, func(t *testing.T, d string) {
			s := newScript(t, d)
			s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
			s.recv(s.req(1, "k1", 5, 30, 77), 0, 3).sent(1, "fin").told(1, indet)
			s.ask(2, "c1", "k1", 5*sec, 30*sec).open(2, "c1").pass(s.req(2, "k1", 5, 30, 78))
			s.want(s.policy())
		})
	})
	t.Run("still under way at the result", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).told(1, indet)
		s.ask(2, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 0)).open(2, "c1").pass(s.req(2, "k1", 5, 30, 0))
		s.want(s.policy())
	})
	t.Run("several calls running", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 0)).pass(s.req(1, "k1", 5, 30, 0))
		wantChecked(t, s.want(s.policy()), "one-attempt", false)
	})
	t.Run("a third while two run", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k1", 5*sec, 30*sec)
		for range 3 {
			s.pass(s.req(1, "k1", 5, 30, 0))
		}
		wantChecked(t, s.want(s.policy()), "one-attempt", false)
	})
	t.Run("without calls", func(t *testing.T) { // P13
		s := newScript(t, v0)
		s.open(1, "c1").pass(s.req(1, "k1", 5, 30, 0)).pass(s.req(1, "k1", 5, 30, 0))
		wantChecked(t, s.want(s.policy()), "one-attempt", false)
	})
	t.Run("another key", func(t *testing.T) { // for owner-fresh
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k2", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 1)).pass(s.req(1, "k2", 5, 30, 1))
		s.want(s.policy(), "owner-fresh contract")
	})
}

// Two calls on two keys: the part that came says whose attempt it was.
func TestOneAttemptByKeyAndOwner(t *testing.T) {
	s := newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k2", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 1)).pass(s.req(1, "k2", 5, 30, 2)).sent(1, "fin").open(2, "c1")
	s.pass(s.req(2, "k2", 5, 30, 3))
	r := s.want(s.policy(), "one-attempt contract")
	if r.Findings[0].Evidence.Call != 2 {
		t.Errorf("call %d", r.Findings[0].Evidence.Call)
	}

	// A call that ended with its one attempt known sends no second.
	s, a := single(t, v1, 7)
	s.pass(a).acquired(1, "k1", 7).ask(2, "c1", "k1", 5*sec, 30*sec)
	s.recv(s.req(1, "k1", 5, 30, 78), 0, 9).sent(1, "fin").told(2, "unsent")
	s.want(s.policy(), "indeterminate-stays contract")

	// The owner that a result named tells two calls on one key apart.
	s = newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).ask(2, "c1", "k1", 5*sec, 30*sec)
	s.recv(s.req(1, "k1", 5, 30, 1), 0, 14).recv(s.req(1, "k1", 5, 30, 2), 0, 14).sent(1, "fin")
	s.add(history.Event{Kind: history.CallResult, Call: 2, Outcome: "unsent", Owner: 2, HasOwner: true})
	s.told(1, indet)
	r = s.want(s.policy(), "indeterminate-stays contract")
	if f := r.Findings[0]; f.Evidence.Call != 2 || !strings.HasPrefix(f.Message, `call 2 on key "k1" was told unsent although 14 bytes of c2s.A.2`) {
		t.Errorf("%+v", f)
	}
}
