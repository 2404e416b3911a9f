package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// answerLimit is how much later than the protocol says a server may act
// (spec/rules.md, zero-never-queues and lease-ends).
const answerLimit = time.Second

// zeroNeverQueues stands on F, U and S, in the current dialect: one grant held the
// key from before the write of the request's last byte began until answerLimit
// after it was accepted, so the attempt, answered at once, would have had its T.
// Without the table the bytes say how long a grant was live at least: an R that
// was answered with Released proves it until that R began to be forwarded. It is
// for the contract. A case in which the tool itself was late is not judged (P11).
func zeroNeverQueues(j *judge) {
	if !j.owners || j.late.happened() {
		return
	}
	for _, d := range j.dialogues() {
		for _, w := range d.windows() {
			if w.to-w.from > maxWindow {
				continue
			}
			for _, r := range w.replies {
				j.zeroAnswered(&w, r)
			}
		}
	}
}

// zeroAnswered judges the reply to what can only be attempts with wait 0.
func (j *judge) zeroAnswered(w *window, r *wireFrame) {
	zero := func(f *wireFrame) bool {
		n, _, ok := f.field(fieldWait)
		return ok && f.whole && n == 0
	}
	candidates := w.candidates(r)
	if slices.ContainsFunc(candidates, func(f *wireFrame) bool { return !zero(f) }) {
		return
	}
	if !r.isOp(opAcquired) {
		j.checked()
		return
	}
	var f *wireFrame
	var held keeping
	for _, f = range candidates {
		ok := false
		if held, ok = j.outlasts(w.key, f, r); !ok {
			return
		}
	}
	j.find(Contract, Certain, fmt.Sprintf("%s on session %d grants %s, which asked for a wait of 0 while token %d held key %q; that was over at %s, %s after the request had been forwarded",
		r.ref, w.session.id, f.ref, held.token, w.key, ms(held.until.at), ms(held.until.at-acceptedAt(f).at)), j.about(w.dialogue, r))
}

// acceptedAt is when the last byte of a frame was accepted by our kernel.
func acceptedAt(f *wireFrame) moment {
	if !f.whole {
		return moment{}
	}
	return f.cells[len(f.cells)-1].accepted
}

// keeping is a grant that held its key at least from a moment to another.
type keeping struct {
	token       uint64
	from, until moment
}

// outlasts finds a grant of key that was there before f can have arrived, and
// ended answerLimit after f was accepted or later, and before f was granted by r.
func (v *view) outlasts(key string, f, r *wireFrame) (keeping, bool) {
	accepted := acceptedAt(f)
	token, _, ok := r.field(fieldToken)
	if !accepted.happened() || !ok || since(accepted, r.first()) < answerLimit {
		return keeping{}, false
	}
	granted := r.first()
	if g := v.grantOf(key, token); g != nil && g.before(granted) {
		granted = g.moment
	}
	for _, k := range v.keepings(key) {
		if k.token != token && k.from.before(f.end()) && k.until.before(granted) && k.until.at >= accepted.at+answerLimit {
			return k, true
		}
	}
	return keeping{}, false
}

// keepings lists the grants of a key that ended.
func (v *view) keepings(key string) []keeping {
	if v.policy.SawTable {
		var out []keeping
		for _, g := range v.grants {
			if g.key == key && g.end.happened() {
				out = append(out, keeping{g.token, g.moment, g.end})
			}
		}
		return out
	}
	return v.wireKeepings(key)
}

// wireKeepings lists the grants of a key of which the bytes show that they were
// ended by an R: the first one with that token that was forwarded whole. A session
// on which something unreadable was forwarded may have had an earlier one.
func (v *view) wireKeepings(key string) []keeping {
	first, released := map[uint64]moment{}, map[uint64]bool{}
	for _, s := range v.sessions {
		if s.obscured().happened() {
			return nil
		}
		for _, f := range s.forwarded() {
			t, _, ok := f.field(fieldToken)
			if ok && f.isOp(opRelease) && f.whole && keyFits(f, key) && f.end().before(first[t]) {
				first[t] = f.end()
			}
		}
		for _, f := range s.replies() {
			if t, _, ok := f.field(fieldToken); ok && f.isOp(opReleased) && f.whole && keyFits(f, key) {
				released[t] = true
			}
		}
	}
	var out []keeping
	for _, s := range v.sessions {
		for _, f := range s.replies() {
			t, _, ok := f.field(fieldToken)
			if ok && f.isOp(opAcquired) && f.whole && keyFits(f, key) && released[t] && first[t].happened() {
				out = append(out, keeping{t, f.end(), first[t]})
			}
		}
	}
	return out
}

// tokenIncreases stands on S: grants are recorded in the order in which the table
// made them. It is a matter of safety, since the token is all that protects a
// resource from a holder whose lease has ended (spec/ticketing.md §3.3). Without
// the table a grant is known to be later only if its attempt's last byte began to
// be forwarded after the other's A had been received; what is not a declared
// closed world gives a suspicion (P14), and in the current dialect, whose
// documents do not promise it, it is then a matter of hygiene.
func tokenIncreases(j *judge) {
	if !j.policy.SawTable {
		tokenIncreasesByWire(j)
		return
	}
	var top *grant
	for _, g := range j.grants {
		if top != nil {
			j.checked()
			if g.token <= top.token {
				j.find(Safety, Certain, fmt.Sprintf("key %q was granted to %s with token %d at %s, after key %q had been granted with token %d at %s",
					g.key, g.holder(), g.token, ms(g.at), top.key, top.token, ms(top.at)),
					j.evidence(scene{key: g.key, at: g.ord + 1, others: known(g.call, top.call)}))
			}
		}
		if top == nil || g.token > top.token {
			top = g
		}
	}
}

// ordered is a grant as the bytes show it: not made before asked, known at seen.
type ordered struct {
	*dialogue
	reply       *wireFrame
	token       uint64
	asked, seen moment
}

func tokenIncreasesByWire(j *judge) {
	certainty, severity := Suspect, Safety
	if j.policy.ClosedWorld {
		certainty = Certain
	}
	if j.owners {
		severity = Hygiene
	}
	bySeen := j.orderedGrants()
	slices.SortFunc(bySeen, func(a, b ordered) int { return cmp.Compare(a.seen.ord, b.seen.ord) })
	byAsked := slices.Clone(bySeen)
	slices.SortFunc(byAsked, func(a, b ordered) int {
		return cmp.Or(cmp.Compare(a.asked.ord, b.asked.ord), cmp.Compare(a.seen.ord, b.seen.ord))
	})
	n := 0
	var top *ordered
	for i := range byAsked {
		b := &byAsked[i]
		for ; n < len(bySeen) && bySeen[n].seen.before(b.asked); n++ {
			if top == nil || bySeen[n].token > top.token {
				top = &bySeen[n]
			}
		}
		if top == nil {
			continue
		}
		j.checked()
		if b.token <= top.token {
			j.find(severity, certainty, fmt.Sprintf("%s on session %d grants token %d to an attempt that was forwarded after token %d had been received in %s on session %d",
				b.reply.ref, b.session.id, b.token, top.token, top.reply.ref, top.session.id), j.about(b.dialogue, b.reply, top.session.id))
		}
	}
}

// orderedGrants lists the A frames received from the server whose attempt was
// forwarded whole; of several that it can be, the first counts.
func (v *view) orderedGrants() []ordered {
	var out []ordered
	for _, d := range v.dialogues() {
		for _, w := range d.windows() {
			for _, r := range w.replies {
				token, _, ok := r.field(fieldToken)
				candidates := w.candidates(r)
				if ok && r.isOp(opAcquired) && len(candidates) > 0 && candidates[0].whole {
					out = append(out, ordered{d, r, token, candidates[0].end(), r.end()})
				}
			}
		}
	}
	return out
}
