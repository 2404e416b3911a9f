package checker

import (
	"fmt"
	"time"
)

// waitBounds is what the wait of an attempt may be, in whole seconds.
type waitBounds struct {
	call  *call
	wire  int64
	most  int64  // that the field can hold
	read  moment // the last byte of the field was received
	nonce moment // of the session was sent
	low   int64  // the wait on the wire is not below
	high  int64  // and not above, where this is below full
	full  int64  // what a wait fixed at the start would be
	left  time.Duration
}

// boundsOf gives the bounds of P7. Upwards: the client cannot write an A without
// the nonce, so no more remained than when the write of the nonce's last byte
// began. The library began to count when it was called, right after the adapter
// had written its started event; that event may be read a little before the call,
// and the client is given stampSlack for it. Downwards: the library cannot have
// begun before it was asked, and had written the field when it was received. Below
// a second the upper bound is a second, since what is over is for expired-unsent.
// For a library whose waits are whole seconds the adapter has to round up.
//
// A wait over what the field can hold may be cut to it, and the deadline with it
// (spec/ticketing.md §3.2): the lower bound is that of the cut wait, the upper
// that of the whole. A wait of 0 has no bounds.
func (v *view) boundsOf(a *attempt) (waitBounds, bool) {
	c := v.sole(a)
	wire, read, ok := a.field(fieldWait)
	if c == nil || !ok || c.wait <= 0 || !c.started.happened() {
		return waitBounds{}, false
	}
	most := a.mostWait()
	b := waitBounds{call: c, wire: int64(wire), most: most, read: read}
	b.full = min(wholeSeconds(c.wait), most)
	b.high = b.full
	if b.nonce, ok = v.byID[a.session].nonceSent(); ok {
		b.high = max(wholeSeconds(c.longest()+stampSlack-since(c.started, b.nonce)), 1)
	}
	b.left = min(c.wait, time.Duration(most)*time.Second) - since(c.asked, read)
	b.low = wholeSeconds(b.left)
	return b, true
}

// mostWait is the longest wait that the attempt's field can hold, in seconds.
func (a *attempt) mostWait() int64 {
	f, _ := a.shape.Field(fieldWait)
	return int64(f.Max() & (1<<32 - 1))
}

// waitRecomputed stands on the upper bound of P7, where the call's first connection
// is the one that carried the A. It is judged only where the nonce came late enough
// for the bound to be below the whole wait; what is above that is for wait-range.
func waitRecomputed(j *judge) {
	for _, a := range j.attempts {
		b, ok := j.boundsOf(a)
		if !ok || b.high >= b.full || j.lostBefore(b.call, a) != nil {
			continue
		}
		j.tooLong(a, b, "")
	}
}

// deadlineOnce stands on the same bound, where an earlier connection of the client
// had ended during the call, without a byte of the call's A, before the one that
// carried the A was opened.
func deadlineOnce(j *judge) {
	for _, a := range j.attempts {
		b, ok := j.boundsOf(a)
		if !ok || b.high >= b.full {
			continue
		}
		if s := j.lostBefore(b.call, a); s != nil {
			j.tooLong(a, b, fmt.Sprintf(", a try after session %d had ended,", s.id))
		}
	}
}

// tooLong judges the wait of an attempt against its upper bound.
func (j *judge) tooLong(a *attempt, b waitBounds, try string) {
	j.checked()
	if b.wire <= b.high {
		return
	}
	s := scene{call: b.call, frame: a.wireFrame, offset: len(a.data), at: b.read.ord}
	j.find(j.bound(), j.punctual(), fmt.Sprintf("call %d on key %q sent a wait of %d s in %s on session %d%s although at most %d s of its wait of %s can have remained: the nonce was sent %s after the call had started",
		b.call.id, b.call.key, b.wire, a.ref, a.session, try, b.high, b.call.wait, ms(since(b.call.started, b.nonce))), j.evidence(s))
}

// lostBefore finds the last session of the client that ended while c was running,
// without a byte of an A that may be c's, before that of the attempt was opened.
func (v *view) lostBefore(c *call, a *attempt) *session {
	opened := v.byID[a.session].opened
	var last *session
	for _, s := range v.sessionsOf(a.client) {
		end := s.ended()
		if !end.happened() || !c.asked.before(end) || !end.before(opened) || v.carried(s, c) {
			continue
		}
		if last == nil || last.ended().before(end) {
			last = s
		}
	}
	return last
}

// carried tells whether a session carried a byte that may be of the call's A.
func (v *view) carried(s *session, c *call) bool {
	for _, a := range v.attempts {
		if a.session == s.id && v.mayHaveSent(c, a) {
			return true
		}
	}
	return false
}

// waitRoundedUp stands on the lower bound of P7. Both of its stamps are on the safe
// side whoever was late: the asking was stamped before it was done, the field after
// it was read.
func waitRoundedUp(j *judge) {
	for _, a := range j.attempts {
		b, ok := j.boundsOf(a)
		if !ok || b.low < 1 {
			continue
		}
		j.checked()
		if b.wire >= b.low {
			continue
		}
		s := scene{call: b.call, frame: a.wireFrame, offset: len(a.data), at: b.read.ord}
		j.find(j.bound(), Certain, fmt.Sprintf("call %d on key %q sent a wait of %d s in %s although at least %s of its wait of %s remained when that was received, which is %d s rounded up",
			b.call.id, b.call.key, b.wire, a.ref, ms(b.left), b.call.wait, b.low), j.evidence(s))
	}
}

// waitRange is direct (P8): the field is compared with the wait that was asked for,
// whatever the time. The attempt must be one call's for certain (P2). In
// ticketing-v0, which cannot say "at once", a wait of 0 is not judged.
func waitRange(j *judge) {
	for _, a := range j.attempts {
		c := j.sole(a)
		n, read, ok := a.field(fieldWait)
		if c == nil || !ok || c.wait == 0 && !j.owners {
			continue
		}
		j.checked()
		wire, most := int64(n), a.mostWait()
		var why string
		switch {
		case c.wait == 0 && wire != 0:
			why = "which must be 0 on the wire"
		case c.wait > 0 && wire == 0 && j.owners:
			why = "which 0 on the wire turns into an immediate attempt"
		case c.wait > 0 && wire == 0:
			why = "which 0 on the wire turns into a wait without end"
		case wire > wholeSeconds(c.wait):
			why = fmt.Sprintf("which is %d s rounded up", wholeSeconds(c.wait))
		case wrapped(c, wire, most, since(c.asked, read)):
			why = fmt.Sprintf("which wraps around in a field that holds at most %d", most)
		default:
			continue
		}
		s := scene{call: c, frame: a.wireFrame, offset: len(a.data), at: read.ord}
		j.find(Contract, Certain, fmt.Sprintf("call %d on key %q sent a wait of %d s in %s for a wait of %s, %s", c.id, c.key, wire, a.ref, c.wait, why), j.evidence(s))
	}
}

// wrapped tells whether a wait is a remainder of one over what its field can hold,
// for a time that may have remained after at most elapsed, and is too short to be
// that of a wait cut to the field, however rounded.
func wrapped(c *call, wire, most int64, elapsed time.Duration) bool {
	if wire >= most-wholeSeconds(elapsed) {
		return false
	}
	full, least := wholeSeconds(c.wait), wholeSeconds(c.wait-elapsed)
	k := (full - wire) / (most + 1)
	return k >= 1 && wire+k*(most+1) >= least
}
