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
