package checker

// Proof of reading (spec/rules.md P3). That our kernel accepted a frame says little: a
// write to a socket whose peer has closed succeeds, and what the peer's kernel holds
// when it is reset is lost. A rule may say "it got the frame, so it must …" only with
//
//   - an event that names what only the frame had brought (readBy, provedRead),
//   - a barrier, a frame behind it on the session with an effect that the client told
//     (the same two), or
//   - a result that only the frame can have led to (surelyRead, answerRead).

// arrived is false if the peer's kernel is known not to have acknowledged all of a
// frame: then nobody has read it. Where nothing was recorded of that, it may have.
func (v *view) arrived(f *wireFrame) bool {
	s := v.byID[f.session]
	if s == nil || len(f.cells) == 0 {
		return false
	}
	out := &s.link(f.ref.Dir).out
	last := f.cells[len(f.cells)-1]
	return last.accepted.happened() && (!out.known || last.pos < out.acked)
}

// surelyRead tells whether the result of c shows that f, written for it, had been read:
// because something later proves it before the result, or because the result came
// just after the frame, from an adapter that answers in time (P11), and nothing else can
// have led to it.
func (v *view) surelyRead(c *call, f *wireFrame) bool {
	if !v.arrived(f) {
		return false
	}
	if proof := v.provedRead(c.client, f); proof.happened() && !c.result.before(proof) {
		return true
	}
	return !v.policy.NoPong && just(f, c.result) && v.onlyCause(c, f)
}

// answerRead does so for f as the answer to a release, and the release's result.
func (v *view) answerRead(f *wireFrame, result moment) bool {
	s := v.byID[f.session]
	return v.arrived(f) && !v.policy.NoPong && just(f, result) && !v.late.before(result) && !s.cut.before(result) && !s.closed.before(f.end()) && !s.reset && v.onlyAnswers(s, result)
}
