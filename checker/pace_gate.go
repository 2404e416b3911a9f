package checker

import (
	"fmt"
	"slices"

	"tornwire/history"
)

// lateGate stands on V, E and S, and on the record that every thread of the client had
// stopped before the write of the A's last byte began, and was seen stopped when the
// deadline had passed: by the whole wait after the first byte of the call's A was
// received, before which the client had begun to count. So the client can have read
// the A only after its deadline, although it had been accepted before. It is broken as
// lateGrant is. Whether the client was what had stopped is known by its sockets and its
// pongs; without pongs it is not judged (P11).
func lateGate(j *judge) {
	if j.policy.NoPong {
		return
	}
	for _, c := range j.calls {
		due, ok := j.surelyOver(c)
		if !ok {
			continue
		}
		for _, f := range j.finals(c, opAcquired) {
			t, _, ok := f.field(fieldToken)
			g := j.told(c, f, t)
			pause, found := j.foundIn(f)
			if !ok || g == nil || !found || pause.to.at <= due || f.end().at > due+stampSlack || j.seenBefore(c.client, f, t) {
				continue
			}
			if j.open(f) && pause.to.before(c.result) && c.result.happened() {
				j.checked()
			}
			how := fmt.Sprintf("written at %s while the client stood still from %s to %s, when the deadline of call %d on key %q had passed by %s at the latest",
				ms(f.end().at), ms(pause.from.at), ms(pause.to.at), c.id, c.key, ms(due))
			if c.outcome == history.OutcomeAcquired && c.hasToken && c.token == g.token && pause.to.before(c.result) && g.live(f.end().ord) {
				s := scene{call: c, frame: f, offset: len(f.data), at: c.result.ord}
				j.find(j.bound(), Certain, fmt.Sprintf("%s by %s, %s", told(c), f.ref, how), j.evidence(s))
			}
			j.lateUnreleased(c, f, g, how)
		}
	}
}

// foundIn is the pause in which all of f was accepted, so that the client found it at
// the end of it.
func (v *view) foundIn(f *wireFrame) (span, bool) {
	if !f.whole {
		return span{}, false
	}
	accepted := f.cells[len(f.cells)-1].accepted
	i := slices.IndexFunc(v.pauses, func(p span) bool {
		return p.from.before(f.end()) && accepted.happened() && accepted.before(p.to) && p.to.happened()
	})
	if i < 0 {
		return span{}, false
	}
	return v.pauses[i], true
}
