package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/history"
)

// lateGrant stands on W, V and S: the client cannot have begun to count later than
// the first byte of its A was received, so an A whose last byte began to be written
// more than the whole wait after that was past the deadline for certain (P9); by how
// much a living client's timer may be late (P11) is given to it on top. It is
// broken by an entry on that grant while it was live for certain (told); an entry on one
// whose lease had ended is for entry-after-lease, and for this rule only where the
// lease is not shorter than the wait and the client is official. And it is broken
// by a grant that was provably read (P3) and not released (P10), of which only the table
// tells when its lease had ended (P14).
func lateGrant(j *judge) {
	for _, c := range j.calls {
		due, ok := j.surelyOver(c)
		if !ok {
			continue
		}
		for _, f := range j.finals(c, opAcquired) {
			t, _, ok := f.field(fieldToken)
			g := j.told(c, f, t)
			if !ok || f.end().at <= due+stampSlack || g == nil || j.seenBefore(c.client, f, t) {
				continue
			}
			if j.open(f) && c.result.happened() {
				j.checked()
			}
			j.lateEntry(c, f, g, due)
			how := fmt.Sprintf("written at %s after the deadline of call %d on key %q had passed by %s at the latest", ms(f.end().at), c.id, c.key, ms(due))
			j.lateUnreleased(c, f, g, how)
		}
	}
}

// told is the grant that f tells c of, nil if nothing is certain of it. Without the
// table (P14) that is a grant which the server sent (U), and it was made after the first
// byte of its request was forwarded (F), because no server knows of it before. It is
// live until a lease after that at least, if no R that names it was forwarded.
func (v *view) told(c *call, f *wireFrame, token uint64) *grant {
	if v.policy.SawTable {
		return v.grantOf(c.key, token)
	}
	s := v.byID[f.session]
	sent := func(u *wireFrame) bool {
		t, _, ok := u.field(fieldToken)
		return u.ref == f.ref && u.isOp(opAcquired) && u.whole && ok && t == token && keyFits(u, c.key)
	}
	i := slices.IndexFunc(s.forwarded(), func(q *wireFrame) bool {
		return slices.ContainsFunc(c.attempts, func(a *attempt) bool { return a.session == f.session && a.ref == q.ref && v.sole(a) == c })
	})
	if i < 0 || !slices.ContainsFunc(s.replies(), sent) {
		return nil
	}
	g := &grant{moment: s.forwarded()[i].first(), key: c.key, token: token, lease: c.lease, session: s, call: c}
	released := func(r *wireFrame) bool { return v.names(r, g) && r.first().before(f.end()) }
	if f.end().at >= g.at+g.lease || slices.ContainsFunc(v.sessions, func(s *session) bool { return slices.ContainsFunc(s.forwarded(), released) }) {
		g.end = g.moment
	}
	return g
}

// surelyOver is a time at which the deadline of c has passed for certain: its longest
// wait after the first byte of its A was received. It is false where there is none.
func (v *view) surelyOver(c *call) (time.Duration, bool) {
	wait := c.longest()
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

// lateUnreleased judges an A that was read too late, as how tells, and not told: a call
// that was told its token would make an R the wrong thing to do.
func (j *judge) lateUnreleased(c *call, f *wireFrame, g *grant, how string) {
	if !j.tokens || j.policy.NoPong || g.how != history.Expired || j.late.before(g.end) || j.closing[c.client].before(g.end) || j.blind(c.client, never) {
		return
	}
	holds := func(o *call) bool { return o.hasToken && o.token == g.token }
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
	j.find(j.bound(), Certain, fmt.Sprintf("client %s sent no R with token %d of %s, %s, although it had read that frame by %s and the lease ended at %s",
		c.client, g.token, f.ref, how, ms(proof.at), ms(g.end.at)), j.evidence(s))
}

// healthy tells whether a client could send from one moment to another: a session of
// it, its preface done, was up all the time, or one was up at first and all that
// ended since did so by the client's own doing.
func (v *view) healthy(client string, from, to moment) bool {
	up, hindered := false, false
	for _, s := range v.sessionsOf(client) {
		end := s.ended()
		hindered = hindered || from.before(end) && end.before(to) && !s.closed.before(s.cut.moment)
		if rs := s.requests(); len(rs) == 0 || !rs[0].whole || !rs[0].end().before(from) || end.before(from) {
			continue
		}
		if to.before(end) {
			return true
		}
		up = true
	}
	return up && !hindered
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
		if !ok {
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
