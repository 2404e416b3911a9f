package checker

import (
	"testing"
	"time"

	"tornwire/history"
)

// gate is the policy that judges late-gate alone.
func (s *script) gate() Policy {
	p := s.policy()
	p.Profile, p.Only = ProfileOfficial, map[string]bool{"late-gate": true}
	return p
}

func (s *script) stop() *script { return s.add(history.Event{Kind: history.Frozen}) }

func (s *script) cont() *script { return s.add(history.Event{Kind: history.Thawed}) }

// paused plays a call whose request came at 1 s, and whose grant was written while the
// client stood still until a time after that.
func paused(t *testing.T, dialect string, wait, until time.Duration) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").open(2, "c1").till(sec-2*msec).ask(1, "c1", "k1", wait, 30*sec)
	s.pass(s.req(1, "k1", uint64(wait/sec), 30, 77)).stop().granted(1, "k1", 7, 30*sec)
	return s.pass(s.got(1, "k1", 77, 7)).till(sec + until).cont()
}

func TestLateGateEntered(t *testing.T) {
	for _, c := range []struct {
		wait, until time.Duration
		late        bool
	}{
		{sec, sec, false},
		{sec, sec + msec, true},
		{5 * sec, 5 * sec, false},
		{5 * sec, 6 * sec, true},
		{0, 5 * sec, false},
		{0, 5*sec + msec, true},
	} {
		for _, profile := range []string{ProfileAny, ProfileOfficial} {
			s := paused(t, v1, c.wait, c.until).acquired(1, "k1", 7)
			p := s.gate()
			p.Profile = profile
			switch {
			case !c.late:
				wantChecked(t, s.want(p), "late-gate", false)
			case profile == ProfileAny:
				s.want(p, "late-gate hygiene")
			default:
				s.want(p, "late-gate contract")
			}
			s = paused(t, v1, c.wait, c.until).told(1, indet)
			wantChecked(t, s.want(s.gate()), "late-gate", c.late)
		}
	}
	s := paused(t, v1, sec, 2*sec).acquired(1, "k1", 7)
	first(t, s.want(s.gate(), "late-gate contract"), `call 1 on key "k1" was told acquired (token 7) by s2c.A.1, written at 1006.000 ms `+
		`while the client stood still from 1003.000 ms to 3000.000 ms, when the deadline of call 1 on key "k1" had passed by 2000.000 ms at the latest`)
	s = paused(t, v0, sec, 2*sec).acquired(1, "k1", 7)
	s.want(s.gate(), "late-gate hygiene")
	s = paused(t, v1, sec, 2*sec).acquired(1, "k1", 7)
	p := s.gate()
	p.SawTable = false // P14
	s.want(p, "late-gate contract")
}

func TestLateGateAcquittals(t *testing.T) {
	fine := func(name string, s *script, change func(p *Policy)) {
		t.Run(name, func(t *testing.T) {
			p := s.gate()
			if change != nil {
				change(&p)
			}
			wantChecked(t, s.want(p), "late-gate", false)
		})
	}
	entered := func() *script { return paused(t, v1, sec, 2*sec).acquired(1, "k1", 7) }
	fine("no pong", entered(), func(p *Policy) { p.NoPong = true })
	fine("another token", paused(t, v1, sec, 2*sec).acquired(1, "k1", 8), func(p *Policy) { p.Only = map[string]bool{"late-grant": true} })

	s := newScript(t, v1) // the client may have read it before it stopped
	s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77)).granted(1, "k1", 7, 30*sec)
	s.pass(s.got(1, "k1", 77, 7)).stop().wait(2*sec).cont().acquired(1, "k1", 7)
	fine("written before", s, nil)

	s = newScript(t, v1) // late-grant's
	s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77)).granted(1, "k1", 7, 30*sec)
	s.stop().wait(2*sec).cont().pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
	fine("written after", s, nil)

	s = newScript(t, v1) // its last byte
	s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77)).stop().granted(1, "k1", 7, 30*sec)
	a := s.got(1, "k1", 77, 7)
	s.recv(a, 0, len(a.b)).write(a, 0, len(a.b)-1).wait(2*sec).cont().write(a, len(a.b)-1, len(a.b)).acquired(1, "k1", 7)
	fine("not all of it", s, nil)

	s = newScript(t, v1) // nobody saw that they stood still to the end
	s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77)).stop().granted(1, "k1", 7, 30*sec)
	s.pass(s.got(1, "k1", 77, 7)).wait(2*sec).acquired(1, "k1", 7)
	fine("never continued", s, nil)

	s = newScript(t, v1)
	s.open(1, "c1").ask(1, "c1", "k1", sec, 30*sec).pass(s.req(1, "k1", 1, 30, 77)).stop().granted(1, "k1", 7, 30*sec)
	s.seen(1, history.FIN).pass(s.got(1, "k1", 77, 7)).wait(2*sec).cont().told(1, indet)
	fine("the client had left", s, nil)
}

// A grant that was found too late and provably read is released.
func TestLateGateNotReleased(t *testing.T) {
	play := func(session int, released bool) *script {
		s := paused(t, v1, sec, 2*sec).told(1, indet)
		s.ask(2, "c1", "k2", 5*sec, 30*sec).pass(s.req(session, "k2", 5, 30, 78)).granted(session, "k2", 9, 30*sec)
		s.pass(s.got(session, "k2", 78, 9)).acquired(2, "k2", 9)
		if released {
			s.pass(s.rel(2, "k1", 7))
		}
		return s.till(31*sec).ended(0, "k1", 7).add(history.Event{Kind: history.CaseEnding})
	}
	s := play(1, false)
	s.want(s.gate(), "late-gate contract")
	p := s.gate()
	p.Profile = ProfileAny
	s.want(p, "late-gate hygiene")
	for _, s := range []*script{play(2, false), play(1, true)} {
		wantChecked(t, s.want(s.gate()), "late-gate", true)
	}
}
