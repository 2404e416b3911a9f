package checker

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// maxLease is over the longest lease and wait of any dialect. A history that names
// a longer one is not judged by it.
const maxLease = 1 << 17 * time.Second

// leaseEnds stands on S: a grant was made, its lease and answerLimit passed, and
// an attempt that had been queued within the lease was then still waiting although
// nobody had been granted the key since. It is for the contract: a waiter that is
// kept out harms no exclusion. Time is seen to have passed by a later event of the
// case, before the tool began to clear up; a case in which the tool itself was
// late is not judged (P11). Without the table see leaseEndsByWire.
func leaseEnds(j *judge) {
	if j.late.happened() {
		return
	}
	c := j.newClock()
	if !j.policy.SawTable {
		leaseEndsByWire(j, c)
		return
	}
	byKey := map[string][]tableEntry{}
	var keys []string
	for i := range j.events {
		e := &j.events[i]
		switch e.Kind {
		case history.Queued, history.Granted, history.GrantEnded, history.AttemptEnded:
			if byKey[e.Key] == nil {
				keys = append(keys, e.Key)
			}
			byKey[e.Key] = append(byKey[e.Key], tableEntry{e, moment{i + 1, e.At}})
		}
	}
	ends := j.serverEnds()
	for _, key := range keys {
		j.leaseEndsOf(byKey[key], c, ends)
	}
}

// tableEntry is an event of the table and its place.
type tableEntry struct {
	*history.Event
	moment
}

// leaseEndsOf replays the table's events of one key.
func (j *judge) leaseEndsOf(log []tableEntry, c *clock, ends map[*session]moment) {
	var waiting []tableEntry
	var last tableEntry
	var due moment // the first event after the grant's lease and answerLimit
	settle := func(until int) {
		if due.happened() && due.ord <= until {
			j.keptWaiting(last, due, waiting, ends)
			due = moment{}
		}
	}
	for _, e := range log {
		settle(e.ord)
		switch e.Kind {
		case history.Queued:
			waiting = append(waiting, e)
		case history.AttemptEnded:
			waiting = without(waiting, e)
		case history.GrantEnded:
			if e.How == history.Expired && len(waiting) > 0 {
				j.checked()
			}
		case history.Granted:
			waiting = without(waiting, e)
			last, due = e, moment{}
			if e.Lease > 0 && e.Lease <= maxLease {
				due = c.seen(e.moment.at + e.Lease + answerLimit)
			}
		}
	}
	settle(never)
}

// without removes the attempt that an event ends, if it was waiting.
func without(waiting []tableEntry, e tableEntry) []tableEntry {
	for i, w := range waiting {
		if w.Peer == e.Peer && w.HasOwner == e.HasOwner && w.Owner == e.Owner {
			return slices.Delete(waiting, i, i+1)
		}
	}
	return waiting
}

// keptWaiting judges the attempts that waited when the lease was long over.
func (j *judge) keptWaiting(g tableEntry, due moment, waiting []tableEntry, ends map[*session]moment) {
	for _, w := range waiting {
		if w.moment.at > g.moment.at+g.Lease || !j.stillWaits(w, g.moment.at+g.Lease+answerLimit, due, ends) {
			continue
		}
		who := "an attempt of the tool itself"
		if s := j.peers[w.Peer]; s != nil {
			who = fmt.Sprintf("an attempt on session %d", s.id)
		}
		s := scene{key: g.Key, at: due.ord}
		if made := j.grantOf(g.Key, g.Token); made != nil {
			s.others = known(made.call)
		}
		j.find(Contract, Certain, fmt.Sprintf("%s has waited for key %q since %s and was not granted it by %s, although the lease of token %d, %s from %s on, had ended",
			who, g.Key, ms(w.moment.at), ms(due.at), g.Token, g.Lease, ms(g.moment.at)), j.evidence(s))
		return
	}
}

// stillWaits tells whether a queued attempt was certainly to be granted at a time:
// its session alive, no reply to it received, its wait not over.
func (v *view) stillWaits(w tableEntry, at time.Duration, due moment, ends map[*session]moment) bool {
	if w.Wait < 0 || w.Wait > maxLease || w.Wait > 0 && w.moment.at+w.Wait <= at+inFlight {
		return false
	}
	if w.Peer == "" {
		return true
	}
	s := v.peers[w.Peer]
	if s == nil || ends[s].before(due) {
		return false
	}
	for _, f := range s.forwarded() {
		if !f.isOp(opAcquire) || !f.whole || !keyFits(f, w.Key) || !ownedBy(f, w) {
			continue
		}
		n, _, ok := f.field(fieldWait)
		if ok && (n > 0 || v.owners) && f.end().before(w.moment) && f.end().at+time.Duration(n)*time.Second <= at {
			return false
		}
	}
	return !slices.ContainsFunc(s.replies(), func(r *wireFrame) bool {
		return answersAcquire(r) && keyFits(r, w.Key) && ownedBy(r, w) && w.before(r.first()) && r.first().before(due)
	})
}

func ownedBy(f *wireFrame, w tableEntry) bool {
	owner, _, ok := f.field(fieldOwner)
	return !ok || !w.HasOwner || owner == w.Owner
}

// clock finds the first event at or after a time.
type clock struct {
	latest []time.Duration // of the events up to here
}

// newClock goes on until the tool begins to clear up: what is not done then proves
// nothing.
func (v *view) newClock() *clock {
	n := slices.IndexFunc(v.events, func(e history.Event) bool { return e.Kind == history.CaseEnding })
	if n < 0 {
		n = len(v.events)
	}
	return clockOf(v.events[:n])
}

func clockOf(events []history.Event) *clock {
	c := &clock{latest: make([]time.Duration, 0, len(events))}
	var top time.Duration
	for i := range events {
		top = max(top, events[i].At)
		c.latest = append(c.latest, top)
	}
	return c
}

func (c *clock) seen(at time.Duration) moment {
	n := sort.Search(len(c.latest), func(i int) bool { return c.latest[i] >= at })
	if n == len(c.latest) {
		return moment{}
	}
	return moment{n + 1, c.latest[n]}
}

// serverEnds has, for each session, the first moment at which its connection to
// the server ended on either side, or from which its replies could not be read.
func (v *view) serverEnds() map[*session]moment {
	out := map[*session]moment{}
	for _, s := range v.sessions {
		out[s] = s.link(frames.ServerToClient).in.dark
	}
	for i := range v.events {
		e := &v.events[i]
		if e.Kind != history.EndSeen && e.Kind != history.EndSent || e.Side != history.ServerSide {
			continue
		}
		if s, m := v.byID[e.Session], (moment{i + 1, e.At}); s != nil && m.before(out[s]) {
			out[s] = m
		}
	}
	return out
}

// leaseEndsByWire stands on F and U. A grant was made before its A was received,
// so its lease, the longest that its attempt can have asked for, is over that long
// after. An attempt that was forwarded within the lease has no reply answerLimit
// later. Other attempts of the key that have none either may have been granted
// unseen if their session has ended, and a server that said Moved, a leader or an
// error is another one now: then nothing is judged. It is a suspicion outside a
// declared closed world (P14).
func leaseEndsByWire(j *judge, c *clock) {
	certainty := Suspect
	if j.policy.ClosedWorld {
		certainty = Certain
	}
	ends := j.serverEnds()
	var all []window
	byKey := map[string][]window{}
	for _, d := range j.dialogues() {
		ws := d.windows()
		all = append(all, ws...)
		byKey[d.key] = append(byKey[d.key], ws...)
	}
	before := map[string]turnAt{}
	for _, g := range j.inTurn(all) {
		if a, ok := before[g.key]; ok && g.from.asked[g.from.from].end().at < a.until && !j.releaseForwarded(a.wireGrant, g.reply.first()) {
			j.checked() // it waited, and was granted when the lease had ended
		}
		before[g.key] = g
		j.lapsed(g, certainty, c, byKey[g.key], ends)
	}
}

// turnAt is a grant as the bytes show it: where its attempt may be, and when its
// lease was over at the latest.
type turnAt struct {
	wireGrant
	from  *window
	lease time.Duration
	over  time.Duration
}

// inTurn lists the A frames of the windows by their tokens.
func (v *view) inTurn(all []window) []turnAt {
	var out []turnAt
	for i := range all {
		w := &all[i]
		for _, r := range w.replies {
			t, _, ok := r.field(fieldToken)
			if !ok || !r.isOp(opAcquired) {
				continue
			}
			g := turnAt{wireGrant: wireGrant{reply: r, key: w.key, token: t, until: forever}, from: w}
			for _, f := range w.candidates(r) {
				n, _, _ := f.field(fieldLease)
				lease := time.Duration(n) * time.Second
				g.until, g.lease = min(g.until, f.first().at+lease), max(g.lease, lease)
			}
			g.over = r.first().at + g.lease
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b turnAt) int { return cmp.Compare(a.token, b.token) })
	return out
}

// lapsed judges the attempts that were not answered when the lease of a grant was
// long over.
func (j *judge) lapsed(g turnAt, certainty Certainty, c *clock, all []window, ends map[*session]moment) {
	due := c.seen(g.over + answerLimit)
	if g.lease == 0 || !due.happened() {
		return
	}
	for _, w := range all {
		if !w.waitsAt(j.view, g.over, due) {
			continue
		}
		if j.unsure(g, due, all, ends) {
			return
		}
		f := w.asked[w.from]
		j.find(Contract, certainty, fmt.Sprintf("%s on session %d, forwarded whole at %s, had no reply by %s, although token %d, received in %s, was granted for %s",
			f.ref, w.session.id, ms(acceptedAt(f).at), ms(due.at), g.token, g.reply.ref, g.lease), j.about(g.from.dialogue, g.reply, w.session.id))
		return
	}
}

// waitsAt tells whether all attempts of a window were forwarded within the lease,
// have no reply, and have a wait that goes on after it.
func (w *window) waitsAt(v *view, over time.Duration, due moment) bool {
	if len(w.excess) > 0 || len(w.replies) > 0 && w.replies[0].first().before(due) {
		return false
	}
	return !slices.ContainsFunc(w.asked[w.from:w.to], func(f *wireFrame) bool {
		wait, _, ok := f.field(fieldWait)
		if accepted := acceptedAt(f); !accepted.happened() || accepted.at > over {
			return true
		}
		return !ok || wait == 0 && v.owners || wait > 0 && f.end().at+time.Duration(wait)*time.Second <= over+answerLimit+inFlight
	})
}

// unsure tells whether the key may have gone to somebody else by then, or to an
// attempt whose reply was not seen. A lower token may be that of a later grant: a server
// need not give them in order.
func (v *view) unsure(g turnAt, due moment, all []window, ends map[*session]moment) bool {
	for _, s := range v.sessions {
		for _, f := range s.replies() {
			if !f.first().before(due) {
				break
			}
			t, _, ok := f.field(fieldToken)
			known := f.shape != nil && !f.unknown && (f.shape.Kind != frames.Message || hides(f))
			later := !ok || t > g.token || t < g.token && g.reply.end().before(f.first())
			if !known || f.isOp(opAcquired) && keyFits(f, g.key) && later {
				return true
			}
		}
	}
	return slices.ContainsFunc(all, func(w window) bool {
		answered := func(r *wireFrame) bool { return r.first().before(due) }
		if len(w.replies) == w.to-w.from && !slices.ContainsFunc(w.replies, func(r *wireFrame) bool { return !answered(r) }) {
			return false
		}
		return w.asked[w.from].first().before(due) && (ends[w.session].before(due) || w.session.obscured().happened())
	})
}
