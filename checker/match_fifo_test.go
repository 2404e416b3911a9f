package checker

import (
	"slices"
	"testing"
	"time"

	"tornwire/history"
)

// pair plays two calls of one client on one key, the second with wait 0: owners 1
// and 2, leases 2 and 3.
func pair(t *testing.T) *script {
	s := newScript(t, v1)
	s.open(1, "c1").granted(0, "k1", 5, 60*sec).ask(1, "c1", "k1", 9*sec, 2*sec).ask(2, "c1", "k1", 0, 3*sec)
	return s.pass(s.req(1, "k1", 9, 2, 1)).pass(s.req(1, "k1", 0, 3, 2))
}

func TestFifoByOwner(t *testing.T) {
	s := pair(t)
	s.pass(s.answer(1, "T", "k1", 2)).told(1, "timeout")
	r := s.want(s.matching(), "no-fifo safety")
	if m := r.Findings[0].Message; m != `call 1 on key "k1" was told timeout by s2c.T.1 on session 1, the answer to call 2` {
		t.Error(m)
	}
	s.ended(0, "k1", 5).granted(1, "k1", 7, 2*sec).pass(s.got(1, "k1", 1, 7)).acquired(2, "k1", 7)
	r = s.want(s.matching(), "no-fifo safety")
	const message = `call 2 on key "k1" was told acquired (token 7) by s2c.A.1 on session 1, the answer to call 1, which was told timeout; the lease of that grant was 2s, not the 3s of call 2`
	if f := r.Findings[0]; f.Message != message || f.Evidence.Call != 2 || f.Evidence.Frame != "s2c.A.1" {
		t.Error(f.Message)
	}

	s = pair(t) // the second half alone
	s.ended(0, "k1", 5).granted(1, "k1", 7, 2*sec).pass(s.got(1, "k1", 1, 7)).acquired(2, "k1", 7)
	s.want(s.matching(), "no-fifo safety")
	s = pair(t)
	s.pass(s.answer(1, "B", "k1", 2)).told(1, "busy")
	s.want(s.matching(), "no-fifo safety")
}

func TestFifoByOwnerAcquittals(t *testing.T) {
	for name, play := range map[string]func(s *script){
		"right": func(s *script) {
			s.pass(s.answer(1, "T", "k1", 2)).told(2, "timeout").ended(0, "k1", 5)
			s.granted(1, "k1", 7, 2*sec).pass(s.got(1, "k1", 1, 7)).acquired(1, "k1", 7)
		},
		"at its own deadline":          func(s *script) { s.wait(9*sec).pass(s.answer(1, "T", "k1", 2)).told(1, "timeout") },
		"closed with the second":       func(s *script) { s.pass(s.answer(1, "T", "k1", 2)).seen(1, "fin").told(1, "timeout") },
		"the T was told to the second": func(s *script) { s.pass(s.answer(1, "T", "k1", 2)).told(2, "timeout").told(1, "timeout") },
	} {
		t.Run(name, func(t *testing.T) {
			s := pair(t)
			play(s)
			wantChecked(t, s.want(s.matching()), "no-fifo", true)
		})
	}
	t.Run("two leases alike", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 9*sec, 3*sec).ask(2, "c1", "k1", 0, 3*sec)
		s.pass(s.req(1, "k1", 9, 3, 1)).pass(s.req(1, "k1", 0, 3, 2)).pass(s.answer(1, "T", "k1", 2)).told(1, "timeout")
		wantChecked(t, s.want(s.matching()), "no-fifo", false)
	})
	t.Run("a client that adds a second to its leases", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 9*sec, 2*sec).ask(2, "c1", "k1", 9*sec, 3*sec)
		s.pass(s.req(1, "k1", 9, 3, 1)).pass(s.req(1, "k1", 9, 4, 2)).granted(1, "k1", 7, 3*sec).pass(s.got(1, "k1", 1, 7))
		s.acquired(1, "k1", 7)
		s.want(s.matching())
	})
	t.Run("in order", func(t *testing.T) { // nothing goes wrong by order here
		s := pair(t)
		s.granted(1, "k1", 7, 2*sec).pass(s.got(1, "k1", 1, 7)).acquired(1, "k1", 7).pass(s.answer(1, "T", "k1", 2)).told(2, "timeout")
		wantChecked(t, s.want(s.matching()), "no-fifo", false)
	})
	t.Run("another key is for match-triple", func(t *testing.T) {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 9*sec, 2*sec).ask(2, "c1", "k2", 0, 3*sec)
		s.pass(s.req(1, "k1", 9, 2, 1)).pass(s.req(1, "k2", 0, 3, 2)).pass(s.answer(1, "T", "k2", 2)).told(1, "timeout")
		s.want(s.matching(), "match-triple safety")
	})
}

// waitOf are the calls of the pipelined exchange: wait and lease by call.
var waitOf, leaseOf = []uint64{0, 9, 9, 1, 1}, []uint64{0, 2, 3, 30, 31}

func durationOf(n uint64) time.Duration { return time.Duration(n) }

// four plays four calls on one held key in v0 whose requests are passed on the given
// sessions.
func four(t *testing.T, leases []uint64, sessions ...int) *script {
	s := newScript(t, v0)
	s.open(1, "c1").open(2, "c1").granted(0, "k1", 5, 60*sec)
	for i, n := range sessions {
		s.ask(i+1, "c1", "k1", sec*durationOf(waitOf[i+1]), sec*durationOf(leaseOf[i+1]))
		s.pass(s.req(n, "k1", waitOf[i+1], leases[i+1], 0))
	}
	return s
}

// table tells what became of the attempt of a call: a grant with a token, or a
// timeout for 0.
func (s *script) table(session, call int, token uint64) *script {
	e := history.Event{Key: "k1", Peer: peer(session), Wait: sec * durationOf(waitOf[call]), Lease: sec * durationOf(leaseOf[call])}
	if e.Kind, e.Token = history.Granted, token; token == 0 {
		e.Kind, e.How = history.AttemptEnded, history.TimedOut
	}
	return s.add(e)
}

// swapped4 plays a client that matches by order: the T of calls 3 and 4 end 1 and 2,
// the grants of 1 and 2 are told to 3 and 4.
func swapped4(t *testing.T) *script {
	s := four(t, leaseOf, 1, 1, 1, 1).wait(sec)
	s.table(1, 3, 0).table(1, 4, 0).pass(s.answer(1, "T", "k1", 0)).pass(s.answer(1, "T", "k1", 0)).told(1, "timeout").told(2, "timeout")
	s.ended(0, "k1", 5).table(1, 1, 7).pass(s.got(1, "k1", 0, 7)).acquired(3, "k1", 7).wait(2*sec).ended(0, "k1", 7)
	return s.table(1, 2, 8).pass(s.got(1, "k1", 0, 8)).acquired(4, "k1", 8).wait(sec).leave(4, "k1", 8).leave(3, "k1", 7)
}

func TestFifoByTable(t *testing.T) {
	s := swapped4(t)
	r := s.want(s.matching(), "no-fifo safety", "no-fifo safety")
	const message = `call 3 on key "k1" was told acquired (token 7) by s2c.A.1 on session 1, the answer to call 1, which was told timeout; ` +
		`the lease of that grant was 2s, not the 30s of call 3; calls 3 (token 7) and 4 (token 8) were then both inside for 1001.000 ms`
	if m := r.Findings[0].Message; m != message {
		t.Error(m)
	}
	if m := r.Findings[1].Message; m != `call 4 on key "k1" was told acquired (token 8) by s2c.A.2 on session 1, the answer to call 2, which was told timeout; the lease of that grant was 3s, not the 31s of call 4` {
		t.Error(m)
	}
	if r.Verdict() != Unsafe {
		t.Error(r.Verdict())
	}
	p := s.matching()
	p.SawTable = false // P14
	wantChecked(t, s.want(p), "no-fifo", false)
	for _, fault := range []string{"reorder", "duplicate", "corrupt"} { // what we did ourselves
		q := swapped4(t)
		q.add(history.Event{Kind: history.Fired, Session: 1, Dir: s2c, Fault: fault})
		q.want(q.matching())
	}
	// Of the T alone each half is told by itself.
	i := slices.IndexFunc(s.ev, func(e history.Event) bool { return e.Kind == history.CallResult && e.Call == 2 })
	r = want(t, s.ev[:i+1], s.matching(), "no-fifo safety", "no-fifo safety")
	if m := r.Findings[1].Message; m != `call 2 on key "k1" was told timeout by s2c.T.2 on session 1, the answer to call 4` {
		t.Error(m)
	}
}

func TestFifoByTableAcquittals(t *testing.T) {
	timeouts := func(s *script, a, b int) *script {
		s.wait(sec).table(1, 3, 0).table(1, 4, 0).pass(s.answer(1, "T", "k1", 0)).pass(s.answer(1, "T", "k1", 0))
		return s.told(a, "timeout").told(b, "timeout")
	}
	t.Run("right", func(t *testing.T) {
		s := timeouts(four(t, leaseOf, 1, 1, 1, 1), 3, 4)
		s.ended(0, "k1", 5).table(1, 1, 7).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		wantChecked(t, s.want(s.matching()), "no-fifo", true)
	})
	t.Run("granted in order", func(t *testing.T) {
		s := four(t, leaseOf, 1, 1)
		s.ended(0, "k1", 5).table(1, 1, 7).pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		wantChecked(t, s.want(s.matching()), "no-fifo", false)
	})
	t.Run("a session for each", func(t *testing.T) {
		s := four(t, leaseOf, 1, 2)
		s.ended(0, "k1", 5).table(2, 2, 7).pass(s.got(2, "k1", 0, 7)).acquired(2, "k1", 7)
		wantChecked(t, s.want(s.matching()), "no-fifo", false)
	})
	t.Run("its own attempt timed out", func(t *testing.T) { // a wrong wait on the wire is not this rule's
		s := timeouts(four(t, leaseOf, 1, 1, 1, 1), 3, 4)
		s.table(1, 1, 0).pass(s.answer(1, "T", "k1", 0)).told(1, "timeout")
		s.want(s.matching())
	})
	t.Run("at its own deadline", func(t *testing.T) {
		s := timeouts(four(t, leaseOf, 1, 1, 1, 1).wait(8*sec), 1, 2)
		s.want(s.matching())
	})
	t.Run("its session ended", func(t *testing.T) {
		s := four(t, leaseOf, 1, 1, 1, 1)
		s.wait(sec).table(1, 3, 0).pass(s.answer(1, "T", "k1", 0)).sent(1, "fin").told(1, "timeout")
		s.want(s.matching())
	})
	t.Run("one T for the third, which was told it", func(t *testing.T) {
		s := four(t, leaseOf, 1, 1, 1, 1)
		s.wait(sec).table(1, 3, 0).pass(s.answer(1, "T", "k1", 0)).told(3, "timeout").told(1, "timeout")
		s.want(s.matching())
	})
	t.Run("attempts alike", func(t *testing.T) {
		s := newScript(t, v0)
		s.open(1, "c1").granted(0, "k1", 5, 60*sec)
		for i := range 2 {
			s.ask(i+1, "c1", "k1", 9*sec, 2*sec).pass(s.req(1, "k1", 9, 2, 0))
		}
		s.ended(0, "k1", 5).table(1, 1, 7).pass(s.got(1, "k1", 0, 7)).acquired(2, "k1", 7)
		wantChecked(t, s.want(s.matching()), "no-fifo", false)
	})
	t.Run("an attempt that nobody sent", func(t *testing.T) {
		s := four(t, leaseOf, 1, 1)
		e := s.table(1, 1, 7).ev
		e[len(e)-1].Lease = 5 * sec
		s.pass(s.got(1, "k1", 0, 7)).acquired(2, "k1", 7)
		s.want(s.matching())
	})
	t.Run("leases with a second added", func(t *testing.T) {
		s := four(t, []uint64{0, 3, 4, 31, 32}, 1, 1, 1, 1)
		s.ended(0, "k1", 5)
		e := s.table(1, 1, 7).ev
		e[len(e)-1].Lease = 3 * sec
		s.pass(s.got(1, "k1", 0, 7)).acquired(1, "k1", 7)
		s.want(s.matching())
	})
}
