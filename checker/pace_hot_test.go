package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

// turned is a connection of client c1 that is accepted and gets a FIN after a while.
func (s *script) turned(session int, to string, lasts time.Duration) *script {
	s.add(history.Event{Kind: history.SessionOpened, Session: session, Client: "c1", Peer: peer(session), Addr: to})
	s.wait(lasts).sent(session, history.FIN)
	return s.seen(session, history.FIN)
}

// hammered is a call that waits while n connections are turned away, each some time
// after the one before; to names the address of each.
func hammered(t *testing.T, d string, n int, every time.Duration, to func(i int) string) *script {
	s := newScript(t, d).ask(1, "c1", "k1", 9*sec, 5*sec)
	start := s.at
	for i := range n {
		s.turned(i+1, to(i), 0)
		s.at = max(s.at, start+time.Duration(i+1)*every)
	}
	return s.wait(4*sec).told(1, history.OutcomeUnsent)
}

func alone(int) string { return "127.0.0.1:4000" }

func TestErrorBacksOff(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s := hammered(t, d, 90, 40*time.Millisecond, alone)
		wantChecked(t, s.want(s.policy(), "error-backs-off hygiene"), "error-backs-off", true)
		s.add(history.Event{Kind: history.RanLate, Client: "c1"})
		s.want(s.policy(), "error-backs-off hygiene suspect")

		s = hammered(t, d, 6, 500*time.Millisecond, alone)
		wantChecked(t, s.want(s.policy()), "error-backs-off", true)
	})
}

func TestErrorBacksOffAcquits(t *testing.T) {
	// 20 a second, accepted up to 200 ms later than they were made, look like more.
	s := hammered(t, v1, 64, 46*time.Millisecond, alone)
	s.want(s.policy())
	// A burst is no pace: it is over before three seconds are.
	s = hammered(t, v1, 90, 10*time.Millisecond, alone)
	s.want(s.policy())
	// Two addresses have a pace each.
	s = hammered(t, v1, 90, 40*time.Millisecond, func(i int) string { return []string{"127.0.0.1:1", "127.0.0.1:2"}[i%2] })
	s.want(s.policy())
	// So have two sessions that the client has at a time.
	s = hammered(t, v1, 90, 40*time.Millisecond, alone)
	s.open(1000, "c1")
	s.sessionTo(1000, alone(0)).open(1001, "c1").sessionTo(1001, alone(0))
	s.want(s.policy())
	// Whose connections they are is not known.
	s = hammered(t, v1, 90, 40*time.Millisecond, alone)
	for i := range s.ev {
		if s.ev[i].Kind == history.SessionOpened {
			s.ev[i].Client = ""
		}
	}
	s.want(s.policy())
}

// sessionTo says to which address a session was opened.
func (s *script) sessionTo(session int, to string) *script {
	for i := range s.ev {
		if s.ev[i].Kind == history.SessionOpened && s.ev[i].Session == session {
			s.ev[i].Addr = to
		}
	}
	return s
}

// A call that has a session which lasts wants no other, and one that ends soon is no
// reason to come again.
func TestErrorBacksOffChecked(t *testing.T) {
	s := hammered(t, v1, 2, 500*time.Millisecond, alone)
	s.ev = s.ev[:len(s.ev)-1]
	s.open(3, "c1").told(1, history.OutcomeUnsent)
	wantChecked(t, s.want(s.policy()), "error-backs-off", true)

	s = newScript(t, v1).ask(1, "c1", "k1", 9*sec, 5*sec).turned(1, alone(0), 0)
	s.open(2, "c1").wait(4*sec).told(1, history.OutcomeUnsent)
	wantChecked(t, s.want(s.policy()), "error-backs-off", false)

	s = newScript(t, v1).ask(1, "c1", "k1", 9*sec, 5*sec).turned(1, alone(0), 0).told(1, history.OutcomeUnsent).wait(4 * sec)
	s.add(history.Event{Kind: history.CaseEnding})
	wantChecked(t, s.want(s.policy()), "error-backs-off", false)
}
