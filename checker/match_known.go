package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// releaseKnown stands on P3 and P10: the A was read, as a result or an R that names its
// token or a later frame on its session shows (TCP keeps the order); the client lived
// and was not asked to close, had a session that worked from then on, and every byte
// of it was read; and the lease ended in the table (S) with no R for the token ever
// received. A token that some call was told as acquired is the application's. Not
// judged where a release has no token.
func releaseKnown(j *judge) {
	if !j.tokens || !j.policy.SawTable || j.policy.NoPong {
		return
	}
	for _, c := range j.calls {
		if !c.result.happened() || c.outcome == history.OutcomeAcquired || j.blind(c.client, never) {
			continue
		}
		for _, f := range j.finals(c, opAcquired) {
			token, _, ok := f.field(fieldToken)
			if !ok || !f.whole || !j.answersOnly(f, c) || j.toldToSomeone(c.client, token) {
				continue
			}
			if by := j.readBy(c, f, token); by.happened() {
				j.knownToken(c, f, token, by)
			}
		}
	}
}

// answersOnly tells whether f carries the owner of an attempt that must be of c.
func (v *view) answersOnly(f *wireFrame, c *call) bool {
	return slices.ContainsFunc(c.attempts, func(a *attempt) bool {
		return a.session == f.session && a.only() == c && (a.hasOwner && !v.foreign(a, a.owner)) && v.answers(f, a, c)
	})
}

func (v *view) toldToSomeone(client string, token uint64) bool {
	return slices.ContainsFunc(v.calls, func(d *call) bool {
		return d.client == client && d.outcome == history.OutcomeAcquired && (!d.hasToken || d.token == token)
	})
}

// proof is why a frame must have been read, and by when.
type proof struct {
	moment
	why string
}

// readBy finds the first proof that f was read: the call's result or an R names its
// token, or a frame behind it on its session had an effect that the client reported.
func (v *view) readBy(c *call, f *wireFrame, token uint64) proof {
	var p proof
	note := func(m moment, format string, args ...any) {
		if m.happened() && !p.before(m) {
			p = proof{m, fmt.Sprintf(format, args...)}
		}
	}
	if c.hasToken && c.token == token {
		note(c.result, "its result names it")
	}
	for _, r := range v.releasesOf(c.client) {
		if t, m, ok := r.field(fieldToken); ok && t == token && f.end().before(m) {
			note(m, "%s names it", r.ref)
		}
	}
	s := v.byID[f.session]
	v.barriers(s, f, c, note)
	return p
}

// barriers notes what calls of the client other than c were told by frames behind f on
// its session (P3).
func (v *view) barriers(s *session, f *wireFrame, c *call, note func(m moment, format string, args ...any)) {
	for _, h := range s.delivered() {
		if h.unknown || !h.whole || !behind(s, f, h) {
			continue
		}
		for _, d := range v.calls {
			if d == c || d.client != s.client {
				continue
			}
			if v.toldBy(d, h) {
				note(d.result, "call %d was told %s by %s behind it", d.id, plainWord(d.outcome), h.ref)
			}
			if r, ok := v.releasedBy(d, h); ok {
				note(r, "the release of call %d was answered by %s behind it", d.id, h.ref)
			}
		}
	}
}

// behind tells whether h follows f in the stream; one write may have carried both.
func behind(s *session, f, h *wireFrame) bool {
	fs := s.delivered()
	return slices.Index(fs, f) < slices.Index(fs, h)
}

// toldBy tells whether the result of d can only come from h: it has the token that
// only h carries, or it is the definite word of h before d could know it otherwise.
func (v *view) toldBy(d *call, h *wireFrame) bool {
	if !h.end().before(d.result) || !slices.Contains(v.finals(d, opAcquired, opTimeout, opBusy), h) || d.outcome != meant(h) {
		return false
	}
	t, _, ok := h.field(fieldToken)
	if !ok {
		return v.unprompted(d) && v.soleFinal(d) == h
	}
	return d.hasToken && t == d.token && v.carriers(d.client, t) == 1
}

// carriers counts the A frames with a token that were written to a client.
func (v *view) carriers(client string, token uint64) int {
	n := 0
	for _, s := range v.sessionsOf(client) {
		for _, f := range s.delivered() {
			if t, _, ok := f.field(fieldToken); ok && t == token && f.isOp(opAcquired) {
				n++
			}
		}
	}
	return n
}

// releasedBy tells whether h is the answer to the release of d that it was told, on a
// session that was open then: socket ends tell nothing about a release.
func (v *view) releasedBy(d *call, h *wireFrame) (moment, bool) {
	t, _, ok := h.field(fieldToken)
	if !ok || !h.isOp(opReleased) && !h.isOp(opNotHeld) || !d.hasToken || t != d.token || len(d.released) == 0 {
		return moment{}, false
	}
	got := d.released[0]
	return got.moment, got.outcome == meant(h) && h.end().before(got.moment) && v.calm(v.byID[h.session], got.moment)
}

// knownToken judges a token that was read, by its R or by the lack of one.
func (j *judge) knownToken(c *call, f *wireFrame, token uint64, by proof) {
	for _, r := range j.releasesOf(c.client) {
		t, _, ok := r.field(fieldToken)
		if !ok {
			return // what it would have released is not known
		}
		if t == token {
			j.checked()
			return
		}
	}
	g := j.grantOf(c.key, token)
	if g == nil || g.how != history.Expired {
		return
	}
	until := max(g.end.at, by.at+inFlight)
	if !j.watched(c.client, until) || !j.working(c.client, by.moment, until) {
		return
	}
	j.find(Hygiene, Certain, fmt.Sprintf("%s and client %s never sent an R with token %d, which it had read in %s (%s at %s); the lease ended %s later",
		told(c), c.client, token, f.ref, by.why, ms(by.at), ms(max(0, g.end.at-by.at))),
		j.evidence(scene{call: c, frame: f, offset: len(f.data), at: g.end.ord}))
}

// watched tells whether the history goes on to a time, with the client alive and not
// asked to close.
func (v *view) watched(client string, until time.Duration) bool {
	if v.events[len(v.events)-1].At < until || v.late.happened() || v.asked(history.CaseEnding, client, until) || v.asked(history.CloseAsked, client, until) {
		return false
	}
	return !slices.ContainsFunc(v.calls, func(c *call) bool { return c.client == client && c.overdue.happened() })
}

// asked tells whether an event of a kind, about the client or about all, came until a
// time.
func (v *view) asked(k history.Kind, client string, until time.Duration) bool {
	return slices.ContainsFunc(v.events, func(e history.Event) bool {
		return e.Kind == k && (e.Client == "" || e.Client == client) && e.At <= until
	})
}

// working tells whether a session of the client was up at a moment, its preface
// exchanged, and stayed so until a time, with no fault that silences it.
func (v *view) working(client string, from moment, until time.Duration) bool {
	up := func(fs []*wireFrame) bool {
		return slices.ContainsFunc(fs, func(f *wireFrame) bool {
			return f.shape != nil && f.shape.Kind == frames.Preface && f.end().before(from)
		})
	}
	return slices.ContainsFunc(v.sessionsOf(client), func(s *session) bool {
		over := func(e end) bool { return e.happened() && e.at <= until }
		silenced := func(e *history.Event) bool {
			return e.Session == s.id && (strings.HasPrefix(e.Fault, "truncate") || strings.HasPrefix(e.Fault, "stall"))
		}
		return up(s.requests()) && up(s.delivered()) && !over(s.closed) && !over(s.cut) && !slices.ContainsFunc(v.fired, silenced)
	})
}
