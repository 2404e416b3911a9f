package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/frames"
)

// leastTrials is how often a habit has to show before it is one (spec/rules.md: "3 of
// 3").
const leastTrials = 3

// trial is a deadline that a client acted on while another session of it was healthy.
type trial struct {
	expired, other *call // other was waiting on the healthy session
	own, healthy   *session
	both           bool // the client closed the healthy one too
}

// exactSession stands on X and T: the client closed the session of an unanswered call
// at its deadline, and with it another, which it had no reason of its own to close: it
// was through its preface, nothing but what had been asked for was delivered on it, no
// fault touched it, no call or release on it was overdue or cancelled, and one was
// waiting, so that closing it made that one indeterminate. An idle session may be
// closed at any time. One such close may have another reason; it is a finding if it
// happened every time, and three times at least.
func exactSession(j *judge) {
	byClient := map[string][]trial{}
	var clients []string
	for _, c := range j.calls {
		if t, ok := j.trialOf(c); ok {
			if byClient[c.client] == nil {
				clients = append(clients, c.client)
			}
			byClient[c.client] = append(byClient[c.client], t)
		}
	}
	for _, client := range clients {
		trials := byClient[client]
		if len(trials) < leastTrials {
			continue
		}
		j.checked()
		if slices.ContainsFunc(trials, func(t trial) bool { return !t.both }) {
			continue
		}
		t := trials[len(trials)-1]
		j.find(Hygiene, j.punctual(), fmt.Sprintf("client %s closed another session, too, each of the %d times that a call's deadline passed: last, call %d expired on session %d and session %d, on which call %d was waiting until %s, was closed at %s",
			client, len(trials), t.expired.id, t.own.id, t.healthy.id, t.other.id, ms(j.latest(t.other)), ms(t.healthy.closed.at)),
			j.evidence(scene{call: t.expired, at: t.healthy.closed.ord, others: []*call{t.other}}))
	}
}

// latest is the deadline of a call that has one.
func (v *view) latest(c *call) time.Duration {
	d, _ := v.deadline(c)
	return d
}

// trialOf finds the trial that the deadline of c was, if it was one.
func (j *judge) trialOf(c *call) (trial, bool) {
	deadline, ok := j.deadline(c)
	if !ok || c.cancel.happened() || len(c.attempts) != 1 || j.sole(c.attempts[0]) != c || j.blind(c.client, never) {
		return trial{}, false
	}
	own := j.byID[c.attempts[0].session]
	over := own.closed
	if !over.happened() || over.at < deadline || over.at > deadline+j.policy.Patience() || own.cut.before(over.moment) ||
		j.closing[c.client].before(over.moment) || j.answeredBy(c, over.ord) {
		return trial{}, false
	}
	t := trial{expired: c, own: own}
	for _, s := range j.sessionsOf(c.client) {
		d := j.waitingOn(s, deadline, over.at+stampSlack)
		if s == own || d == nil || !j.unscathed(s, over.at+stampSlack) {
			continue
		}
		both := by(s.closed.moment, over.at+stampSlack) && s.closed.at >= deadline
		if both && j.closing[c.client].before(s.closed.moment) {
			continue
		}
		if t.healthy == nil || both {
			t.healthy, t.other, t.both = s, d, both
		}
	}
	return t, t.healthy != nil
}

// waitingOn finds a call that waited on the session all the time between two, or until
// the client closed it. It is nil, too, if another call on it gave a reason to close.
func (v *view) waitingOn(s *session, from, to time.Duration) *call {
	var found *call
	for _, a := range v.attempts {
		if a.session != s.id {
			continue
		}
		c := v.sole(a)
		if c == nil || by(c.cancel, to) {
			return nil
		}
		until := to
		if by(s.closed.moment, to) {
			until = s.closed.at
		}
		d, limited := v.deadline(c)
		answered := v.answeredBy(c, v.ordAt(until))
		if limited && d <= to && !answered {
			return nil
		}
		if a.whole && a.first().at < from && !answered && !(c.result.happened() && c.result.at < from) {
			found = c
		}
	}
	return found
}

// unscathed tells whether a session was through its preface, and gave its client no reason
// to close it up to a time.
func (v *view) unscathed(s *session, to time.Duration) bool {
	if by(s.cut.moment, to) && !s.closed.before(s.cut.moment) {
		return false
	}
	for _, e := range v.fired {
		if e.Session == s.id && e.At <= to {
			return false
		}
	}
	greeted := false
	for _, f := range s.delivered() {
		if f.first().at > to {
			continue
		}
		if f.shape == nil || f.unknown || f.isOp("M") || f.isOp("E") {
			return false
		}
		greeted = greeted || f.shape.Kind == frames.Preface && f.whole
	}
	if len(s.requests()) == 0 || !greeted {
		return false
	}
	return !slices.ContainsFunc(s.requests(), func(r *wireFrame) bool { return r.isOp(opRelease) && !v.replied(s, r) })
}

// replied tells whether an R on a session was answered there.
func (v *view) replied(s *session, r *wireFrame) bool {
	t, _, _ := r.field(fieldToken)
	key, _ := r.tail()
	return slices.ContainsFunc(s.delivered(), func(f *wireFrame) bool {
		n, _, _ := f.field(fieldToken)
		return (f.isOp(opReleased) || f.isOp(opNotHeld)) && f.whole && n == t && keyFits(f, key)
	})
}
