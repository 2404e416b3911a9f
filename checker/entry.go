package checker

import (
	"fmt"
	"slices"

	"tornwire/history"
)

// confirmed pairs each acquired call with an A that may have told it so: whole
// before the report was read, matching one of the call's possible attempts. One A
// confirms one call. The A with the token that was told is preferred.
func (v *view) confirmed() (acquired []*call, by map[*call]*wireFrame) {
	var all []*wireFrame
	for _, s := range v.sessions {
		for _, f := range s.delivered() {
			if f.isOp(opAcquired) {
				all = append(all, f)
			}
		}
	}
	for _, c := range v.calls {
		if c.outcome == history.OutcomeAcquired {
			acquired = append(acquired, c)
		}
	}
	slices.SortFunc(acquired, func(a, b *call) int { return a.result.ord - b.result.ord })
	candidates := make([][]int, len(acquired))
	for i, c := range acquired {
		var rest []int
		for _, f := range wholeBefore(v.finals(c, opAcquired), c.result.ord) {
			k := slices.Index(all, f)
			if t, _, _ := f.field(fieldToken); c.hasToken && t == c.token {
				candidates[i] = append(candidates[i], k)
			} else {
				rest = append(rest, k)
			}
		}
		candidates[i] = append(candidates[i], rest...)
	}
	by = map[*call]*wireFrame{}
	for i, k := range pairUp(candidates, len(all)) {
		if k >= 0 {
			by[acquired[i]] = all[k]
		}
	}
	return acquired, by
}

// noEntryUnconfirmed stands on W, V and E, and on P9: the report was read before
// the write of the last byte of any matching A had begun, so the client cannot
// have had one, however fast it is. Attempts are told apart by P2; every A that
// any possible attempt of the call could have got counts in its favour, and bytes
// that could not be read do too.
func noEntryUnconfirmed(j *judge) {
	acquired, by := j.confirmed()
	for _, c := range j.calls {
		if c.result.happened() && c.outcome != history.OutcomeAcquired && len(c.attempts) > 0 {
			j.checked()
		}
	}
	for _, c := range acquired {
		if by[c] != nil {
			j.checked()
			continue
		}
		if j.blind(c.client, c.result.ord) {
			continue
		}
		f := j.unfinished(c)
		s := scene{call: c, frame: f, at: c.result.ord}
		var why string
		finals := j.finals(c, opAcquired)
		claimed := wholeBefore(finals, c.result.ord)
		switch {
		case f != nil:
			s.offset = f.crossed(s.at)
			why = fmt.Sprintf("although only %s had been delivered", j.part(f, s.at))
		case len(claimed) > 0:
			s.frame, s.offset = claimed[0], len(claimed[0].data)
			why = fmt.Sprintf("although %s, the only A that could have told it so, was another call's", s.frame.ref)
		case len(finals) > 0:
			s.frame = finals[0]
			why = fmt.Sprintf("although no byte of %s had been written yet", s.frame.ref)
		case len(c.attempts) == 0:
			why = "although the client had sent no acquire for it"
		default:
			s.frame = c.attempts[0].wireFrame
			s.offset = s.frame.crossed(s.at)
			why = fmt.Sprintf("although no A for it was delivered on the session of its request, %s on session %d", s.frame.ref, s.frame.session)
		}
		j.find(Safety, Certain, told(c)+" "+why, j.evidence(s))
	}
}

// unfinished finds the A for c of which some bytes, but not its newline, had begun
// to be written when the result was read.
func (v *view) unfinished(c *call) *wireFrame {
	for _, f := range v.finals(c, opAcquired) {
		n := f.crossed(c.result.ord)
		if n > 0 && (!f.whole || f.end().ord > c.result.ord) {
			return f
		}
	}
	return nil
}

// part tells how much of a frame had crossed.
func (v *view) part(f *wireFrame, ord int) string {
	n := f.crossed(ord)
	if src := v.source(f); len(src) > n && src[len(src)-1] == '\n' {
		return fmt.Sprintf("%d of %d bytes of %s", n, len(src), f.ref)
	}
	return fmt.Sprintf("%d bytes of %s", n, f.ref)
}

// noPartialFrame is the special case of noEntryUnconfirmed in which the client had
// a part of its A, with the same certainty (P9). It is judged where a part of an A
// was written apart from its newline.
func noPartialFrame(j *judge) {
	_, by := j.confirmed()
	for _, c := range j.calls {
		if !c.result.happened() {
			continue
		}
		if slices.ContainsFunc(j.finals(c, opAcquired), torn) {
			j.checked()
		}
		if c.outcome != history.OutcomeAcquired || by[c] != nil || j.blind(c.client, c.result.ord) {
			continue
		}
		if f := j.unfinished(c); f != nil {
			j.find(Safety, Certain, fmt.Sprintf("%s although only %s had been delivered", told(c), j.part(f, c.result.ord)),
				j.evidence(scene{call: c, frame: f, offset: f.crossed(c.result.ord), at: c.result.ord}))
		}
	}
}

// torn tells whether the newline was not written together with the byte before it.
func torn(f *wireFrame) bool {
	n := len(f.cells)
	return !f.whole || n > 1 && f.cells[n-1].when.ord != f.cells[n-2].when.ord
}

// indeterminateStays stands on P1: one byte received proves a possible send, and
// nothing disproves it. The call must be the only one that can have sent the
// attempt, however long ago another ended unsent; any complete A, T or B that could be
// for it, however late, acquits, but for one that was begun when the call had been told
// and the client had ended its session. What answers another attempt of the call on
// another session is none for this one (see unanswered). Indeterminate and error are
// always right (P15), and a call of which no byte came is not judged at all.
func indeterminateStays(j *judge) {
	for _, c := range j.calls {
		sure := slices.IndexFunc(c.attempts, func(a *attempt) bool { return j.sole(a) == c })
		if !c.result.happened() || sure < 0 || j.blind(c.client, never) {
			continue
		}
		a, other := c.attempts[sure], ""
		finals := slices.DeleteFunc(wholeBefore(j.finals(c, opAcquired, opTimeout, opBusy), never), func(f *wireFrame) bool { return j.tooLate(c, f) })
		if len(finals) > 0 {
			if a = j.unanswered(c); a == nil {
				continue
			}
			other = fmt.Sprintf(" (%s on session %d answers another attempt)", finals[0].ref, finals[0].session)
		}
		severity := Contract
		switch c.outcome {
		case history.OutcomeIndeterminate:
			j.checked()
			continue
		case history.OutcomeError:
			if j.declared(history.OutcomeIndeterminate) {
				j.checked()
			}
			continue
		case history.OutcomeAcquired:
			severity = Safety
		}
		s := scene{call: c, frame: a.wireFrame, offset: len(a.data), at: c.result.ord}
		j.find(severity, Certain, fmt.Sprintf("%s although %d bytes of %s had been received from the client and no complete A, T or B for it was ever delivered%s%s",
			told(c), len(a.data), a.ref, other, j.committed(c, a)), j.evidence(s))
	}
}

// unanswered finds, for a call that ended with a definite word other than acquired, an
// attempt without an answer, where another attempt of it had one: an answer comes on
// the session of its request. The call must be the only one of the client with its key
// and lease, so that every attempt is its own (P2).
func (v *view) unanswered(c *call) *attempt {
	if c.outcome == history.OutcomeAcquired || slices.ContainsFunc(v.calls, func(d *call) bool {
		return d != c && d.client == c.client && d.key == c.key && d.lease == c.lease
	}) {
		return nil
	}
	for _, a := range c.attempts {
		answered := slices.ContainsFunc(v.byID[a.session].delivered(), func(f *wireFrame) bool {
			return f.unknown || f.whole && answersAcquire(f) && v.answers(f, a, c)
		})
		if _, whole := a.tail(); whole && a.only() == c && !answered && a.first().before(c.result) {
			return a
		}
	}
	return nil
}

// committed tells of the grant that the server had made for an attempt before its call
// ended with another word than acquired.
func (v *view) committed(c *call, a *attempt) string {
	for _, g := range v.grants {
		if c.outcome == history.OutcomeAcquired || g.call != c || g.session == nil || g.session.id != a.session || !g.before(c.result) {
			continue
		}
		until := "which still held the key at the end"
		switch {
		case g.end.before(c.result):
			until = fmt.Sprintf("which %s at %s", g.how, ms(g.end.at))
		case g.end.happened():
			until = fmt.Sprintf("which held the key until %s", ms(g.end.at))
		}
		return fmt.Sprintf("; the server had granted it token %d at %s, %s", g.token, ms(g.at), until)
	}
	return ""
}

// tooLate tells whether f cannot have told c: it was begun when c had been told, on a
// session that the client had ended before.
func (v *view) tooLate(c *call, f *wireFrame) bool {
	return c.result.before(f.first()) && v.byID[f.session].closed.before(f.first())
}

// declared tells whether the adapter can say a word (P15).
func (v *view) declared(word string) bool {
	return len(v.policy.Outcomes) == 0 || slices.Contains(v.policy.Outcomes, word)
}

// settles stands on the event alone: the tool stopped waiting five seconds after
// the deadline of a living client. If the tool itself ran late before that, the
// finding is only a suspicion (P11).
func settles(j *judge) {
	if j.policy.NoPong {
		return
	}
	for _, c := range j.calls {
		if c.result.happened() {
			j.checked()
		}
		if !c.overdue.happened() || c.result.before(c.overdue) {
			continue
		}
		certainty := Certain
		if j.late.before(c.overdue) {
			certainty = Suspect
		}
		s := scene{call: c, at: c.overdue.ord}
		if len(c.attempts) > 0 {
			s.frame = c.attempts[0].wireFrame
			s.offset = len(s.frame.data)
		}
		j.find(Hygiene, certainty, fmt.Sprintf("call %d on key %q had no outcome %s after it was asked for, with a wait of %s",
			c.id, c.key, ms(since(c.asked, c.overdue)), c.wait), j.evidence(s))
	}
}
