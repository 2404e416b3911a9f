package checker

import (
	"fmt"
	"slices"

	"tornwire/history"
)

// finalWord judges the calls whose one response was a T, or a B. That the client took
// it for another word is proved (P3) where the result came after the frame had been
// accepted and nothing else can have been its cause.
//
// A word that denies the send, or another definite one, is wrong even if the frame
// was not read; acquired is for the rules about entries. Indeterminate and error are right where it was not: they count only
// just after the frame, well before the call's deadline, from an adapter that answers in
// time (P11: else the word may be older than the frame), and if it can say the right word
// (P15). Whether a client may go on after a B is disputed
// (spec/ticketing.md §3.1), so unless the policy says that it is final, only a word
// told at once counts.
func finalWord(j *judge, op string) {
	for _, c := range j.calls {
		f := j.soleFinal(c)
		if f == nil || !f.isOp(op) {
			continue
		}
		want := meant(f)
		switch c.outcome {
		case want:
			if f.end().before(c.result) {
				j.checked()
			}
			continue
		case history.OutcomeAcquired:
			continue
		}
		if f.newlines() || !f.end().before(c.result) || !j.arrived(f) || !j.onlyCause(c, f) {
			continue
		}
		atOnce := j.early(c, c.result) && since(f.end(), c.result) <= inFlight
		switch {
		case c.outcome == history.OutcomeIndeterminate || c.outcome == history.OutcomeError:
			if !atOnce || j.policy.NoPong || !j.declared(want) || j.left(c, f) {
				continue
			}
		case op == opBusy && j.policy.Busy != BusyFinal && !atOnce:
			continue
		}
		j.find(Contract, Certain, fmt.Sprintf("%s although %s, its %s, had been written %s before, and nothing else had happened",
			told(c), f.ref, f.shape.Name, ms(since(f.end(), c.result))),
			j.evidence(scene{call: c, frame: f, offset: len(f.data), at: c.result.ord}))
	}
}

// left tells whether the client reset the session of f by itself around the result
// of c: that is what a close with unread input is (P4), so f may lie there (P3). A FIN
// comes only where all had been read.
func (v *view) left(c *call, f *wireFrame) bool {
	s := v.byID[f.session]
	return s.reset && s.closed.at <= c.result.at+inFlight && !v.closing[c.client].before(s.closed.moment)
}

// soleFinal is the one final response that was written for a call which sent one
// attempt, whole; nil if there is none, or if it may be another call's.
func (v *view) soleFinal(c *call) *wireFrame {
	if !c.result.happened() || len(c.attempts) != 1 || v.blind(c.client, c.result.ord) {
		return nil
	}
	a := c.attempts[0]
	fs := v.finals(c, opAcquired, opTimeout, opBusy)
	if len(fs) > 1 && !v.owners {
		fs = slices.DeleteFunc(fs, func(f *wireFrame) bool { return c.result.before(f.first()) })
	}
	if v.sole(a) != c || len(fs) != 1 || !fs[0].whole || !v.asksAlone(a, c, fs[0]) {
		return nil
	}
	return fs[0]
}

// asksAlone tells whether a response can be for no attempt but a: its owner is that
// of no other one, or, without owners, every other request for the key on the session
// had been answered before a came.
func (v *view) asksAlone(a *attempt, c *call, f *wireFrame) bool {
	if v.owners {
		return a.hasOwner && !v.foreign(a, a.owner)
	}
	others := 0
	for _, b := range v.attempts {
		if b == a || b.session != a.session || !keyFits(b.wireFrame, c.key) || !b.first().before(f.end()) {
			continue
		}
		if !b.first().before(a.first()) {
			return false
		}
		others++
	}
	for _, r := range v.byID[a.session].delivered() {
		if (r.isOp(opAcquired) || r.isOp(opTimeout)) && !r.unknown && keyFits(r, c.key) && r.end().before(a.first()) {
			others--
		}
	}
	return others == 0
}

// onlyCause tells whether nothing but f can have led to the result of c: nothing was
// asked of the client, no other call on the session was at its end, and nothing else
// was written there that was not asked for. That the client ended the session after f
// had begun to be written is its own doing.
func (v *view) onlyCause(c *call, f *wireFrame) bool {
	s := v.byID[f.session]
	if s.cutFirst(c.result) || s.closed.before(f.end()) || v.closing[c.client].before(c.result) || v.late.before(c.result) ||
		!v.onlyAnswers(s, c.result) {
		return false
	}
	for _, o := range v.calls {
		if o.client != c.client {
			continue
		}
		if o.cancel.before(c.result) {
			return false
		}
		here := slices.ContainsFunc(o.attempts, func(a *attempt) bool { return a.session == s.id })
		if o == c || !here || o.result.before(f.first()) {
			continue
		}
		if d, ok := v.deadline(o); ok && d <= c.result.at {
			return false
		}
	}
	return true
}

// busyNotRetried stands on V and W: the B had been accepted before a further attempt
// came, which no other call can have sent (see surplus). The client cannot have asked
// again for another reason, since a call that was answered has nothing else to wait
// for. Whether that is wrong is for the policy to say. A call is told once, however
// often it came again.
func busyNotRetried(j *judge) {
	severity := Hygiene
	switch j.policy.Busy {
	case BusyRetry:
		return
	case BusyFinal:
		severity = Contract
	}
	for _, c := range j.calls {
		for _, f := range j.finals(c, opBusy) {
			if f.whole && c.result.happened() && f.cells[len(f.cells)-1].accepted.happened() && !j.blind(c.client, never) &&
				slices.ContainsFunc(c.attempts, func(a *attempt) bool { return a.only() == c && j.answers(f, a, c) }) {
				j.checked()
			}
		}
	}
	told := map[*call]bool{}
	for _, x := range j.surplus() {
		if told[x.call] {
			continue
		}
		f, after := j.refused(x)
		if f == nil || !acceptedAt(f).before(x.attempt.first()) || !j.arrived(f) || j.byID[f.session].cut.before(x.attempt.first()) {
			continue // it may have been sent again for another reason, with the B unread (P3)
		}
		told[x.call] = true
		s := scene{call: x.call, frame: x.attempt.wireFrame, offset: len(x.attempt.data), at: x.attempt.first().ord}
		j.find(severity, Certain, fmt.Sprintf("call %d on key %q sent %s on session %d although %s had answered its %s %s before",
			x.call.id, x.call.key, x.attempt.ref, x.attempt.session, f.ref, after.ref, ms(since(f.end(), x.attempt.first()))), j.evidence(s))
	}
}
