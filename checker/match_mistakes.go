package checker

import (
	"cmp"
	"slices"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// mistake is a response that a client must have taken for the answer to something
// else.
type mistake struct {
	call     *call      // that was told by it
	release  bool       // its release was told, not the call itself
	hasty    bool       // it came so soon that the client may not have waited for anything
	frame    *wireFrame // the response
	rightful *call      // the call of the same client and key that it answers, or nil
	at       moment     // of the result
}

// mistakes lists the results that stand on a response which does not match.
//
// The token of an acquired is proof by itself: it is in a delivered A that does not
// match the call, and in none that does. A definite word without a response of its
// own is proof only if the client cannot have come to it in another way: it was told
// before the call's own deadline, with no part of a matching response begun, no end,
// notice or error on its sessions, nothing asked of the client, and just after a
// response of that kind which does not match and which nobody else was told. One
// such response explains one word.
func (v *view) mistakes() []mistake {
	calls := slices.Clone(v.calls)
	slices.SortStableFunc(calls, func(a, b *call) int { return cmp.Compare(a.result.ord, b.result.ord) })
	used := map[*wireFrame]bool{}
	var out []mistake
	for _, c := range calls {
		m, ok := v.mistakenEntry(c)
		if !ok {
			m, ok = v.mistakenEnd(c, used)
		}
		if ok && v.tellable(m) {
			out = append(out, m)
		}
		if m, ok := v.mistakenRelease(c, used); ok {
			out = append(out, m)
		}
	}
	return out
}

// tellable tells whether it is certain of which of two calls on one key the requests
// are.
func (v *view) tellable(m mistake) bool {
	return m.rightful == nil || v.sure(m.call) && v.sure(m.rightful)
}

// sure tells whether an attempt with the call's own lease must be the call's (P2).
func (v *view) sure(c *call) bool {
	return slices.ContainsFunc(c.attempts, func(a *attempt) bool { return v.surely(a) && a.only() == c })
}

func (v *view) surely(a *attempt) bool {
	_, _, ok := a.field(fieldLease)
	return ok && a.only() != nil && leaseFits(a.wireFrame, a.only().lease)
}

// mismatches tells whether a whole response names another key than the call's, or an
// owner that none of the call's possible attempts has.
func (v *view) mismatches(f *wireFrame, c *call) bool {
	if f.unknown || !f.whole || len(c.attempts) == 0 {
		return false
	}
	if !keyFits(f, c.key) {
		return true
	}
	owner, _, ok := f.field(fieldOwner)
	return ok && !slices.ContainsFunc(c.attempts, func(a *attempt) bool {
		if a.hasOwner {
			return a.owner == owner
		}
		return !v.foreign(a, owner)
	})
}

// rightfulOf is the other call of the client on the same key that a response
// answers, or nil.
func (v *view) rightfulOf(f *wireFrame, c *call) *call {
	for _, d := range v.calls {
		if d != c && d.client == c.client && d.key == c.key && slices.Contains(v.finals(d, opAcquired, opTimeout, opBusy), f) {
			return d
		}
	}
	return nil
}

// askedBefore tells whether the first byte of an attempt of c had come before a
// moment, on the session, or on any for 0.
func askedBefore(c *call, session int, m moment) bool {
	return slices.ContainsFunc(c.attempts, func(a *attempt) bool {
		return (session == 0 || a.session == session) && a.first().before(m)
	})
}

func (v *view) mistakenEntry(c *call) (mistake, bool) {
	none := mistake{}
	if c.outcome != history.OutcomeAcquired || !c.hasToken || v.blind(c.client, c.result.ord) {
		return none, false
	}
	var found *wireFrame
	for _, s := range v.sessionsOf(c.client) {
		for _, f := range s.delivered() {
			t, seen, ok := f.field(fieldToken)
			if !f.isOp(opAcquired) || !ok || t != c.token || !seen.before(c.result) {
				continue
			}
			if !v.mismatches(f, c) {
				return none, false
			}
			if found == nil && f.end().before(c.result) && askedBefore(c, 0, f.end()) {
				found = f
			}
		}
	}
	if found == nil {
		return none, false
	}
	return mistake{call: c, frame: found, rightful: v.rightfulOf(found, c), at: c.result}, true
}

func (v *view) mistakenEnd(c *call, used map[*wireFrame]bool) (mistake, bool) {
	none := mistake{}
	op := opTimeout
	switch {
	case c.outcome == history.OutcomeBusy:
		op = opBusy
	case c.outcome != history.OutcomeTimeout:
		return none, false
	}
	if !v.unprompted(c) || slices.ContainsFunc(v.finals(c, opAcquired, opTimeout, opBusy), func(f *wireFrame) bool { return f.first().before(c.result) }) {
		return none, false
	}
	var found *wireFrame
	var rightful *call
	for _, s := range v.sessionsOf(c.client) {
		for _, f := range s.delivered() {
			if used[f] || !just(f, c.result) || !askedBefore(c, s.id, f.end()) || v.explained(f, c) ||
				!(f.isOp(op) && v.mismatches(f, c)) && !v.otherOp(f, c) {
				continue
			}
			if d := v.rightfulOf(f, c); found == nil || rightful == nil && d != nil {
				found, rightful = f, d
			}
		}
	}
	if found == nil {
		return none, false
	}
	used[found] = true
	return mistake{call: c, frame: found, rightful: rightful, at: c.result}, true
}

// otherOp tells whether an answer to a release has the owner of the call in the
// place of its token.
func (v *view) otherOp(f *wireFrame, c *call) bool {
	t, _, ok := f.field(fieldToken)
	return ok && (f.isOp(opReleased) || f.isOp(opNotHeld)) && keyFits(f, c.key) &&
		slices.ContainsFunc(c.attempts, func(a *attempt) bool { return a.hasOwner && a.owner == t })
}

// just tells whether all of f had begun to be written a short while before a moment.
func just(f *wireFrame, m moment) bool {
	return f.whole && !f.unknown && f.end().before(m) && m.at-f.end().at <= inFlight
}

// explained tells whether another call was told what f says, just after it.
func (v *view) explained(f *wireFrame, c *call) bool {
	return slices.ContainsFunc(v.calls, func(d *call) bool {
		return d != c && d.client == c.client && d.outcome == meant(f) && just(f, d.result) &&
			slices.Contains(v.finals(d, opTimeout, opBusy), f)
	})
}

// unprompted tells whether a call that ended had no reason of its own to end: the adapter
// tells such an end in time (P11), it was before its deadline, nothing was asked of the client, and its sessions were calm.
func (v *view) unprompted(c *call) bool {
	if v.policy.NoPong || len(c.attempts) == 0 || !v.early(c, c.result) || c.cancel.before(c.result) || v.closing[c.client].before(c.result) ||
		v.late.before(c.result) || v.blind(c.client, c.result.ord) {
		return false
	}
	return !slices.ContainsFunc(c.attempts, func(a *attempt) bool { return !v.calm(v.byID[a.session], c.result) })
}

// early tells whether a moment lies before any deadline that the call can have, even
// one of a client that rounds its wait down.
func (v *view) early(c *call, m moment) bool {
	switch {
	case c.wait > 0:
		return m.at < c.asked.at+c.wait.Truncate(time.Second)-stampSlack
	case v.owners:
		return m.at < c.asked.at+zeroDeadline-stampSlack
	}
	return true
}

// calm tells whether nothing but whole, right responses had been written to the
// client on a session before a moment, and nobody had ended it. An end just after it
// may have been its cause, unless there was another reason for it.
func (v *view) calm(s *session, m moment) bool {
	closed := s.closed.moment
	if s.cut.before(m) || closed.before(m) || s.link(frames.ServerToClient).out.dark.before(m) {
		return false
	}
	if closed.happened() && closed.at <= m.at+inFlight && !v.closing[s.client].before(closed) && !s.cut.before(closed) {
		return false
	}
	for _, f := range s.delivered() {
		if !f.first().before(m) {
			continue
		}
		if f.unknown || !f.whole || !f.end().before(m) || f.shape.Check(f.data) != nil {
			return false
		}
		if f.shape.Kind == frames.Message && !isResponse(f) {
			return false
		}
	}
	return true
}

func isResponse(f *wireFrame) bool {
	return slices.ContainsFunc([]string{opAcquired, opTimeout, opBusy, opReleased, opNotHeld}, f.isOp)
}

// mistakenRelease finds the release that was told done, or not held, by a response
// which is not one to an R with its token. A client whose own lease is over may say
// so without asking, and is not judged.
func (v *view) mistakenRelease(c *call, used map[*wireFrame]bool) (mistake, bool) {
	none := mistake{}
	if !v.tokens || v.policy.NoPong || !c.hasToken || len(c.releases) == 0 || len(c.released) == 0 {
		return none, false
	}
	got := c.released[0]
	if got.outcome != history.OutcomeReleased && got.outcome != history.OutcomeNotHeld || v.blind(c.client, got.ord) ||
		v.closing[c.client].before(got.moment) || v.late.before(got.moment) ||
		!askedBefore(c, 0, got.moment) || got.at >= c.attempts[0].first().at+c.lease-stampSlack {
		return none, false
	}
	rs := v.releasesWith(c, got.moment)
	if len(rs) == 0 {
		return none, false
	}
	var found, request *wireFrame
	for _, s := range v.sessionsOf(c.client) {
		asked := slices.IndexFunc(rs, func(r *wireFrame) bool { return r.session == s.id })
		if asked >= 0 && !v.calm(s, got.moment) {
			return none, false
		}
		for _, f := range s.delivered() {
			if answersRelease(f, c) && f.first().before(got.moment) {
				return none, false
			}
			if found == nil && asked >= 0 && !used[f] && just(f, got.moment) && rs[asked].first().before(f.end()) && v.fakesAnswer(f, c) {
				found, request = f, rs[asked]
			}
		}
	}
	if found == nil {
		return none, false
	}
	used[found] = true
	hasty := found.first().at < request.first().at+waitShown
	return mistake{call: c, release: true, frame: found, hasty: hasty, at: got.moment}, true
}

// waitShown is how long a release has to have been unanswered to show that its client waits
// for an answer: one that says released whatever comes says so at once.
const waitShown = 50 * time.Millisecond

// releasesWith lists the R frames with the token of c that had come before a moment.
func (v *view) releasesWith(c *call, m moment) []*wireFrame {
	return slices.DeleteFunc(v.releasesOf(c.client), func(r *wireFrame) bool {
		t, seen, ok := r.field(fieldToken)
		return !ok || t != c.token || !seen.before(m) || !keyFits(r, c.key)
	})
}

// answersRelease tells whether a frame may be the answer to the release of c, whole
// or in part.
func answersRelease(f *wireFrame, c *call) bool {
	if !f.isOp(opReleased) && !f.isOp(opNotHeld) {
		return false
	}
	t, _, ok := f.field(fieldToken)
	return f.unknown || !ok || t == c.token && keyFits(f, c.key)
}

// fakesAnswer tells whether a client can have taken f for the answer to the release
// of c: another op with the token in the place of the owner, or an answer to the
// release of another token that the release of no other call was told.
func (v *view) fakesAnswer(f *wireFrame, c *call) bool {
	if o, _, ok := f.field(fieldOwner); ok {
		return isResponse(f) && o == c.token && keyFits(f, c.key)
	}
	t, _, ok := f.field(fieldToken)
	if !ok || !f.isOp(opReleased) && !f.isOp(opNotHeld) || meant(f) != c.released[0].outcome {
		return false
	}
	return !slices.ContainsFunc(v.calls, func(d *call) bool {
		return d != c && d.client == c.client && d.hasToken && d.token == t && slices.ContainsFunc(d.released, func(r releaseResult) bool {
			return r.outcome == meant(f) && just(f, r.moment)
		})
	})
}

// strayed tells whether a final response to something else was delivered while the
// call was waiting on its session.
func (v *view) strayed(c *call) bool {
	for _, a := range c.attempts {
		for _, f := range v.byID[a.session].delivered() {
			if (f.isOp(opAcquired) || f.isOp(opTimeout) || f.isOp(opBusy)) && v.waited(a, c, f) &&
				v.mismatches(f, c) && v.rightfulOf(f, c) == nil {
				return true
			}
		}
	}
	return false
}

// waited tells whether f was accepted while a was waiting for the answer to c.
func (v *view) waited(a *attempt, c *call, f *wireFrame) bool {
	return f.whole && a.first().before(f.first()) && c.result.happened() &&
		f.cells[len(f.cells)-1].accepted.before(c.result)
}

// strayedRelease does so for the release of a call.
func (v *view) strayedRelease(c *call) bool {
	if !v.tokens || !c.hasToken || len(c.released) == 0 {
		return false
	}
	got := c.released[0].moment
	for _, r := range v.releasesWith(c, got) {
		for _, f := range v.byID[r.session].delivered() {
			if isResponse(f) && f.whole && !answersRelease(f, c) && r.end().before(f.first()) && f.cells[len(f.cells)-1].accepted.before(got) {
				return true
			}
		}
	}
	return false
}

// overtook tells whether the answer to a later request on the call's key and session
// was delivered while the call was waiting, so that matching by order goes wrong.
func (v *view) overtook(c *call) bool {
	for _, a := range c.attempts {
		for _, f := range v.byID[a.session].delivered() {
			if !v.surely(a) || !v.waited(a, c, f) || !v.mismatches(f, c) {
				continue
			}
			d := v.rightfulOf(f, c)
			if d != nil && slices.ContainsFunc(d.attempts, func(b *attempt) bool {
				return v.surely(b) && b.session == a.session && a.first().before(b.first())
			}) {
				return true
			}
		}
	}
	return false
}
