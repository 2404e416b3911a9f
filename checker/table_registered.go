package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

const (
	// promptly is how soon after the request an answer comes that a client may meet
	// before it is ready for it.
	promptly = 50 * time.Millisecond
	// toSpare is how much of the deadline and of the lease is left when such an answer
	// is there: ample for a client that is alive (P11).
	toSpare = time.Second
)

// registerFirst stands on W and V: the right answer to an attempt, whole and the
// only one, was written to the client promptly, with the deadline and the lease far
// off, on a session on which nothing else but right answers was written and nothing
// was torn. A client that had registered the attempt has no reason to close the
// session, nor to end the call without a grant. That it read the answer needs no
// other proof (P3) where it closed with FIN: unread, it would have closed with RST
// (P4), and had even less reason to. Where it went on
// without an outcome for as long as toSpare, the answer was acknowledged by its
// kernel, the client answered pings (P11), and so it had read it.
//
// A call that was cancelled, a client that was asked to close, and one with another
// call under way, whose end may close the session (spec/rules.md, "Never a finding",
// 14), are not judged. Nor is another definite word than acquired: the answer was
// matched then, and other rules say how. In spec/ticketing.md §3.9 it is for the
// contract.
func registerFirst(j *judge) {
	// A client that was stopped does nothing in time.
	stopped := func(e history.Event) bool { return e.Kind == history.Frozen }
	if j.late.happened() || slices.ContainsFunc(j.events, stopped) {
		return
	}
	for _, a := range j.attempts {
		c := j.sole(a)
		if c == nil || c.cancel.happened() || !a.whole || len(c.attempts) != 1 || j.opaque(a) {
			continue
		}
		r := j.soleAnswer(a, c)
		if r == nil || !j.prompt(r, a, c) {
			continue
		}
		switch s := j.byID[a.session]; {
		case c.outcome == history.OutcomeAcquired:
			j.checked()
		case c.result.happened() && c.outcome != history.OutcomeIndeterminate && c.outcome != history.OutcomeError:
		case j.disturbed(s, c, acceptedAt(r)):
		case j.leaves(s, r):
			j.find(Contract, Certain, fmt.Sprintf("call %d on key %q was answered by %s on session %d %s after its request, with token %d, and the client closed the session %s later and told %s",
				c.id, c.key, r.ref, s.id, ms(since(a.end(), r.end())), tokenOf(r), ms(since(acceptedAt(r), s.closed.moment)), ending(c)), j.answered(c, r))
		case !j.policy.NoPong && j.hangs(r, c):
			j.find(Contract, Certain, fmt.Sprintf("call %d on key %q was answered by %s on session %d %s after its request, with token %d, and the client did not take it: it told %s",
				c.id, c.key, r.ref, s.id, ms(since(a.end(), r.end())), tokenOf(r), ending(c)), j.answered(c, r))
		}
	}
}

func tokenOf(f *wireFrame) uint64 {
	t, _, _ := f.field(fieldToken)
	return t
}

func ending(c *call) string {
	if !c.result.happened() {
		return "nothing"
	}
	return fmt.Sprintf("%s at %s", c.outcome, ms(c.result.at))
}

func (j *judge) answered(c *call, r *wireFrame) Evidence {
	return j.evidence(scene{call: c, frame: r, offset: len(r.data), at: never})
}

// soleAnswer is the grant that answers an attempt, if it is whole and nothing else
// can be its answer, or that of another attempt of the session.
func (v *view) soleAnswer(a *attempt, c *call) *wireFrame {
	all := v.finals(c, opAcquired, opTimeout, opBusy)
	if len(all) != 1 || !all[0].isOp(opAcquired) || !all[0].whole || all[0].session != a.session || !acceptedAt(all[0]).happened() {
		return nil
	}
	if all[0].newlines() {
		return nil
	}
	return all[0]
}

// prompt tells whether an answer came at once, with time to spare.
func (v *view) prompt(r *wireFrame, a *attempt, c *call) bool {
	at := acceptedAt(r).at
	if at > a.end().at+promptly || at+toSpare > a.first().at+c.lease {
		return false
	}
	deadline, ok := v.deadline(c)
	return !ok || at+toSpare <= deadline
}

// leaves tells whether the client closed a session on which an answer was there: with
// FIN, since an RST is also what a close is that leaves input unread (P4), unless it
// has named the answer's token.
func (v *view) leaves(s *session, r *wireFrame) bool {
	if !r.end().before(s.closed.moment) || s.closed.at >= acceptedAt(r).at+toSpare {
		return false
	}
	return s.closed.happened() && (!s.reset || slices.ContainsFunc(v.releasesOf(s.client), func(f *wireFrame) bool {
		return v.tokens && tokenOf(f) == tokenOf(r) && r.end().before(f.first())
	}))
}

// disturbed tells whether anything but right answers may have made the client end a
// session or a call until toSpare after the answer was there.
func (v *view) disturbed(s *session, c *call, there moment) bool {
	until := there.at + toSpare
	m, closing := v.closing[s.client]
	if closing && m.at < until && !s.closed.before(m) || s.cut.happened() && s.cut.at < until && s.cut.before(s.closed.moment) {
		return true
	}
	if slices.ContainsFunc(v.fired, func(e *history.Event) bool { return e.Session == s.id || e.Session == 0 }) {
		return true
	}
	for _, o := range v.calls {
		if o != c && o.client == c.client && o.asked.at < until && !o.result.before(c.asked) {
			return true
		}
	}
	if slices.ContainsFunc(s.requests(), func(f *wireFrame) bool { return f.isOp(opRelease) && !v.wasAnswered(s, f) }) {
		return true
	}
	return slices.ContainsFunc(s.delivered(), func(f *wireFrame) bool {
		return f.first().at < until && !v.expected(s, f)
	})
}

// expected tells whether a frame written to the client is a preface line, a
// keep-alive or an answer to a request that was received on the session before.
func (v *view) expected(s *session, f *wireFrame) bool {
	if f.unknown || f.shape == nil || f.shape.Kind != frames.Message {
		return !f.unknown && f.shape != nil
	}
	field, op := fieldOwner, opAcquire
	if f.isOp(opReleased) || f.isOp(opNotHeld) {
		field, op = fieldToken, opRelease
	} else if !answersAcquire(f) {
		return false
	}
	value, _, has := f.field(field)
	answers, asked := 0, 0
	same := func(g *wireFrame) bool {
		n, _, ok := g.field(field)
		return ok == has && n == value
	}
	for _, g := range s.delivered() {
		if (op == opAcquire) == answersAcquire(g) && (answersAcquire(g) || g.isOp(opReleased) || g.isOp(opNotHeld)) && same(g) && !f.first().before(g.first()) {
			answers++
		}
	}
	for _, g := range s.requests() {
		if g.isOp(op) && g.whole && g.first().before(f.end()) && same(g) {
			key, _ := g.tail()
			if keyFits(f, key) {
				asked++
			}
		}
	}
	return answers <= asked
}

// wasAnswered tells whether an R has had its answer on its session.
func (v *view) wasAnswered(s *session, f *wireFrame) bool {
	key, whole := f.tail()
	return whole && slices.ContainsFunc(s.delivered(), func(r *wireFrame) bool {
		return (r.isOp(opReleased) || r.isOp(opNotHeld)) && r.whole && f.end().before(r.end()) && keyFits(r, key) && tokenOf(r) == tokenOf(f)
	})
}

// hangs tells whether a call had no outcome toSpare after its answer had been
// acknowledged by the client's kernel.
func (v *view) hangs(r *wireFrame, c *call) bool {
	passed := v.passedOn(r, never)
	if passed[0] < len(r.data) {
		return false
	}
	if c.result.happened() {
		return c.result.at > acceptedAt(r).at+toSpare
	}
	return c.overdue.happened()
}
