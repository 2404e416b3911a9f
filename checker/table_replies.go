package checker

import (
	"fmt"
	"slices"

	"tornwire/history"
)

// noGrantAfterTimeoutOrBusy counts on F and U: every attempt of an owner and key that
// had begun to be forwarded on a session had its T or B, and none an A, when an A was
// received there for one of them. What harm the grant does, mutual-exclusion says;
// that the definite answer was none is against the contract (spec/ticketing.md §3.7).
func noGrantAfterTimeoutOrBusy(j *judge) {
	refusal := func(r *wireFrame) bool { return !r.isOp(opAcquired) }
	for _, d := range j.dialogues() {
		if len(d.asked) > 0 && slices.ContainsFunc(d.replies, refusal) {
			j.checked()
		}
		for _, r := range d.excess {
			n := d.askedBefore(r)
			if n == 0 || n > len(d.replies) || refusal(r) {
				continue
			}
			before := d.replies[:n]
			if slices.ContainsFunc(before, func(o *wireFrame) bool { return !refusal(o) || !o.before(r) }) {
				continue
			}
			last := before[n-1]
			j.find(Contract, Certain, fmt.Sprintf("%s on session %d grants token %d for %s, although %s had already been answered, with %s and nothing but refusals",
				r.ref, d.session.id, tokenOf(r), d.about(j.view), counted(n, "attempt"), last.ref), j.about(d, r))
		}
	}
}

func (f *wireFrame) before(o *wireFrame) bool { return f.end().before(o.first()) }

// repeatIsNewAttempt stands on F and U, in the current dialect: two A frames with one
// owner, key and token were received, and a second attempt with that owner and key
// had begun to be forwarded before the later one, on its session. Tokens never come
// twice, so it was answered with the token of the first. One attempt that is
// answered twice is for one-reply-per-attempt.
func repeatIsNewAttempt(j *judge) {
	if !j.owners {
		return
	}
	by := map[subject][]*dialogue{}
	var order []subject
	for _, d := range j.dialogues() {
		k := subject{d.owner, d.key}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], d)
	}
	for _, k := range order {
		for i, d := range by[k] {
			for n, r := range d.replies {
				first := d.replies[:n]
				for _, o := range slices.Concat(by[k][:i], by[k][i+1:]) {
					for _, f := range o.replies {
						if f.before(r) {
							first = append(slices.Clone(first), f)
						}
					}
				}
				j.repeated(d, r, first)
			}
		}
	}
}

// repeated judges a reply against the replies received before it for the same owner
// and key.
func (j *judge) repeated(d *dialogue, r *wireFrame, earlier []*wireFrame) {
	granted := slices.DeleteFunc(slices.Clone(earlier), func(f *wireFrame) bool { return !f.isOp(opAcquired) })
	if len(granted) == 0 {
		return
	}
	j.checked()
	k := slices.IndexFunc(granted, func(f *wireFrame) bool { return tokenOf(f) == tokenOf(r) })
	if k < 0 || !r.isOp(opAcquired) {
		return
	}
	asked := d.asked[d.askedBefore(r)-1]
	j.find(Contract, Certain, fmt.Sprintf("%s on session %d answers %s, a repeated attempt for %s, with token %d, which %s on session %d had granted before",
		r.ref, d.session.id, asked.ref, d.about(j.view), tokenOf(r), granted[k].ref, granted[k].session), j.about(d, r, granted[k].session))
}

// releaseNeedsExactToken stands on S, or on F and U. The table ended a grant by an R
// of a session on which no R with its token had begun to be forwarded. Or an R was
// answered Released although another token held the key: its A was received before
// the R began to be forwarded, and its lease, counted from the first byte of the
// request on, was not over. That it was ended then is certain if the key was granted
// anew within that lease, with no R forwarded that names it: the holder loses the key
// unawares, so it is a matter of safety. Without a new grant the answer alone is
// wrong, and the rest a suspicion.
func releaseNeedsExactToken(j *judge) {
	if !j.tokens {
		return
	}
	for _, g := range j.grants {
		j.endedExactly(g)
	}
	grants := j.wireGrants()
	for _, s := range j.sessions {
		if s.obscured().happened() {
			continue
		}
		for _, r := range s.replies() {
			if key, whole := r.tail(); whole && (r.isOp(opReleased) || r.isOp(opNotHeld)) {
				j.releasedExactly(s, r, key, grants)
			}
		}
	}
}

func (j *judge) endedExactly(g *grant) {
	if !g.end.happened() || g.how != history.Released || g.endPeer == "" {
		return
	}
	s := j.peers[g.endPeer]
	if s == nil || s.obscured().happened() {
		return
	}
	j.checked()
	sent := func(f *wireFrame) bool {
		key, whole := f.tail()
		return f.isOp(opRelease) && whole && key == g.key && tokenOf(f) == g.token && f.end().before(g.end)
	}
	if slices.ContainsFunc(s.forwarded(), sent) {
		return
	}
	// One that was received and of whose way on the record says nothing was sent.
	lost := func(f *wireFrame) bool {
		return sent(f) && !slices.ContainsFunc(s.forwarded(), func(o *wireFrame) bool { return o.ref == f.ref })
	}
	if slices.ContainsFunc(s.requests(), lost) {
		return
	}
	j.find(Safety, Certain, fmt.Sprintf("token %d of key %q, granted to %s, was ended at %s by a release on session %d, where none had named it",
		g.token, g.key, g.holder(), ms(g.end.at), s.id), j.evidence(scene{key: g.key, at: g.end.ord, others: known(g.call)}))
}

// releasedExactly judges the answer to a release while another grant was live.
func (j *judge) releasedExactly(s *session, r *wireFrame, key string, grants []wireGrant) {
	token := tokenOf(r)
	k := slices.IndexFunc(s.forwarded(), func(f *wireFrame) bool {
		t, whole := f.tail()
		return f.isOp(opRelease) && whole && t == key && tokenOf(f) == token && f.before(r)
	})
	if k < 0 {
		return // echo-matches
	}
	asked := s.forwarded()[k]
	for _, g := range grants {
		limit := ourLease(g.until, g.asked.at)
		if g.key != key || g.token == token || !g.reply.before(asked) || r.end().at >= limit || j.releaseForwarded(g, r.end()) {
			continue
		}
		j.checked()
		if !r.isOp(opReleased) {
			continue
		}
		about := fmt.Sprintf("%s on session %d tells that token %d released key %q, although token %d, granted in %s on session %d, held it until %s at least",
			r.ref, s.id, token, key, g.token, g.reply.ref, g.session.id, ms(g.until))
		certainty, also := Suspect, []int{g.session.id}
		next := slices.IndexFunc(grants, func(n wireGrant) bool {
			return n.key == key && n.token != g.token && n.token != token && asked.before(n.reply) && n.reply.end().at < limit && !j.releaseForwarded(g, n.reply.end())
		})
		if next >= 0 {
			certainty, also = Certain, append(also, grants[next].session.id)
			about += fmt.Sprintf("; token %d was granted at %s", grants[next].token, ms(grants[next].reply.end().at))
		}
		j.find(Safety, certainty, about, j.evidence(scene{frame: r, offset: len(r.data), at: r.end().ord, key: key, also: also}))
		return
	}
}
