package proxy

import (
	"sync"
	"testing"

	"tornwire/faults"
	"tornwire/frames"
)

// TestTimesAtOnce: of frames that meet a rule at the same moment no more are taken,
// or counted as matched, than it has times.
func TestTimesAtOnce(t *testing.T) {
	r := newArmed(&faults.Rule{Times: 5, Skip: 2})
	var wg sync.WaitGroup
	for link := range 8 {
		wg.Go(func() {
			for seq := range 10 {
				r.take(1, link, frames.ClientToServer, uint64(seq)) // as if it had been open just before
			}
		})
	}
	wg.Wait()
	if r.matched.Load() != 7 || r.taken.Load() != 5 {
		t.Errorf("matched %d, taken %d; wanted 7 and 5", r.matched.Load(), r.taken.Load())
	}
}

// TestGoneBeforeWaiting: a frame whose rule went after it was asked, and before the
// link was known to wait, is not waited for.
func TestGoneBeforeWaiting(t *testing.T) {
	p := New(Config{})
	r := newArmed(&faults.Rule{})
	l := &link{p: p, s: &session{p: p}, unsure: &unsure{shape: &frames.Shape{}, rules: []*armed{r}, held: []byte("A")}}
	r.end()
	if l.await(); l.unsure != nil || l.waits || p.unsure.Load() != 0 || string(l.out) != "A" {
		t.Errorf("unsure %v, waits %v, %d links wait, to be written %q", l.unsure, l.waits, p.unsure.Load(), l.out)
	}
}
