package checker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// belated plays a call whose request's first byte came at 1 s, and the last byte of
// whose A was begun to be written after a time from there.
func belated(t *testing.T, dialect string, wait, lease, after time.Duration) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").open(2, "c1").till(sec-2*msec).ask(1, "c1", "k1", wait, lease)
	s.pass(s.req(1, "k1", min(uint64(wholeSeconds(wait)), 255), uint64(lease/sec), 77)).granted(1, "k1", 7, lease)
	a := s.got(1, "k1", 77, 7)
	n := len(a.b)
	return s.recv(a, 0, n).write(a, 0, n-1).till(sec+after).write(a, n-1, n)
}

func TestLateGrantEntered(t *testing.T) {
	for _, c := range []struct {
		wait, after time.Duration
		late        bool
	}{
		{sec, sec + 200*msec, false},
		{sec, sec + 201*msec, true},
		{sec, 2500 * msec, true},
		{5 * sec, 5*sec + 200*msec, false},
		{5 * sec, 5*sec + 201*msec, true},
		{1500 * msec, 2*sec + 200*msec, false}, // the library may take whole seconds only
		{1500 * msec, 2*sec + 201*msec, true},
		{0, 5*sec + 200*msec, false},
		{0, 5*sec + 201*msec, true},
		{300 * sec, 299 * sec, false},
	} {
		for _, profile := range []string{ProfileAny, ProfileOfficial} {
			s := belated(t, v1, c.wait, 250*sec, c.after)
			s.acquired(1, "k1", 7)
			p := s.timed()
			p.Profile = profile
			switch {
			case !c.late:
				wantChecked(t, s.want(p), "late-grant", false)
			case profile == ProfileAny:
				s.want(p, "late-grant hygiene")
			default:
				s.want(p, "late-grant contract")
			}
			s = belated(t, v1, c.wait, 250*sec, c.after)
			s.told(1, indet)
			wantChecked(t, s.want(p), "late-grant", c.late)
		}
	}
	s := belated(t, v1, sec, 30*sec, 2500*msec)
	s.acquired(1, "k1", 7)
	first(t, s.want(s.timed(), "late-grant contract"), `call 1 on key "k1" was told acquired (token 7) by s2c.A.1, written at 3500.000 ms, although its deadline had passed by 2000.000 ms at the latest`)
	s = belated(t, v0, sec, 30*sec, 2500*msec)
	s.acquired(1, "k1", 7)
	s.want(s.timed(), "late-grant hygiene")
	s = belated(t, v0, 0, 30*sec, 20*sec) // waits for ever
	s.acquired(1, "k1", 7)
	wantChecked(t, s.want(s.timed()), "late-grant", false)
}

// P9: what counts is the first byte of the request, and the last of the A.
func TestLateGrantStamps(t *testing.T) {
	play := func(from, to time.Duration) *script {
		s := newScript(t, v1)
		s.open(1, "c1").till(500*msec).ask(1, "c1", "k1", sec, 30*sec)
		r := s.req(1, "k1", 1, 30, 77)
		s.till(sec).recv(r, 0, 1).till(sec+from).recv(r, 1, len(r.b)).granted(1, "k1", 7, 30*sec)
		a := s.got(1, "k1", 77, 7)
		n := len(a.b)
		s.recv(a, 0, n).bytes(history.WriteBegun, a, 0, n-1).till(sec+to).bytes(history.WriteBegun, a, n-1, n)
		return s.wait(5*sec).bytes(history.WriteAccepted, a, 0, n).acquired(1, "k1", 7)
	}
	s := play(900*msec, sec+200*msec)
	s.want(s.timed())
	s = play(900*msec, sec+201*msec)
	s.want(s.timed(), "late-grant contract")
}

func TestLateGrantAcquittals(t *testing.T) {
	late := func(t *testing.T) *script { return belated(t, v1, sec, 30*sec, 2500*msec) }
	t.Run("another token was told", func(t *testing.T) { // exact-token's
		s := late(t).acquired(1, "k1", 8)
		s.want(s.timed())
	})
	t.Run("the client had ended the session", func(t *testing.T) {
		s := late(t).told(1, indet)
		s.ev = slices.Insert(s.ev, len(s.ev)-3, history.Event{Seq: s.ev[len(s.ev)-4].Seq, At: 2 * sec, Kind: history.EndSeen, Session: 1, Side: history.ClientSide, How: "rst"})
		wantChecked(t, s.want(s.timed()), "late-grant", false)
	})
	t.Run("no such grant", func(t *testing.T) {
		s := late(t).acquired(1, "k1", 7)
		s.ev = slices.DeleteFunc(s.ev, func(e history.Event) bool { return e.Kind == history.Granted })
		s.want(s.timed())
	})
	t.Run("a copy had come in time", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77)).granted(1, "k1", 7, 30*sec)
		a := s.got(1, "k1", 77, 7)
		s.pass(a).wait(3*sec).write(a, 0, len(a.b)).acquired(1, "k1", 7)
		s.want(s.timed())
	})
	t.Run("a copy came later", func(t *testing.T) {
		s := late(t)
		a := s.got(1, "k1", 77, 7)
		s.recv(a, 0, len(a.b)).write(a, 0, len(a.b)).acquired(1, "k1", 7)
		s.want(s.timed(), "late-grant contract")
	})
	t.Run("whose request", func(t *testing.T) { // P2
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).ask(2, "c1", "k1", 9*sec, 30*sec)
		s.pass(s.req(1, "k1", 1, 30, 0)).pass(s.req(1, "k1", 9, 30, 0)).granted(1, "k1", 7, 30*sec)
		s.wait(3*sec).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		s.want(s.timed())
	})
	t.Run("no outcome yet", func(t *testing.T) {
		s := late(t)
		wantChecked(t, s.want(s.timed()), "late-grant", false)
	})
	t.Run("the lease had ended", func(t *testing.T) {
		for _, c := range []struct {
			wait  time.Duration
			found bool // where the lease is not shorter than the wait
		}{{sec, true}, {2 * sec, true}, {3 * sec, false}, {0, false}} {
			s := newScript(t, v1)
			s.open(1, "c1").ask(1, "c1", "k1", c.wait, 2*sec).pass(s.req(1, "k1", uint64(c.wait/sec), 2, 77))
			s.granted(1, "k1", 7, 2*sec).wait(6*sec).ended(0, "k1", 7).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
			p := s.timed()
			if c.found {
				s.want(p, "late-grant contract")
			} else {
				s.want(p)
			}
			p.Profile = ProfileAny // entry-after-lease's
			s.want(p)
		}
	})
}

// Without the table (P14) the grant lives for a lease after its request was forwarded.
func TestLateGrantUnseen(t *testing.T) {
	unseen := func(s *script, want ...string) Result {
		t.Helper()
		p := s.timed()
		p.SawTable = false
		return s.want(p, want...)
	}
	for _, d := range []string{v1, v0} {
		severity := map[string]string{v1: "contract", v0: "hygiene"}[d]
		unseen(belated(t, d, sec, 30*sec, 2500*msec).acquired(1, "k1", 7), "late-grant "+severity)
		unseen(belated(t, d, sec, 3*sec, 2999*msec).acquired(1, "k1", 7), "late-grant "+severity)
		unseen(belated(t, d, sec, 3*sec, 3001*msec).acquired(1, "k1", 7))
		s := belated(t, d, sec, 30*sec, 2500*msec)
		s.ev = slices.DeleteFunc(s.ev, func(e history.Event) bool { // no server sent it
			return e.Kind == history.Received && e.Frame != nil && e.Frame.Op == "A" && e.Dir == frames.ServerToClient
		})
		wantChecked(t, unseen(s.acquired(1, "k1", 7)), "late-grant", false)
		s = newScript(t, d) // another released it
		s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77))
		a := s.got(1, "k1", 77, 7)
		s.recv(a, 0, len(a.b)).pass(s.rel(2, "k1", 7)).wait(3*sec).write(a, 0, len(a.b)).acquired(1, "k1", 7)
		unseen(s)
	}
}

// ignored plays a late A on session 1 that the client did not tell, with a call of
// it that came after it on a session, and the end of the lease.
func ignored(t *testing.T, session int, play func(s *script)) *script {
	return ignoredIn(t, v1, session, play)
}

func ignoredIn(t *testing.T, dialect string, session int, play func(s *script)) *script {
	s := belated(t, dialect, sec, 30*sec, 2500*msec)
	s.told(1, indet)
	if session > 0 {
		s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(session, "k2", 5, 30, 78)).granted(session, "k2", 9, 30*sec)
		s.pass(s.got(session, "k2", 78, 9)).acquired(2, "k2", 9)
	}
	if play != nil {
		play(s)
	}
	return s.till(31*sec).ended(0, "k1", 7).add(history.Event{Kind: history.CaseEnding})
}

func TestLateGrantNotReleased(t *testing.T) {
	s := ignored(t, 1, nil)
	first(t, s.want(s.timed(), "late-grant contract"), `client c1 sent no R with token 7 of s2c.A.1, written at 3500.000 ms after the deadline of call 1 on key "k1" had passed by 2000.000 ms at the latest, although it had read that frame by 3512.000 ms and the lease ended at 31000.000 ms`)
	p := s.timed()
	p.Profile = ProfileAny
	s.want(p, "late-grant hygiene")
	p.NoPong = true
	s.want(p)
	p.NoPong, p.SawTable = false, false
	s.want(p)
	s = ignored(t, 1, func(s *script) { s.pass(s.rel(1, "k2", 9)) }) // the first proof counts
	if r := s.want(s.timed(), "late-grant contract"); len(r.Findings) == 1 && !strings.Contains(r.Findings[0].Message, "read that frame by 3512.000 ms") {
		t.Error(r.Findings[0].Message)
	}
	s = ignored(t, 1, nil) // the sessions ended after the lease
	s.seen(1, "fin").seen(2, "fin")
	s.want(s.timed(), "late-grant contract")
	s = ignoredIn(t, v0, 1, nil) // an R names no token there
	s.want(s.timed())

	found := func(name string, session int, play func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := ignored(t, session, play)
			s.want(s.timed(), "late-grant contract")
		})
	}
	fine := func(name string, session int, play func(s *script)) {
		t.Run(name, func(t *testing.T) {
			s := ignored(t, session, play)
			s.want(s.timed())
		})
	}
	fine("nothing shows that it was read", 0, nil) // "Never a finding" 13
	fine("the barrier is on another session", 2, nil)
	found("another R", 1, func(s *script) { s.pass(s.rel(1, "k2", 9)) })
	found("the token came back in an R alone", 0, func(s *script) {
		s.granted(1, "k2", 9, 30*sec).pass(s.got(1, "k2", 78, 9)).pass(s.rel(2, "k2", 9))
	})
	fine("the token had come elsewhere", 0, func(s *script) {
		s.write(s.withData(s.got(2, "k2", 78, 9))).pass(s.got(1, "k2", 78, 9)).pass(s.rel(2, "k2", 9))
	})
	fine("released", 1, func(s *script) { s.pass(s.rel(1, "k1", 7)) })
	fine("released elsewhere", 1, func(s *script) { s.pass(s.rel(2, "k1", 7)) })
	fine("a part of an R", 1, func(s *script) { s.recv(s.rel(2, "k1", 7), 0, 8).sent(2, "rst") })
	found("an R that is another's", 1, func(s *script) { s.recv(s.rel(2, "k2", 9), 0, 9).sent(2, "rst") })
	fine("no session", 1, func(s *script) { s.sent(1, "rst").sent(2, "fin") })
	fine("the last one was cut", 1, func(s *script) { s.seen(1, "rst").sent(2, "fin").seen(2, "fin") })
	found("one of two was cut", 1, func(s *script) { s.sent(1, "rst") })
	found("closed by the client", 1, func(s *script) { s.seen(1, "rst").sent(1, "fin").seen(2, "rst") })
	fine("a new one was cut", 1, func(s *script) { s.seen(1, "rst").seen(2, "rst").open(3, "c1").sent(3, "rst") })
	fine("another client's session", 1, func(s *script) { s.sent(1, "rst").ev[8].Client = "c2" })
	found("another client's was cut", 1, func(s *script) { s.seen(1, "rst").sent(2, "rst").ev[8].Client = "c2" })
	fine("none was up at the proof", 0, func(s *script) {
		s.pass(s.got(1, "k2", 78, 9)).sent(1, "rst").seen(2, "fin")
		s.ask(2, "c1", "k2", 5*sec, 30*sec).acquired(2, "k2", 9)
	})
	fine("the preface came later", 0, func(s *script) {
		s.pass(s.got(1, "k2", 78, 9)).sent(1, "rst").seen(2, "fin").add(history.Event{Kind: history.SessionOpened, Session: 3, Client: "c1"})
		s.ask(2, "c1", "k2", 5*sec, 30*sec).acquired(2, "k2", 9).pass(s.line(3, s2c, "greeting", "node-1 nonce")).pass(s.line(3, c2s, "auth", "digest"))
	})
	found("one was cut before the proof", 0, func(s *script) {
		s.sent(2, "rst").pass(s.got(1, "k2", 78, 9)).ask(2, "c1", "k2", 5*sec, 30*sec).acquired(2, "k2", 9).seen(1, "fin")
	})
	found("a new one was cut after the lease", 1, func(s *script) {
		s.seen(1, "rst").seen(2, "rst").open(3, "c1").till(31*sec).ended(0, "k1", 7).sent(3, "rst").at = 4 * sec
	})
	fine("told before the barrier", 0, func(s *script) { s.ask(2, "c1", "k2", 5*sec, 30*sec).acquired(2, "k2", 9).pass(s.got(1, "k2", 78, 9)) })
	fine("another client was told", 0, func(s *script) {
		s.ask(2, "c2", "k2", 5*sec, 30*sec).pass(s.got(1, "k2", 78, 9)).acquired(2, "k2", 9)
	})
	fine("closing", 1, func(s *script) { s.add(history.Event{Kind: history.CloseAsked, Client: "c1"}) })
	found("another client closing", 1, func(s *script) { s.add(history.Event{Kind: history.CloseAsked, Client: "c2"}) })
	fine("ran late", 1, func(s *script) { s.add(history.Event{Kind: history.RanLate}) })
	fine("unread bytes", 1, func(s *script) { s.add(history.Event{Kind: history.WentOpaque, Session: 1, Dir: c2s}) })
	fine("another call holds the token", 1, func(s *script) {
		s.add(history.Event{Kind: history.CallAsked, Call: 3, Client: "c1", Key: "k3", Wait: 5 * sec, Lease: 30 * sec})
		s.add(history.Event{Kind: history.CallResult, Call: 3, Outcome: "error", Token: 7, HasToken: true})
	})
	// The client's lease ends with that of its own clock, from the asking on.
	for at, n := range map[time.Duration]int{29997 * msec: 1, 29998 * msec: 0} {
		s := ignored(t, 0, func(s *script) {
			s.pass(s.got(1, "k2", 78, 9)).till(at)
			r := s.rel(2, "k2", 9)
			s.recv(r, 0, len(r.b))
		})
		s.want(s.timed(), slices.Repeat([]string{"late-grant contract"}, n)...)
	}
}

// A release that was told done by an answer behind the late A is a barrier too.
func TestLateGrantBarrierOfARelease(t *testing.T) {
	play := func(session int, told string, after bool) *script {
		s := newScript(t, v1)
		s.open(1, "c1").open(2, "c1").ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(2, "k2", 5, 30, 78))
		s.granted(2, "k2", 9, 30*sec).pass(s.got(2, "k2", 78, 9)).acquired(2, "k2", 9)
		s.till(sec-2*msec).ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77)).granted(1, "k1", 7, 30*sec).ask2release(2)
		answer := func() { s.pass(s.rel(session, "k2", 9)).pass(s.answer(session, "R", "k2", 9)) }
		if !after {
			answer()
		}
		s.till(3*sec).told(1, indet).pass(s.got(1, "k1", 77, 7))
		if after {
			answer()
		}
		return s.released(2, told).till(32*sec).ended(0, "k1", 7)
	}
	s := play(1, "released", true)
	s.want(s.timed(), "late-grant contract")
	s = play(1, "not_held", true)
	s.want(s.timed())
	s.ev = slices.Delete(s.ev, len(s.ev)-1, len(s.ev)) // nor is a repeated R one
	s.at = 4 * sec
	s.pass(s.rel(2, "k2", 9)).till(32*sec).ended(0, "k1", 7)
	s.want(s.timed())
	s = play(1, "released", false)
	s.want(s.timed())
	s = play(2, "released", true)
	s.want(s.timed())
}

// Without its end in the table a lease is not known to have passed.
func TestLateGrantLeaseNotOver(t *testing.T) {
	s := ignored(t, 1, nil)
	s.ev = slices.DeleteFunc(s.ev, func(e history.Event) bool { return e.Kind == history.GrantEnded })
	wantChecked(t, s.want(s.timed()), "late-grant", true)
	s = ignored(t, 1, nil)
	for i := range s.ev {
		if s.ev[i].Kind == history.GrantEnded {
			s.ev[i].How = history.Released
		}
	}
	s.want(s.timed())
}
