package checker

import (
	"slices"
	"strings"
	"time"

	"tornwire/history"
)

// turn is what the table decided about an attempt, and whose attempts it can have
// been.
type turn struct {
	moment
	session  *session
	attempts []*attempt
}

// of tells whether the attempt can have been one of the call.
func (t turn) of(c *call) bool {
	return slices.ContainsFunc(t.attempts, func(a *attempt) bool { return slices.Contains(a.calls, c) })
}

// another is a call, not c, whose attempt it must have been; nil if that cannot be
// told.
func (t turn) another(v *view, c *call) *call {
	if len(t.attempts) == 0 || t.of(c) || slices.ContainsFunc(t.attempts, func(a *attempt) bool { return !v.surely(a) }) {
		return nil
	}
	return t.attempts[0].only()
}

// turnOf finds the attempts that an entry of the table can be about: those of its
// session and key with the same wait and lease on the wire, received whole before.
func (v *view) turnOf(key, peer string, wait, lease time.Duration, m moment) turn {
	t := turn{moment: m, session: v.peers[peer]}
	if t.session == nil || t.session.client == "" || v.meddled(t.session) {
		return turn{}
	}
	for _, a := range v.attempts {
		k, whole := a.tail()
		w, _, _ := a.field(fieldWait)
		l, _, _ := a.field(fieldLease)
		if a.session == t.session.id && whole && k == key && a.end().before(m) &&
			time.Duration(w)*time.Second == wait && time.Duration(l)*time.Second == lease {
			t.attempts = append(t.attempts, a)
		}
	}
	return t
}

// meddled tells whether we changed, repeated, reordered or made up a frame of a
// session: without an owner nobody can tell then what an answer is about.
func (v *view) meddled(s *session) bool {
	return slices.ContainsFunc(v.fired, func(e *history.Event) bool {
		return e.Session == s.id && slices.ContainsFunc([]string{"corrupt", "duplicate", "reorder", "splice", "inject", "drop"},
			func(family string) bool { return strings.HasPrefix(e.Fault, family) })
	})
}

// timeouts lists what the table timed out on a key for a client, before a moment.
func (v *view) timeouts(client, key string, before moment) []turn {
	var out []turn
	for i := range v.events {
		e, m := &v.events[i], moment{i + 1, v.events[i].At}
		s := v.peers[e.Peer]
		if e.Kind != history.AttemptEnded || e.How != history.TimedOut || e.Key != key || !m.before(before) ||
			e.Peer == "" || s != nil && s.client != client {
			continue
		}
		out = append(out, v.turnOf(e.Key, e.Peer, e.Wait, e.Lease, m))
	}
	return out
}

// swapsByTable finds the calls of a dialect without owners that were told what the
// table decided about another call's attempt.
func (j *judge) swapsByTable() []mistake {
	if !j.policy.SawTable {
		return nil
	}
	var out []mistake
	calls := slices.Clone(j.calls)
	slices.SortStableFunc(calls, func(a, b *call) int { return a.result.ord - b.result.ord })
	used := map[int]bool{}
	for _, c := range calls {
		if !c.result.happened() || !j.sure(c) || j.blind(c.client, c.result.ord) {
			continue
		}
		if j.overtookInTable(c) {
			j.checked()
		}
		m, ok := j.grantOfAnother(c)
		if !ok {
			m, ok = j.timeoutOfAnother(c, used)
		}
		if ok {
			out = append(out, m)
		}
	}
	return out
}

// grantOfAnother finds the A of a token that was told to c but granted to the attempt
// of another call.
func (j *judge) grantOfAnother(c *call) (mistake, bool) {
	g := j.grantOf(c.key, c.token)
	if c.outcome != history.OutcomeAcquired || !c.hasToken || g == nil {
		return mistake{}, false
	}
	t := j.turnOf(g.key, g.peer, g.wait, g.lease, g.moment)
	d := t.another(j.view, c)
	if d == nil {
		return mistake{}, false
	}
	for _, f := range t.session.delivered() {
		if n, _, ok := f.field(fieldToken); ok && n == c.token && f.isOp(opAcquired) && keyFits(f, c.key) && f.end().before(c.result) {
			return mistake{call: c, frame: f, rightful: d, at: c.result}, true
		}
	}
	return mistake{}, false
}

// timeoutOfAnother finds the T that was told to c, before its time, although the
// table had timed out only attempts of other calls. The first T on a session is that
// of the attempt that was timed out first.
func (j *judge) timeoutOfAnother(c *call, used map[int]bool) (mistake, bool) {
	none := mistake{}
	if c.outcome != history.OutcomeTimeout || !j.unprompted(c) {
		return none, false
	}
	sent := map[*session]int{}
	var found mistake
	for _, t := range j.timeouts(c.client, c.key, c.result) {
		d := t.another(j.view, c)
		if d == nil {
			return none, false // it may have been an attempt of c
		}
		f := j.nthTimeout(t.session, c.key, sent[t.session])
		sent[t.session]++
		if f == nil || found.frame != nil || used[t.ord] || !just(f, c.result) || !askedBefore(c, t.session.id, f.end()) ||
			d.outcome == history.OutcomeTimeout && just(f, d.result) {
			continue
		}
		found = mistake{call: c, frame: f, rightful: d, at: t.moment}
	}
	if found.frame == nil {
		return none, false
	}
	used[found.at.ord] = true
	found.at = c.result
	return found, true
}

// nthTimeout is the T number n, from 0, for a key on a session.
func (v *view) nthTimeout(s *session, key string, n int) *wireFrame {
	for _, f := range s.delivered() {
		if f.isOp(opTimeout) && !f.unknown && f.whole && keyFits(f, key) {
			if n == 0 {
				return f
			}
			n--
		}
	}
	return nil
}

// overtookInTable tells whether the table decided about a later attempt on the call's
// key and session, and its answer was delivered, while the call was waiting.
func (v *view) overtookInTable(c *call) bool {
	turns := v.timeouts(c.client, c.key, c.result)
	for _, g := range v.grants {
		if g.key == c.key && g.peer != "" && g.moment.before(c.result) {
			turns = append(turns, v.turnOf(g.key, g.peer, g.wait, g.lease, g.moment))
		}
	}
	for _, a := range c.attempts {
		answered := func(m moment) bool {
			return slices.ContainsFunc(v.byID[a.session].delivered(), func(f *wireFrame) bool {
				return (f.isOp(opAcquired) || f.isOp(opTimeout)) && keyFits(f, c.key) && m.before(f.first()) && v.waited(a, c, f)
			})
		}
		for _, t := range turns {
			own := func(u turn) bool { return u.of(c) && u.moment.before(t.moment) }
			if d := t.another(v, c); v.surely(a) && d != nil && t.session.id == a.session && a.first().before(t.attempts[0].first()) &&
				!slices.ContainsFunc(turns, own) && answered(t.moment) {
				return true
			}
		}
	}
	return false
}
