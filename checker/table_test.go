package checker

import (
	"strings"
	"testing"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// overtaken plays client c1 holding k1 with token 7 and a lease of 1 s, c2 granted
// token 9 when it ends, and both inside.
func overtaken(t *testing.T, dialect string) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", 5*sec, sec)
	s.pass(s.req(1, "k1", 5, 1, 77)).granted(1, "k1", 7, sec).pass(s.got(1, "k1", 77, 7)).acquired(1, "k1", 7)
	s.ask(2, "c2", "k1", 5*sec, 30*sec).pass(s.req(2, "k1", 5, 30, 1)).wait(sec).ended(0, "k1", 7)
	return s.granted(2, "k1", 9, 30*sec).pass(s.got(2, "k1", 1, 9)).acquired(2, "k1", 9)
}

func TestReleaseOwnAfterLease(t *testing.T) {
	s := overtaken(t, v0)
	s.leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 0)).ended(1, "k1", 9)
	s.pass(s.answer(1, "R", "k1", 0)).released(1, "released")
	s.open(3, "c3").ask(3, "c3", "k1", 5*sec, 30*sec).pass(s.req(3, "k1", 5, 30, 0)).granted(3, "k1", 11, 30*sec)
	s.pass(s.got(3, "k1", 0, 11)).acquired(3, "k1", 11).wait(sec).leave(2, "k1", 9)
	r := s.want(s.policy(), "release-own safety")
	f := r.Findings[0]
	for _, part := range []string{"(own token 7, expired", "ended token 9, which call 2 of client c2 held", "calls 2 (token 9) and 3 (token 11) were then both inside for"} {
		if !strings.Contains(f.Message, part) {
			t.Errorf("message %q lacks %q", f.Message, part)
		}
	}
	if f.Evidence.Call != 1 || f.Evidence.Frame != "c2s.R.1" || r.Verdict() != Unsafe {
		t.Errorf("%+v", f.Evidence)
	}
	p := s.policy()
	p.SawTable = false // P14
	wantChecked(t, Check(s.ev, p), "release-own", false)
}

// The mutations that acquit.
func TestReleaseOwnAcquittals(t *testing.T) {
	end := func(s *script) *script { return s.ended(1, "k1", 9) }
	t.Run("nobody's lock", func(t *testing.T) {
		s := overtaken(t, v0)
		s.ended(2, "k1", 9).ask2release(1).pass(s.rel(1, "k1", 0)).pass(s.answer(1, "N", "k1", 0))
		wantChecked(t, s.want(s.policy()), "release-own", true)
	})
	t.Run("held back by us", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", 5*sec, sec)
		s.pass(s.req(1, "k1", 5, 1, 0)).granted(1, "k1", 7, sec).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		r := s.rel(1, "k1", 0)
		s.ask2release(1).recv(r, 0, len(r.b)).wait(sec).ended(0, "k1", 7).granted(2, "k1", 9, 30*sec)
		end(s.write(r, 0, len(r.b)))
		s.want(s.policy())
	})
	t.Run("at the edge of the lease", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", 5*sec, sec)
		s.pass(s.req(1, "k1", 5, 1, 0)).granted(1, "k1", 7, sec).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		s.wait(sec).ask2release(1).ended(0, "k1", 7).granted(2, "k1", 9, 30*sec).pass(s.rel(1, "k1", 0))
		end(s)
		s.want(s.policy(), "release-own safety suspect")
	})
	t.Run("repeated by us", func(t *testing.T) {
		s := overtaken(t, v0)
		r := s.rel(1, "k1", 0)
		s.ask2release(1).pass(r).write(r, 0, len(r.b))
		end(s)
		s.want(s.policy())
	})
	t.Run("altered by us", func(t *testing.T) {
		s := overtaken(t, v0)
		s.ask2release(1).pass(s.rel(1, "k2", 0))
		end(s)
		s.want(s.policy())
	})
	t.Run("two sessions with one address", func(t *testing.T) {
		s := overtaken(t, v0)
		s.ask2release(1).pass(s.rel(1, "k1", 0))
		end(s)
		s.want(s.policy(), "release-own safety")
		s.add(history.Event{Kind: history.ServerDialed, Session: 3, Peer: peer(1)})
		s.want(s.policy())
	})
	t.Run("another key in its place", func(t *testing.T) {
		s := overtaken(t, v0)
		r := s.rel(1, "k2", 0)
		s.ask2release(1).recv(r, 0, len(r.b))
		s.add(history.Event{Kind: history.WriteBegun, Session: 1, Dir: c2s, Frame: &r.ref, N: 4, Data: []byte("Rk1\n")})
		end(s)
		s.want(s.policy())
	})
	t.Run("a grant that never was", func(t *testing.T) {
		s := overtaken(t, v0)
		s.write(s.withData(s.got(1, "k1", 0, 8))).ask2release(1).pass(s.rel(1, "k1", 0))
		end(s)
		s.want(s.policy())
	})
}

func TestReleaseOwnRepeated(t *testing.T) {
	s := newScript(t, v0)
	s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 0)).granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
	s.ask(2, "c2", "k1", 5*sec, 30*sec).pass(s.req(2, "k1", 5, 30, 0))
	s.leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 0)).ended(1, "k1", 7).granted(2, "k1", 9, 30*sec).pass(s.got(2, "k1", 0, 9)).acquired(2, "k1", 9)
	s.open(3, "c1").pass(s.rel(3, "k1", 0)).ended(3, "k1", 9)
	f := s.want(s.policy(), "release-own safety").Findings[0]
	for _, part := range []string{"a repetition, since 4 bytes of c2s.R.1 on session 1 had been received", "call 2 was inside, and had no lock any more"} {
		if !strings.Contains(f.Message, part) {
			t.Errorf("message %q lacks %q", f.Message, part)
		}
	}
}

// A client whose grant somebody else's R has ended cannot know that: its one R, within
// its lease, accuses it of nothing.
func TestReleaseOwnRobbed(t *testing.T) {
	for _, kept := range []time.Duration{0, 31 * sec} {
		s := overtaken(t, v0)
		s.leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 0)).ended(1, "k1", 9)
		s.open(3, "c3").ask(3, "c3", "k1", 5*sec, 60*sec).pass(s.req(3, "k1", 5, 60, 0)).granted(3, "k1", 11, 60*sec)
		s.pass(s.got(3, "k1", 0, 11)).acquired(3, "k1", 11).wait(kept)
		s.ask2release(2).pass(s.rel(2, "k1", 0)).ended(2, "k1", 11)
		want := []string{"release-own safety"}
		if kept > 0 { // over its own lease it is not right either
			want = append(want, want[0])
		}
		s.want(s.policy(), want...)
	}
}

// Both R come before the answer to either: the first has ended the own grant, so
// it is the second that ended the next holder's. One R alone accuses nobody.
func TestReleaseOwnTwiceAtOnce(t *testing.T) {
	for _, twice := range []bool{true, false} {
		s := newScript(t, v0)
		s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", sec, 30*sec)
		s.pass(s.req(1, "k1", 1, 30, 0)).granted(1, "k1", 7, 30*sec).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		s.ask(2, "c2", "k1", 5*sec, 30*sec).pass(s.req(2, "k1", 5, 30, 0))
		s.leave(1, "k1", 7).ask2release(1).pass(s.rel(1, "k1", 0))
		if twice {
			s.pass(s.rel(1, "k1", 0))
		}
		s.ended(1, "k1", 7).granted(2, "k1", 9, 30*sec)
		if !twice {
			s.want(s.policy())
			continue
		}
		s.ended(1, "k1", 9).pass(s.answer(1, "R", "k1", 0)).pass(s.answer(1, "R", "k1", 0)).released(1, "released")
		s.want(s.policy(), "release-own safety")
	}
}

func TestReleaseOwnWithoutAGrant(t *testing.T) {
	s := newScript(t, v0) // the tool itself holds the key
	s.open(1, "c1").granted(0, "k1", 5, 30*sec).ask(1, "c1", "k1", sec, 30*sec)
	s.pass(s.req(1, "k1", 1, 30, 0)).pass(s.answer(1, "T", "k1", 0)).told(1, "timeout")
	s.pass(s.rel(1, "k1", 0)).ended(1, "k1", 5)
	r := s.want(s.policy(), "release-own safety")
	if !strings.Contains(r.Findings[0].Message, "the tool's own holder") {
		t.Error(r.Findings[0].Message)
	}
}

// The lock of the client's own other call is not its to release either.
func TestReleaseOwnOtherCall(t *testing.T) {
	play := func(ask ...int) *script {
		s := newScript(t, v0)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, sec)
		s.pass(s.req(1, "k1", 5, 1, 0)).granted(1, "k1", 7, sec).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		s.wait(sec).ended(0, "k1", 7).ask(2, "c1", "k1", 5*sec, 30*sec)
		s.pass(s.req(1, "k1", 5, 30, 0)).granted(1, "k1", 9, 30*sec).pass(s.got(1, "k1", 0, 9)).acquired(2, "k1", 9)
		for _, c := range ask {
			s.ask2release(c)
		}
		return s.pass(s.rel(1, "k1", 0)).ended(1, "k1", 9)
	}
	s := play(1)
	s.want(s.policy(), "release-own safety")
	s = play(2)
	s.want(s.policy())
	s = play(1, 2)
	s.want(s.policy())
	s = play()
	s.want(s.policy())
}

func TestReleaseOwnExactToken(t *testing.T) {
	s := overtaken(t, v1)
	s.ask2release(1).pass(s.rel(1, "k1", 9)).ended(1, "k1", 9)
	s.want(s.policy(), "release-own safety", "exact-token safety")
	s = overtaken(t, v1) // soon after the lease: the token leaves no doubt
	s.pass(s.rel(1, "k1", 9)).ended(1, "k1", 9)
	s.want(s.policy(), "release-own safety", "exact-token safety")
	s = overtaken(t, v1) // the right token, after the lease: N
	s.ask2release(1).pass(s.rel(1, "k1", 7)).pass(s.answer(1, "N", "k1", 7)).released(1, "not_held")
	wantChecked(t, s.want(s.policy()), "release-own", true)
}

// stale plays an A that was held back until its lease of 2 s had passed.
func stale(t *testing.T, dialect string, wait time.Duration, again bool) *script {
	s := newScript(t, dialect)
	s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", wait, 2*sec)
	s.pass(s.req(1, "k1", uint64(wait/sec), 2, 77)).granted(1, "k1", 7, 2*sec)
	a := s.got(1, "k1", 77, 7)
	s.recv(a, 0, len(a.b)).write(a, 0, len(a.b)-1).wait(2*sec).ended(0, "k1", 7).wait(300 * time.Millisecond)
	if again {
		s.granted(2, "k1", 9, 30*sec)
	}
	s.write(a, len(a.b)-1, len(a.b))
	s.add(history.Event{Kind: history.CallResult, Call: 1, Outcome: acq, Token: 7, HasToken: true})
	return s.add(history.Event{Kind: history.Entered, Call: 1, Key: "k1", Token: 7, Refused: again})
}

func TestEntryAfterLease(t *testing.T) {
	official := func(s *script) Policy { p := s.policy(); p.Profile = ProfileOfficial; return p }
	s := stale(t, v1, 0, false)
	s.want(s.policy(), "entry-after-lease hygiene")
	s.want(official(s), "entry-after-lease contract")
	s = stale(t, v1, 2*sec, false)
	s.want(s.policy(), "entry-after-lease hygiene")
	s.want(official(s), "entry-after-lease hygiene", "late-grant contract")

	for _, s := range []*script{stale(t, v1, 3*sec, true), stale(t, v0, 3*sec, true), stale(t, v0, 0, true)} {
		r := s.want(official(s))
		wantChecked(t, r, "entry-after-lease", false)
		if r.NeedsFencing != 1 || len(r.Fenced) != 1 || r.Verdict() != Safe {
			t.Fatalf("fencing %d %q", r.NeedsFencing, r.Fenced)
		}
		for _, part := range []string{"call 1 of client c1 entered with token 7", "client c2 had been granted token 9", "refuses token 7"} {
			if !strings.Contains(r.Fenced[0], part) {
				t.Errorf("%q lacks %q", r.Fenced[0], part)
			}
		}
	}
	s = stale(t, v1, 3*sec, false)
	if r := s.want(s.policy()); r.NeedsFencing != 1 || !strings.Contains(r.Fenced[0], "nobody else") {
		t.Errorf("%q", r.Fenced)
	}
}

func TestEntryAfterLeaseAcquittals(t *testing.T) {
	s := stale(t, v1, 0, false)
	p := s.policy()
	p.SawTable = false
	if r := s.want(p); r.NeedsFencing != 0 {
		t.Errorf("fencing %d", r.NeedsFencing)
	}
	// Told indeterminate: judged, and right.
	s.ev[len(s.ev)-2].Outcome = indet
	s.ev = s.ev[:len(s.ev)-1]
	wantChecked(t, s.want(s.policy()), "entry-after-lease", true)
	// The grant ended after the write had begun.
	s, a := single(t, v1, 7)
	s.pass(a).ended(0, "k1", 7).acquired(1, "k1", 7)
	wantChecked(t, s.want(s.policy()), "entry-after-lease", false)
}

func TestMutualExclusion(t *testing.T) {
	s := newScript(t, v1)
	s.granted(0, "k1", 5, sec).granted(0, "k2", 6, sec).granted(0, "k1", 7, sec)
	r := s.want(s.policy(), "mutual-exclusion safety")
	if r.Verdict() != Safe || r.Findings[0].Side != "server" {
		t.Errorf("%s, %+v", r.Verdict(), r.Findings[0])
	}
	s = newScript(t, v1)
	s.granted(0, "k1", 5, sec).ended(0, "k1", 5).granted(0, "k1", 7, sec)
	wantChecked(t, s.want(s.policy()), "mutual-exclusion", true)
	s = newScript(t, v1)
	s.granted(0, "k1", 5, sec)
	wantChecked(t, s.want(s.policy()), "mutual-exclusion", false)
}

func TestMutualExclusionByWire(t *testing.T) { // P14
	play := func(hold time.Duration, released bool, first, second uint64) *script {
		s := newScript(t, v1)
		s.open(1, "c1").open(2, "c2").ask(1, "c1", "k1", 5*sec, 10*sec).ask(2, "c2", "k1", 5*sec, 10*sec)
		s.pass(s.req(1, "k1", 5, 10, 1)).pass(s.got(1, "k1", 1, first))
		if released {
			s.pass(s.rel(1, "k1", first))
		}
		return s.wait(hold).pass(s.req(2, "k1", 5, 10, 2)).pass(s.got(2, "k1", 2, second))
	}
	p := Policy{Dialect: v1}
	play(sec, false, 7, 9).want(p, "mutual-exclusion safety suspect")
	p.ClosedWorld = true
	play(sec, false, 7, 9).want(p, "mutual-exclusion safety")
	play(11*sec, false, 7, 9).want(p)
	play(sec, true, 7, 9).want(p)
	play(11*sec, false, 9, 7).want(p)
	play(sec, false, 9, 7).want(p, "mutual-exclusion safety")
}

func TestEchoMatches(t *testing.T) {
	for name, play := range map[string]func(s *script){
		"owner":           func(s *script) { s.pass(s.req(1, "k1", 5, 30, 77)).pass(s.answer(1, "T", "k1", 78)) },
		"token":           func(s *script) { s.pass(s.answer(1, "R", "k1", 7)) },
		"another session": func(s *script) { s.pass(s.req(2, "k1", 5, 30, 77)).pass(s.answer(1, "B", "k1", 77)) },
		"not yet sent": func(s *script) {
			r := s.req(1, "k1", 5, 30, 77)
			s.recv(r, 0, len(r.b)).pass(s.answer(1, "T", "k1", 77)).write(r, 0, len(r.b))
		},
		"cut before the owner's end": func(s *script) { s.cut(s.req(1, "k1", 5, 30, 77), 10).pass(s.answer(1, "T", "k1", 77)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, v1)
			play(s.open(1, "c1").open(2, "c1"))
			p := Policy{Dialect: v1}
			s.want(p, "echo-matches safety")
		})
	}
	s := newScript(t, v1)
	s.open(1, "c1").cut(s.req(1, "k1", 5, 30, 77), 11).pass(s.answer(1, "T", "k1", 77))
	wantChecked(t, s.want(Policy{Dialect: v1}), "echo-matches", true)
	// What we made up ourselves is not the server's.
	s = newScript(t, v1)
	s.open(1, "c1").write(s.withData(s.answer(1, "T", "k1", 77)))
	s.want(Policy{Dialect: v1})
	// What we forwarded could not be read.
	s = newScript(t, v1)
	s.open(1, "c1").add(history.Event{Kind: history.WriteBegun, Session: 1, Dir: c2s, Frame: &history.FrameRef{Dir: frames.ClientToServer}, N: 30})
	wantChecked(t, s.pass(s.answer(1, "T", "k1", 77)).want(Policy{Dialect: v1}), "echo-matches", false)
}

// A defect of our own server proves nothing against the client.
func TestEmbeddedServerDefect(t *testing.T) {
	s, a := single(t, v1, 7)
	s.cut(a, 0).acquired(1, "k1", 7).granted(1, "k1", 8, sec)
	p := s.policy()
	if r := s.want(p, "no-entry-unconfirmed safety", "indeterminate-stays safety", "mutual-exclusion safety"); r.Verdict() != Unsafe {
		t.Errorf("verdict %s", r.Verdict())
	}
	p.Embedded = true
	if r := s.want(p, "no-entry-unconfirmed safety suspect", "indeterminate-stays safety suspect", "mutual-exclusion safety"); r.Verdict() != Safe {
		t.Errorf("verdict %s", r.Verdict())
	}
}
