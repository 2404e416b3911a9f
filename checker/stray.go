package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

const (
	// leaveSlack is how long after the proof that it has read what it has to leave a
	// session for a client may still send on it: the lateness that a living client is
	// allowed (P11).
	leaveSlack = 200 * time.Millisecond
	// orphanLimit is how long the release of a grant that no table knows is awaited: as
	// long as a release may go unanswered (spec/ticketing.md §3.16).
	orphanLimit = releaseLimit
)

// promised is the severity of a clause that the documents of the older dialect never
// promised.
func (j *judge) promised() Severity {
	if j.owners {
		return Contract
	}
	return Hygiene
}

// identity names the field that a response echoes.
func identity(f *wireFrame) string {
	if f.isOp(opReleased) || f.isOp(opNotHeld) {
		return fieldToken
	}
	return fieldOwner
}

// unmatched tells whether nobody can have waited for a response on its session: more
// responses with its identifier and key were delivered up to it than the session ever
// carried requests that can be meant, however late these came. A request of which too
// little came to tell counts as meant. The answer to a call that has given up is
// none: a client may keep its session for it (spec/ticketing.md §3.6).
func (v *view) unmatched(s *session, f *wireFrame) bool {
	in := &s.link(frames.ClientToServer).in
	if s.client == "" || v.shortened || in.dark.happened() || !isResponse(f) || f.unknown || !f.whole || f.shape.Check(f.data) != nil {
		return false
	}
	key, _ := f.tail()
	id, _, _ := f.field(identity(f))
	op := opAcquire
	if identity(f) == fieldToken {
		op = opRelease
	}
	waiting := 0
	for _, r := range in.frames {
		if r.unknown && hides(r) {
			return false
		}
		n, _, ok := r.field(identity(f))
		if r.isOp(op) && keyFits(r, key) && (!ok || n == id) {
			waiting++
		}
	}
	answered := 0
	for _, h := range s.delivered() {
		if h == f {
			break
		}
		n, _, _ := h.field(identity(f))
		if h.unknown {
			return false
		}
		if isResponse(h) && identity(h) == identity(f) && keyFits(h, key) && n == id {
			answered++
		}
	}
	return answered >= waiting
}

// strays lists the responses that nobody waited for, on the sessions of all clients.
func (v *view) strays() []*wireFrame {
	var out []*wireFrame
	for _, s := range v.sessions {
		for _, f := range s.delivered() {
			if v.unmatched(s, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// strayRead finds the first proof that a stray frame was read (P3): an R with a token
// that only this frame carried, or a frame behind it that had an effect.
func (v *view) strayRead(f *wireFrame) proof {
	s := v.byID[f.session]
	var p proof
	note := func(m moment, format string, args ...any) {
		if m.happened() && !p.before(m) {
			p = proof{m, fmt.Sprintf(format, args...)}
		}
	}
	if t, _, ok := f.field(fieldToken); ok && f.isOp(opAcquired) && v.carriers(s.client, t) == 1 {
		for _, r := range v.releasesOf(s.client) {
			if n, m, ok := r.field(fieldToken); ok && n == t {
				note(m, "the client sent %s with its token", r.ref)
			}
		}
	}
	v.barriers(s, f, nil, note)
	return p
}

// leftFor finds the proof that a client read f because it left the session for it. A
// close with unread input is an RST (P4), so before its FIN the client had read all
// that its kernel had by then, f with it; and nothing else can have been the reason:
// no end of ours, nothing else delivered that was not waited for, nothing asked of the
// client, and a call waiting on the session whose deadline had not come.
func (v *view) leftFor(f *wireFrame) proof {
	s := v.byID[f.session]
	closed, last := s.closed, f.cells[len(f.cells)-1]
	if !closed.happened() || s.reset || !last.accepted.before(closed.moment) ||
		last.pos >= s.link(frames.ServerToClient).out.acked || closed.at > last.accepted.at+inFlight ||
		s.cut.before(closed.moment) || v.closing[s.client].before(closed.moment) || v.late.before(closed.moment) {
		return proof{}
	}
	for _, h := range s.delivered() {
		if h == f || !h.first().before(closed.moment) || !h.unknown && h.shape.Kind != frames.Message {
			continue
		}
		if h.unknown || !isResponse(h) || !h.whole || v.unmatched(s, h) || h.shape.Check(h.data) != nil || behind(s, f, h) {
			return proof{}
		}
	}
	pending := false
	for _, c := range v.calls {
		here := func(a *attempt) bool { return a.session == s.id && a.first().before(f.first()) }
		if c.client != s.client || c.result.before(f.first()) || !slices.ContainsFunc(c.attempts, here) {
			continue
		}
		pending = true
		if d, ok := v.deadline(c); c.cancel.before(closed.moment) || ok && d <= closed.at {
			return proof{}
		}
	}
	if !pending {
		return proof{}
	}
	return proof{closed.moment, fmt.Sprintf("the client closed session %d on it", s.id)}
}

// leftAfter tells whether a client ended a session after m, and before it was asked to close.
func (v *view) leftAfter(s *session, m moment) bool {
	return m.before(s.closed.moment) && s.closed.happened() && !v.closing[s.client].before(s.closed.moment)
}

// unmatchedCloses stands on P3: the stray response was read, by an R with its token or
// by a frame behind it that had an effect, and then the client sent the A of a call on
// that session that was asked for only after that proof had come in, so it cannot have
// been in flight, and was received when even a late client had to have left (P11).
// An A that answers an attempt, however late, is no stray one; closing is always right.
func unmatchedCloses(j *judge) {
	for _, f := range j.strays() {
		s := j.byID[f.session]
		if j.blind(s.client, never) {
			continue
		}
		if j.leftAfter(s, f.first()) {
			j.checked()
			continue
		}
		p := j.strayRead(f)
		if !p.happened() {
			continue
		}
		a := j.askedOn(s, p.moment)
		if a == nil {
			continue
		}
		c := a.only()
		j.find(j.promised(), Certain, fmt.Sprintf("client %s sent %s on session %d for call %d, although it had read %s there, which names %s and answers nothing it had sent (%s, %s before)",
			s.client, a.ref, s.id, c.id, f.ref, named(f), p.why, ms(since(p.moment, a.first()))),
			j.evidence(scene{call: c, frame: f, offset: len(f.data), at: a.first().ord}))
	}
}

// askedOn finds the first A on a session of a call that was asked for after m, if it
// came when a client that had to leave the session at m had to have left.
func (v *view) askedOn(s *session, m moment) *attempt {
	for _, a := range v.attempts {
		if c := a.only(); c != nil && a.session == s.id && m.before(c.asked) && a.first().at > m.at+leaveSlack {
			return a
		}
	}
	return nil
}

// unmatchedReleased stands on P10. An A that nobody waited for was read (P3), the
// client lived, no byte of it is unread, it had a session that worked for as long as
// the lease ran (for a grant that the table does not know, for 5 s), and no R with the
// token came. Any R with the token acquits, on whatever session, and so does a part of
// one. A token that some other A carried too may be matched to a call; then no R is
// asked for, and one that comes while the application has the lock gives it away.
func unmatchedReleased(j *judge) {
	if !j.tokens {
		return
	}
	for _, f := range j.strays() {
		s := j.byID[f.session]
		if !f.isOp(opAcquired) || j.blind(s.client, never) {
			continue
		}
		token, _, _ := f.field(fieldToken)
		if j.carriers(s.client, token) > 1 {
			j.duplicateKept(s, f, token)
			continue
		}
		if j.toldToSomeone(s.client, token) {
			continue
		}
		j.orphan(s, f, token)
	}
}

// orphan judges a stray grant by its R, or by the lack of one.
func (j *judge) orphan(s *session, f *wireFrame, token uint64) {
	for _, r := range j.releasesOf(s.client) {
		if t, _, ok := r.field(fieldToken); !ok || t == token {
			if ok {
				j.checked()
			}
			return
		}
	}
	p := j.strayRead(f)
	if !p.happened() {
		p = j.leftFor(f)
	}
	if !p.happened() || j.troubled() {
		return
	}
	lasts := orphanLimit
	key, _ := f.tail()
	if g := j.grantOf(key, token); g != nil {
		if g.how != history.Expired {
			return
		}
		lasts = max(lasts, g.end.at-p.at)
	}
	if until, ok := j.workedFor(s.client, p.moment, lasts); ok && !j.policy.NoPong {
		j.find(j.promised(), Certain, fmt.Sprintf("client %s never sent an R with token %d, which it had read in %s on session %d, a grant that answers nothing it had sent (%s); it had a working session until %s, %s later",
			s.client, token, f.ref, s.id, p.why, ms(until), ms(until-p.at)),
			j.evidence(scene{frame: f, offset: len(f.data), at: j.after(until), key: key}))
	}
}

// troubled tells whether a fault made it hard to connect, or silenced a session.
func (v *view) troubled() bool {
	return slices.ContainsFunc(v.fired, func(e *history.Event) bool {
		return !slices.ContainsFunc([]string{"inject", "duplicate", "split", "delay", "dribble"},
			func(family string) bool { return strings.HasPrefix(e.Fault, family) })
	})
}

// workedFor finds a stretch of time that begins at m or later, in which the client
// lived and one session of it was up throughout, and says when it is over.
func (v *view) workedFor(client string, m moment, lasts time.Duration) (time.Duration, bool) {
	for _, s := range v.sessionsOf(client) {
		from := m
		for _, f := range slices.Concat(s.requests(), s.delivered()) {
			if f.shape != nil && f.shape.Kind == frames.Preface && m.before(f.end()) && from.before(f.end()) {
				from = f.end()
			}
		}
		from.ord++ // the preface has to have ended before
		if until := from.at + lasts; v.watched(client, until) && v.working(client, from, until) {
			return until, true
		}
	}
	return 0, false
}

// after is the order number of the first event at or after a time.
func (v *view) after(at time.Duration) int {
	for i := range v.events {
		if v.events[i].At >= at {
			return i + 1
		}
	}
	return len(v.events)
}

// duplicateKept judges a grant that was delivered once more: an R with its token that
// comes before the call's lease can be over, and before the application has asked for
// anything, is no release that the application knows of.
func (j *judge) duplicateKept(s *session, f *wireFrame, token uint64) {
	i := slices.IndexFunc(j.calls, func(d *call) bool {
		return d.client == s.client && d.outcome == history.OutcomeAcquired && d.hasToken && d.token == token
	})
	if i < 0 || len(j.calls[i].attempts) == 0 {
		return
	}
	d := j.calls[i]
	if j.leftAfter(s, f.first()) || j.strayRead(f).happened() {
		j.checked()
	}
	for _, r := range j.releasesOf(s.client) {
		t, m, ok := r.field(fieldToken)
		if !ok || t != token || !f.first().before(m) || !d.result.before(r.first()) {
			continue
		}
		asked := len(d.releases) > 0 && d.releases[0].before(m) || d.cancel.before(m) || j.closing[s.client].before(m)
		if asked || m.at >= d.attempts[0].first().at+d.lease-stampSlack {
			continue
		}
		j.find(j.promised(), Certain, fmt.Sprintf("client %s sent %s on session %d with token %d, which call %d on key %q had been told and was not asked to release, after %s had carried it once more",
			s.client, r.ref, r.session, token, d.id, d.key, f.ref),
			j.evidence(scene{call: d, frame: r, offset: len(r.data), at: m.ord}))
		return
	}
}
