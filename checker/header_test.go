package checker

import (
	"testing"

	"tornwire/history"
)

// closes plays a client that closed its session on the A and told the outcome.
func closes(t *testing.T, dialect, outcome string, token uint64) *script {
	s, a := single(t, dialect, token)
	return s.pass(a).seen(1, "fin").told(1, outcome)
}

func TestHeaderByCountClose(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		for _, outcome := range []string{indet, "error"} {
			s := closes(t, d, outcome, nls)
			s.want(s.policy(), "header-by-count contract")
			// Without the newline byte it is "closing although it was not required".
			s = closes(t, d, outcome, 7)
			wantChecked(t, s.want(s.policy()), "header-by-count", false)
		}
	})
}

func TestHeaderByCountRight(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, nls)
		finish(s.pass(a), nls).seen(1, "fin")
		wantChecked(t, s.want(s.policy()), "header-by-count", true)
	})
}

func TestHeaderByCountOtherToken(t *testing.T) {
	s, a := single(t, v1, nls)
	s.pass(a).acquired(1, "k1", 10)
	s.want(s.policy(), "header-by-count safety", "exact-token safety")
}

func TestHeaderByCountShorterFrame(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, nls)
		n := len(a.b)
		s.recv(a, 0, n).write(a, 0, n-3).acquired(1, "k1", nls).write(a, n-3, n)
		s.want(s.policy(), "header-by-count safety", "no-partial-frame safety", "no-entry-unconfirmed safety")
	})
}

func TestHeaderByCountOtherOutcome(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s, a := single(t, d, nls)
		s.pass(a).told(1, "timeout")
		s.want(s.policy(), "header-by-count safety")
		s, a = single(t, d, nls) // past the deadline anything but acquired may be told
		s.pass(a).wait(5*sec).told(1, "timeout")
		s.want(s.policy())
	})
}

// The owner is the client's own choice: what happens where it has newlines by
// chance is not held against this rule, or verdicts were a matter of chance.
func TestHeaderByCountOwner(t *testing.T) {
	for _, told := range []string{indet, "busy"} {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, nls))
		s.pass(s.answer(1, "T", "k1", nls)).seen(1, "rst").told(1, told)
		s.want(s.policy())
	}
}

// Whatever else may have made the client close acquits it.
func TestHeaderByCountAcquittals(t *testing.T) {
	for name, play := range map[string]func(s *script, a msg){
		"torn":  func(s *script, a msg) { s.cut(a, len(a.b)-1).seen(1, "fin") },
		"reset": func(s *script, a msg) { s.pass(a).seen(1, "rst") }, // it may lie unread
		"cut by us": func(s *script, a msg) {
			s.pass(a).sent(1, "fin").seen(1, "fin")
		},
		"cancelled": func(s *script, a msg) {
			s.pass(a).add(history.Event{Kind: history.CancelAsked, Call: 1}).seen(1, "fin")
		},
		"client closed": func(s *script, a msg) {
			s.pass(a).add(history.Event{Kind: history.CloseAsked, Client: "c1"}).seen(1, "fin")
		},
		"deadline":     func(s *script, a msg) { s.pass(a).wait(5*sec).seen(1, "fin") },
		"told before":  func(s *script, a msg) { s.told(1, indet).pass(a).seen(1, "fin") },
		"earlier":      func(s *script, a msg) { s.seen(1, "fin").pass(a) },
		"moved":        func(s *script, a msg) { s.pass(a).pass(s.line(1, s2c, "M", "x")).seen(1, "fin") },
		"next is torn": func(s *script, a msg) { s.pass(a).cut(s.line(1, s2c, "L", "x"), 2).seen(1, "fin") },
		"duplicate":    func(s *script, a msg) { s.pass(a).write(a, 0, len(a.b)).seen(1, "fin") },
		"ran late":     func(s *script, a msg) { s.pass(a).add(history.Event{Kind: history.RanLate}).seen(1, "fin") },
		"half of it":   func(s *script, a msg) { s.recv(a, 0, 20).write(a, 0, 15).seen(1, "fin").write(a, 15, 20) },
		"unread":       func(s *script, a msg) { s.pass(a).write(s.line(1, s2c, "L", "x"), 0, 3).seen(1, "fin") },
		"still open":   func(s *script, a msg) { s.pass(a) },
	} {
		t.Run(name, func(t *testing.T) {
			s, a := single(t, v1, nls)
			play(s, a)
			s.told(1, indet)
			s.want(s.policy())
		})
	}
}

// A grant that came after its lease may be refused in any way.
func TestHeaderByCountAfterLease(t *testing.T) {
	s := newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, sec).pass(s.req(1, "k1", 5, 1, 77)).wait(2 * sec)
	s.pass(s.got(1, "k1", 77, nls)).seen(1, "fin").told(1, indet)
	s.want(s.policy())
}

func TestHeaderByCountOfRelease(t *testing.T) {
	play := func(token uint64, outcome string) *script {
		s, a := single(t, v1, token)
		s.pass(a).acquired(1, "k1", token).leave(1, "k1", token).ask2release(1)
		s.pass(s.rel(1, "k1", token)).ended(1, "k1", token).pass(s.answer(1, "R", "k1", token))
		return s.seen(1, "fin").released(1, outcome)
	}
	s := play(nls, indet)
	s.want(s.policy(), "header-by-count contract")
	s = play(nls, "not_held")
	s.want(s.policy(), "header-by-count safety", "close-proves-nothing contract")
	s = play(nls, "released")
	s.want(s.policy())
	s = play(7, indet)
	s.want(s.policy())
}

// A client closes when it likes. What it tells of a release may have another reason
// than the answer.
func TestHeaderByCountOfReleaseAcquittals(t *testing.T) {
	play := func(outcome string, answer func(s *script)) *script {
		s, a := single(t, v1, nls)
		s.pass(a).acquired(1, "k1", nls)
		answer(s)
		return s.seen(2, "fin").released(1, outcome)
	}
	again := func(s *script) {
		s.leave(1, "k1", nls).ask2release(1).pass(s.rel(1, "k1", nls)).ended(1, "k1", nls).seen(1, "rst")
		s.open(2, "c1").pass(s.rel(2, "k1", nls)).pass(s.answer(2, "N", "k1", nls))
	}
	once := func(s *script) {
		s.wait(30*sec).ended(0, "k1", nls).leave(1, "k1", nls).ask2release(1).open(2, "c1").pass(s.rel(2, "k1", nls)).pass(s.answer(2, "N", "k1", nls))
	}
	for _, outcome := range []string{indet, "error"} {
		s := play(outcome, again)
		wantChecked(t, s.want(s.policy()), "header-by-count", true) // by the A
		s = play(outcome, once)
		s.want(s.policy(), "header-by-count contract")
	}
	few := play("error", once)
	p := few.policy()
	p.Outcomes = []string{acq, "released", "error"}
	few.want(p)
	p.Outcomes = append(p.Outcomes, "not_held")
	few.want(p, "header-by-count contract")
	few = play(indet, once)
	p.Outcomes = []string{acq, "released", "error", indet}
	few.want(p, "header-by-count contract")

	s, a := single(t, v1, nls)
	s.pass(a).acquired(1, "k1", nls).leave(1, "k1", nls).ask2release(1).released(1, indet)
	s.pass(s.rel(1, "k1", nls)).ended(1, "k1", nls).pass(s.answer(1, "R", "k1", nls)).seen(1, "fin")
	s.want(s.policy())
}
