package proxy

import (
	"slices"
	"sync"

	"tornwire/faults"
	"tornwire/history"
)

// pair holds what is left of a frame until the next one is whole. The link's
// reader fills it; whoever takes it gets what is there.
type pair struct {
	mu    sync.Mutex
	parts [2]part
	next  bool          // the second frame has begun
	over  bool          // taken
	ready chan struct{} // closed when nothing more will come
	whole bool          // because both frames are whole
}

// part is a run of bytes of one frame.
type part struct {
	frame history.FrameRef
	off   int
	data  []byte
}

func newPair() *pair { return &pair{ready: make(chan struct{})} }

// add keeps bytes; it is false if the pair was taken.
func (p *pair) add(frame history.FrameRef, off int, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	w := &p.parts[0]
	if p.next {
		w = &p.parts[1]
	}
	if w.data == nil {
		w.frame, w.off = frame, off
	}
	w.data = append(w.data, data...)
	return true
}

// takeNext lets the second frame begin; it is false if the pair was taken.
func (p *pair) takeNext() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = !p.over
	return p.next
}

// endFrame notes that a frame is whole; it is true if that was the second.
func (p *pair) endFrame() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next {
		p.whole = true
		close(p.ready)
	}
	return p.next
}

// take returns both parts, and whether both frames are whole.
func (p *pair) take() (first, second part, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	return p.parts[0], p.parts[1], p.whole
}

// parted ends the wait of a frame for the next: none will come.
func (l *link) parted() {
	if l.pair != nil {
		close(l.pair.ready)
		l.pair = nil
	}
}

// unite waits for the second frame of a pair and writes both.
func (l *link) unite(it item) {
	l.pause(it, it.pair.ready)
	first, second, whole := it.pair.take()
	whole = whole && !it.fire.rule.dead.Load()
	switch k := it.step.N; {
	case it.step.Kind == faults.Swap && whole:
		l.fire(it.fire)
		first, second = second, first
	case it.step.Kind == faults.Splice && whole && len(second.data) > k:
		l.fire(it.fire)
		first, second = part{second.frame, k, second.data[k:]}, part{}
	}
	var marks []mark
	if l.rec != nil {
		for _, p := range []part{first, second} {
			if len(p.data) > 0 {
				marks = append(marks, mark{p.frame, p.off, len(p.data), it.fire.rule.Fault.Class == faults.Byzantine})
			}
		}
	}
	l.write(slices.Concat(first.data, second.data), marks)
}
