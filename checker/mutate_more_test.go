package checker

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"tornwire/history"
)

// garbled writes bytes of our own making, which are no frame, to the client.
func (s *script) garbled(session int, b string) *script {
	ref := history.FrameRef{Dir: s2c, Op: b[:1], Seq: math.MaxUint64 - uint64(len(s.ev))}
	for off, half := 0, len(b)/2; off < len(b); off += half {
		part := b[off:min(off+half, len(b))]
		e := history.Event{Kind: history.WriteBegun, Session: session, Dir: s2c, Frame: &ref, Off: off, N: len(part), Data: []byte(part)}
		s.add(e)
		e.Kind = history.WriteAccepted
		s.add(e)
	}
	return s
}

// openedAt opens a session of c1, which was given a:1 and b:1, at an address.
func (s *script) openedAt(session int, addr string) *script {
	n := len(s.ev)
	s.open(session, "c1")
	s.ev[n].Addr = addr
	return s
}

// withNotice plays a call of c1 whose session gets a notice or an error.
func withNotice(t *testing.T, op, text string) *script {
	s := newScript(t, v1)
	s.add(history.Event{Kind: history.ClientOpened, Client: "c1", Addr: "a:1,b:1"}).openedAt(1, "a:1")
	s.ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 71))
	return s.pass(s.line(1, s2c, op, text))
}

// further plays another call on a session.
func (s *script) further(session int, key string) *script {
	return s.ask(2, "c1", key, 5*sec, 30*sec).pass(s.req(session, key, 5, 30, 78))
}

func sessionMutations() []mutation {
	rounds := func(t *testing.T) *script {
		s := newScript(t, v1)
		for n := range 3 {
			s.tornRound(n, true)
		}
		return s.wait(sec).tick()
	}
	return []mutation{
		{"no-renewal", func(t *testing.T) *script {
			s := newScript(t, v1)
			s.open(1, "c1").ask(1, "c1", "k1", 4*sec, 30*sec).pass(s.req(1, "k1", 4, 30, 77)).wait(2 * sec)
			return s.pass(s.req(1, "k1", 2, 30, 77))
		}, "contract", upTo(history.Received, "c2s.A.2", 10), "right"},
		{"deadline-closes", func(t *testing.T) *script { return hung(t, v1).wait(4 * sec).tick() }, "contract", drop(history.CancelDone, ""), ""},
		{"exact-session", rounds, "hygiene", last(history.EndSeen), "right"},
		{"cancel-closes", func(t *testing.T) *script { return dropped(t, v1).again(1) }, "contract", drop(history.CancelAsked, ""), ""},
		{"close-proves-nothing", func(t *testing.T) *script {
			s, a := single(t, v1, 7)
			s.pass(a).acquired(1, "k1", 7).leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 7))
			return s.sent(1, history.FIN).seen(1, history.FIN).released(1, "released")
		}, "contract", drop(history.ReleaseResult, ""), ""},
		{"late-gate", func(t *testing.T) *script { return paused(t, v1, sec, 2*sec).acquired(1, "k1", 7) }, "contract", drop(history.Frozen, ""), ""},
		{"error-backs-off", func(t *testing.T) *script { return hammered(t, v1, 90, 40*msec, alone) }, "hygiene", drop(history.SessionOpened, ""), ""},
		{"no-overstay", func(t *testing.T) *script { return stays(t, v1, true, 4*sec) }, "hygiene", drop(history.Entered, ""), ""},
		{"register-first", func(t *testing.T) *script {
			return newScript(t, v1).open(1, "c1").early(50, 2*sec).seen(1, history.FIN).told(1, indet)
		}, "contract", drop(history.EndSeen, ""), ""},
	}
}

func strayMutations() []mutation {
	// foreign plays a stray grant, and the right one behind it, which is taken.
	foreign := func(t *testing.T) *script {
		s := waiting(t, v1, 9*sec)
		s.stray(s.got(1, "k1", 78, 99))
		return s.granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
	}
	behind := func(garbage string) func(t *testing.T) *script {
		return func(t *testing.T) *script {
			s := waiting(t, v1, 9*sec)
			s.garbled(1, garbage).granted(1, "k1", 7, 30*sec)
			return s.pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
		}
	}
	long := "A" + strings.Repeat("\x01", 16) + fmt.Sprintf("%0600d", 0) + "\n"
	return []mutation{
		{"unmatched-closes", func(t *testing.T) *script {
			s := foreign(t)
			return s.wait(sec).further(1, "k2").wait(sec).tick()
		}, "contract", untold, ""},
		{"unmatched-released", func(t *testing.T) *script { return foreign(t).wait(6 * sec).tick() }, "contract", last(history.CancelDone), ""},
		{"unknown-fatal", behind("Zunknown\n"), "safety", untold, ""},
		{"framing-closes", behind(long), "contract", untold, ""},
	}
}

func clusterMutations() []mutation {
	told := func(op, text, outcome string) func(t *testing.T) *script {
		return func(t *testing.T) *script { return withNotice(t, op, text).told(1, outcome) }
	}
	kept := func(op, text string) func(t *testing.T) *script {
		return func(t *testing.T) *script { return withNotice(t, op, text).told(1, indet).further(1, "k2") }
	}
	return []mutation{
		{"moved-uncorrelated", told("M", "b:1", "timeout"), "safety", drop(history.CallResult, ""), ""},
		{"leader-uncorrelated", told("L", "b:1", "timeout"), "safety", drop(history.WriteAccepted, "s2c.L.1"), ""},
		{"moved-closes", kept("M", "b:1"), "contract", drop(history.Received, "c2s.A.2"), "right"},
		{"error-closes", kept("E", "not_active"), "contract", drop(history.Received, "c2s.A.2"), "right"},
		{"moved-allowlist", func(t *testing.T) *script {
			s := newScript(t, v1)
			s.add(history.Event{Kind: history.ClientOpened, Client: "c1", Addr: "a:1,b:1"})
			s.add(history.Event{Kind: history.CanarySet, Client: "c1", Addr: "x:1"}).openedAt(1, "a:1")
			s.ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 71)).pass(s.line(1, s2c, "M", "x:1"))
			return s.seen(1, "fin").openedAt(2, "x:1").tick()
		}, "contract", last(history.SessionOpened), ""},
		{"leader-stays", func(t *testing.T) *script {
			s := newScript(t, v1)
			s.add(history.Event{Kind: history.ClientOpened, Client: "c1", Addr: "a:1,b:1"})
			s.open(4, "c1") // stays
			for n := 1; n <= 3; n++ {
				s.open(n, "c1").wait(sec).pass(s.line(n, s2c, "L", "b:1")).seen(n, "fin").wait(sec)
			}
			return s.add(history.Event{Kind: history.CaseEnding})
		}, "hygiene", last(history.EndSeen), "right"},
		{"no-leader-drops-hint", func(t *testing.T) *script {
			s := newScript(t, v1)
			for n := range 20 {
				client, to := fmt.Sprint("h", n), []string{"b:1", "c:1"}[n%2]
				s.add(history.Event{Kind: history.ClientOpened, Client: client, Addr: "a:1,b:1,c:1"})
				at := len(s.ev)
				s.open(2*n+1, client).pass(s.line(2*n+1, s2c, "L", to)).wait(150*msec).pass(s.line(2*n+1, s2c, "E", "no_leader")).seen(2*n+1, "fin")
				s.ev[at].Addr = "a:1"
				at = len(s.ev)
				s.open(2*n+2, client)
				s.ev[at].Addr = to
			}
			return s
		}, "hygiene", last(history.SessionOpened), ""},
	}
}

func replyMutations() []mutation {
	held := func(t *testing.T) *script {
		s := newScript(t, v1).open(1, "c1").open(2, "c2")
		return s.pass(s.req(1, "k1", 5, 30, 7))
	}
	return []mutation{
		{"no-grant-after-timeout-or-busy", func(t *testing.T) *script {
			s := held(t)
			return s.pass(s.answer(1, "T", "k1", 7)).pass(s.got(1, "k1", 7, 3))
		}, "contract", drop(history.Received, "s2c.A.1"), "right"},
		{"repeat-is-new-attempt", func(t *testing.T) *script {
			s := held(t)
			return s.pass(s.got(1, "k1", 7, 3)).pass(s.req(1, "k1", 5, 30, 7)).pass(s.got(1, "k1", 7, 3))
		}, "contract", drop(history.Received, "s2c.A.2"), ""},
		{"release-needs-exact-token", func(t *testing.T) *script {
			s := newScript(t, v1).open(1, "c1").open(2, "c2")
			return s.granted(1, "k1", 3, 30*sec).pass(s.rel(2, "k1", 9)).ended(2, "k1", 3)
		}, "safety", drop(history.GrantEnded, ""), ""},
	}
}
