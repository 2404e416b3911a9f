package checker

import (
	"slices"
	"testing"
	"time"

	"tornwire/history"
)

func TestExpiredUnsent(t *testing.T) {
	for _, c := range []struct {
		wait, hold time.Duration
		found      string
	}{
		{sec, 2 * sec, ""},
		{sec, 2*sec + msec, "expired-unsent"},
		{5 * sec, 6 * sec, ""},
		{5 * sec, 6*sec + msec, "expired-unsent"},
		{2500 * msec, 3500 * msec, ""},
		{2500 * msec, 3501 * msec, "expired-unsent"},
		{0, 6500 * msec, ""},
		{0, 6501 * msec, "zero-is-immediate"},
	} {
		for _, n := range []int{0, 1, 12, 14} { // P1: one byte is enough
			for _, profile := range []string{ProfileAny, ProfileOfficial} {
				s := connecting(t, v1, c.wait, c.hold)
				s.recv(s.req(1, "k1", uint64(min(c.wait, sec)/sec), 30, 77), 0, n)
				p := s.timed()
				p.Profile = profile
				delete(p.Only, "wait-recomputed")
				delete(p.Only, "wait-rounded-up")
				switch {
				case n == 0 || c.found == "":
					s.want(p)
				case profile == ProfileAny && c.wait > 0:
					s.want(p, c.found+" hygiene")
				default:
					s.want(p, c.found+" contract")
				}
			}
		}
	}
	s := connecting(t, v1, sec, 2500*msec)
	s.pass(s.req(1, "k1", 1, 30, 77))
	first(t, s.want(s.timed(), "expired-unsent contract"), `call 1 on key "k1", with a wait of 1s, was sent in c2s.A.1 on session 1, of which 14 bytes came, although the nonce of that session was sent only 2500.000 ms after the call had started`)
	s = connecting(t, v0, sec, 2500*msec)
	s.pass(s.req(1, "k1", 1, 30, 0))
	s.want(s.timed(), "expired-unsent hygiene")
}

// A call that ended long ago is the one whose request was still in the queue.
func TestExpiredOfAnEndedCall(t *testing.T) {
	play := func(wait time.Duration) *script {
		s := newScript(t, v1)
		s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
		s.till(sec-msec).ask(1, "c1", "k1", wait, 30*sec).wait(max(wait, 5*sec)).told(1, "unsent")
		return s.till(sec + max(wait, 5*sec) + 2*sec).pass(s.line(1, s2c, "greeting", "node-1 nonce")).pass(s.line(1, c2s, "auth", "digest"))
	}
	s := play(5 * sec)
	s.pass(s.req(1, "k1", 1, 30, 77))
	r := s.want(s.timed(), "expired-unsent contract")
	if r.Findings[0].Evidence.Call != 1 {
		t.Errorf("%+v", r.Findings[0].Evidence)
	}
	s = play(0)
	s.pass(s.req(1, "k1", 0, 30, 77))
	s.want(s.timed(), "zero-is-immediate contract")
	// Another running call may be the sender, on the same key or of bytes that name none.
	s = play(5 * sec)
	s.ask(2, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77))
	s.want(s.timed())
	s = play(5 * sec)
	s.ask(2, "c1", "k2", 5*sec, 30*sec).recv(s.req(1, "k1", 1, 30, 77), 0, 11)
	s.want(s.timed())
	s = play(5 * sec)
	s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77))
	s.want(s.timed(), "expired-unsent contract")
	s = play(5 * sec) // by its lease it is neither's for certain
	s.ask(2, "c1", "k1", 5*sec, 20*sec).pass(s.req(1, "k1", 1, 30, 77))
	s.want(s.timed())
	// It is not another client's.
	s = play(5 * sec)
	s.ask(2, "c2", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77))
	s.want(s.timed(), "expired-unsent contract")
}

// Of several expired calls that without an attempt of its own is blamed.
func TestExpiredBlame(t *testing.T) {
	play := func(first, second bool) int {
		s := newScript(t, v1)
		s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"}).open(2, "c1")
		for i, sent := range []bool{first, second} {
			s.ask(i+1, "c1", "k1", sec, 30*sec)
			if sent {
				s.pass(s.req(2, "k1", 1, 30, 70)).pass(s.answer(2, "T", "k1", 70))
			}
			s.wait(sec).told(i+1, "timeout").wait(2 * sec)
		}
		s.pass(s.line(1, s2c, "greeting", "node-1 nonce")).pass(s.line(1, c2s, "auth", "digest")).pass(s.req(1, "k1", 1, 30, 77))
		return s.want(s.timed(), "expired-unsent contract").Findings[0].Evidence.Call
	}
	if a, b := play(true, false), play(false, true); a != 2 || b != 1 {
		t.Errorf("calls %d and %d, want 2 and 1", a, b)
	}
}

func TestExpiredAcquittals(t *testing.T) {
	t.Run("not started", func(t *testing.T) {
		s := connecting(t, v1, sec, 2500*msec)
		s.pass(s.req(1, "k1", 1, 30, 77))
		s.ev = slices.DeleteFunc(s.ev, func(e history.Event) bool { return e.Kind == history.CallStarted })
		wantChecked(t, s.want(s.timed()), "expired-unsent", false)
	})
	t.Run("ran late", func(t *testing.T) {
		s := connecting(t, v1, sec, 2500*msec)
		s.pass(s.req(1, "k1", 1, 30, 77)).add(history.Event{Kind: history.RanLate})
		s.want(s.timed(), "expired-unsent contract suspect")
	})
	t.Run("on the wire late, on an open session", func(t *testing.T) { // the nonce proves nothing then
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).wait(10 * sec).pass(s.req(1, "k1", 1, 30, 77))
		s.want(s.timed())
	})
	t.Run("of a call that waits for ever, perhaps", func(t *testing.T) {
		s := newScript(t, v0)
		s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
		s.ask(1, "c1", "k1", 0, 30*sec).ask(2, "c1", "k1", sec, 30*sec).wait(20 * sec)
		s.pass(s.line(1, s2c, "greeting", "node-1 nonce")).pass(s.line(1, c2s, "auth", "digest")).pass(s.req(1, "k1", 1, 30, 0))
		s.want(s.timed())
	})
	t.Run("waits for ever", func(t *testing.T) {
		s := connecting(t, v0, 0, 60*sec)
		s.pass(s.req(1, "k1", 0, 30, 0))
		r := s.want(s.timed())
		wantChecked(t, r, "zero-is-immediate", false)
		wantChecked(t, r, "expired-unsent", false)
	})
}

// It is judged where a call passed its deadline with its connection waiting.
func TestExpiredIsChecked(t *testing.T) {
	play := func(wait, told, hold time.Duration, outcome string) *script {
		s := newScript(t, v1)
		s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
		s.till(sec-msec).ask(1, "c1", "k1", wait, 30*sec).till(sec+told).told(1, outcome)
		return s.till(sec+hold).pass(s.line(1, s2c, "greeting", "node-1 nonce")).seen(1, "fin").wait(3 * sec).add(history.Event{Kind: history.CaseEnding})
	}
	for _, c := range []struct {
		wait, told, hold time.Duration
		rule             string
		want             bool
	}{
		{sec, sec, 2500 * msec, "expired-unsent", true},
		{sec, 900 * msec, 2500 * msec, "expired-unsent", false}, // it ended before
		{sec, 1100 * msec, 1900 * msec, "expired-unsent", false},
		{0, 5 * sec, 7 * sec, "zero-is-immediate", true},
		{0, 5 * sec, 6 * sec, "zero-is-immediate", false},
		{0, 5 * sec, 7 * sec, "expired-unsent", false},
		{sec, sec, 2500 * msec, "zero-is-immediate", false},
	} {
		for _, outcome := range []string{"unsent", "timeout", indet, "error"} { // "Never a finding" 10
			s := play(c.wait, c.told, c.hold, outcome)
			wantChecked(t, s.want(s.timed()), c.rule, c.want)
		}
	}
	// The client closed the connection at its deadline, or long before it.
	for at, yes := range map[time.Duration]bool{2 * sec: true, 1500 * msec: false} {
		s := newScript(t, v1)
		s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
		s.till(sec-msec).ask(1, "c1", "k1", sec, 30*sec).till(at).seen(1, "rst")
		s.till(2100*msec).told(1, "unsent").wait(2 * sec).add(history.Event{Kind: history.CaseEnding})
		wantChecked(t, s.want(s.timed()), "expired-unsent", yes)
	}
}

// Nothing is known of a call whose history ends too early, that had been sent, or
// that had no connection.
func TestExpiredIsNotChecked(t *testing.T) {
	play := func(opened, until time.Duration, sent bool) *script {
		s := newScript(t, v1)
		s.open(2, "c1").add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
		s.till(sec-msec).ask(1, "c1", "k1", sec, 30*sec)
		s.ev[len(s.ev)-3].At = opened
		if sent {
			s.pass(s.req(2, "k1", 1, 30, 77))
		} else {
			s.seen(2, "fin")
		}
		return s.till(2100*msec).told(1, indet).till(until).add(history.Event{Kind: history.CaseEnding})
	}
	for _, c := range []struct {
		opened, until time.Duration
		sent, want    bool
	}{
		{sec, 3001 * msec, false, true},
		{sec, 3000 * msec, false, false},
		{sec, 3001 * msec, true, false},
		{1999 * msec, 3001 * msec, false, true},
		{2000 * msec, 3001 * msec, false, false},
	} {
		s := play(c.opened, c.until, c.sent)
		wantChecked(t, s.want(s.timed()), "expired-unsent", c.want)
	}
}

func TestZeroWithoutAnOutcome(t *testing.T) {
	play := func(d string, wait, after time.Duration, e history.Event) *script {
		s := newScript(t, d)
		s.open(1, "c1").till(sec).ask(1, "c1", "k1", wait, 30*sec)
		e.Call = 1
		return s.pass(s.req(1, "k1", uint64(wait/sec), 30, 77)).till(sec + after).add(e)
	}
	overdue := history.Event{Kind: history.CallOverdue}
	result := history.Event{Kind: history.CallResult, Outcome: indet}
	s := play(v1, 0, 10*sec, overdue)
	first(t, s.want(s.timed(), "zero-is-immediate contract"), `call 1 on key "k1", with a wait of 0, had no outcome 10000.000 ms after it was asked for`)
	p := s.timed()
	p.Profile = ProfileAny
	s.want(p, "zero-is-immediate contract")
	p.NoPong = true // P11
	wantChecked(t, s.want(p), "zero-is-immediate", false)
	s.add(history.Event{Kind: history.RanLate})
	s.want(s.timed(), "zero-is-immediate contract suspect")

	s = play(v1, 0, 10*sec, result)
	wantChecked(t, s.want(s.timed()), "zero-is-immediate", true)
	s = play(v1, 0, 10*sec+msec, result)
	s.want(s.timed(), "zero-is-immediate contract")
	s = play(v1, 0, 10*sec, overdue)
	s.add(history.Event{Kind: history.CallResult, Call: 1, Outcome: "error"})
	s.want(s.timed(), "zero-is-immediate contract")
	for _, e := range []history.Event{overdue, result} {
		s = play(v1, 6*sec, 11*sec, e) // settles's
		wantChecked(t, s.want(s.timed()), "zero-is-immediate", false)
		s = play(v0, 0, 11*sec, e)
		wantChecked(t, s.want(s.timed()), "zero-is-immediate", false)
	}
	s = newScript(t, v1) // answered at once: the deadline had nothing to do
	s.open(1, "c1").ask(1, "c1", "k1", 0, 30*sec).pass(s.req(1, "k1", 0, 30, 77)).pass(s.answer(1, "T", "k1", 77)).told(1, "timeout")
	wantChecked(t, s.want(s.timed()), "zero-is-immediate", false)
	for after, yes := range map[time.Duration]bool{5 * sec: false, 5*sec + msec: true} { // the answer came too late
		s = newScript(t, v1)
		s.open(1, "c1").till(sec).ask(1, "c1", "k1", 0, 30*sec).pass(s.req(1, "k1", 0, 30, 77))
		m := s.answer(1, "T", "k1", 77)
		s.recv(m, 0, len(m.b)).till(sec+after).write(m, 0, len(m.b)).wait(sec).told(1, "timeout")
		wantChecked(t, s.want(s.timed()), "zero-is-immediate", yes)
	}
	s = newScript(t, v1) // no end of it was seen
	s.open(1, "c1").ask(1, "c1", "k1", 0, 30*sec).pass(s.req(1, "k1", 0, 30, 77)).wait(20 * sec).add(history.Event{Kind: history.CaseEnding})
	wantChecked(t, s.want(s.timed()), "zero-is-immediate", false)
}
