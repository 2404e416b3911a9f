package proxy

import (
	"tornwire/faults"
	"tornwire/frames"
)

// tally counts the frames of one shape: of the link, of all sessions, and of the
// client's. Frames are counted whether or not a rule is armed, so that a rule that
// comes later means the same ones.
type tally struct {
	shape       *frames.Shape
	own         int
	fresh       int // passed over in this read, and not yet counted
	all, client *counter

	book  *rulebook
	rules []*armed // of the book that can take such a frame of this link
}

// number counts a frame.
func (l *link) number(s *frames.Shape) faults.Frame {
	t := l.tally(s)
	t.own++
	return faults.Frame{
		Dir: l.dir, Op: s.Op, Session: l.s.id, SessionNth: t.own, Nth: int(t.all.Add(1)),
		Client: l.s.client, ClientNth: int(t.client.Add(1)), From: l.s.from,
	}
}

// tally finds the tally of a shape, with the rules that are armed now.
func (l *link) tally(s *frames.Shape) *tally {
	var t *tally
	for i := range l.tallies {
		if l.tallies[i].shape == s {
			t = &l.tallies[i]
			break
		}
	}
	if t == nil {
		all, client := l.p.talliesOf(l.dir, s.Op, l.s.client)
		l.tallies = append(l.tallies, tally{shape: s, all: all, client: client})
		t = &l.tallies[len(l.tallies)-1]
	}
	if t.book != l.book {
		t.book, t.rules = l.book, l.possible(l.book.by[l.dir][s.Op])
	}
	return t
}

// settle adds what is fresh to the counters.
func (t *tally) settle() {
	if t.fresh > 0 {
		t.own += t.fresh
		t.all.Add(int64(t.fresh))
		t.client.Add(int64(t.fresh))
		t.fresh = 0
	}
}

// possible picks the rules that some frame of this link can meet.
func (l *link) possible(rules []*armed) []*armed {
	var out []*armed
	for _, r := range rules {
		t := r.Trigger
		t.Nth, t.SessionNth, t.ClientNth = 0, 0, 0
		if t.Applies(faults.Frame{Dir: l.dir, Op: t.Op, Session: l.s.id, Client: l.s.client, From: l.s.from}) {
			out = append(out, r)
		}
	}
	return out
}

// glance passes over the whole messages at the start of p that no rule takes, and
// returns their length. It does so only where nobody wants to know about each.
func (l *link) glance(p []byte) (n int) {
	if l.rec != nil || l.unsure != nil || l.pair != nil {
		return 0
	}
	for n < len(p) {
		s, size := l.dec.Peek(p[n:])
		if size == 0 {
			break
		}
		t := l.tally(s)
		if len(t.rules) > 0 && t.wanted(p[n:n+size]) {
			break
		}
		count := 1
		if len(t.rules) == 0 {
			size, count = s.Run(p[n:])
		}
		l.dec.Skip(size, count)
		t.fresh += count
		n += size
	}
	for i := range l.tallies {
		l.tallies[i].settle()
	}
	return n
}

// wanted tells whether a rule may take a whole frame.
func (t *tally) wanted(frame []byte) bool {
	for _, r := range t.rules {
		if r.Where(t.shape, frame, true) == faults.Yes {
			return true
		}
	}
	return false
}
