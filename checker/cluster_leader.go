package checker

import (
	"fmt"
	"slices"
	"time"

	"tornwire/history"
)

const (
	// noticeTimes is how often a client has to do the same before it is no chance.
	noticeTimes = 3
	// noticeWindow is how soon after an L a close counts as its effect, and how long
	// the session must have been open without anything before: the control run. It is
	// over what the tool may be late by (P11).
	noticeWindow = 250 * time.Millisecond
)

// leaderStays stands on V and X. A single close after an L may have any reason. So it
// takes three of them, all that there were: each on a session with nothing under way,
// that had stayed open for as long just before with nothing coming (the control run),
// and that the client then ended within that time, with nothing else written, asked or
// done. A client that closes what it does not use closes in the control run, too; and so
// that it is no chance how long it waits with that, a session of it must have been left
// alone for longer than any that it closed (rests).
func leaderStays(j *judge) {
	if j.late.happened() || j.shortened {
		return
	}
	var all []*noticed
	for _, w := range j.words(opNotice) {
		closed, ok := j.afterNotice(w)
		if !ok {
			continue
		}
		k := slices.IndexFunc(all, func(n *noticed) bool { return n.client == w.s.client })
		if k < 0 {
			k = len(all)
			all = append(all, &noticed{client: w.s.client})
		}
		all[k].times++
		if closed {
			all[k].closed = append(all[k].closed, w)
		}
	}
	for _, n := range all {
		if n.times < noticeTimes || len(n.closed) == n.times && !j.rests(n) {
			continue
		}
		j.checked()
		if len(n.closed) < n.times {
			continue
		}
		w := n.closed[n.times-1]
		j.find(Hygiene, Certain, fmt.Sprintf("client %s closed %d of %d sessions within %s of an L, the last, session %d, %s after %s; each had stayed open for as long before with nothing coming",
			n.client, n.times, n.times, noticeWindow, w.s.id, ms(since(w.end(), w.s.closed.moment)), spelt(w)),
			j.evidence(scene{frame: w.wireFrame, offset: len(w.data), at: w.s.closed.ord}))
	}
}

// noticed counts the notices of a client that can be judged, and lists those after
// which it closed the session.
type noticed struct {
	client string
	times  int
	closed []word
}

// rests tells whether a session of the client stayed open, with nothing coming and nothing
// under way, for longer than those were left alone, with their L, that it closed.
func (v *view) rests(n *noticed) bool {
	var longest time.Duration
	for _, w := range n.closed {
		for i := w.first().ord - 2; i >= 0; i-- {
			if e := &v.events[i]; v.stirs(e, w.s) && (e.Frame == nil || *e.Frame != w.ref) {
				longest = max(longest, w.s.closed.at-e.At)
				break
			}
		}
	}
	return slices.ContainsFunc(v.sessionsOf(n.client), func(s *session) bool {
		var from moment // nothing has come since, and nothing is under way
		for i := range v.events {
			e, m := &v.events[i], moment{i + 1, v.events[i].At}
			if !v.stirs(e, s) {
				continue
			}
			leaves := e.Kind == history.EndSeen && e.Side == history.ClientSide
			if from.happened() && !leaves && m.at-from.at > longest {
				return true
			}
			from = moment{}
			if !s.ended().before(moment{i + 2, 0}) && s.opened.before(m) && v.idle(s.client, moment{i + 2, 0}) {
				from = m
			}
		}
		return false
	})
}

// stirs tells whether an event is about a session, or about all that its client does.
func (v *view) stirs(e *history.Event, s *session) bool {
	return e.Session == s.id || e.Kind == history.CaseEnding || e.Client == s.client || v.ofClient(e.Call, s.client)
}

// afterNotice tells whether the client closed the session of an L just after it; ok
// is false where that would prove nothing.
func (v *view) afterNotice(w word) (closed, ok bool) {
	s := w.s
	from, to := w.end().at-noticeWindow, w.accepted.at+noticeWindow
	if !s.opened.happened() || s.opened.at > from || s.closed.before(w.end()) || s.cut.before(w.end()) ||
		!v.idle(s.client, w.end()) || v.events[len(v.events)-1].At < to {
		return false, false
	}
	closed = s.closed.happened() && s.closed.at <= to
	for i := range v.events {
		e := &v.events[i]
		switch {
		case e.At < from:
			continue
		case closed && i+1 >= s.closed.ord || e.At > to:
			return closed, true
		case v.disturbs(e, w):
			return false, false
		}
	}
	return closed, true
}

// disturbs tells whether an event may be why a client closes the session of w, other
// than w.
func (v *view) disturbs(e *history.Event, w word) bool {
	switch e.Kind {
	case history.Received, history.WriteBegun, history.WriteAccepted:
		return e.Session == w.s.id && (e.Frame == nil || *e.Frame != w.ref)
	case history.EndSent, history.EndSeen, history.Fired:
		return e.Session == w.s.id
	case history.CallAsked, history.CancelAsked, history.CloseAsked, history.ReleaseAsked:
		return e.Client == w.s.client || v.ofClient(e.Call, w.s.client)
	case history.CaseEnding:
		return true
	}
	return false
}

// idle tells whether no call or release of a client was under way at a moment.
func (v *view) idle(client string, m moment) bool {
	return !slices.ContainsFunc(v.calls, func(c *call) bool {
		if c.client != client || !c.asked.before(m) {
			return false
		}
		asked, told := 0, 0
		for _, r := range c.releases {
			if r.before(m) {
				asked++
			}
		}
		for _, r := range c.released {
			if r.before(m) {
				told++
			}
		}
		return !c.result.before(m) || told < asked
	})
}

func (v *view) ofClient(call int, client string) bool {
	c := v.byCall[call]
	return c != nil && c.client == client
}
