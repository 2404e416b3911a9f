package checker

import (
	"fmt"
	"testing"
	"time"

	"tornwire/history"
)

const quiet = 300 * time.Millisecond

// idle plays a session with a call that was released a while before.
func (s *script) idle(session int) *script {
	key := fmt.Sprint("k", session)
	s.open(session, "c1").next(session, session).grants(session, session).gets(session).leave(session, key, uint64(session))
	s.ask2release(session).pass(s.rel(session, key, uint64(session))).pass(s.answer(session, "R", key, uint64(session)))
	return s.released(session, "released").wait(quiet)
}

// noticed plays three sessions that get an L each, after one that gets none; after tells
// what follows.
func noticedThrice(t *testing.T, after func(s *script, session int)) *script {
	s := newScript(t, v1).given("c1", "a:1", "b:1").idle(9).wait(2 * quiet)
	for n := 1; n <= 3; n++ {
		s.idle(n).pass(s.word(n, "L", "b:1"))
		after(s, n)
		s.wait(quiet)
	}
	return s.add(history.Event{Kind: history.CaseEnding})
}

func TestLeaderStays(t *testing.T) {
	for _, how := range []string{"fin", "rst"} {
		s := noticedThrice(t, func(s *script, n int) { s.seen(n, how) })
		r := s.want(s.ofCluster(), "leader-stays hygiene")
		if m := `client c1 closed 3 of 3 sessions within 250ms of an L, the last, session 3, 2.000 ms after s2c.L.3 "b:1"; each had stayed open for as long before with nothing coming`; r.Findings[0].Message != m {
			t.Error(r.Findings[0].Message)
		}
	}
	s := noticedThrice(t, func(s *script, _ int) {})
	wantChecked(t, s.want(s.ofCluster()), "leader-stays", true)
}

func TestLeaderStaysAcquittals(t *testing.T) {
	for name, c := range map[string]struct {
		after   func(s *script, n int)
		checked bool
	}{
		"two of three": {func(s *script, n int) {
			if n != 2 {
				s.seen(n, "fin")
			}
		}, true},
		"a while after":   {func(s *script, n int) { s.wait(260*time.Millisecond).seen(n, "fin") }, true},
		"ended by us":     {func(s *script, n int) { s.sent(n, "fin").seen(n, "fin") }, false},
		"asked to close":  {func(s *script, n int) { s.add(history.Event{Kind: history.CloseAsked, Client: "c1"}).seen(n, "fin") }, false},
		"something asked": {func(s *script, n int) { s.ask(n+10, "c1", "k", 5*sec, 30*sec).seen(n, "fin") }, false},
		"something came":  {func(s *script, n int) { s.pass(s.line(n, s2c, "keepalive", "")).seen(n, "fin") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := noticedThrice(t, c.after)
			wantChecked(t, s.want(s.ofCluster()), "leader-stays", c.checked)
		})
	}
}

// A client that closes what it has not used for a while would have closed these three
// without an L, too.
func TestLeaderStaysOrClosesWhatIsIdle(t *testing.T) {
	play := func(rest func(s *script)) *script {
		s := newScript(t, v1).given("c1", "a:1", "b:1").idle(9)
		rest(s)
		for n := 1; n <= 3; n++ {
			s.idle(n).pass(s.word(n, "L", "b:1")).wait(200*time.Millisecond).seen(n, "fin").wait(quiet)
		}
		return s.add(history.Event{Kind: history.CaseEnding})
	}
	s := play(func(s *script) { s.wait(quiet).seen(9, "fin") })
	wantChecked(t, s.want(s.ofCluster()), "leader-stays", false)
	s = play(func(s *script) { s.wait(190*time.Millisecond).pass(s.line(9, s2c, "keepalive", "")).seen(9, "fin") })
	wantChecked(t, s.want(s.ofCluster()), "leader-stays", false)
	s = play(func(s *script) { s.wait(210*time.Millisecond).pass(s.line(9, s2c, "keepalive", "")).seen(9, "fin") })
	s.want(s.ofCluster(), "leader-stays hygiene")
	s = play(func(s *script) { s.wait(quiet).sent(9, "fin").seen(9, "fin") }) // we ended it
	s.want(s.ofCluster(), "leader-stays hygiene")
	s = play(func(s *script) {})
	s.want(s.ofCluster(), "leader-stays hygiene")
	// One that waits for an answer is not left alone.
	s = newScript(t, v1).given("c1", "a:1", "b:1").open(9, "c1").next(9, 9).wait(2*quiet).grants(9, 9).gets(9).seen(9, "fin")
	for n := 1; n <= 3; n++ {
		s.idle(n).pass(s.word(n, "L", "b:1")).seen(n, "fin").wait(quiet)
	}
	wantChecked(t, s.add(history.Event{Kind: history.CaseEnding}).want(s.ofCluster()), "leader-stays", false)
}

// Without a control run, with something under way, or too seldom, nothing is judged.
func TestLeaderStaysNeedsAControl(t *testing.T) {
	for name, before := range map[string]func(s *script, n int){
		"something came": func(s *script, n int) { s.pass(s.line(n, s2c, "keepalive", "")).wait(200 * time.Millisecond) },
		"a call waits":   func(s *script, n int) { s.next(n, n+10).wait(quiet) },
		"it was late":    func(s *script, _ int) { s.add(history.Event{Kind: history.RanLate, N: 300}).wait(quiet) },
		"a release waits": func(s *script, n int) {
			s.ask2release(n).pass(s.rel(n, "k", 5)).wait(quiet)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1).idle(9).wait(2 * quiet)
			for n := 1; n <= 3; n++ {
				s.idle(n)
				before(s, n)
				s.pass(s.word(n, "L", "b:1")).seen(n, "fin").wait(quiet)
			}
			s.add(history.Event{Kind: history.CaseEnding})
			wantChecked(t, s.want(s.ofCluster()), "leader-stays", false)
		})
	}
	s := newScript(t, v1).idle(9).wait(2 * quiet)
	for n := 1; n <= 2; n++ {
		s.idle(n).pass(s.word(n, "L", "b:1")).seen(n, "fin").wait(quiet)
	}
	s.add(history.Event{Kind: history.CaseEnding})
	wantChecked(t, s.want(s.ofCluster()), "leader-stays", false)
}

// What happens around one of three notices makes that one prove nothing.
func TestLeaderStaysOneOfThree(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(s *script)
		checked       bool
	}{
		"closed at once":      {nil, func(s *script) { s.seen(3, "fin") }, true},
		"just opened":         {func(s *script) { s.open(33, "c1").pass(s.word(33, "L", "b:1")).seen(33, "fin") }, func(s *script) { s.seen(3, "fin") }, true},
		"closed before":       {func(s *script) { s.seen(3, "fin") }, nil, false},
		"ended by us before":  {func(s *script) { s.sent(3, "fin").wait(quiet) }, func(s *script) { s.seen(3, "fin") }, false},
		"the client's second": {nil, func(s *script) { s.openAt(33, "c1", "a:1").seen(3, "fin") }, true},
		"another's call":      {nil, func(s *script) { s.open(33, "c2").ask(33, "c2", "k33", sec, sec).seen(3, "fin") }, true},
		"a fault":             {nil, func(s *script) { s.add(history.Event{Kind: history.Fired, Session: 3}).seen(3, "fin") }, false},
		"a cancel":            {nil, func(s *script) { s.event(history.CancelAsked, 3, "").seen(3, "fin") }, false},
		"the end of the case": {nil, func(s *script) { s.add(history.Event{Kind: history.CaseEnding}).seen(3, "fin") }, false},
		"another release":     {func(s *script) { s.ask2release(1).wait(quiet) }, func(s *script) { s.seen(3, "fin") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1).given("c1", "a:1", "b:1").idle(9).wait(2 * quiet)
			for n := 1; n <= 2; n++ {
				s.idle(n).pass(s.word(n, "L", "b:1")).seen(n, "fin").wait(quiet)
			}
			s.idle(3)
			if c.before != nil {
				c.before(s)
			}
			s.pass(s.word(3, "L", "b:1"))
			if c.after != nil {
				c.after(s)
			}
			s.wait(quiet).add(history.Event{Kind: history.CaseEnding})
			var want []string
			if c.checked {
				want = []string{"leader-stays hygiene"}
			}
			wantChecked(t, s.want(s.ofCluster(), want...), "leader-stays", c.checked)
		})
	}
}

// round is one client of three nodes that is told of a leader and then of none.
type round struct {
	n      int
	hint   string
	quiet  time.Duration // between the two
	dials  string        // what it connects to then
	before func(s *script)
}

func (r round) play(s *script) {
	client, session := fmt.Sprint("h", r.n), 2*r.n
	s.given(client, "a:1", "b:1", "c:1").openAt(session, client, "a:1")
	if r.before != nil {
		r.before(s)
	}
	s.pass(s.word(session, "L", r.hint)).wait(r.quiet).pass(s.word(session, "E", "no_leader")).seen(session, "fin")
	s.openAt(session+1, client, r.dials)
}

func hinted(n int) string { return []string{"b:1", "c:1"}[n%2] }

// rounds plays twenty; change may change one.
func rounds(t *testing.T, change func(r *round)) *script {
	s := newScript(t, v1)
	for n := range 20 {
		r := round{n: n + 1, hint: hinted(n), quiet: 110 * time.Millisecond, dials: hinted(n)}
		if change != nil {
			change(&r)
		}
		r.play(s)
	}
	return s
}

func TestNoLeaderDropsHint(t *testing.T) {
	s := rounds(t, nil)
	r := s.want(s.ofCluster(), "no-leader-drops-hint hygiene")
	if m := `20 of 20 times the node that an L had named was dialled first after E no_leader, which drops the hint; the last time client h20 dialled c:1 as session 41, 3.000 ms after s2c.E.20 "no_leader" on session 40`; r.Findings[0].Message != m {
		t.Error(r.Findings[0].Message)
	}
	for _, dials := range []string{"a:1", "b:1"} { // once elsewhere
		s = rounds(t, func(r *round) {
			if r.n == 7 {
				r.hint, r.dials = "c:1", dials
			}
		})
		wantChecked(t, s.want(s.ofCluster()), "no-leader-drops-hint", true)
	}
}

// One time less that can be judged, and it is not.
func TestNoLeaderDropsHintBounds(t *testing.T) {
	for name, change := range map[string]func(r *round){
		"the node itself": func(r *round) { r.hint, r.dials = "a:1", "a:1" },
		"an unlisted one": func(r *round) { r.hint, r.dials = "x:1", "x:1" },
		"too soon":        func(r *round) { r.quiet = 90 * time.Millisecond },
		"it had dialled": func(r *round) {
			n := r.n
			r.before = func(s *script) { s.pass(s.word(2*n, "L", "b:1")).openAt(100+n, fmt.Sprint("h", n), "b:1").wait(quiet) }
			r.hint = "c:1"
			r.dials = "c:1"
		},
		"refused": func(r *round) {
			n := r.n
			r.before = func(s *script) {
				s.add(history.Event{Kind: history.Fired, Client: fmt.Sprint("h", n), Fault: "refuse", Frame: &history.FrameRef{Op: "open"}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := rounds(t, func(r *round) {
				if r.n == 7 {
					change(r)
				}
			})
			checked := name == "it had dialled" // a connection before the notice is none after it
			findings := []string{}
			if checked {
				findings = []string{"no-leader-drops-hint hygiene"}
			}
			wantChecked(t, s.want(s.ofCluster(), findings...), "no-leader-drops-hint", checked)
		})
	}
	same := rounds(t, func(r *round) { r.hint, r.dials = "b:1", "b:1" }) // an order of addresses does that as well
	wantChecked(t, same.want(same.ofCluster()), "no-leader-drops-hint", false)
}

// A connection between the notice and the error may have been made for the notice.
func TestNoLeaderDropsHintEagerly(t *testing.T) {
	s := newScript(t, v1)
	for n := range 20 {
		client, session := fmt.Sprint("h", n), 3*n+1
		s.given(client, "a:1", "b:1", "c:1").openAt(session, client, "a:1")
		s.pass(s.word(session, "L", hinted(n))).openAt(session+1, client, hinted(n)).wait(quiet)
		s.pass(s.word(session, "E", "no_leader")).seen(session, "fin").openAt(session+2, client, hinted(n))
	}
	wantChecked(t, s.want(s.ofCluster()), "no-leader-drops-hint", false)
}
