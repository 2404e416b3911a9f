package verify

import (
	"context"
	"sync"
	"time"
)

// LateLimit is the lateness of the tool's ticker or of a pong from which a case
// is discarded and repeated (spec/rules.md P11).
const LateLimit = 200 * time.Millisecond

const (
	beatEvery = 20 * time.Millisecond
	// strainLimit is the lateness from which no further case is started.
	strainLimit = 60 * time.Millisecond
)

// pulse watches whether this process runs when it should.
type pulse struct {
	mu       sync.Mutex
	last     time.Time     // beat
	late     time.Duration // of the last beat
	lastLate time.Time     // when a beat was over LateLimit
	next     chan struct{} // closed at the next beat
}

func newPulse() *pulse { return &pulse{last: time.Now(), next: make(chan struct{})} }

// run beats until ctx is done.
func (p *pulse) run(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.beat(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (p *pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = max(now.Sub(p.last)-beatEvery, 0)
	p.last = now
	if p.late > LateLimit {
		p.lastLate = now
	}
	close(p.next)
	p.next = make(chan struct{})
}

// lateSince tells whether a beat was late, or is now, since a case began.
func (p *pulse) lateSince(begin time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastLate.After(begin) || time.Since(p.last) > LateLimit+beatEvery
}

// calm waits until neither this process nor the adapter is strained, at most a
// second, so that starting cases does not itself make others late.
func (p *pulse) calm(ctx context.Context, strain func() time.Duration) {
	for range int(time.Second / beatEvery) {
		p.mu.Lock()
		late, next := max(p.late, time.Since(p.last)-beatEvery), p.next
		p.mu.Unlock()
		if max(late, strain()) <= strainLimit {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}
