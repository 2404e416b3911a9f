package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/history"
)

const msec = time.Millisecond

// timingIDs are the rules that these tests are about.
var timingIDs = []string{
	"owner-fresh", "deadline-once", "wait-recomputed", "wait-rounded-up", "wait-range", "expired-unsent", "late-grant", "zero-is-immediate",
}

// timed judges by the timing rules alone, for an official client.
func (s *script) timed() Policy {
	p := s.policy()
	p.Profile, p.Only = ProfileOfficial, map[string]bool{}
	for _, id := range timingIDs {
		p.Only[id] = true
	}
	return p
}

// till puts the next event at a time.
func (s *script) till(at time.Duration) *script {
	s.t.Helper()
	if at <= s.at {
		s.t.Fatalf("the script is at %s already, not before %s", s.at, at)
	}
	s.at = at - msec
	return s
}

// first asserts the message of the first finding.
func first(t *testing.T, r Result, message string) {
	t.Helper()
	if len(r.Findings) == 0 || r.Findings[0].Message != message {
		t.Errorf("findings %+v, want message %q", r.Findings, message)
	}
}

// connecting plays a call that starts at 1 s on a session whose greeting is held
// for a time from then on. Its request can be received 5 ms later.
func connecting(t *testing.T, dialect string, wait, hold time.Duration) *script {
	s := newScript(t, dialect)
	s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
	g := s.line(1, s2c, "greeting", "node-1 nonce")
	s.recv(g, 0, len(g.b)).till(sec-msec).ask(1, "c1", "k1", wait, 30*sec)
	return s.till(sec+hold).write(g, 0, len(g.b)).pass(s.line(1, c2s, "auth", "digest"))
}

func TestWaitAboveWhatRemained(t *testing.T) {
	for _, c := range []struct {
		hold time.Duration
		wire uint64
		want []string
	}{
		{3500 * msec, 7, nil},
		{3500 * msec, 8, []string{"wait-recomputed contract"}},
		{3500 * msec, 10, []string{"wait-recomputed contract"}},
		{3200 * msec, 8, []string{"wait-recomputed contract"}}, // 200 ms of it are the client's
		{3199 * msec, 8, nil},
		{3199 * msec, 9, []string{"wait-recomputed contract"}},
		{1200 * msec, 10, []string{"wait-recomputed contract"}},
		{1199 * msec, 10, nil},                                                          // "Never a finding" 7
		{1199 * msec, 11, []string{"wait-range contract"}},                              // not of the remaining time
		{3500 * msec, 255, []string{"wait-recomputed contract", "wait-range contract"}}, // a fresh 255 s
		{3500 * msec, 6, []string{"wait-rounded-up contract"}},
	} {
		t.Run(fmt.Sprint(c.hold, c.wire), func(t *testing.T) {
			s := connecting(t, v1, 10*sec, c.hold)
			s.pass(s.req(1, "k1", c.wire, 30, 77))
			r := s.want(s.timed(), c.want...)
			wantChecked(t, r, "wait-recomputed", c.hold >= 1200*msec)
			wantChecked(t, r, "deadline-once", false)
		})
	}
	s := connecting(t, v1, 10*sec, 3500*msec)
	s.pass(s.req(1, "k1", 10, 30, 77))
	first(t, s.want(s.timed(), "wait-recomputed contract"), `call 1 on key "k1" sent a wait of 10 s in c2s.A.1 on session 1 although at most 7 s of its wait of 10s can have remained: the nonce was sent 3500.000 ms after the call had started`)
}

// A library whose waits are whole seconds is given the wait rounded up.
func TestWaitOfWholeSeconds(t *testing.T) {
	for _, c := range []struct {
		wait, hold time.Duration
		wire       uint64
		late       bool
	}{
		{1500 * msec, 861 * msec, 2, false},
		{1500 * msec, 1200 * msec, 2, true},
		{9500 * msec, 3500 * msec, 7, false},
		{9500 * msec, 3500 * msec, 8, true},
	} {
		s := connecting(t, v1, c.wait, c.hold)
		s.pass(s.req(1, "k1", c.wire, 30, 77))
		var want []string
		if c.late {
			want = []string{"wait-recomputed contract"}
		}
		s.want(s.timed(), want...)
	}
}

// The clauses bind official clients of the current dialect.
func TestWaitSeverity(t *testing.T) {
	for _, d := range []string{v1, v0} {
		for _, profile := range []string{ProfileAny, ProfileOfficial, ""} {
			severity := "hygiene"
			if d == v1 && profile == ProfileOfficial {
				severity = "contract"
			}
			for wire, rule := range map[uint64]string{8: "wait-recomputed ", 6: "wait-rounded-up "} {
				s := connecting(t, d, 10*sec, 3500*msec)
				s.pass(s.req(1, "k1", wire, 30, 77))
				p := s.timed()
				p.Profile = profile
				s.want(p, rule+severity)
			}
		}
	}
}

func TestWaitNotBounded(t *testing.T) {
	unjudged := func(t *testing.T, s *script, rules ...string) {
		t.Helper()
		r := s.want(s.timed())
		for _, id := range rules {
			wantChecked(t, r, id, false)
		}
	}
	t.Run("no started event", func(t *testing.T) {
		s := connecting(t, v1, 10*sec, 3500*msec)
		s.pass(s.req(1, "k1", 10, 30, 77))
		s.ev = slices.DeleteFunc(s.ev, func(e history.Event) bool { return e.Kind == history.CallStarted })
		unjudged(t, s, "wait-recomputed", "wait-rounded-up")
	})
	t.Run("started event read late", func(t *testing.T) { // the client is given that time
		s := connecting(t, v1, 10*sec, 3500*msec)
		s.pass(s.req(1, "k1", 10, 30, 77))
		i := slices.IndexFunc(s.ev, func(e history.Event) bool { return e.Kind == history.CallStarted })
		s.ev[i].At = sec + 3500*msec
		s.want(s.timed())
	})
	t.Run("two calls", func(t *testing.T) { // P2
		s := connecting(t, v1, 10*sec, 3500*msec)
		s.ask(2, "c1", "k1", 10*sec, 30*sec).pass(s.req(1, "k1", 10, 30, 77))
		unjudged(t, s, "wait-recomputed", "wait-rounded-up", "wait-range")
	})
	t.Run("a call that ended unsent long ago", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 10*sec, 30*sec).told(1, "unsent").wait(3 * sec)
		s.ask(2, "c1", "k1", 0, 30*sec).pass(s.req(1, "k1", 7, 30, 77))
		unjudged(t, s, "wait-rounded-up", "wait-range")
		s = newScript(t, v1) // the ended call's lease is another
		s.open(1, "c1").ask(1, "c1", "k1", 10*sec, 20*sec).told(1, "unsent").wait(3 * sec)
		s.ask(2, "c1", "k1", 0, 30*sec).pass(s.req(1, "k1", 7, 30, 77))
		s.want(s.timed(), "wait-range contract")
	})
	t.Run("the owner of an ended call is known", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 10*sec, 30*sec)
		s.add(history.Event{Kind: history.CallResult, Call: 1, Outcome: "unsent", Owner: 76, HasOwner: true})
		s.wait(3*sec).ask(2, "c1", "k1", 0, 30*sec).pass(s.req(1, "k1", 7, 30, 77))
		s.want(s.timed(), "wait-range contract")
	})
	t.Run("an ended call's own request is not known", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 10*sec, 30*sec).ask(2, "c1", "k2", 10*sec, 30*sec)
		s.recv(s.req(1, "k1", 7, 30, 76), 0, 1).sent(1, "rst").told(1, indet).told(2, "unsent").open(2, "c1").wait(3 * sec)
		s.ask(3, "c1", "k1", 0, 30*sec).pass(s.req(2, "k1", 7, 30, 77))
		unjudged(t, s, "wait-range")
	})
	t.Run("no wait received", func(t *testing.T) {
		s := connecting(t, v1, 10*sec, 3500*msec)
		s.recv(s.req(1, "k1", 10, 30, 77), 0, 1)
		unjudged(t, s, "wait-recomputed", "wait-rounded-up", "wait-range")
		s = connecting(t, v1, 10*sec, 3500*msec)
		s.recv(s.req(1, "k1", 10, 30, 77), 0, 2)
		s.want(s.timed(), "wait-recomputed contract")
	})
	t.Run("half a wait", func(t *testing.T) {
		s := connecting(t, v0, 10*sec, 3500*msec)
		s.recv(s.req(1, "k1", 10, 30, 77), 0, 2)
		unjudged(t, s, "wait-recomputed", "wait-rounded-up", "wait-range")
	})
	t.Run("ran late", func(t *testing.T) { // P11
		s := connecting(t, v1, 10*sec, 3500*msec)
		s.pass(s.req(1, "k1", 10, 30, 77)).add(history.Event{Kind: history.RanLate})
		s.want(s.timed(), "wait-recomputed contract suspect")
		s = connecting(t, v1, 10*sec, 3500*msec) // the lower bound holds whoever was late
		s.pass(s.req(1, "k1", 6, 30, 77)).add(history.Event{Kind: history.RanLate})
		s.want(s.timed(), "wait-rounded-up contract")
	})
	t.Run("waits for ever", func(t *testing.T) {
		s := connecting(t, v0, 0, 3500*msec)
		s.pass(s.req(1, "k1", 0, 30, 0))
		unjudged(t, s, "wait-recomputed", "wait-rounded-up", "wait-range")
	})
}

// What was written of a greeting counts as the client saw it.
func TestNonceSent(t *testing.T) {
	play := func(split int, record bool) *script {
		s := newScript(t, v1)
		s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
		g := s.line(1, s2c, "greeting", "node-1 nonce")
		if record {
			s.recv(g, 0, len(g.b))
		}
		s.ask(1, "c1", "k1", 10*sec, 30*sec).write(g, 0, split).wait(3500*msec).write(g, split, len(g.b))
		return s.pass(s.line(1, c2s, "auth", "digest")).pass(s.req(1, "k1", 10, 30, 77))
	}
	for _, split := range []int{0, 1, 12} { // the newline alone was late: no nonce before
		s := play(split, true)
		s.want(s.timed(), "wait-recomputed contract")
	}
	s := play(13, true)
	s.want(s.timed())
	s = play(12, false) // the bytes were not recorded: the first counts
	s.want(s.timed())
	s = play(0, false)
	s.want(s.timed(), "wait-recomputed contract")
}

// retried plays a call of 5 s that started at 1 s, whose first connection ended
// 2.5 s later, and which was then sent on a second one.
func secondTry(t *testing.T, wire uint64, play func(s *script)) *script {
	s := newScript(t, v1)
	s.add(history.Event{Kind: history.SessionOpened, Session: 1, Client: "c1"})
	s.till(sec-msec).ask(1, "c1", "k1", 5*sec, 30*sec).till(3500 * msec)
	play(s)
	return s.pass(s.req(2, "k1", wire, 30, 77))
}

func TestDeadlineOnce(t *testing.T) {
	for name, c := range map[string]struct {
		play        func(s *script)
		first, once bool // which rule it is for
	}{
		"cut":    {func(s *script) { s.sent(1, "rst").open(2, "c1") }, false, true},
		"closed": {func(s *script) { s.seen(1, "fin").open(2, "c1") }, false, true},
		"still open": {func(s *script) {
			s.open(2, "c1").sent(1, "rst")
		}, true, false},
		"of another client": {func(s *script) {
			s.ev[0].Client = "c2"
			s.sent(1, "rst").open(2, "c1")
		}, true, false},
		"had carried the request": {func(s *script) {
			s.pass(s.line(1, s2c, "greeting", "node-1 nonce")).pass(s.line(1, c2s, "auth", "digest"))
			s.recv(s.req(1, "k1", 3, 30, 77), 0, 1).sent(1, "rst").open(2, "c1")
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := secondTry(t, 5, c.play)
			p := s.timed()
			switch {
			case c.once:
				wantChecked(t, s.want(p, "deadline-once contract"), "wait-recomputed", false)
			case c.first:
				wantChecked(t, s.want(p, "wait-recomputed contract"), "deadline-once", false)
			}
			if s = secondTry(t, 3, c.play); c.once {
				wantChecked(t, s.want(s.timed()), "deadline-once", true)
			}
		})
	}
	s := secondTry(t, 5, func(s *script) { s.sent(1, "rst").open(2, "c1") })
	first(t, s.want(s.timed(), "deadline-once contract"), `call 1 on key "k1" sent a wait of 5 s in c2s.A.1 on session 2, a try after session 1 had ended, although at most 3 s of its wait of 5s can have remained: the nonce was sent 2504.000 ms after the call had started`)
}

// A connection that ended before the call was no try of it; one that ended at once
// left all of the wait.
func TestDeadlineOnceNotATry(t *testing.T) {
	s := newScript(t, v1)
	s.open(1, "c1").sent(1, "rst").add(history.Event{Kind: history.SessionOpened, Session: 2, Client: "c1"})
	s.ask(1, "c1", "k1", 5*sec, 30*sec).wait(2500 * msec).pass(s.line(2, s2c, "greeting", "node-1 nonce"))
	s.pass(s.line(2, c2s, "auth", "digest")).pass(s.req(2, "k1", 5, 30, 77))
	wantChecked(t, s.want(s.timed(), "wait-recomputed contract"), "deadline-once", false)
	s = newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).sent(1, "rst").open(2, "c1").pass(s.req(2, "k1", 6, 30, 77))
	wantChecked(t, s.want(s.timed(), "wait-range contract"), "deadline-once", false)
}

// early plays a call of W asked for at 1 s on an open connection, whose wait field
// was received after a time.
func early(t *testing.T, dialect string, wait, after time.Duration, wire uint64) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").till(sec).ask(1, "c1", "k1", wait, 30*sec)
	m := s.req(1, "k1", wire, 30, 77)
	n := 2
	if dialect == v0 {
		n = 3
	}
	s.recv(m, 0, n-1).till(sec+after).recv(m, n-1, n)
	return s.wait(9*sec).recv(m, n, len(m.b)) // what follows the field may take its time
}

func TestWaitRoundedUp(t *testing.T) {
	for _, c := range []struct {
		wait, after time.Duration
		wire        uint64
		found       string
	}{
		{5 * sec, 10 * msec, 5, ""},
		{5 * sec, 999 * msec, 5, ""},
		{5 * sec, 999 * msec, 4, "wait-rounded-up"},
		{5 * sec, 1000 * msec, 4, ""},
		{5 * sec, 1000 * msec, 5, ""}, // "Never a finding" 7
		{5 * sec, 1000 * msec, 3, "wait-rounded-up"},
		{2500 * msec, 499 * msec, 2, "wait-rounded-up"},
		{2500 * msec, 500 * msec, 2, ""},
		{2500 * msec, 10 * msec, 3, ""},
		{5 * sec, 4999 * msec, 1, ""},
	} {
		both(t, func(t *testing.T, d string) {
			s := early(t, d, c.wait, c.after, c.wire)
			p := s.timed()
			var want []string
			if c.found != "" {
				want = []string{c.found + " " + map[string]string{v1: "contract", v0: "hygiene"}[d]}
			}
			r := s.want(p, want...)
			wantChecked(t, r, "wait-rounded-up", true)
		})
	}
	s := early(t, v1, 5*sec, 999*msec, 4)
	first(t, s.want(s.timed(), "wait-rounded-up contract"), `call 1 on key "k1" sent a wait of 4 s in c2s.A.1 although at least 4001.000 ms of its wait of 5s remained when that was received, which is 5 s rounded up`)
	for after, yes := range map[time.Duration]bool{4999 * msec: true, 5000 * msec: false} {
		s = early(t, v1, 5*sec, after, 1) // nothing remained: expired-unsent's
		wantChecked(t, s.want(s.timed()), "wait-rounded-up", yes)
	}
}

func TestWaitRange(t *testing.T) {
	for _, c := range []struct {
		dialect string
		wait    time.Duration
		wire    uint64
		found   string
	}{
		{v1, 0, 0, ""},
		{v1, 0, 1, "which must be 0 on the wire"},
		{v1, sec, 0, "which 0 on the wire turns into an immediate attempt"},
		{v0, sec, 0, "which 0 on the wire turns into a wait without end"},
		{v1, 5 * sec, 6, "for a wait of 5s, which is 5 s rounded up"},
		{v0, 5 * sec, 6, "for a wait of 5s, which is 5 s rounded up"},
		{v1, 4001 * msec, 5, ""},
		{v1, 4001 * msec, 6, "which is 5 s rounded up"},
		{v1, 255 * sec, 255, ""},
		{v1, 300 * sec, 255, ""}, // "Never a finding" 7
		{v1, 300 * sec, 44, "which wraps around in a field that holds at most 255"},
		{v1, 256 * sec, 0, "which 0 on the wire turns into"},
		{v1, 255*sec + msec, 0, "which 0 on the wire turns into"},
		{v0, 300 * sec, 300, ""},
		{v0, 70000 * sec, 65535, ""},
		{v0, 70000 * sec, 70000 - 65536, "which wraps around in a field that holds at most 65535"},
		{v0, 65536 * sec, 0, "which 0 on the wire turns into a wait without end"},
	} {
		t.Run(fmt.Sprint(c.dialect, c.wait, c.wire), func(t *testing.T) {
			for _, profile := range []string{ProfileAny, ProfileOfficial} {
				s := newScript(t, c.dialect)
				s.open(1, "c1").ask(1, "c1", "k1", c.wait, 30*sec).pass(s.req(1, "k1", c.wire, 30, 77))
				p := s.policy()
				p.Profile, p.Only = profile, map[string]bool{"wait-range": true}
				if c.found == "" {
					wantChecked(t, s.want(p), "wait-range", true)
					continue
				}
				r := s.want(p, "wait-range contract")
				if len(r.Findings) == 1 && !strings.Contains(r.Findings[0].Message, c.found) {
					t.Errorf("message %q", r.Findings[0].Message)
				}
			}
		})
	}
}

// A remainder that a cut wait could have left, or that no time gives, is no
// wrapping; a wait cut to the field has its own lower bound.
func TestWaitOverTheField(t *testing.T) {
	play := func(wait, after time.Duration, wire uint64, want ...string) {
		t.Helper()
		s := early(t, v1, wait, after, wire)
		s.want(s.timed(), want...)
	}
	play(300*sec, 10*msec, 44, "wait-range contract", "wait-rounded-up contract")
	play(300*sec, 1500*msec, 43, "wait-range contract", "wait-rounded-up contract") // 298.5 s left, of 300
	play(300*sec, 10*msec, 43, "wait-rounded-up contract")                          // too early for 299
	play(510*sec, 10*msec, 254, "wait-rounded-up contract")                         // 255 rounded down
	play(509*sec, 10*msec, 253, "wait-range contract", "wait-rounded-up contract")
	play(300*sec, 45*sec, 255)
	play(300*sec, 45*sec, 210)
	play(300*sec, 45*sec, 209, "wait-rounded-up contract")
	// Held for 50 s, of 300 no more than 255 can remain; the cut deadline may stand for it.
	for wire, want := range map[uint64][]string{255: {"wait-recomputed contract"}, 251: {"wait-recomputed contract"}, 250: nil, 205: nil} {
		s := connecting(t, v1, 300*sec, 50200*msec)
		s.pass(s.req(1, "k1", wire, 30, 77))
		s.want(s.timed(), want...)
	}
	for _, hold := range []time.Duration{45200 * msec, sec} { // the field is the bound
		s := connecting(t, v1, 300*sec, hold)
		s.pass(s.req(1, "k1", 255, 30, 77))
		wantChecked(t, s.want(s.timed()), "wait-recomputed", false)
	}
}

func TestWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, sec - 1: 1, sec: 1, sec + 1: 2, -1: 0, -sec: -1, 1<<63 - 1: 9223372037} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%d: %d, want %d", d, got, want)
		}
	}
}
