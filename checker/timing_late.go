package checker

import (
	"fmt"
	"slices"
	"time"
)

// Margins of the rules about deadlines (spec/rules.md).
const (
	expiredMargin = time.Second             // past the deadline, for a wait above 0
	zeroMargin    = 1500 * time.Millisecond // past the transport deadline, for a wait of 0
	zeroSettles   = 10 * time.Second        // from the asking to the outcome, for a wait of 0
)

// sendLimit is a time after which no right client has what it needs to send the
// call's A for the first time; false for a call without a started event and for a
// wait without end.
func (v *view) sendLimit(c *call) (time.Duration, bool) {
	switch {
	case !c.started.happened() || c.wait < 0:
	case c.wait > 0:
		return c.started.at + c.wait + expiredMargin, true
	case v.owners:
		return c.started.at + zeroDeadline + zeroMargin, true
	}
	return 0, false
}

// expiredUnsent stands on P1 and on the nonce, without which no A is written: it
// was sent when the deadlines of all calls whose A it can be had passed, by a
// second that is far above what a started event can be early (P11). A call that
// ended long ago counts as well, since that is what a flushed queue sends.
func expiredUnsent(j *judge) {
	for _, a := range j.attempts {
		if c, nonce := j.expired(a); c != nil && c.wait > 0 {
			j.sentExpired(j.bound(), a, c, nonce)
		}
	}
	for _, c := range j.calls {
		if c.wait > 0 && j.heldOver(c) {
			j.checked()
		}
	}
}

func (j *judge) sentExpired(severity Severity, a *attempt, c *call, nonce moment) {
	s := scene{call: c, frame: a.wireFrame, offset: len(a.data), at: a.first().ord}
	j.find(severity, j.punctual(), fmt.Sprintf("call %d on key %q, with a wait of %s, was sent in %s on session %d, of which %d bytes came, although the nonce of that session was sent only %s after the call had started",
		c.id, c.key, c.wait, a.ref, a.session, len(a.data), ms(since(c.started, nonce))), j.evidence(s))
}

// expired returns the call whose attempt a is, as far as that can be told, if all
// calls whose it may be had expired when the nonce of its session was sent.
func (v *view) expired(a *attempt) (*call, moment) {
	nonce, ok := v.byID[a.session].nonceSent()
	if !ok {
		return nil, nonce
	}
	var last *call
	for _, c := range v.calls {
		if !v.mayHaveSent(c, a) {
			continue
		}
		if limit, ok := v.sendLimit(c); !ok || nonce.at <= limit {
			return nil, nonce
		}
		if last == nil || c == a.only() || last != a.only() && !v.hadSent(c, a) {
			last = c
		}
	}
	return last, nonce
}

// heldOver tells whether c passed its deadline unsent and without an outcome before
// it, while a connection of its client waited for the nonce.
func (v *view) heldOver(c *call) bool {
	limit, ok := v.sendLimit(c)
	if !ok || len(c.attempts) > 0 || v.events[len(v.events)-1].At <= limit {
		return false
	}
	due, _ := v.deadline(c)
	if c.result.happened() && c.result.at < due {
		return false
	}
	return slices.ContainsFunc(v.sessionsOf(c.client), func(s *session) bool {
		nonce, sent := s.nonceSent()
		end := s.ended()
		return s.opened.happened() && s.opened.at <= due && (!sent || nonce.at > limit) && (!end.happened() || end.at >= due)
	})
}

// zeroIsImmediate judges a wait of 0 in the current dialect. That it was sent too
// late has the certainty of expiredUnsent. That it had no outcome is the event
// alone, of a client that was alive (P11); it is judged where no answer in time
// would have ended the call by itself.
func zeroIsImmediate(j *judge) {
	if !j.owners {
		return
	}
	for _, a := range j.attempts {
		if c, nonce := j.expired(a); c != nil && c.wait == 0 {
			j.sentExpired(Contract, a, c, nonce)
		}
	}
	for _, c := range j.calls {
		if c.wait != 0 {
			continue
		}
		if j.heldOver(c) {
			j.checked()
		}
		if !j.policy.NoPong {
			j.outcomeOfZero(c)
		}
	}
}

func (j *judge) outcomeOfZero(c *call) {
	at := c.result
	switch {
	case c.overdue.before(c.result):
		at = c.overdue
	case !c.result.happened():
		return
	case since(c.asked, c.result) <= zeroSettles:
		answered := func(f *wireFrame) bool { return f.end().at <= c.asked.at+zeroDeadline }
		if len(c.attempts) > 0 && !slices.ContainsFunc(wholeBefore(j.finals(c, opAcquired, opTimeout, opBusy), never), answered) {
			j.checked()
		}
		return
	}
	s := scene{call: c, at: at.ord}
	if len(c.attempts) > 0 {
		s.frame = c.attempts[0].wireFrame
		s.offset = len(s.frame.data)
	}
	j.find(Contract, j.punctual(), fmt.Sprintf("call %d on key %q, with a wait of 0, had no outcome %s after it was asked for",
		c.id, c.key, ms(since(c.asked, at))), j.evidence(s))
}
