package checker

import (
	"cmp"
	"fmt"
	"slices"

	"tornwire/frames"
	"tornwire/history"
)

// Ops of the frames that speak of the cluster, and the reasons of an E that do
// (spec/ticketing.md §3.10 to §3.12).
const (
	opMoved, opNotice, opError = "M", "L", "E"

	reasonNoLeader   = "no_leader"
	reasonNotActive  = "not_active"
	reasonAuthFailed = "auth_failed"
)

// word is an M, L or E that was written to a client, whole.
type word struct {
	*wireFrame
	s        *session
	text     string // its address or reason
	accepted moment
}

// words lists what was written to clients of an op, in order.
func (v *view) words(op string) []word {
	var out []word
	for _, s := range v.sessions {
		if s.client == "" {
			continue
		}
		for _, f := range s.delivered() {
			if !f.isOp(op) || f.unknown || !f.whole || f.shape.Check(f.data) != nil {
				continue
			}
			if at := f.cells[len(f.cells)-1].accepted; at.happened() {
				text, _ := f.tail()
				out = append(out, word{f, s, text, at})
			}
		}
	}
	slices.SortFunc(out, func(a, b word) int { return cmp.Compare(a.end().ord, b.end().ord) })
	return out
}

// listedErrors are the words E no_leader, E not_active and E auth_failed.
func (v *view) listedErrors() []word {
	return slices.DeleteFunc(v.words(opError), func(w word) bool {
		return w.text != reasonNoLeader && w.text != reasonNotActive && w.text != reasonAuthFailed
	})
}

// addresses are those that each client was given, those at which it connected, by
// session, and those that nobody was given, by the client to which they are ascribed.
type addresses struct {
	given  map[string][]string
	dialed map[int]string
	canary map[string]moment
}

func (v *view) addresses() addresses {
	a := addresses{map[string][]string{}, map[int]string{}, map[string]moment{}}
	for i := range v.events {
		switch e := &v.events[i]; e.Kind {
		case history.ClientOpened:
			if e.Addr != "" {
				a.given[e.Client] = splitList(e.Addr)
			}
		case history.SessionOpened:
			a.dialed[e.Session] = e.Addr
		case history.CanarySet:
			a.canary[e.Client+" "+e.Addr] = moment{i + 1, e.At}
		}
	}
	return a
}

// asksAfter tells whether a client was asked for an acquire after a moment.
func (v *view) asksAfter(client string, m moment) bool {
	return slices.ContainsFunc(v.calls, func(c *call) bool { return c.client == client && m.before(c.asked) })
}

// waiting tells whether a must be the one attempt of c, and was waiting for its
// answer on the session of w when that was written.
func (v *view) waiting(c *call, w word) (*attempt, bool) {
	if c.client != w.s.client || len(c.attempts) != 1 || !c.result.happened() || !w.end().before(c.result) {
		return nil, false
	}
	a := c.attempts[0]
	answered := slices.ContainsFunc(v.finals(c, opAcquired, opTimeout, opBusy), func(f *wireFrame) bool { return f.first().before(w.end()) })
	return a, a.session == w.s.id && v.sole(a) == c && a.first().before(w.first()) && !answered
}

// soleCause tells whether only w can have led to the result of c, whose attempt is a:
// it came just after w, from an adapter that answers in time (P11: else the word may be
// older than the frame), and well before the deadline, nothing was asked of the client,
// nobody had ended the session before w, and since the request began nothing but
// keep-alives and words of the cluster was written there; elsewhere no final answer to
// the key was, nor the token that was told.
func (v *view) soleCause(w word, c *call, a *attempt) bool {
	if v.policy.NoPong || !just(w.wireFrame, c.result) || !v.early(c, c.result) || v.blind(c.client, c.result.ord) || v.late.before(c.result) ||
		c.cancel.before(c.result) || v.closing[c.client].before(c.result) || w.s.closed.before(w.end()) || w.s.cutFirst(c.result) {
		return false
	}
	for _, s := range v.sessionsOf(c.client) {
		for _, f := range s.delivered() {
			if f == w.wireFrame || !f.first().before(c.result) || s == w.s && silent(f) {
				continue
			}
			t, _, ok := f.field(fieldToken)
			switch {
			case s == w.s && !f.end().before(a.first()):
				return false
			case f.isOp(opAcquired) && ok && c.hasToken && t == c.token:
				return false
			case !f.end().before(a.first()) && answersAcquire(f) && keyFits(f, c.key):
				return false
			}
		}
	}
	return true
}

// cutFirst tells whether we had ended a session before a moment, and not only because
// the client had.
func (s *session) cutFirst(m moment) bool {
	return s.cut.before(m) && !s.closed.before(s.cut.moment)
}

// silent tells whether a frame answers nothing by itself: a keep-alive, a line of the
// preface, an M or an L.
func silent(f *wireFrame) bool {
	return f.shape != nil && !f.unknown && f.whole && (f.shape.Kind != frames.Message || f.isOp(opMoved) || f.isOp(opNotice))
}

// heard finds the first proof that the client had read w (P3): the token of an A
// behind it on its session was told or released, or a call was told an end for which
// there was no other cause.
func (v *view) heard(w word) proof {
	var p proof
	note := func(m moment, format string, args ...any) {
		if m.happened() && (!p.happened() || m.before(p.moment)) {
			p = proof{m, fmt.Sprintf(format, args...)}
		}
	}
	for _, h := range w.s.delivered() {
		t, _, ok := h.field(fieldToken)
		if !ok || !h.isOp(opAcquired) || !h.whole || !behind(w.s, w.wireFrame, h) || v.carriers(w.s.client, t) != 1 {
			continue
		}
		for _, d := range v.calls {
			if d.client == w.s.client && d.hasToken && d.token == t && h.end().before(d.result) {
				note(d.result, "call %d was told the token of %s behind it", d.id, h.ref)
			}
		}
		for _, r := range v.releasesOf(w.s.client) {
			if n, at, ok := r.field(fieldToken); ok && n == t && h.end().before(at) {
				note(at, "%s has the token of %s behind it", r.ref, h.ref)
			}
		}
	}
	for _, c := range v.calls {
		if a, ok := v.waiting(c, w); ok && v.soleCause(w, c, a) {
			note(c.result, "call %d was told %s, and nothing else had happened", c.id, plainWord(c.outcome))
		}
	}
	return p
}
