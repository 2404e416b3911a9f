package proxy

import (
	"sync/atomic"

	"tornwire/faults"
	"tornwire/frames"
)

// tally counts the frames of one shape: of the link, of all sessions, and of the
// client's. Frames are counted whether or not a rule is armed, so that a rule that
// comes later means the same ones; but as long as there is none for them, each link
// keeps what the counters of all sessions have to get, because it costs much to have
// every CPU write to them.
type tally struct {
	shape   *frames.Shape
	own     int
	fresh   int          // passed over in this read, and not yet counted
	kept    atomic.Int64 // counted in own, and not yet in the others
	book    *rulebook
	rules   []*armed // of the book that can take such a frame of this link
	counted bool     // the others are up to date

	all, client *counter
}

// counter has a cache line of its own: every CPU adds to it.
type counter struct {
	atomic.Int64
	_    [56]byte
	from map[*tally]struct{} // of live links, guarded by the proxy's mutex; nil for a client's
}

// tallyKey names what is counted: the frames of a direction and op, over all
// sessions or over those of a client.
type tallyKey struct {
	dir    frames.Direction
	op     string
	of     bool
	client string
}

// tally finds a counter. The mutex is held.
func (p *Proxy) tally(k tallyKey) *counter {
	c := p.tallies[k]
	if c == nil {
		c = new(counter)
		if !k.of {
			c.from = map[*tally]struct{}{}
		}
		p.tallies[k] = c
	}
	return c
}

// collect brings the counters up to date for which a rule was listed. The mutex is
// held.
func (p *Proxy) collect(dir frames.Direction, op string) {
	for t := range p.tally(tallyKey{dir: dir, op: op}).from {
		t.give()
	}
}

// number counts a frame.
func (l *link) number(s *frames.Shape) faults.Frame {
	t := l.tally(s)
	t.own++
	f := faults.Frame{Dir: l.dir, Op: s.Op, Session: l.s.id, SessionNth: t.own, Client: l.s.client, From: l.s.from}
	if t.counted {
		f.Nth, f.ClientNth = int(t.all.Add(1)), int(t.client.Add(1))
	} else {
		l.keep(t, 1)
	}
	return f
}

// keep counts frames that no rule asks for.
func (l *link) keep(t *tally, n int) {
	t.kept.Add(int64(n))
	if l.p.book.Load() != l.book { // the new one's rules may have been listed before
		t.give()
	}
}

// give adds what was kept to the counters of all sessions.
func (t *tally) give() {
	if n := t.kept.Swap(0); n > 0 {
		t.all.Add(n)
		t.client.Add(n)
	}
}

// tally finds the tally of a shape, with the rules that are armed now.
func (l *link) tally(s *frames.Shape) *tally {
	t := l.tallyOf(s)
	if t.book != l.book {
		rules := l.book.by[l.dir][s.Op]
		t.book, t.rules, t.counted = l.book, l.possible(rules), len(rules) > 0 || l.rec != nil
		if t.counted {
			t.give()
		}
	}
	return t
}

// tallyOf finds the tally of a shape.
func (l *link) tallyOf(s *frames.Shape) *tally {
	for i := range l.shapes {
		if l.room[i].shape == s {
			return &l.room[i]
		}
	}
	for _, t := range l.more {
		if t.shape == s {
			return t
		}
	}
	var t *tally
	if l.shapes < len(l.room) {
		t = &l.room[l.shapes]
		l.shapes++
	} else {
		t = new(tally)
		l.more = append(l.more, t)
	}
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	t.shape = s
	t.all, t.client = p.tally(tallyKey{dir: l.dir, op: s.Op}), p.tally(tallyKey{dir: l.dir, op: s.Op, of: true, client: l.s.client})
	t.all.from[t] = struct{}{}
	return t
}

// settle counts what is fresh in a tally, if there is one.
func (l *link) settle(t *tally) {
	if t == nil || t.fresh == 0 {
		return
	}
	n := t.fresh
	t.fresh = 0
	t.own += n
	if t.counted {
		t.all.Add(int64(n))
		t.client.Add(int64(n))
	} else {
		l.keep(t, n)
	}
}

// unlist ends a tally. The proxy's mutex is held.
func (t *tally) unlist() {
	t.give()
	delete(t.all.from, t)
}

// unlist ends the tallies of a session that is over.
func (s *session) unlist() {
	if !s.linked() {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for _, l := range s.links {
		for i := range l.shapes {
			l.room[i].unlist()
		}
		for _, t := range l.more {
			t.unlist()
		}
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
	var last *tally
	for n < len(p) {
		s, size := l.dec.Peek(p[n:])
		if size == 0 {
			break
		}
		t := l.tally(s)
		if t != last {
			l.settle(last)
			last = t
		}
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
	l.settle(last)
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
