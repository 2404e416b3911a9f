package memnet

import (
	"sync"
	"time"
)

// gate is where goroutines wait for a state to change. It is guarded by the mutex of that state.
type gate struct {
	opened chan struct{}
}

// open wakes all who wait; they look at the state again.
func (g *gate) open() {
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// block gives mu up until g opens, cancelled is closed or the deadline (zero: none) passes, and takes it again.
// The caller then looks at the state once more: block does not tell which of them it was.
func (g *gate) block(mu *sync.Mutex, cancelled <-chan struct{}, deadline time.Time) {
	if g.opened == nil {
		// Made by who waits, not with the connection, so that it belongs to the waiter's bubble.
		g.opened = make(chan struct{})
	}
	opened := g.opened
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	mu.Unlock()
	defer mu.Lock()
	select {
	case <-opened:
	case <-cancelled:
	case <-expired:
	}
}

// passed tells whether a deadline (zero: none) is over.
func passed(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// monotonic pins a deadline to the monotonic clock, so that a step of the wall clock does not move it.
func monotonic(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	now := time.Now()
	return now.Add(t.Sub(now))
}

// earlier is the first of two deadlines; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
