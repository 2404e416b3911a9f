package verify

import (
	"context"
	"sync"
	"time"
)

// MaxAdapters is how many adapters a run may have at once.
const MaxAdapters = 64

// adapters are those of a run, among which its cases are spread.
type adapters struct {
	pools []*adapterPool

	mu   sync.Mutex
	busy []int // cases, by pool
}

func newAdapters(n int, start Starter, dialect string) *adapters {
	a := &adapters{busy: make([]int, n)}
	for i := range n {
		a.pools = append(a.pools, &adapterPool{start: start, dialect: dialect, place: i})
	}
	return a
}

// get returns a live adapter, of those that work the one with the fewest cases; put must
// follow.
func (a *adapters) get(ctx context.Context) (*adapterConn, error) {
	tried := make([]bool, len(a.pools))
	for {
		i := a.take(tried)
		conn, err := a.pools[i].get(ctx)
		if err == nil {
			return conn, nil
		}
		a.give(i)
		tried[i] = true
		if ctx.Err() != nil || !a.untried(tried) {
			return nil, err
		}
	}
}

func (a *adapters) untried(tried []bool) bool {
	for i := range a.pools {
		if !tried[i] {
			return true
		}
	}
	return false
}

// take counts a case in for the pool that has the fewest.
func (a *adapters) take(tried []bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	best := -1
	for i, n := range a.busy {
		if !tried[i] && (best < 0 || n < a.busy[best]) {
			best = i
		}
	}
	a.busy[best]++
	return best
}

func (a *adapters) give(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy[i]--
}

// put gives an adapter back.
func (a *adapters) put(c *adapterConn) {
	a.give(c.pool)
	c.use(-1)
}

// strain is that of the adapter whose answers are the latest.
func (a *adapters) strain() time.Duration {
	var worst time.Duration
	for _, p := range a.pools {
		worst = max(worst, p.strain())
	}
	return worst
}

func (a *adapters) restarts() int {
	sum := 0
	for _, p := range a.pools {
		sum += p.restarts()
	}
	return sum
}

// close ends all adapters, side by side: each has its time for that.
func (a *adapters) close() {
	var wg sync.WaitGroup
	for _, p := range a.pools {
		wg.Go(p.close)
	}
	wg.Wait()
}
