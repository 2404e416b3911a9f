package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/history"
)

// Defaults of Policy.Grace and Policy.Tolerance (spec/ticketing.md §3.2).
const (
	DefaultGrace     = 1500 * time.Millisecond
	DefaultTolerance = 2 * time.Second
)

// longestWait is the most that the current dialect can express; a longer wait may be
// clamped, and its deadline with it (spec/ticketing.md §3.2).
const longestWait = 255 * time.Second

// Patience is how long after a deadline a session may still be open.
func (p *Policy) Patience() time.Duration {
	grace, tolerance := DefaultGrace, DefaultTolerance
	if p.Grace != nil {
		grace = *p.Grace
	}
	if p.Tolerance != nil {
		tolerance = *p.Tolerance
	}
	return grace + tolerance
}

// deadlineCloses stands on W, V, X and T: both directions of a session are read at all
// times, so that its end would have been seen (P10). The client lived, since it told
// the call's outcome and pongs came in time (P11); nobody had asked it to close; and
// the call cannot have been answered, because of no A, T or B for it the last byte had
// begun to be written (P9). FIN and RST both are ends, and so, in the client's favour,
// is a FIN of its sending side alone (P5). What is cancelled is for cancelCloses.
func deadlineCloses(j *judge) {
	if j.policy.NoPong {
		return
	}
	for _, a := range j.attempts {
		c := j.sole(a)
		if c == nil || c.wait > longestWait || c.cancel.happened() || !c.result.happened() || j.blind(c.client, never) {
			continue
		}
		deadline, ok := j.deadline(c)
		if !ok || a.first().at >= deadline {
			continue
		}
		s := j.byID[a.session]
		limit := max(deadline+j.policy.Patience(), c.result.at+inFlight)
		if by(s.cut.moment, limit) && s.cut.before(s.closed.moment) || by(j.closing[c.client], limit) && j.closing[c.client].before(s.closed.moment) ||
			j.answeredBy(c, j.ordAt(limit)) {
			continue
		}
		if by(s.closed.moment, limit) {
			if s.closed.at >= deadline {
				j.checked()
			}
			continue
		}
		if j.events[len(j.events)-1].At < limit {
			continue
		}
		e := j.evidence(scene{call: c, frame: a.wireFrame, offset: len(a.data), at: j.ordAt(limit)})
		j.find(j.bound(), j.punctual(), fmt.Sprintf("%s at %s and session %d, on which %s had no answer, was still open at %s, %s after the call's deadline",
			told(c), ms(c.result.at), s.id, a.ref, ms(limit), ms(limit-deadline)), e)
	}
}

// by tells whether something happened, and no later than t.
func by(m moment, t time.Duration) bool { return m.happened() && m.at <= t }

// ordAt is the order number of the last event up to a time.
func (v *view) ordAt(t time.Duration) int {
	n := slices.IndexFunc(v.events, func(e history.Event) bool { return e.At > t })
	if n < 0 {
		return len(v.events)
	}
	return n
}

// answeredBy tells whether the last byte of a final answer to c had begun to be written
// before an order number.
func (v *view) answeredBy(c *call, ord int) bool {
	return len(wholeBefore(v.finals(c, opAcquired, opTimeout, opBusy), ord)) > 0
}

// cancelCloses stands on P1 and P9: the request was possibly sent when the cancel was
// asked for, since a byte of it had been received; no answer to it had begun to be
// written whole when the result was read, so that the client cannot have ended the call
// by one; and the later A is of a call that was asked for after that result, so that it
// was not under way (P6). At its deadline a call may end by that, whatever was asked.
func cancelCloses(j *judge) {
	severity := Contract
	if !j.owners {
		severity = Hygiene
	}
	for _, c := range j.calls {
		deadline, limited := j.deadline(c)
		if !c.cancel.happened() || !c.result.happened() || !c.cancel.before(c.result) || definite(c.outcome) ||
			limited && c.result.at >= deadline || j.blind(c.client, c.result.ord) || j.answeredBy(c, c.result.ord) {
			continue
		}
		for _, a := range c.attempts {
			if j.sole(a) != c || !a.first().before(c.cancel) {
				continue
			}
			for _, b := range j.attempts {
				d := b.only()
				if b.client != c.client || d == nil || !c.result.before(d.asked) || !d.asked.before(b.first()) {
					continue
				}
				j.checked()
				if b.session != a.session {
					continue
				}
				j.find(severity, Certain, fmt.Sprintf("%s after its cancel, with %d bytes of %s received and no answer begun, and %s of call %d, which was asked for %s later, came on the same session %d",
					told(c), a.crossed(c.cancel.ord), a.ref, b.ref, d.id, ms(since(c.result, d.asked)), b.session),
					j.evidence(scene{call: c, frame: b.wireFrame, offset: len(b.data), at: b.first().ord, others: []*call{d}}))
				break
			}
		}
	}
}

// definite tells whether an outcome says that an answer came.
func definite(outcome string) bool {
	return slices.Contains([]string{history.OutcomeAcquired, history.OutcomeTimeout, history.OutcomeBusy}, outcome)
}

// closeProvesNothing is direct (P9): the word was read before the last byte of any
// answer to a release of that token had begun to be written to the client, on any of
// its sessions. An N told as released, or an R as not held, is for other rules.
func closeProvesNothing(j *judge) {
	for _, c := range j.calls {
		if c.outcome != history.OutcomeAcquired || !c.hasToken {
			continue
		}
		for _, got := range c.released {
			if j.blind(c.client, got.ord) {
				continue
			}
			if j.releaseAnswered(c, got) {
				j.contradicted(c, got)
				continue
			}
			s, r := j.lostRelease(c, got.moment)
			if got.outcome != history.OutcomeReleased && got.outcome != history.OutcomeNotHeld {
				if r != nil {
					j.checked()
				}
				continue
			}
			how, e := "no R for it had been received", j.evidence(scene{call: c, at: got.ord})
			if r != nil {
				how = fmt.Sprintf("session %d had ended with %s unanswered", s.id, r.ref)
				e = j.evidence(scene{call: c, frame: r, offset: len(r.data), at: got.ord})
			}
			j.find(Contract, Certain, fmt.Sprintf("the release of call %d on key %q (token %d) was told %s at %s although no R or N for it had been written to client %s: %s",
				c.id, c.key, c.token, plainWord(got.outcome), ms(got.at), c.client, how), e)
		}
	}
}

// contradicted judges a release that was told the opposite of what the server said: one R
// with the token had come from the client, and of the answers that can be about it all had
// the other op. After a repeated R either word can be true. An adapter whose library does
// not tell one from the other says so by never declaring the word, or not_held is for it an
// error (P15).
func (j *judge) contradicted(c *call, got releaseResult) {
	want := opReleased
	switch got.outcome {
	case history.OutcomeReleased:
	case history.OutcomeNotHeld:
		want = opNotHeld
	default:
		return
	}
	if !j.tokens || len(j.policy.Outcomes) > 0 && !slices.Contains(j.policy.Outcomes, history.OutcomeNotHeld) {
		return
	}
	sent, last := 0, (*wireFrame)(nil)
	for _, r := range j.releasesOf(c.client) {
		t, _, ok := r.field(fieldToken)
		if !ok || t != c.token && keyFits(r, c.key) {
			return
		}
		if t == c.token {
			sent++
		}
	}
	for _, s := range j.sessionsOf(c.client) {
		for _, f := range s.delivered() {
			if !answersRelease(f, c) || !f.first().before(got.moment) {
				continue
			}
			if f.isOp(want) || f.unknown || !f.whole {
				return
			}
			last = f
		}
	}
	if sent != 1 || last == nil {
		return
	}
	j.checked()
	j.find(Contract, Certain, fmt.Sprintf("the release of call %d on key %q (token %d) was told %s although %s was its one answer, which says %s",
		c.id, c.key, c.token, plainWord(got.outcome), last.ref, plainWord(meant(last))),
		j.evidence(scene{call: c, frame: last, offset: len(last.data), at: got.ord}))
}

// releaseAnswered tells whether an R or N that can be about the call's grant was
// written to its client, up to its last byte, before a moment.
func (v *view) releaseAnswered(c *call, got releaseResult) bool {
	for _, s := range v.sessionsOf(c.client) {
		for _, f := range s.delivered() {
			if (f.isOp(opReleased) || f.isOp(opNotHeld)) && f.whole && f.end().before(got.moment) && v.concerns(f, c) &&
				(meant(f) == got.outcome || v.sought(f, c)) {
				return true
			}
		}
	}
	return false
}

// sought tells whether an answer to a release is one that the client of c asked for: the
// server names a token that nobody released only if it is wrong. One with the word that the
// client then said may still have been taken for the answer, which is for matchTriple.
func (v *view) sought(f *wireFrame, c *call) bool {
	t, _, ok := f.field(fieldToken)
	if !ok || t == c.token {
		return true
	}
	return slices.ContainsFunc(v.releasesOf(c.client), func(r *wireFrame) bool {
		asked, _, ok := r.field(fieldToken)
		return !ok || asked == t
	})
}

// concerns tells whether a release, or an answer to one, can be about the grant of c:
// it has its token, or its key and came later. The latter is in favour of a client that
// released another token, which is for exactToken.
func (v *view) concerns(f *wireFrame, c *call) bool {
	t, _, ok := f.field(fieldToken)
	return ok && t == c.token || keyFits(f, c.key) && c.result.before(f.first())
}

// lostRelease finds an R for the grant of c whose session ended before a moment.
func (v *view) lostRelease(c *call, before moment) (*session, *wireFrame) {
	for _, r := range v.releasesOf(c.client) {
		if s := v.byID[r.session]; v.concerns(r, c) && s.ended().happened() && s.ended().before(before) {
			return s, r
		}
	}
	return nil, nil
}
