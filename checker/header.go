package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// releaseLimit is how long a release may go unanswered (spec/ticketing.md §3.16).
const releaseLimit = 5 * time.Second

// headerByCount judges whole frames with 0x0A in their fixed fields, as they were
// delivered. Another token or a definite other outcome is direct. Acting on a
// shorter frame is P9. A close is judged only where nothing else on the session or
// in the call can have caused it, since clients may close when they like
// (P3, P5 and "Never a finding" 3 otherwise acquit).
func headerByCount(j *judge) {
	for _, c := range j.calls {
		for _, f := range j.finals(c, opAcquired, opTimeout, opBusy) {
			if _, ok := f.innerNewline(); ok && f.whole {
				j.headerOfReply(c, f)
			}
		}
		j.headerOfRelease(c)
	}
}

// meant is the outcome that a final response stands for.
func meant(f *wireFrame) string {
	switch f.shape.Op {
	case opAcquired:
		return history.OutcomeAcquired
	case opTimeout:
		return history.OutcomeTimeout
	case opBusy:
		return history.OutcomeBusy
	case opReleased:
		return history.OutcomeReleased
	}
	return history.OutcomeNotHeld
}

func (j *judge) headerOfReply(c *call, f *wireFrame) {
	if j.blind(c.client, never) || !c.result.happened() {
		return
	}
	in, _ := f.innerNewline()
	s := scene{call: c, frame: f, offset: len(f.data), at: c.result.ord}
	where := fmt.Sprintf("%s, %d bytes with 0x0A at byte %d of its fixed fields", f.ref, len(f.data), in)
	want := meant(f)
	switch {
	case c.outcome == history.OutcomeAcquired && want == c.outcome && c.result.before(f.end()):
		if f.cells[in].when.before(c.result) && len(wholeBefore(j.finals(c, opAcquired), c.result.ord)) == 0 {
			s.offset = f.crossed(c.result.ord)
			j.find(Safety, Certain, fmt.Sprintf("%s on %d bytes of %s", told(c), s.offset, where), j.evidence(s))
		}
	case c.outcome == want:
		j.checked()
		if t, _, ok := f.field(fieldToken); ok && c.hasToken && t != c.token && !slices.Contains(j.tokensFor(c), c.token) {
			j.find(Safety, Certain, fmt.Sprintf("%s although token %d was delivered in %s", told(c), t, where), j.evidence(s))
		}
	case c.outcome == history.OutcomeIndeterminate || c.outcome == history.OutcomeError:
		if f.cells[in].when.before(c.result) && j.closedOn(c, f) {
			s.at = j.byID[f.session].closed.ord
			j.find(Contract, Certain, fmt.Sprintf("%s and its session %d was closed on %s, although nothing was torn",
				told(c), f.session, where), j.evidence(s))
		}
	case j.inTime(c, f) && j.surelyRead(c, f) && len(j.finals(c, opAcquired, opTimeout, opBusy)) == 1:
		j.find(Safety, Certain, fmt.Sprintf("%s although %s was delivered in %s", told(c), want, where), j.evidence(s))
	}
}

// tokensFor lists the tokens of the A frames that were whole before c was told.
func (v *view) tokensFor(c *call) []uint64 {
	var out []uint64
	for _, f := range wholeBefore(v.finals(c, opAcquired), c.result.ord) {
		if t, _, ok := f.field(fieldToken); ok {
			out = append(out, t)
		}
	}
	return out
}

// inTime tells whether all of f was accepted by the client's kernel's side before
// the result was read, and the result came before the deadline and before a cancel
// or close was asked for.
func (v *view) inTime(c *call, f *wireFrame) bool {
	if last := f.cells[len(f.cells)-1].accepted; !last.before(c.result) {
		return false
	}
	d, ok := v.deadline(c)
	return (!ok || c.result.at < d) && !c.cancel.before(c.result) && !v.closing[c.client].before(c.result)
}

// closedOn tells whether the client closed the session of f because of f: with a FIN,
// since an RST may say that f lies unread, after
// its first inner newline had begun to be written, with f delivered whole, before
// the end of any call on the session, and with nothing else delivered that could
// have been the cause.
func (v *view) closedOn(c *call, f *wireFrame) bool {
	s := v.byID[f.session]
	in, _ := f.innerNewline()
	closed := s.closed.moment
	if !closed.happened() || s.reset || s.cut.before(closed) || !f.cells[in].when.before(closed) {
		return false
	}
	if v.closing[c.client].before(closed) || v.late.before(closed) || !v.onlyAnswers(s, closed) {
		return false
	}
	for _, o := range v.calls {
		if o.client != c.client || !o.asked.before(closed) {
			continue
		}
		if o.cancel.before(closed) {
			return false
		}
		if o.result.before(closed) && slices.Contains([]string{history.OutcomeAcquired, history.OutcomeTimeout, history.OutcomeBusy}, o.outcome) {
			continue
		}
		if d, ok := v.deadline(o); ok && d <= closed.at && slices.ContainsFunc(o.attempts, func(a *attempt) bool { return a.session == s.id }) {
			return false
		}
	}
	// A grant that was read after its own lease may be refused in any way.
	return f.end().at < v.sentAt(c, s)+c.lease
}

// sentAt is when the first byte of the call's request on the session came.
func (v *view) sentAt(c *call, s *session) time.Duration {
	for _, a := range c.attempts {
		if a.session == s.id {
			return a.first().at
		}
	}
	return c.asked.at
}

// onlyAnswers tells whether all that was written on a session before a moment is
// whole, readable and asked for: the preface, keep-alives, one reply an attempt and
// one answer a release.
func (v *view) onlyAnswers(s *session, until moment) bool {
	acquires, releases := 0, map[string]int{}
	for _, f := range s.requests() {
		if f.first().before(until) {
			switch {
			case f.isOp(opAcquire):
				acquires++
			case f.isOp(opRelease):
				releases[grantOf(f)]++
			}
		}
	}
	for _, f := range s.delivered() {
		if !f.first().before(until) {
			continue
		}
		if f.unknown || !f.whole || !f.end().before(until) || f.shape.Check(f.data) != nil {
			return false
		}
		if f.shape.Kind != frames.Message {
			continue
		}
		switch {
		case f.isOp(opAcquired) || f.isOp(opTimeout) || f.isOp(opBusy):
			acquires--
			if !v.wanted(s, f) {
				return false
			}
		case f.isOp(opReleased) || f.isOp(opNotHeld):
			if releases[grantOf(f)]--; releases[grantOf(f)] < 0 {
				return false
			}
		default:
			return false
		}
	}
	return acquires >= 0 && !s.link(frames.ServerToClient).out.dark.before(until)
}

// grantOf is what a release, or the answer to one, is about: the key, and the token of a
// dialect that has it.
func grantOf(f *wireFrame) string {
	key, _ := f.tail()
	t, _, _ := f.field(fieldToken)
	return fmt.Sprint(t, " ", key)
}

// wanted tells whether a reply answers an attempt of its session.
func (v *view) wanted(s *session, f *wireFrame) bool {
	return slices.ContainsFunc(v.attempts, func(a *attempt) bool {
		return a.session == s.id && slices.ContainsFunc(a.calls, func(c *call) bool { return v.answers(f, a, c) })
	})
}

// headerOfRelease judges the answers to the call's release in the same way.
func (j *judge) headerOfRelease(c *call) {
	if !j.tokens || !c.hasToken || len(c.releases) == 0 || len(c.released) == 0 || j.blind(c.client, never) {
		return
	}
	asked, got := c.releases[0], c.released[0]
	var answers []*wireFrame
	for _, s := range j.sessionsOf(c.client) {
		for _, f := range s.delivered() {
			if t, _, ok := f.field(fieldToken); ok && t == c.token && (f.isOp(opReleased) || f.isOp(opNotHeld)) {
				answers = append(answers, f)
			}
		}
	}
	if len(answers) == 0 || !answers[0].whole || !asked.before(answers[0].first()) {
		return
	}
	f := answers[0]
	in, ok := f.innerNewline()
	if !ok || j.saidForElse(c, f, in, got) {
		return
	}
	j.checked()
	sc := scene{call: c, frame: f, offset: len(f.data), at: got.ord}
	where := fmt.Sprintf("%s, %d bytes with 0x0A at byte %d of its fixed fields", f.ref, len(f.data), in)
	closed := j.byID[f.session].closed.moment
	switch {
	case got.outcome == meant(f):
	case got.outcome == history.OutcomeReleased || got.outcome == history.OutcomeNotHeld:
		if len(answers) == 1 && acceptedAt(f).before(got.moment) && j.answerRead(f, got.moment) {
			j.find(Safety, Certain, fmt.Sprintf("the release of call %d on key %q was told %s although %s was delivered in %s",
				c.id, c.key, got.outcome, meant(f), where), j.evidence(sc))
		}
	case closed.happened() && closed.at < asked.at+releaseLimit && j.closedOnAnswer(c, f):
		j.find(Contract, Certain, fmt.Sprintf("the release of call %d on key %q ended %s and session %d was closed on %s, although nothing was torn",
			c.id, c.key, got.outcome, f.session, where), j.evidence(sc))
	}
}

// saidForElse tells whether the result of a release has another reason than what
// became of its answer f: it came before the inner newline, or it is the word of a
// client that has none for the answer (P15), or that repeated its R and cannot know
// what an N says of the first (spec/ticketing.md §3.16).
func (v *view) saidForElse(c *call, f *wireFrame, in int, got releaseResult) bool {
	vague := got.outcome == history.OutcomeIndeterminate || got.outcome == history.OutcomeError
	switch {
	case !vague:
		return false
	case got.before(f.cells[in].when), got.outcome == history.OutcomeError && !v.declared(meant(f)):
		return true
	}
	sent := 0
	for _, r := range v.releasesOf(c.client) {
		if t, _, ok := r.field(fieldToken); (!ok || t == c.token) && r.first().before(f.end()) {
			sent++
		}
	}
	return f.isOp(opNotHeld) && sent > 1
}

func (v *view) closedOnAnswer(c *call, f *wireFrame) bool {
	// The lease of the call is over for its release; only the causes on the
	// session and of other calls count.
	lasting := *c
	lasting.lease = 1 << 62
	return v.closedOn(&lasting, f)
}
