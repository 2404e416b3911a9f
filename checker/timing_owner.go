package checker

import "fmt"

// ownerFresh stands on W and P2: both owners were received whole, and the attempts
// are those of two calls for certain. The adapter process makes all calls of a
// case, so that calls of two clients must differ as well. Without started calls
// nothing is judged (P13).
func ownerFresh(j *judge) {
	for i, b := range j.attempts {
		d := j.owned(b)
		if d == nil {
			continue
		}
		for _, a := range j.attempts[:i] {
			c := j.owned(a)
			if c == nil || c == d || !j.twoCalls(a, b, c, d) {
				continue
			}
			j.checked()
			if a.owner != b.owner {
				continue
			}
			_, read, _ := b.field(fieldOwner)
			s := scene{call: d, frame: b.wireFrame, offset: len(b.data), at: read.ord, others: []*call{c}}
			j.find(Contract, Certain, fmt.Sprintf("call %d of client %s on key %q sent owner %d in %s, the owner that call %d of client %s on key %q had sent in %s",
				d.id, d.client, d.key, b.owner, b.ref, c.id, c.client, c.key, a.ref), j.evidence(s))
			break
		}
	}
}

// owned is the started call that sent an attempt with its owner, if that is known.
func (v *view) owned(a *attempt) *call {
	c := v.sole(a)
	if !a.hasOwner || c == nil || !c.started.happened() {
		return nil
	}
	return c
}

// twoCalls tells whether a of c and b of d cannot be one call's A sent twice, which
// would be for no-resend: they are of two clients, name two keys or two leases, or
// c had ended before d was asked for and d sent no other owner.
func (v *view) twoCalls(a, b *attempt, c, d *call) bool {
	ta, wa := a.tail()
	tb, wb := b.tail()
	la, _, oka := a.field(fieldLease)
	lb, _, okb := b.field(fieldLease)
	switch {
	case a.client != b.client, wa && wb && ta != tb, oka && okb && la != lb:
		return true
	case !c.result.before(d.asked):
		return false
	}
	for _, o := range d.attempts {
		if o != b && (!o.hasOwner || o.owner != b.owner) {
			return false
		}
	}
	return true
}
