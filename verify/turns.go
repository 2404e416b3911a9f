package verify

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// turns lets the events of a case inside a bubble happen one at a time: what the tool's
// application does next, it does when all that its last act has caused is over, and where
// several of its threads are about to act at one time, the one with the lowest rank does
// first. So the same case puts the same bytes on the wire. The zero value is ready.
type turns struct {
	// settle returns when everything in the bubble waits for time to pass; one goroutine
	// may call it at a time.
	settle func()

	mu      sync.Mutex
	waiting []*turn
	running bool
}

// turnTime is over the time that what an act causes is on its way, and of no length that
// anything else has.
const turnTime = 491357 * time.Nanosecond

type turn struct {
	rank string
	come chan struct{}
}

// take returns when it is the turn of the caller, or done is closed.
func (s *turns) take(rank string, done <-chan struct{}, spawn func(func())) {
	t := &turn{rank: rank, come: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, t)
	first := !s.running
	s.running = true
	s.mu.Unlock()
	if first {
		spawn(s.give)
	}
	select {
	case <-t.come:
	case <-done:
	}
}

// give gives turns until nobody waits for one.
func (s *turns) give() {
	for {
		s.settle() // whoever is about to act has come, too
		time.Sleep(turnTime)
		s.settle()
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		slices.SortStableFunc(s.waiting, func(a, b *turn) int { return cmp.Compare(a.rank, b.rank) })
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		close(next.come)
	}
}
