package checker

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"
)

// Limits of reconnecting (spec/rules.md, error-backs-off).
const (
	hotRate    = 20 // connections a second, for each session that the client has at a time
	hotSeconds = 3
	// hotSlack is by how much longer than it shows the time may have been in which
	// they were made: a connection is stamped when it is accepted (P11).
	hotSlack = 2 * stampSlack
)

// path is what a client connected to at one address, in order.
type path struct {
	client, to string
	sessions   []*session
}

// paths groups the sessions whose client is known.
func (v *view) paths() []path {
	var out []path
	for _, s := range v.sessions {
		if s.client == "" || !s.opened.happened() {
			continue
		}
		i := slices.IndexFunc(out, func(p path) bool { return p.client == s.client && p.to == s.to })
		if i < 0 {
			i = len(out)
			out = append(out, path{client: s.client, to: s.to})
		}
		out[i].sessions = append(out[i].sessions, s)
	}
	for _, p := range out {
		slices.SortFunc(p.sessions, func(a, b *session) int { return cmp.Compare(a.opened.ord, b.opened.ord) })
	}
	return out
}

// errorBacksOff stands on X alone: each connection was accepted, so the client made
// it. In each of three seconds in a row there were more than a paced client makes,
// and in all three more than one makes in that time and the lateness that P11 allows
// at both ends of it. As many sessions as the client ever had at a time count as
// parallel ones, each with a pace of its own. It is judged where a session was ended
// and for three seconds a call of the client went on without one that lasted.
func errorBacksOff(j *judge) {
	for _, p := range j.paths() {
		if j.starved(p) {
			j.checked()
		}
		n := p.parallel()
		first, count, ok := p.hot(hotRate * n)
		if !ok {
			continue
		}
		from := p.sessions[first]
		s := scene{at: from.opened.ord}
		for _, o := range p.sessions[first:min(first+3, len(p.sessions))] {
			s.also = append(s.also, o.id)
		}
		address := p.to
		if address == "" {
			address = "one address"
		}
		j.find(Hygiene, j.punctual(), fmt.Sprintf("client %s opened %d, %d and %d connections to %s in three seconds in a row from %s on, although it never had more than %d at a time",
			p.client, count[0], count[1], count[2], address, ms(from.opened.at), n), j.evidence(s))
	}
}

// hot finds the first connection from which on each of three seconds has more than a
// number of them, and counts them.
func (p path) hot(most int) (first int, count [hotSeconds]int, ok bool) {
	before := func(at time.Duration) int {
		return sort.Search(len(p.sessions), func(k int) bool { return p.sessions[k].opened.at >= at })
	}
	for i, s := range p.sessions {
		for k := range count {
			from := s.opened.at + time.Duration(k)*time.Second
			count[k] = before(from+time.Second) - before(from)
		}
		total := count[0] + count[1] + count[2]
		if slices.Min(count[:]) > most && total > most*int(hotSeconds*time.Second+hotSlack)/int(time.Second) {
			return i, count, true
		}
	}
	return 0, count, false
}

// parallel is the most sessions that were open at a time, and at least one.
func (p path) parallel() int {
	ends := make([]int, 0, len(p.sessions))
	for _, s := range p.sessions {
		if end := s.ended(); end.happened() {
			ends = append(ends, end.ord)
		}
	}
	slices.Sort(ends)
	most, over := 1, 0
	for i, s := range p.sessions {
		for over < len(ends) && ends[over] < s.opened.ord {
			over++
		}
		most = max(most, i+1-over)
	}
	return most
}

// starved tells whether a session of the client was ended by its peer while a call
// waited, which then went on for three seconds in which none lasted.
func (v *view) starved(p path) bool {
	last := v.events[len(v.events)-1].At
	return slices.ContainsFunc(v.calls, func(c *call) bool {
		k := slices.IndexFunc(p.sessions, func(s *session) bool { return c.asked.before(s.cut.moment) && s.cut.happened() })
		if c.client != p.client || k < 0 {
			return false
		}
		until := p.sessions[k].cut.at + hotSeconds*time.Second
		lasts := func(o *session) bool {
			end := o.ended()
			return o.opened.at < until && (!end.happened() || end.at >= until)
		}
		return last >= until && (!c.result.happened() || c.result.at >= until) && !slices.ContainsFunc(v.sessionsOf(p.client), lasts)
	})
}
