package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tornwire/history"
)

// stampSlack is how much later than it was sent an R may be stamped (P11). An R
// that came less than this after its own lease is only a suspicion, unless the
// release was asked for after the lease had ended.
const stampSlack = 200 * time.Millisecond

// releaseOwn stands on S: the table says which session's R ended a grant, and the
// proxy whose session that is. The R must have been received from the client as it
// was executed (W), so that what we altered or repeated accuses nobody, and a
// first R that came within its own lease acquits however long it was held back, and
// though somebody else's R had ended the own grant before: the client could not know.
// Not judged without the table (P14).
func releaseOwn(j *judge) {
	if !j.policy.SawTable {
		return
	}
	for _, s := range j.sessions {
		for _, r := range s.requests() {
			if s.client != "" && r.isOp(opRelease) && r.whole && j.atRisk(s.client, r) {
				j.checked()
			}
		}
	}
	for _, g := range j.grants {
		s := j.peers[g.endPeer]
		if g.how != history.Released || s == nil || s.client == "" || j.fabricated(s.client, g.key) {
			continue
		}
		rs := j.endedBy(s, g)
		if len(rs) == 0 || g.peer != "" && g.session == nil {
			continue
		}
		if g.session != nil && g.session.client == s.client && !j.betrayed(s.client, g, rs[len(rs)-1]) {
			continue
		}
		worst := guilty
		for _, r := range rs {
			worst = min(worst, j.guilt(s.client, g, r))
		}
		switch worst {
		case guilty:
			j.releasedAnothers(s.client, g, rs[len(rs)-1], Certain)
		case unclear:
			j.releasedAnothers(s.client, g, rs[len(rs)-1], Suspect)
		}
	}
}

// atRisk tells whether a grant of somebody else, or of a second call, of the R's
// key existed when the R came.
func (v *view) atRisk(client string, r *wireFrame) bool {
	key, _ := r.tail()
	own := 0
	for _, g := range v.grants {
		if g.key != key || g.ord > r.end().ord {
			continue
		}
		if g.session == nil || g.session.client != client {
			return true
		}
		own++
	}
	return own > 1
}

// fabricated tells whether the client was given an A for the key that the table
// never granted: what it does then is not its fault.
func (v *view) fabricated(client, key string) bool {
	for _, s := range v.sessionsOf(client) {
		for _, f := range s.delivered() {
			if !f.isOp(opAcquired) {
				continue
			}
			t, _, ok := f.field(fieldToken)
			if f.unknown || ok && keyFits(f, key) && v.grantOf(key, t) == nil {
				return true
			}
		}
	}
	return false
}

// endedBy lists the R frames of a session that can have ended g: received whole,
// naming its key (and token), forwarded at least in part before its end, not
// answered before it was granted. It is empty if the session forwarded an R that
// was not received so.
func (v *view) endedBy(s *session, g *grant) []*wireFrame {
	var rs []*wireFrame
	for _, f := range s.forwarded() {
		if f.unknown {
			return nil
		}
		if !v.names(f, g) || !f.whole || !f.end().before(g.end) {
			continue
		}
		sent := func(r *wireFrame) bool { return r.ref == f.ref && r.whole && v.names(r, g) }
		k := slices.IndexFunc(s.requests(), sent)
		if k < 0 || slices.Contains(rs, s.requests()[k]) {
			return nil
		}
		rs = append(rs, s.requests()[k])
	}
	if len(rs) == 0 {
		return nil
	}
	done := 0
	for _, f := range s.replies() {
		if (f.isOp(opReleased) || f.isOp(opNotHeld)) && keyFits(f, g.key) && f.whole && f.end().before(g.moment) {
			if t, _, ok := f.field(fieldToken); !ok || t == g.token {
				done++
			}
		}
	}
	// Without a token in it, an R that ended another grant of the key has not ended
	// this one; the table took them in the order of the session.
	ended := 0
	for _, h := range v.grants {
		if !v.tokens && h != g && h.key == g.key && h.how == history.Released && v.peers[h.endPeer] == s && h.end.before(g.end) {
			ended++
		}
	}
	return rs[min(max(done, ended), len(rs)-1):]
}

// names tells whether a frame is an R that ends g.
func (v *view) names(f *wireFrame, g *grant) bool {
	if !f.isOp(opRelease) || !keyFits(f, g.key) {
		return false
	}
	t, _, ok := f.field(fieldToken)
	return !v.tokens || ok && t == g.token
}

// betrayed tells, where the grant is of the client's own other call, whether that
// call had it, was not asked to release it, and another call of the client on the
// key can have sent the R.
func (v *view) betrayed(client string, g *grant, r *wireFrame) bool {
	var holder *call
	others := false
	for _, c := range v.calls {
		if c.client != client || c.key != g.key {
			continue
		}
		if c.outcome == history.OutcomeAcquired && c.hasToken && c.token == g.token {
			holder = c
			continue
		}
		others = others || len(c.releases) > 0 && c.releases[0].before(r.end()) ||
			c.outcome != history.OutcomeAcquired && c.result.before(r.end()) && len(c.attempts) > 0
	}
	if holder == nil || !others || !holder.result.before(r.first()) {
		return false
	}
	return !(len(holder.releases) > 0 && holder.releases[0].before(r.end())) &&
		!holder.cancel.before(r.end()) && !v.closing[client].before(r.end())
}

// How much of a grant's end lies with the client, from least to most.
const (
	innocent = iota
	unclear
	guilty
)

// guilt tells whether an R was sent after the client's own lease had passed,
// repeated, or sent without a grant of its own.
func (v *view) guilt(client string, g *grant, r *wireFrame) int {
	worst := guilty
	if v.tokens {
		return worst // the R names the very token that it ended
	}
	for _, own := range v.grants {
		if own == g || own.key != g.key || own.ord > r.first().ord || own.peer == "" ||
			own.session != nil && own.session.client != client {
			continue
		}
		if v.repeated(client, own, r) {
			continue
		}
		over := own.end.at
		if own.how == history.Released { // not by the client, or it would have repeated its R
			over = own.at + own.lease
		}
		switch {
		case !own.end.before(r.first()), own.how == history.Released && r.first().at <= over:
			return innocent
		case r.first().at < over+stampSlack && !v.askedAfter(own):
			worst = unclear
		}
	}
	return worst
}

// repeated tells whether the client had sent an R for the key since own was
// granted, before r.
func (v *view) repeated(client string, own *grant, r *wireFrame) bool {
	return v.predecessor(client, own, r) != nil
}

// predecessor is the last R for the key that the client had sent since own was granted,
// before r; nil if there is none.
func (v *view) predecessor(client string, own *grant, r *wireFrame) *wireFrame {
	var last *wireFrame
	for _, o := range v.releasesOf(client) {
		if o != r && own.ord < o.first().ord && o.first().ord < r.first().ord && keyFits(o, own.key) {
			last = o
		}
	}
	return last
}

// askedAfter tells whether the release of the grant's call was asked for only
// after the table had ended the grant.
func (v *view) askedAfter(own *grant) bool {
	return own.call != nil && len(own.call.releases) > 0 && own.end.before(own.call.releases[0])
}

// releasedAnothers writes the finding, with both tokens, and with the two that
// were then inside if it came to that.
func (j *judge) releasedAnothers(client string, g *grant, r *wireFrame, c Certainty) {
	key := g.key
	from := j.releasing(client, r)
	var own *grant
	for _, o := range j.grants {
		if o != g && o.key == key && o.session != nil && o.session.client == client && o.ord < r.first().ord &&
			(from == nil || o.call == nil || o.call == from) {
			own = o
		}
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s of client %s on key %q ", r.ref, client, key)
	if own != nil {
		fmt.Fprintf(b, "(own token %d", own.token)
		if own.end.before(r.first()) {
			fmt.Fprintf(b, ", %s %s before", own.how, ms(since(own.end, r.first())))
		}
		if o := j.predecessor(client, own, r); o != nil && !j.tokens {
			fmt.Fprintf(b, "; a repetition, since %d bytes of %s on session %d had been received", o.crossed(r.first().ord), o.ref, o.session)
		}
		b.WriteString(") ")
	}
	fmt.Fprintf(b, "ended token %d, which %s held", g.token, g.holder())
	others := []*call{}
	if g.call != nil {
		others = append(others, g.call)
	}
	x, y, for_ := j.together(g, key)
	switch {
	case x != nil:
		fmt.Fprintf(b, "; calls %d (token %d) and %d (token %d) were then both inside", x.id, x.token, y.id, y.token)
		if for_ >= time.Millisecond {
			b.WriteString(" for " + ms(for_))
		}
		others = append(others, x, y)
	case g.call != nil && g.call.entered.before(g.end) && !g.call.left.before(g.end):
		fmt.Fprintf(b, "; call %d was inside, and had no lock any more", g.call.id)
	}
	e := j.evidence(scene{call: from, frame: r, offset: len(r.data), at: g.end.ord, others: others, key: key})
	j.find(Safety, c, b.String(), e)
}

// together finds two calls that were inside on the key at one time after g had
// been ended, one of them its holder.
func (v *view) together(g *grant, key string) (x, y *call, d time.Duration) {
	x = g.call
	if x == nil || !x.entered.happened() || x.left.before(g.end) {
		return nil, nil, 0
	}
	for _, c := range v.calls {
		if c == x || c.key != key || !c.entered.happened() || c.left.before(g.end) || c.left.before(x.entered) || x.left.before(c.entered) {
			continue
		}
		from := max(x.entered.at, c.entered.at, g.end.at)
		to := min(v.leftAt(x), v.leftAt(c))
		return x, c, max(0, to-from)
	}
	return nil, nil, 0
}

// leftAt is when a call left, or the end of the history.
func (v *view) leftAt(c *call) time.Duration {
	if c.left.happened() {
		return c.left.at
	}
	return v.events[len(v.events)-1].At
}
