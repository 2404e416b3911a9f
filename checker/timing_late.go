package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/history"
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

// lateGrant stands on W, V and S: the client cannot have begun to count later than
// the first byte of its A was received, so an A whose last byte began to be written
// more than the whole wait after that was past the deadline for certain (P9). It is
// broken by an entry on that grant while the table shows it live; an entry on one
// whose lease had ended is for entry-after-lease, and for this rule only where the
// lease is not shorter than the wait and the client is official. And it is broken
// by a grant that was provably read (P3) and not released (P10). Not judged without
// the table (P14).
func lateGrant(j *judge) {
	if !j.policy.SawTable {
		return
	}
	for _, c := range j.calls {
		due, ok := j.surelyOver(c)
		if !ok {
			continue
		}
		for _, f := range j.finals(c, opAcquired) {
			t, _, ok := f.field(fieldToken)
			g := j.grantOf(c.key, t)
			if !ok || f.end().at <= due || g == nil || j.seenBefore(c.client, f, t) {
				continue
			}
			if j.open(f) && c.result.happened() {
				j.checked()
			}
			j.lateEntry(c, f, g, due)
			j.lateUnreleased(c, f, g, due)
		}
	}
}

// surelyOver is a time at which the deadline of c has passed for certain: its wait
// after the first byte of its A was received. It is false where there is none.
func (v *view) surelyOver(c *call) (time.Duration, bool) {
	wait := c.wait
	if wait == 0 && v.owners {
		wait = zeroDeadline
	}
	for _, a := range c.attempts {
		if v.sole(a) == c && wait > 0 {
			return a.first().at + wait, true
		}
	}
	return 0, false
}

// seenBefore tells whether a token had begun to be written to the client before f,
// in a frame that f then only repeats.
func (v *view) seenBefore(client string, f *wireFrame, token uint64) bool {
	for _, s := range v.sessionsOf(client) {
		for _, o := range s.delivered() {
			if t, _, ok := o.field(fieldToken); ok && o != f && t == token && o.first().before(f.first()) {
				return true
			}
		}
	}
	return false
}

// lateEntry judges an entry on the grant of a late A.
func (j *judge) lateEntry(c *call, f *wireFrame, g *grant, due time.Duration) {
	if c.outcome != history.OutcomeAcquired || !c.hasToken || c.token != g.token || !f.end().before(c.result) {
		return
	}
	live := g.live(f.end().ord)
	knowable := c.wait > 0 && c.wait <= c.lease && j.policy.Profile == ProfileOfficial
	if !live && !(knowable && j.stale(c, f) != nil) {
		return
	}
	s := scene{call: c, frame: f, offset: len(f.data), at: c.result.ord}
	j.find(j.bound(), Certain, fmt.Sprintf("%s by %s, written at %s, although its deadline had passed by %s at the latest", told(c), f.ref, ms(f.end().at), ms(due)), j.evidence(s))
}

// lateUnreleased judges a late A that was read and not told: a call of the client
// that was told its token would make an R the wrong thing to do.
func (j *judge) lateUnreleased(c *call, f *wireFrame, g *grant, due time.Duration) {
	if !j.tokens || j.policy.NoPong || g.how != history.Expired || j.late.before(g.end) || j.closing[c.client].before(g.end) || j.blind(c.client, never) {
		return
	}
	holds := func(o *call) bool { return o.client == c.client && o.hasToken && o.token == g.token }
	proof := j.provedRead(c.client, f)
	if slices.ContainsFunc(j.calls, holds) || !proof.happened() || proof.at+inFlight >= c.asked.at+c.lease || !j.healthy(c.client, proof, g.end) {
		return
	}
	j.checked()
	names := func(r *wireFrame) bool {
		t, _, ok := r.field(fieldToken)
		return !ok || t == g.token
	}
	if slices.ContainsFunc(j.releasesOf(c.client), names) {
		return
	}
	s := scene{call: c, frame: f, offset: len(f.data), at: g.end.ord}
	j.find(j.bound(), Certain, fmt.Sprintf("client %s sent no R with token %d of %s, written at %s after the deadline of call %d on key %q had passed by %s at the latest, although it had read that frame by %s and the lease ended at %s",
		c.client, g.token, f.ref, ms(f.end().at), c.id, c.key, ms(due), ms(proof.at), ms(g.end.at)), j.evidence(s))
}

// healthy tells whether one session of the client was up, its preface done, from
// one moment to another.
func (v *view) healthy(client string, from, to moment) bool {
	return slices.ContainsFunc(v.sessionsOf(client), func(s *session) bool {
		rs := s.requests()
		end := s.ended()
		return len(rs) > 0 && rs[0].whole && rs[0].end().before(from) && (!end.happened() || to.before(end))
	})
}

// provedRead is when the client had shown that it had read f, by a barrier (P3): it
// told or sent a token which only frames behind f, on the same session, had brought
// to it, or told the end of a release that only such a frame had answered.
func (v *view) provedRead(client string, f *wireFrame) moment {
	var first moment
	note := func(m, after moment) {
		if after.before(m) && m.happened() && (!first.happened() || m.before(first)) {
			first = m
		}
	}
	for _, n := range v.behind(client, f) {
		token, seen, ok := n.field(fieldToken)
		if !ok || !n.whole {
			continue
		}
		answer := n.isOp(opReleased) || n.isOp(opNotHeld)
		for _, c := range v.calls {
			if c.client != client || !c.hasToken || c.token != token {
				continue
			}
			if !answer {
				note(c.result, n.end())
				continue
			}
			for _, r := range c.released {
				if r.outcome == meant(n) {
					note(r.moment, n.end())
				}
			}
		}
		for _, r := range v.releasesOf(client) {
			if t, m, ok := r.field(fieldToken); ok && t == token && !answer {
				note(m, seen)
			}
		}
	}
	return first
}

// behind lists the frames that follow f on its session and say what no frame
// elsewhere, or before f, says to the client.
func (v *view) behind(client string, f *wireFrame) []*wireFrame {
	var out []*wireFrame
	all := v.byID[f.session].delivered()
	later := all[slices.Index(all, f)+1:]
	for _, n := range later {
		alone := true
		for _, s := range v.sessionsOf(client) {
			for _, o := range s.delivered() {
				alone = alone && (slices.Contains(later, o) || !tellsSame(o, n))
			}
		}
		if alone {
			out = append(out, n)
		}
	}
	return out
}

// tellsSame tells whether two frames have one token, and both or neither of them
// answer a release.
func tellsSame(a, b *wireFrame) bool {
	ta, _, oka := a.field(fieldToken)
	tb, _, okb := b.field(fieldToken)
	return oka && okb && ta == tb && a.isOp(opAcquired) == b.isOp(opAcquired)
}
