package checker

import (
	"time"

	"tornwire/frames"
)

// timingRules are the rules about waits, deadlines and owners.
func timingRules() []implemented {
	return []implemented{
		{Rule{
			"owner-fresh", sideClient, Contract,
			"Every call has an owner of its own.",
			"spec/ticketing.md §3.3",
			"The A frames of two started calls, which are two for certain, carried one owner; the calls may be of two clients, since one adapter process made both.",
			"Calls on several keys, of several clients, one after the other and at one time, and calls after a reconnect.",
		}, ownerFresh},
		{Rule{
			"deadline-once", sideClient, Contract,
			"A call has one deadline, and a try on a further connection keeps it.",
			"spec/ticketing.md §3.4",
			"An earlier connection had ended without a byte of the call's A, and the wait in the A on a later one is above what can have remained when the nonce of that one was sent.",
			"The first connection dies in the preface, half-way through the wait.",
		}, deadlineOnce},
		{Rule{
			"wait-recomputed", sideClient, Contract,
			"The wait on the wire is what remains of the call's wait just before the A is sent.",
			"spec/ticketing.md §3.4",
			"The wait in the A is above what can have remained when the nonce was sent, without which the client cannot have sent the A.",
			"The greeting of a client's first connection is held for some seconds and a half.",
		}, waitRecomputed},
		{Rule{
			"wait-rounded-up", sideClient, Contract,
			"The remaining wait is rounded up to whole seconds, never down.",
			"spec/ticketing.md §3.4",
			"The wait in the A is below what still remained, from the moment the call was asked for, when the field was received.",
			"Every workload with a wait above 0.",
		}, waitRoundedUp},
		{Rule{
			"wait-range", sideClient, Contract,
			"The wait on the wire is at most the call's, rounded up, and fits its field without wrapping around; it is 0 exactly for a wait of 0.",
			"spec/ticketing.md §1.3, §3.4, §3.8",
			"Read directly off an A that is one call's for certain.",
			"Every workload, with waits of 0 and above.",
		}, waitRange},
		{Rule{
			"expired-unsent", sideClient, Contract,
			"A request past its deadline is not sent.",
			"spec/ticketing.md §3.5",
			"A byte of the A was received on a connection whose nonce had been sent more than a second after the deadline.",
			"The greeting of a client's first connection is held until 1.5 s past the deadline.",
		}, expiredUnsent},
		{Rule{
			"late-grant", sideClient, Contract,
			"A grant that comes after the deadline is not told, and if it was read it is released with its exact token.",
			"spec/ticketing.md §3.6",
			"The write of the A began later than the whole wait after the first byte of the request had come, and the client entered on the live grant; or it provably read that A and let the lease pass without an R.",
			"The A is held until 1.5 s past the deadline, and another call follows.",
		}, lateGrant},
		{Rule{
			"zero-is-immediate", sideClient, Contract,
			"A wait of 0 has a transport deadline of 5 s, after which it is neither sent nor still without an outcome.",
			"spec/ticketing.md §3.8",
			"A byte of the A was received on a connection whose nonce had been sent more than 6.5 s after the start, or there was no outcome 10 s after the call was asked for, while the client was alive.",
			"The greeting is held for 7 s; requests and replies of calls with wait 0 are cut, with silence above all.",
		}, zeroIsImmediate},
	}
}

// wholeSeconds rounds up to whole seconds.
func wholeSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// punctual is the certainty of a finding that takes a started event for the start
// of the library's work: it is none if the tool or the adapter ran late (P11).
func (v *view) punctual() Certainty {
	if v.late.happened() {
		return Suspect
	}
	return Certain
}

// nonceSent is a moment at which the client cannot have had the nonce of a session
// yet: that at which the write of the last byte of the greeting began. Of a
// greeting that was not recorded the first byte counts, in the client's favour.
func (s *session) nonceSent() (moment, bool) {
	fs := s.delivered()
	switch {
	case len(fs) == 0 || fs[0].shape == nil || fs[0].shape.Kind != frames.Preface:
		return moment{}, false
	case fs[0].unknown:
		return fs[0].first(), true
	}
	return fs[0].end(), fs[0].whole
}

// ended is when the first side ended the session towards its client.
func (s *session) ended() moment {
	if s.cut.before(s.closed.moment) {
		return s.cut.moment
	}
	return s.closed.moment
}

// mayHaveSent tells whether a may be an attempt of c by all that it shows, however
// long ago c ended.
func (v *view) mayHaveSent(c *call, a *attempt) bool {
	return c == a.only() || c.client == a.client && c.asked.before(a.first()) &&
		keyFits(a.wireFrame, c.key) && leaseFits(a.wireFrame, c.lease) && !(c.hasOwner && a.hasOwner && c.owner != a.owner)
}

// sole is the call whose attempt a is for certain, or nil. A call that ended long
// ago counts as a possible sender too, unless an attempt of its own is known: what
// a client sends behind the application's back is not held to another call's wait.
func (v *view) sole(a *attempt) *call {
	c := a.only()
	if c == nil {
		return nil
	}
	for _, o := range v.calls {
		if o != c && v.mayHaveSent(o, a) && !v.hadSent(o, a) {
			return nil
		}
	}
	return c
}

// hadSent tells whether an attempt of c is known that came before a.
func (v *view) hadSent(c *call, a *attempt) bool {
	for _, b := range c.attempts {
		if b.only() == c && b.first().before(a.first()) {
			return true
		}
	}
	return false
}
