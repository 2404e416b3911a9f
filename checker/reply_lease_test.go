package checker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

const leaseRule = "lease-ends"

// queuedOf tells that the table queued an attempt, of a session or of the tool.
func (s *script) queuedOf(session int, key string, owner uint64, wait time.Duration) *script {
	return s.add(s.attempt(history.Queued, session, key, owner, wait, ""))
}

func (s *script) attemptEnded(session int, key string, owner uint64, how string) *script {
	return s.add(s.attempt(history.AttemptEnded, session, key, owner, 0, how))
}

func (s *script) attempt(k history.Kind, session int, key string, owner uint64, wait time.Duration, how string) history.Event {
	e := history.Event{Kind: k, Key: key, Owner: owner, HasOwner: s.g.Name == v1 && session > 0, Wait: wait, How: how}
	if session > 0 {
		e.Peer = peer(session)
	}
	if !e.HasOwner {
		e.Owner = 0
	}
	return e
}

// grantedTo tells a grant with its owner, so that a waiter is found again.
func (s *script) grantedTo(session int, key string, token, owner uint64, lease time.Duration) *script {
	e := s.attempt(history.Granted, session, key, owner, 0, "")
	e.Token, e.Lease = token, lease
	return s.add(e)
}

// held plays the tool holding k1 for a lease of 2 s and session 1 waiting for it,
// for wait seconds.
func held(s *script, wait uint64) *script {
	return s.granted(0, "k1", 3, 2*sec).pass(s.req(1, "k1", wait, 30, 7)).queuedOf(1, "k1", 7, time.Duration(wait)*sec)
}

// tick is an event by which time is seen to have passed.
func (s *script) tick() *script { return s.add(history.Event{Kind: history.CancelDone, Call: 9}) }

func TestLeaseEnds(t *testing.T) {
	found := []string{leaseRule + " contract"}
	for _, d := range []string{v1, v0} {
		runPlays(t, leaseRule, true, []play{
			{"never", d, func(s *script) { held(s, 60).wait(3 * sec).tick() }, found, true},
			{"the lease ended and nobody was granted", d, func(s *script) { held(s, 60).wait(2*sec).ended(0, "k1", 3).wait(sec).tick() }, found, true},
			{"released, and nobody was granted", d, func(s *script) { held(s, 60).ended(2, "k1", 3).wait(3 * sec).tick() }, found, true},
			{"too late", d, func(s *script) {
				held(s, 60).wait(4*sec).ended(0, "k1", 3).grantedTo(1, "k1", 4, 7, 9*sec).pass(s.got(1, "k1", 7, 4))
			}, found, true},
			{"another with its owner has timed out", d, func(s *script) {
				held(s, 60).queuedOf(2, "k1", 7, sec).wait(sec).attemptEnded(2, "k1", 7, history.TimedOut).wait(2 * sec).tick()
			}, found, true},
			{"too late, and that is the first that is seen", d, func(s *script) { held(s, 60).wait(4*sec).grantedTo(1, "k1", 4, 7, 9*sec) }, found, true},
			{"the tool's own attempt", d, func(s *script) {
				s.granted(0, "k1", 3, 2*sec).queuedOf(0, "k1", 0, 60*sec).wait(3 * sec).tick()
			}, found, true},
			{"only the second grant's lease", d, func(s *script) {
				held(s, 60).queuedOf(2, "k1", 8, 60*sec).wait(2*sec).ended(0, "k1", 3).grantedTo(1, "k1", 4, 7, sec).wait(2 * sec).tick()
			}, found, true},

			{"in time", d, func(s *script) {
				held(s, 60).wait(2*sec).ended(0, "k1", 3).grantedTo(1, "k1", 4, 7, 9*sec).wait(2 * sec).tick()
			}, nil, true},
			{"granted, and nobody else waits", d, func(s *script) {
				held(s, 60).wait(2*sec).ended(0, "k1", 3).grantedTo(1, "k1", 4, 7, sec).wait(3 * sec).tick()
			}, nil, true},
			{"released in time", d, func(s *script) { held(s, 60).ended(2, "k1", 3).grantedTo(1, "k1", 4, 7, 9*sec).wait(4 * sec).tick() }, nil, false},
			{"a little late", d, func(s *script) {
				held(s, 60).wait(2900*time.Millisecond).ended(0, "k1", 3).grantedTo(1, "k1", 4, 7, 9*sec).wait(2 * sec).tick()
			}, nil, true},
			{"another was first", d, func(s *script) {
				s.granted(0, "k1", 3, 2*sec).queuedOf(2, "k1", 8, 60*sec).queuedOf(1, "k1", 7, 60*sec)
				s.wait(2*sec).ended(0, "k1", 3).grantedTo(2, "k1", 4, 8, 9*sec).wait(3 * sec).tick()
			}, nil, true},
			{"no time has passed that is seen", d, func(s *script) { held(s, 60).wait(2900 * time.Millisecond).tick() }, nil, false},
			{"time passes while the tool clears up", d, func(s *script) {
				held(s, 60).add(history.Event{Kind: history.CaseEnding}).wait(3 * sec).tick()
			}, nil, false},
			{"the tool was late", d, func(s *script) {
				held(s, 60).wait(3 * sec).add(history.Event{Kind: history.RanLate, N: 900})
			}, nil, false},
			{"the wait was over", d, func(s *script) { held(s, 2).wait(3 * sec).tick() }, nil, false},
			{"the wait was almost over", d, func(s *script) { held(s, 3).wait(4 * sec).tick() }, nil, false},
			{"the wait was over, told by the bytes alone", d, func(s *script) {
				s.granted(0, "k1", 3, 2*sec).pass(s.req(1, "k1", 2, 30, 7)).queuedOf(1, "k1", 7, 0).wait(3 * sec).tick()
			}, nil, false},
			{"timed out", d, func(s *script) { held(s, 60).attemptEnded(1, "k1", 7, history.TimedOut).wait(3 * sec).tick() }, nil, false},
			{"dropped", d, func(s *script) { held(s, 60).attemptEnded(1, "k1", 7, history.Dropped).wait(3 * sec).tick() }, nil, false},
			{"answered, as the bytes show", d, func(s *script) { held(s, 60).pass(s.answer(1, "T", "k1", 7)).wait(3 * sec).tick() }, nil, false},
			{"its session had ended", d, func(s *script) {
				held(s, 60).sided(history.EndSent, 1, history.ServerSide, history.FIN).wait(3 * sec).tick()
			}, nil, false},
			{"the server had ended its session", d, func(s *script) {
				held(s, 60).sided(history.EndSeen, 1, history.ServerSide, history.RST).wait(3 * sec).tick()
			}, nil, false},
			{"its session ended later", d, func(s *script) {
				held(s, 60).wait(3*sec).tick().sided(history.EndSent, 1, history.ServerSide, history.RST)
			}, found, true},
			{"only its client had ended", d, func(s *script) {
				held(s, 60).sided(history.EndSeen, 1, history.ClientSide, history.FIN).wait(3 * sec).tick()
			}, found, true},
			{"whose session it is is not known", d, func(s *script) {
				held(s, 60).add(history.Event{Kind: history.ServerDialed, Session: 2, Peer: peer(1)}).wait(3 * sec).tick()
			}, nil, false},
			{"queued after the lease", d, func(s *script) {
				s.granted(0, "k1", 3, 2*sec).wait(2*sec).queuedOf(0, "k1", 0, 60*sec).wait(sec).tick()
			}, nil, false},
			{"another key", d, func(s *script) { s.granted(0, "k2", 3, 2*sec).queuedOf(0, "k1", 0, 60*sec).wait(3 * sec).tick() }, nil, false},
			{"no lease is told", d, func(s *script) { s.granted(0, "k1", 3, 0).queuedOf(0, "k1", 0, 60*sec).wait(time.Hour).tick() }, nil, false},
		})
	}
	runPlays(t, leaseRule, true, []play{
		{"waits for ever", v0, func(s *script) { held(s, 0).wait(3 * sec).tick() }, found, true},
		{"another owner on the session was granted", v1, func(s *script) {
			s.granted(0, "k1", 3, 2*sec).queuedOf(1, "k1", 8, 60*sec).queuedOf(1, "k1", 7, 60*sec)
			s.wait(2*sec).ended(0, "k1", 3).grantedTo(1, "k1", 4, 7, sec).wait(2 * sec).tick()
		}, found, true},
	})
	s := newScript(t, v1)
	held(s.open(1, "c1"), 60).wait(3 * sec).tick()
	f := s.want(judged(s, leaseRule, true), found...).Findings[0]
	if want := `an attempt on session 1 has waited for key "k1" since 13.000 ms and was not granted it by 3014.000 ms, although the lease of token 3, 2s from 9.000 ms on, had ended`; f.Message != want {
		t.Errorf("%q", f.Message)
	}
	if f.Evidence.ServerState != "held by the tool's own holder, token 3, since 9.000 ms" {
		t.Errorf("%q", f.Evidence.ServerState)
	}
}

func TestLeaseEndsByWire(t *testing.T) {
	suspect := []string{leaseRule + " contract suspect"}
	// waits plays session 2 granted k1 for 2 s and session 1 waiting for it.
	waits := func(s *script, wait uint64) *script {
		return s.pass(s.req(2, "k1", 5, 2, 8)).pass(s.got(2, "k1", 8, 3)).pass(s.req(1, "k1", wait, 30, 7))
	}
	for _, d := range []string{v1, v0} {
		runPlays(t, leaseRule, false, []play{
			{"never", d, func(s *script) { waits(s, 60).wait(3 * sec).tick() }, suspect, true},
			{"too late", d, func(s *script) { waits(s, 60).wait(3 * sec).tick().pass(s.got(1, "k1", 7, 4)) }, suspect, true},
			{"in time", d, func(s *script) { waits(s, 60).wait(2 * sec).pass(s.got(1, "k1", 7, 4)).wait(3 * sec).tick() }, nil, true},
			{"released in time", d, func(s *script) {
				waits(s, 60).pass(s.rel(2, "k1", 3)).pass(s.got(1, "k1", 7, 4)).wait(3 * sec).tick()
			}, nil, false},
			{"no time has passed that is seen", d, func(s *script) { waits(s, 60).wait(2900 * time.Millisecond).tick() }, nil, false},
			{"the wait was over", d, func(s *script) { waits(s, 3).wait(3 * sec).tick() }, nil, false},
			{"its session had ended", d, func(s *script) {
				waits(s, 60).sided(history.EndSent, 1, history.ServerSide, history.FIN).wait(3 * sec).tick()
			}, nil, false},
			{"its replies could not be read", d, func(s *script) {
				waits(s, 60).add(history.Event{Kind: history.WentOpaque, Session: 1, Dir: s2c}).wait(3 * sec).tick()
			}, nil, false},
			{"forwarded only after the lease", d, func(s *script) {
				s.pass(s.req(2, "k1", 5, 2, 8)).pass(s.got(2, "k1", 8, 3)).wait(2 * sec).pass(s.req(1, "k1", 60, 30, 7)).wait(sec).tick()
			}, nil, false},
			{"not forwarded whole", d, func(s *script) {
				s.pass(s.req(2, "k1", 5, 2, 8)).pass(s.got(2, "k1", 8, 3))
				r := s.req(1, "k1", 60, 30, 7)
				s.cut(r, len(r.b)-1).wait(3 * sec).tick()
			}, nil, false},
			{"another was first", d, func(s *script) {
				s.open(3, "c3").pass(s.req(3, "k1", 60, 30, 9))
				waits(s, 60).wait(2 * sec).pass(s.got(3, "k1", 9, 4)).wait(2 * sec).tick()
			}, nil, true},
			{"another may have been granted unseen", d, func(s *script) {
				s.open(3, "c3").pass(s.req(3, "k1", 60, 30, 9)).sided(history.EndSeen, 3, history.ServerSide, history.RST)
				waits(s, 60).wait(3 * sec).tick()
			}, nil, false},
			{"another's key may have been granted unseen", d, func(s *script) {
				s.open(3, "c3").pass(s.req(3, "k2", 60, 30, 9)).sided(history.EndSeen, 3, history.ServerSide, history.RST)
				waits(s, 60).wait(3 * sec).tick()
			}, suspect, true},
			{"the leader has moved", d, func(s *script) {
				waits(s, 60).pass(s.line(2, s2c, "M", "127.0.0.1:1")).wait(3 * sec).tick()
			}, nil, false},
			{"something else was unread", d, func(s *script) {
				waits(s, 60).unread(1, "A", 14).wait(3 * sec).tick()
			}, nil, false},
		})
	}
	runPlays(t, leaseRule, false, []play{
		{"waits for ever", v0, func(s *script) { waits(s, 0).wait(3 * sec).tick() }, suspect, true},
		{"is never queued", v1, func(s *script) { waits(s, 0).wait(3 * sec).tick() }, nil, false},
	})
	s := newScript(t, v1)
	waits(s.open(1, "c1").open(2, "c2"), 60).wait(3 * sec).tick()
	p := judged(s, leaseRule, false)
	p.ClosedWorld = true
	f := s.want(p, leaseRule+" contract").Findings[0]
	if !strings.HasPrefix(f.Message, "c2s.A.2 on session 1, forwarded whole at 25.000 ms, had no reply by 3026.000 ms, although token 3, received in s2c.A.1, was granted for 2s") {
		t.Errorf("%q", f.Message)
	}
}

// A right exchange accuses no server, whichever of its events the record has lost,
// doubled or told in another session's name.
func TestRightServerWithAGapInTheRecord(t *testing.T) {
	both(t, func(t *testing.T, d string) {
		s := newScript(t, d)
		s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", 5*sec, 2*sec)
		s.pass(s.req(1, "k1", 5, 2, 7)).grantedTo(1, "k1", 3, 7, 2*sec).pass(s.got(1, "k1", 7, 3)).acquired(1, "k1", 3)
		s.ask(2, "c2", "k1", 9*sec, 2*sec).pass(s.req(2, "k1", 9, 2, 8)).queuedOf(2, "k1", 8, 9*sec)
		s.wait(2*sec).ended(0, "k1", 3).grantedTo(2, "k1", 4, 8, 2*sec).pass(s.got(2, "k1", 8, 4)).acquired(2, "k1", 4)
		s.ask(3, "c1", "k1", sec, 2*sec).pass(s.req(1, "k1", 1, 2, 9)).queuedOf(1, "k1", 9, sec).wait(sec).attemptEnded(1, "k1", 9, history.TimedOut)
		s.pass(s.answer(1, "T", "k1", 9)).pass(s.rel(2, "k1", 4)).ended(2, "k1", 4).pass(s.answer(2, "R", "k1", 4)).wait(4 * sec).tick()
		for _, table := range []bool{true, false} {
			p := Policy{Dialect: d, SawTable: table, ClosedWorld: true}
			if r := Check(s.ev, p); len(r.Findings) > 0 {
				t.Fatalf("the right exchange: %s", r.Findings[0].Message)
			}
			for i, e := range s.ev {
				if e.Kind == history.Granted || e.Kind == history.Received && e.Dir == frames.ServerToClient || e.Kind == history.WriteBegun && e.Frame.Op == "A" {
					continue // what the table or the server did is then another story
				}
				for _, f := range Check(slices.Delete(slices.Clone(s.ev), i, i+1), p).Findings {
					if f.Certainty == Certain && aboutReplies(f.Rule) {
						t.Errorf("table %v, without %s (event %d): %s", table, e.Kind, i+1, f.Message)
					}
				}
			}
		}
	})
}
