package proxy

import (
	"errors"
	"os"
	"time"

	"tornwire/faults"
	"tornwire/frames"
)

// unsure is a frame that is held back because a rule has to see more of it.
type unsure struct {
	frame faults.Frame
	shape *frames.Shape
	seq   uint64
	rules []*armed // that may still take it, in order
	held  []byte
}

// choose finds the rule that takes a frame of which the first piece is there. If
// that is not enough to tell, the frame is unsure.
func (l *link) choose(f faults.Frame, rules []*armed, pc frames.Piece) {
	if rest := l.try(f, rules, pc.Shape, pc.Seq, pc.Data, pc.Last); len(rest) > 0 {
		l.unsure = &unsure{frame: f, shape: pc.Shape, seq: pc.Seq, rules: rest}
	}
}

// try asks rules in order until one takes the frame; have is what is there of it.
// Those from the first on that has to see more are returned.
func (l *link) try(f faults.Frame, rules []*armed, s *frames.Shape, seq uint64, have []byte, whole bool) []*armed {
	for i, r := range rules {
		if !r.Trigger.Applies(f) || !r.open() {
			continue
		}
		switch r.Where(s, have, whole) {
		case faults.No:
			continue
		case faults.Unknown:
			return rules[i:]
		}
		draw, ok := r.take(l.p.cfg.Seed, f.Session, f.Dir, seq)
		switch {
		case !ok:
		case r.watches():
			l.counting = append(l.counting, r)
			l.p.seen(r)
		default:
			l.rule, l.draw, l.steps = r, draw, r.Steps()
			l.exact = r.Fault.Class == faults.Byzantine
			return nil
		}
	}
	return nil
}

// know adds a piece to the frame that is unsure. When it is known which rule acts,
// or that none does, all of the frame so far is returned as one piece.
func (l *link) know(pc frames.Piece) frames.Piece {
	u := l.unsure
	u.held = append(u.held, pc.Data...)
	if u.rules = l.try(u.frame, u.rules, u.shape, u.seq, u.held, pc.Last); len(u.rules) > 0 {
		return frames.Piece{}
	}
	l.unsure = nil
	pc.First, pc.Off, pc.Data = true, 0, u.held
	return pc
}

// release lets an unsure frame pass that does not become whole.
func (l *link) release() {
	if u := l.unsure; u != nil {
		l.unsure = nil
		l.count(len(u.held))
		l.emit(u.held, 0)
	}
}

// count adds bytes of the frame under way to the rules that have taken it.
func (l *link) count(n int) {
	if l.rule != nil {
		l.rule.bytes.Add(int64(n))
	}
	for _, r := range l.counting {
		r.bytes.Add(int64(n))
	}
}

// await says that the link is about to read while a frame is unsure, or no longer:
// see Proxy.rouse.
func (l *link) await() {
	l.setWaits(l.unsure != nil)
	if l.waits { // what changed before that roused nobody
		l.reconsider()
	}
}

// reconsider asks the rules again about the frame that is unsure: some may have
// gone.
func (l *link) reconsider() {
	if l.unsure == nil {
		return
	}
	if pc := l.know(frames.Piece{Shape: l.unsure.shape, Seq: l.unsure.seq}); len(pc.Data) > 0 {
		l.decided(pc)
		l.setWaits(false)
	}
}

func (l *link) setWaits(waits bool) {
	if l.waits == waits {
		return
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.waits = waits
	if waits {
		l.p.unsure.Add(1)
	} else {
		l.p.unsure.Add(-1)
	}
}

// rouse has the links that hold an unsure frame look at it again, although nothing
// more of it came: the rule that it is held for may have gone.
func (p *Proxy) rouse() {
	if p.unsure.Load() == 0 {
		return
	}
	for _, s := range p.sessionsNow() {
		s.rouse()
	}
}

func (s *session) rouse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.waits {
			l.roused = true
			_ = l.src.SetReadDeadline(time.Unix(1, 0)) // it fails only on a closed connection
		}
	}
}

// wasRoused tells whether a read has failed because of rouse alone; then the link
// goes on reading.
func (l *link) wasRoused(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	l.s.mu.Lock()
	ok := l.roused && !l.s.kept
	if ok {
		l.roused = false
		_ = l.src.SetReadDeadline(time.Time{})
	}
	l.s.mu.Unlock()
	if ok {
		l.reconsider()
		l.flush()
	}
	return ok
}

// seen counts a frame that a rule without a fault has taken, and gives its signal.
func (p *Proxy) seen(r *armed) {
	r.fired.Add(1)
	if r.Signal != "" {
		p.signal(r.Signal)
	}
}
