package checker

import (
	"fmt"
	"time"
)

// noOverstay stands on a witness, the application's own word of when it went in and
// came out; the tool's own application stays as long as a workload wants, so in verify
// it is not judged. The lease runs from the grant, and that was made before the first
// byte of its A was read from the server (U): a lease later the key is nobody's. With
// the table the end of the grant is known (S). The word may have been under way for a
// while, and an exit of which nothing was heard is only a suspicion. Without a watchdog
// a library cannot prevent it ("Never a finding" 12), so it is told where somebody asks
// for it.
func noOverstay(j *judge) {
	if !j.policy.Witnessed {
		return
	}
	for _, c := range j.calls {
		until, frame, ok := j.leaseUntil(c)
		if !ok || !c.entered.happened() || c.lease <= 0 {
			continue
		}
		out, certainty := c.left, j.punctual()
		if !out.happened() {
			n := len(j.events)
			out, certainty = moment{n, j.events[n-1].At}, Suspect
		} else {
			j.checked()
		}
		if out.at <= until+inFlight {
			continue
		}
		s := scene{call: c, frame: frame, at: out.ord}
		if frame != nil {
			s.offset = len(frame.data)
		}
		j.find(Hygiene, certainty, fmt.Sprintf("the application was inside for call %d on key %q, with token %d, from %s to %s, although its lease of %s had ended by %s at the latest",
			c.id, c.key, c.token, ms(c.entered.at), ms(out.at), c.lease, ms(until)), j.evidence(s))
	}
}

// leaseUntil is the latest time at which the lease of the call's grant can have ended,
// and the A that says so, if there is one.
func (v *view) leaseUntil(c *call) (time.Duration, *wireFrame, bool) {
	if !c.hasToken {
		return 0, nil, false
	}
	if g := v.grantOf(c.key, c.token); g != nil {
		return g.at + g.lease, nil, g.lease > 0
	}
	for _, s := range v.sessionsOf(c.client) {
		for _, f := range s.replies() {
			if t, _, ok := f.field(fieldToken); ok && t == c.token && f.isOp(opAcquired) && keyFits(f, c.key) {
				return f.first().at + c.lease, f, true
			}
		}
	}
	return 0, nil, false
}
