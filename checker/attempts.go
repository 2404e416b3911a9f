package checker

import (
	"fmt"
	"slices"

	"tornwire/frames"
)

// noResend stands on P1 and P2: the owner of the first A was received whole, so it
// was possibly sent, and the second names it again. A same-owner A after one of
// which no byte came leaves a single frame in W, and is no finding. Another key or
// lease makes it another call's A, which is for owner-fresh, unless no other call can
// have sent it. Two clients may count their owners alike.
func noResend(j *judge) {
	for i, b := range j.attempts {
		if !b.hasOwner {
			continue
		}
		j.checked()
		k := slices.IndexFunc(j.attempts[:i], func(a *attempt) bool { return resends(a, b) })
		if k < 0 {
			continue
		}
		a := j.attempts[k]
		s := scene{call: b.only(), frame: b.wireFrame, offset: len(b.data), at: b.first().ord, others: a.calls}
		j.find(Contract, Certain, fmt.Sprintf("client %s sent %s on session %d with owner %d although %d bytes of %s with the same owner had been received on session %d",
			b.client, b.ref, b.session, b.owner, a.crossed(b.first().ord), a.ref, a.session), j.evidence(s))
	}
}

func resends(a, b *attempt) bool {
	if a.client != b.client || !a.hasOwner || a.owner != b.owner {
		return false
	}
	ta, wa := a.tail()
	tb, wb := b.tail()
	la, _, _ := a.field(fieldLease)
	lb, _, _ := b.field(fieldLease)
	if wa && wb && ta != tb || la != lb {
		return a.only() != nil && (a.only() == b.only() || len(b.calls) == 0)
	}
	return true
}

// oneAttempt stands on P1 and P2: there are more A frames, each with at least one
// byte received, than calls that can have sent them (see surplus). An attempt after a
// B is for busyNotRetried. Without calls in the history there is nothing to count
// (P13).
func oneAttempt(j *judge) {
	for _, a := range j.attempts {
		if a.only() != nil && !j.opaque(a) {
			j.checked()
		}
	}
	for _, x := range j.surplus() {
		if b, _ := j.refused(x); b != nil {
			continue
		}
		c, a := x.call, x.attempt
		s := scene{call: c, frame: a.wireFrame, offset: len(a.data), at: a.first().ord}
		j.find(Contract, Certain, fmt.Sprintf("call %d on key %q sent %s on session %d although %d bytes of %s on session %d had been received",
			c.id, c.key, a.ref, a.session, x.earlier.crossed(a.first().ord), x.earlier.ref, x.earlier.session), j.evidence(s))
	}
}

// extra is an attempt that no call can have sent as its first.
type extra struct {
	attempt, earlier *attempt
	call             *call // that must have sent both
}

// surplus finds the attempts that are more than the calls that can have sent them.
// Calls that ended count as possible senders too: a moment ago, since a request may have
// been under way, or with no attempt of their own, which may come late (expired-unsent).
// Where none did, all that were ever asked for do, since what is sent long after the
// answer is still some call's.
// Where several calls are running the blame could not be placed, so nothing is said.
func (v *view) surplus() []extra {
	index := map[*call]int{}
	for i, c := range v.calls {
		index[c] = i
	}
	candidates := make([][]int, len(v.attempts))
	for i, a := range v.attempts {
		if v.opaque(a) {
			continue
		}
		for _, c := range v.senders(a) {
			candidates[i] = append(candidates[i], index[c])
		}
		for _, c := range v.calls {
			if len(a.calls) > 0 && !slices.Contains(a.calls, c) && v.mayHaveSent(c, a) && !v.hadSent(c, a) {
				candidates[i] = append(candidates[i], index[c])
			}
		}
	}
	var out []extra
	sender := pairUp(candidates, len(v.calls))
	for i, a := range v.attempts {
		if sender[i] >= 0 || len(candidates[i]) == 0 {
			continue
		}
		calls := v.senders(a)
		running := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.result.before(a.first()) })
		if len(running) > 1 {
			continue
		}
		c := calls[len(calls)-1]
		if len(running) == 1 {
			c = running[0]
		}
		if k := slices.IndexFunc(sender, func(n int) bool { return n == index[c] }); k >= 0 {
			out = append(out, extra{attempt: a, earlier: v.attempts[k], call: c})
		}
	}
	return out
}

// senders are the calls that can have sent an attempt: those that may be its own, or, of
// one that came when all such calls had long ended, all that it fits.
func (v *view) senders(a *attempt) []*call {
	if len(a.calls) > 0 {
		return a.calls
	}
	return slices.DeleteFunc(slices.Clone(v.calls), func(c *call) bool {
		return c.client != a.client || !c.asked.before(a.first()) || !keyFits(a.wireFrame, c.key) || !leaseFits(a.wireFrame, c.lease)
	})
}

// refused finds the B that answered the attempt before an extra one, if each attempt
// that the call must have sent before it was answered by a B, whose last byte had
// begun to be written before it came.
func (v *view) refused(x extra) (busy *wireFrame, after *attempt) {
	after = x.earlier
	if busy = v.busyFor(after, x); busy == nil {
		return nil, nil
	}
	for _, a := range x.call.attempts {
		if a == x.attempt || a.only() != x.call || !a.first().before(x.attempt.first()) {
			continue
		}
		b := v.busyFor(a, x)
		if b == nil {
			return nil, nil
		}
		if after.first().before(a.first()) {
			busy, after = b, a
		}
	}
	return busy, after
}

func (v *view) busyFor(a *attempt, x extra) *wireFrame {
	for _, f := range v.byID[a.session].delivered() {
		if f.isOp(opBusy) && v.answers(f, a, x.call) && f.end().before(x.attempt.first()) {
			return f
		}
	}
	return nil
}

// opaque tells whether the session of an attempt had become unreadable before it.
func (v *view) opaque(a *attempt) bool {
	d := v.byID[a.session].link(frames.ClientToServer).in.dark
	return d.before(a.first())
}
