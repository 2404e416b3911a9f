package verify

import (
	"runtime"
	"strings"
	"testing"

	"tornwire/checker"
)

func TestParallelFollowsDescriptors(t *testing.T) {
	for _, c := range []struct {
		limit, cases, descriptors int
		known                     bool
	}{
		{0, usualParallel, 0, false},
		{1 << 20, usualParallel, 0, true},
		{128 + usualParallel*descriptorsPerCase, usualParallel, 0, true},
		{128 + usualParallel*descriptorsPerCase - 1, usualParallel - 1, 128 + usualParallel*descriptorsPerCase - 1, true},
		{1024, (1024 - 128) / descriptorsPerCase, 1024, true},
		{64, runtime.NumCPU(), 64, true},
	} {
		if n, d := parallelOf(c.limit, c.known); n != c.cases || d != c.descriptors {
			t.Errorf("%d files (%v): %d cases, bound by %d, want %d and %d", c.limit, c.known, n, d, c.cases, c.descriptors)
		}
	}
}

// TestBindingLimitIsPrinted: who waits because of the descriptor limit is told.
func TestBindingLimitIsPrinted(t *testing.T) {
	const told = "at most 4 cases were in flight, because this process may open only 200 files: raise it with ulimit -n\n"
	for _, c := range []struct {
		descriptors, peak int
		want              bool
	}{{200, 4, true}, {200, 3, false}, {0, 4, false}} {
		p := plan(t, Options{Cases: []string{controlCase}})
		p.Parallel, p.descriptors = 4, c.descriptors
		r := newReport(p)
		r.add(ended(p.Cases[0], checker.Safe))
		pulse := newPulse(p.Parallel, nil)
		pulse.peak = c.peak
		r.inFlight(pulse)
		r.finish(0, 0)
		if got := strings.Contains(text(r), told); got != c.want {
			t.Errorf("limit of %d files, %d of 4 in flight: told %v\n%s", c.descriptors, c.peak, got, text(r))
		}
	}
}
