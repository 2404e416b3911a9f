package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// mutualExclusion reads the table where it was recorded (S). In front of a foreign
// server it orders grants by cause and effect, else by their tokens, never by sight, and
// is a suspicion outside a declared closed world (P14).
//
// Then each key's history is cross-checked against a lock (see linearizable).
func mutualExclusion(j *judge) {
	defer j.linearizable()
	if !j.policy.SawTable {
		mutualExclusionByWire(j)
		return
	}
	for i, g := range j.grants {
		contended := func(e *history.Event) bool { return e.Key == g.key }
		if slices.ContainsFunc(j.queued, contended) {
			j.checked()
		}
		for _, h := range j.grants[:i] {
			if h.key != g.key {
				continue
			}
			j.checked()
			if h.live(g.ord) {
				j.find(Safety, Certain, fmt.Sprintf("key %q was granted to %s with token %d at %s while %s still held it with token %d",
					g.key, g.holder(), g.token, ms(g.at), h.holder(), h.token),
					j.evidence(scene{key: g.key, at: g.ord + 1, others: known(g.call, h.call)}))
			}
		}
	}
}

func known(calls ...*call) []*call {
	return slices.DeleteFunc(calls, func(c *call) bool { return c == nil })
}

// wireGrant is a grant as the bytes show it.
type wireGrant struct {
	reply   *wireFrame
	key     string
	token   uint64
	session *session
	asked   moment        // no request that it can answer had begun to be forwarded before
	until   time.Duration // it was live at least until then, unless released
}

// follows tells whether g was made after h for certain: none of its requests had begun
// to be forwarded when h had been received. Else the tokens say which came first, as far
// as a server gives them in order (P14).
func (g wireGrant) follows(h wireGrant) bool { return h.reply.end().before(g.asked) }

// ourLease is what of a lease, counted by our clock up to a time, has passed by any
// clock: the server's is not ours.
func ourLease(until, from time.Duration) time.Duration {
	return until - clockSlack - (until-from)/1000
}

func mutualExclusionByWire(j *judge) {
	certainty := Suspect
	if j.policy.ClosedWorld {
		certainty = Certain
	}
	grants := j.wireGrants()
	for i := range grants {
		for _, a := range grants[:i] {
			b := grants[i]
			if a.key != b.key || a.token == b.token {
				continue
			}
			if a.follows(b) {
				a, b = b, a
			}
			j.checked()
			if b.reply.end().at >= ourLease(a.until, a.asked.at) || j.releaseForwarded(a, b.reply.end()) {
				continue
			}
			j.find(Safety, certainty, fmt.Sprintf("key %q was granted with token %d by %s, read at %s, although token %d was granted for a lease that lasted at least until %s",
				b.key, b.token, b.reply.ref, ms(b.reply.end().at), a.token, ms(a.until)),
				j.evidence(scene{frame: b.reply, offset: len(b.reply.data), at: b.reply.end().ord, key: b.key, also: []int{a.session.id}}))
		}
	}
}

// wireGrants lists the A frames read from the server whose request is known, by
// token. A grant was made after its request began to be forwarded, so it lasts at
// least a lease from there; of several possible requests the least counts.
func (v *view) wireGrants() []wireGrant {
	var out []wireGrant
	for _, s := range v.sessions {
		for _, f := range s.replies() {
			token, _, ok := f.field(fieldToken)
			if !f.isOp(opAcquired) || !f.whole || !ok {
				continue
			}
			key, _ := f.tail()
			g := wireGrant{reply: f, key: key, token: token, session: s}
			for _, r := range s.forwarded() {
				lease, _, ok := r.field(fieldLease)
				if !r.isOp(opAcquire) || !ok || !r.whole || !keyFits(r, key) || !sameOwner(r, f) || !r.end().before(f.first()) {
					continue
				}
				if until := r.first().at + time.Duration(lease)*time.Second; g.until == 0 || until < g.until {
					g.until = until
				}
				if r.first().before(g.asked) {
					g.asked = r.first()
				}
			}
			if g.until > 0 {
				out = append(out, g)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b wireGrant) int { return cmp.Compare(a.token, b.token) })
	return out
}

func sameOwner(a, b *wireFrame) bool {
	x, _, okx := a.field(fieldOwner)
	y, _, oky := b.field(fieldOwner)
	return okx == oky && x == y
}

// releaseForwarded tells whether an R that may have ended the grant had begun to
// be forwarded before a moment, on any session.
func (v *view) releaseForwarded(g wireGrant, before moment) bool {
	for _, s := range v.sessions {
		out := &s.link(frames.ClientToServer).out
		if out.dark.before(before) {
			return true
		}
		for _, f := range out.frames {
			if !f.first().before(before) || !f.unknown && !f.isOp(opRelease) {
				continue
			}
			if t, _, ok := f.field(fieldToken); f.unknown || !v.tokens && keyFits(f, g.key) || ok && t == g.token {
				return true
			}
		}
	}
	return false
}

// echoMatches stands on U and F: the owner or token of a reply was read from the
// server although no request with it had begun to be written on that session, so
// the server cannot have read it there (P9). A session that forwarded bytes which
// could not be read is not judged.
func echoMatches(j *judge) {
	for _, s := range j.sessions {
		out := &s.link(frames.ClientToServer).out
		for _, f := range s.replies() {
			field, op := fieldOwner, opAcquire
			if f.isOp(opReleased) || f.isOp(opNotHeld) {
				field, op = fieldToken, opRelease
			}
			if !slices.ContainsFunc([]string{opAcquired, opTimeout, opBusy, opReleased, opNotHeld}, f.isOp) {
				continue
			}
			value, read, ok := f.field(field)
			if !ok || out.dark.before(read) || slices.ContainsFunc(out.frames, func(r *wireFrame) bool { return r.unknown && r.first().before(read) && hides(r) }) {
				continue
			}
			j.checked()
			sent := func(r *wireFrame) bool {
				v, m, ok := r.field(field)
				return r.isOp(op) && ok && v == value && m.before(read)
			}
			if slices.ContainsFunc(out.frames, sent) {
				continue
			}
			j.find(Safety, Certain, fmt.Sprintf("%s on session %d names %s %d, which was never sent to the server on that session", f.ref, s.id, field, value),
				j.evidence(scene{frame: f, offset: len(f.data), at: read.ord}))
		}
	}
}
