package checker

import (
	"fmt"
	"slices"
	"time"
)

// noRenewal stands on P1 and P2: both owners were received whole, and are one; and no
// call but that of the first A can have sent the second, because each other one that
// was asked for had another key or owner, or its own A was known already. What follows
// the first on another session without an answer is for noResend, and what follows a B
// for busyNotRetried.
func noRenewal(j *judge) {
	for i, b := range j.attempts {
		if !b.hasOwner {
			continue
		}
		if c := j.sole(b); c != nil && j.tempted(c, b) {
			j.checked()
		}
		for _, a := range j.attempts[:i] {
			why := j.renews(a, b)
			if why == "" || j.anothers(a, b) {
				continue
			}
			s := scene{call: a.only(), frame: b.wireFrame, offset: len(b.data), at: b.first().ord}
			j.find(Contract, Certain, fmt.Sprintf("client %s sent %s on session %d with the owner %d and the key of %s on session %d, %s later, %s",
				b.client, b.ref, b.session, b.owner, a.ref, a.session, ms(since(a.first(), b.first())), why), j.evidence(s))
			break
		}
	}
}

// renews tells why b repeats a to renew it or to ask for it; "" if it does not.
func (v *view) renews(a, b *attempt) string {
	if a.client != b.client || !a.hasOwner || a.owner != b.owner {
		return ""
	}
	ta, wa := a.tail()
	tb, wb := b.tail()
	if wa && wb && ta != tb {
		return ""
	}
	for _, f := range v.byID[a.session].delivered() {
		o, _, ok := f.field(fieldOwner)
		if !ok || o != a.owner || wa && !keyFits(f, ta) || !f.end().before(b.first()) {
			continue
		}
		switch {
		case f.isOp(opBusy):
			return ""
		case f.isOp(opAcquired) || f.isOp(opTimeout):
			return fmt.Sprintf("although %s had answered it", f.ref)
		}
	}
	if a.session == b.session {
		return "although it was still waiting there"
	}
	return ""
}

// anothers tells whether b can be the A of another call than that of a.
func (v *view) anothers(a, b *attempt) bool {
	of := a.only()
	if of == nil {
		return len(v.calls) > 0
	}
	return slices.ContainsFunc(v.calls, func(c *call) bool {
		return c != of && c.client == b.client && c.asked.before(b.first()) && keyFits(b.wireFrame, c.key) &&
			!(c.hasOwner && c.owner != b.owner) && !v.hadSent(c, b)
	})
}

// tempted tells whether there was reason to repeat the A of c: it had no answer for half
// of the wait, or the lock was held for half of the lease.
func (v *view) tempted(c *call, a *attempt) bool {
	if c.entered.happened() && v.leftAt(c)-c.entered.at >= c.lease/2 {
		return true
	}
	until := v.events[len(v.events)-1].At
	for _, m := range []moment{c.result, v.byID[a.session].ended()} {
		if m.happened() {
			until = min(until, m.at)
		}
	}
	for _, f := range v.finals(c, opAcquired, opTimeout, opBusy) {
		until = min(until, f.first().at)
	}
	return c.wait > 0 && until-a.first().at >= max(c.wait/2, 100*time.Millisecond)
}
