package proxy

import (
	"slices"

	"tornwire/faults"
	"tornwire/frames"
)

// unsure is a frame that is held back because a rule has to see more of it.
type unsure struct {
	frame faults.Frame
	rules []*armed // that may still take it, in order
	held  []byte
}

// choose finds the rule that takes a frame of which the first piece is there. If
// that is not enough to tell, the frame is unsure.
func (l *link) choose(f faults.Frame, rules []*armed, pc frames.Piece) {
	if rest := l.try(f, rules, pc.Shape, pc.Seq, pc.Data, pc.Last); len(rest) > 0 {
		l.unsure = &unsure{frame: f, rules: rest}
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
		draw, ok := r.take(l.s.p.cfg.Seed, f.Session, f.Dir, seq)
		switch {
		case !ok:
		case r.watches():
			l.s.p.seen(r, len(have))
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
	u.rules = slices.DeleteFunc(slices.Clone(u.rules), func(r *armed) bool { return !slices.Contains(l.book.all, r) })
	if u.rules = l.try(u.frame, u.rules, pc.Shape, pc.Seq, u.held, pc.Last); len(u.rules) > 0 {
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
		l.emit(u.held, 0)
	}
}

// seen counts a frame that a rule without a fault has taken, and gives its signal.
func (p *Proxy) seen(r *armed, n int) {
	r.fired.Add(1)
	r.bytes.Add(int64(n))
	if r.Signal != "" {
		p.OpenGate(r.Signal)
	}
}
