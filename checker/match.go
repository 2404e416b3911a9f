package checker

import (
	"fmt"
	"strings"
	"time"

	"tornwire/history"
)

// matchRules are the rules about how replies are matched to calls, and what they mean.
func matchRules() []implemented {
	return []implemented{
		{Rule{
			"match-triple", sideClient, Safety,
			"A response counts only if its identifier, op and key all match.",
			"spec/ticketing.md §3.9",
			"A call was told the token of an A whose owner or key is not its own; or a call or release was told a definite word while no response to it had begun, nothing else could have said so, and one that does not match had just been delivered.",
			"Several keys on one connection; a stray A with a foreign owner before a reply; a T whose owner is the token of a pending release.",
		}, matchTriple},
		{Rule{
			"no-fifo", sideClient, Safety,
			"The order of requests never matches a response to a call.",
			"spec/ticketing.md §3.9",
			"Of two calls of one client on one key, one was told what the other's response said: by the owner in the response, in ticketing-v0 by the attempt for which the server's table granted or timed out.",
			"Four calls on one held key, the last two with the shorter wait, each with a lease of its own.",
		}, noFifo},
		{Rule{
			"timeout-final", sideClient, Contract,
			"A matching T ends its call as a definite timeout, as a value.",
			"spec/ticketing.md §3.7",
			"The one response to the call was a T; it was accepted before the call was told another word, and nothing else can have been the cause.",
			"Wait 0 on a held key, and waits that pass on a held key.",
		}, func(j *judge) { finalWord(j, opTimeout) }},
		{Rule{
			"busy-final", sideClient, Contract,
			"A matching B ends its call as definitely busy, as a value.",
			"spec/ticketing.md §3.7",
			"The one response to the call was a B; it was accepted before the call was told another word, and nothing else can have been the cause.",
			"A key whose queue is full.",
		}, func(j *judge) { finalWord(j, opBusy) }},
		{Rule{
			"busy-not-retried", sideClient, Contract,
			"After a B the call sends no further attempt; what the documents say of it is disputed, so the policy sets how it is judged.",
			"spec/ticketing.md §3.1",
			"A B for the call had been accepted, then another A was received while no other call of the client could have sent it.",
			"A key whose queue is full.",
		}, busyNotRetried},
		{Rule{
			"release-known", sideClient, Hygiene,
			"A token that the client knows, of a call that did not end acquired, is released.",
			"spec/ticketing.md §3.16",
			"The client proved to have read the A, had a working session, and the lease ended in the server's table without an R for the token.",
			"A grant that comes after the deadline, or together with a cancel, and a further call behind it on the same connection.",
		}, releaseKnown},
	}
}

// matchTriple stands on V, W and E (see mistakes), with P9: a frame counts when its
// last byte had begun to be written before the result was read. What is matched by
// order among the calls on one key is for noFifo. It is judged where a response to
// something else was delivered while a call or a release was waiting. Of a release it is
// certain only where that had waited for a while: one that is told without any answer
// (close-proves-nothing) may come just behind a response to something else by chance.
func matchTriple(j *judge) {
	for _, c := range j.calls {
		if !j.blind(c.client, never) && (j.strayed(c) || j.strayedRelease(c)) {
			j.checked()
		}
	}
	for _, m := range j.mistakes() {
		if m.rightful != nil {
			continue
		}
		s := scene{call: m.call, frame: m.frame, offset: len(m.frame.data), at: m.at.ord}
		subject := told(m.call)
		if m.release {
			subject = fmt.Sprintf("the release of call %d on key %q, with token %d, was told %s",
				m.call.id, m.call.key, m.call.token, plainWord(m.call.released[0].outcome))
		}
		certainty := Certain
		if m.hasty {
			certainty = Suspect
		}
		j.find(Safety, certainty, fmt.Sprintf("%s by %s on session %d, which names %s%s",
			subject, m.frame.ref, m.frame.session, named(m.frame), j.insteadOf(m)), j.evidence(s))
	}
}

func plainWord(outcome string) string { return strings.ReplaceAll(outcome, "_", " ") }

// named says what a response names.
func named(f *wireFrame) string {
	key, _ := f.tail()
	for _, field := range []string{fieldOwner, fieldToken} {
		if n, _, ok := f.field(field); ok && (field == fieldOwner || !f.isOp(opAcquired)) {
			return fmt.Sprintf("%s %d and key %q", field, n, key)
		}
	}
	return fmt.Sprintf("key %q", key)
}

// insteadOf says what a response would have had to name.
func (v *view) insteadOf(m mistake) string {
	if m.release {
		return "; no R or N with its token had been written to the client"
	}
	for _, a := range m.call.attempts {
		if a.hasOwner && a.only() == m.call {
			return fmt.Sprintf(", while the call sent owner %d and key %q", a.owner, m.call.key)
		}
	}
	return ""
}

// noFifo stands on the owner that the response carries (V), in ticketing-v0 on the
// attempt for which the table decided (S), told apart by wire wait, lease and
// session. Where calls or attempts cannot be told apart, the order may have been
// right, and nothing is said. Of a swap both halves make one finding.
func noFifo(j *judge) {
	var swaps []mistake
	if j.owners {
		swaps = j.swapsByOwner()
	} else {
		swaps = j.swapsByTable()
	}
	for _, m := range swaps {
		other := func(o mistake) bool {
			return o.call == m.rightful && o.rightful == m.call && o.call.outcome == history.OutcomeAcquired
		}
		if m.call.outcome != history.OutcomeAcquired && containsMistake(swaps, other) {
			continue
		}
		j.swapped(m)
	}
}

func containsMistake(ms []mistake, is func(mistake) bool) bool {
	for _, m := range ms {
		if is(m) {
			return true
		}
	}
	return false
}

// swapsByOwner picks the mistakes among calls on one key.
func (j *judge) swapsByOwner() []mistake {
	for _, c := range j.calls {
		if j.overtook(c) && !j.blind(c.client, never) {
			j.checked()
		}
	}
	var out []mistake
	for _, m := range j.mistakes() {
		if m.rightful != nil {
			out = append(out, m)
		}
	}
	return out
}

// swapped writes the finding, with both outcomes, and with the two that were then
// inside at once if it came to that.
func (j *judge) swapped(m mistake) {
	c, d := m.call, m.rightful
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s by %s on session %d, the answer to call %d", told(c), m.frame.ref, m.frame.session, d.id)
	if d.result.happened() {
		fmt.Fprintf(b, ", which was told %s%s", plainWord(d.outcome), tokenNote(d))
	}
	others := []*call{d}
	if g := j.grantOf(c.key, c.token); c.outcome == history.OutcomeAcquired && g != nil {
		if g.lease != c.lease && g.lease > 0 {
			fmt.Fprintf(b, "; the lease of that grant was %s, not the %s of call %d", g.lease, c.lease, c.id)
		}
		if x, y, for_ := j.together(g, c.key); x != nil && j.grantedAfter(y, g) {
			fmt.Fprintf(b, "; calls %d (token %d) and %d (token %d) were then both inside", x.id, x.token, y.id, y.token)
			if for_ >= time.Millisecond {
				b.WriteString(" for " + ms(for_))
			}
			others = append(others, x, y)
		}
	}
	j.find(Safety, Certain, b.String(), j.evidence(scene{
		call: c, frame: m.frame, offset: len(m.frame.data), at: m.at.ord, others: others,
	}))
}

// grantedAfter tells whether the grant of y was made because g had ended.
func (v *view) grantedAfter(y *call, g *grant) bool {
	o := v.grantOf(y.key, y.token)
	return o != nil && g.end.before(o.moment)
}
