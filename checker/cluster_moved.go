package checker

import (
	"fmt"
	"slices"
	"strings"

	"tornwire/history"
)

func splitList(s string) []string { return strings.Split(s, ",") }

// uncorrelated stands on V and E: the call's one request was waiting on the session
// when the M or L was written, the call was then told a definite word, and no byte of
// a final answer to it, nor anything else that it could be told by, had begun to be
// written (P9). Of timeout and busy, a client can come to the first by its own clock;
// that is why the result must lie well before the deadline, just after the frame, and be
// told by an adapter that answers in time (P11).
func uncorrelated(j *judge, op string) {
	if j.policy.NoPong {
		return
	}
	definite := []string{history.OutcomeAcquired, history.OutcomeTimeout, history.OutcomeBusy}
	for _, w := range j.words(op) {
		for _, c := range j.calls {
			a, ok := j.waiting(c, w)
			if !ok || j.blind(c.client, c.result.ord) {
				continue
			}
			answered := slices.ContainsFunc(j.finals(c, opAcquired, opTimeout, opBusy), func(f *wireFrame) bool { return f.first().before(c.result) })
			if answered || !slices.Contains(definite, c.outcome) {
				j.checked()
				continue
			}
			if !j.soleCause(w, c, a) {
				continue
			}
			j.find(Safety, Certain, fmt.Sprintf("%s %s after %s on session %d, which answers no call, and nothing else had been written there since its request",
				told(c), ms(since(w.end(), c.result)), spelt(w), w.s.id),
				j.evidence(scene{call: c, frame: w.wireFrame, offset: len(w.data), at: c.result.ord}))
		}
	}
}

// spelt names a word with its text.
func spelt(w word) string { return fmt.Sprintf("%s %q", w.ref, w.text) }

// closesAfter judges the words after which a connection has to be closed; of several
// on a session the first counts. It stands
// on V, W and E: the client had read the word, as what it told or released shows
// (heard), and after that proof the application asked for another acquire, whose A
// came on the same session. A request that was under way when the word came was asked
// for before the proof, and is none (P6); so nothing is judged without calls (P13). A
// client that closes the session, however late, is right.
func closesAfter(j *judge, words []word) {
	severity := Contract
	if !j.owners { // the older documents do not promise it
		severity = Hygiene
	}
	found := map[*session]bool{}
	for _, w := range words {
		p := j.heard(w)
		closed := j.leftAfter(w.s, w.end()) && !w.s.cutFirst(w.s.closed.moment)
		if (p.happened() || closed) && j.asksAfter(w.s.client, w.accepted) && !j.blind(w.s.client, never) {
			j.checked()
		}
		if !p.happened() || found[w.s] {
			continue
		}
		k := slices.IndexFunc(j.attempts, func(b *attempt) bool { return b.session == w.s.id && p.before(b.first()) && askedSince(b, p.moment) })
		if k < 0 {
			continue
		}
		b := j.attempts[k]
		found[w.s] = true
		j.find(severity, Certain, fmt.Sprintf("client %s sent %s on session %d although it had read %s there, which closes the connection (%s, %s before)",
			w.s.client, b.ref, b.session, spelt(w), p.why, ms(since(p.moment, b.first()))),
			j.evidence(scene{call: b.only(), frame: w.wireFrame, offset: len(w.data), at: b.first().ord, others: b.calls}))
	}
}

// askedSince tells whether every call that can have sent an attempt was asked for
// after a moment.
func askedSince(b *attempt, m moment) bool {
	return len(b.calls) > 0 && !slices.ContainsFunc(b.calls, func(c *call) bool { return !m.before(c.asked) })
}

// movedAllowlist stands on V and X: the address in the frame is none of those that the
// client was given, and at it a connection of this client's case was accepted after
// the frame had begun to be written. Nobody else knows the address. An L counts as
// well, since what it names is not to be trusted more. Judged only where the tool
// listens at the address, and the client was asked for something afterwards.
func movedAllowlist(j *judge) {
	words := append(j.words(opMoved), j.words(opNotice)...)
	if len(words) == 0 {
		return
	}
	addr := j.addresses()
	for _, w := range words {
		client := w.s.client
		set, ok := addr.canary[client+" "+w.text]
		given := addr.given[client]
		if !ok || !set.before(w.first()) || len(given) == 0 || slices.Contains(given, w.text) {
			continue
		}
		if j.asksAfter(client, w.accepted) {
			j.checked()
		}
		for _, s := range j.sessionsOf(client) {
			if addr.dialed[s.id] != w.text || !w.first().before(s.opened) {
				continue
			}
			e := j.evidence(scene{frame: w.wireFrame, offset: len(w.data), at: s.opened.ord})
			j.find(Contract, Certain, fmt.Sprintf("client %s connected to %s as session %d, %s after %s had named it on session %d; it was given only %s",
				client, w.text, s.id, ms(since(w.first(), s.opened)), w.ref, w.s.id, strings.Join(given, " and ")), e)
			break
		}
	}
}
