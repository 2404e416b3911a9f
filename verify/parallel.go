package verify

import "runtime"

// usualParallel is how many cases are in flight at most where nothing else
// bounds them.
const usualParallel = 1024

// descriptorsPerCase is what a case of most workloads needs at once, in this
// process: its listeners, and two ends of each session with its client.
const descriptorsPerCase = 12

// defaultParallel derives the cases in flight from the descriptor limit. It returns
// that limit too if it is what bounds them.
func defaultParallel() (cases, descriptors int) { return parallelOf(descriptorLimit()) }

func parallelOf(limit int, known bool) (cases, descriptors int) {
	if !known {
		return usualParallel, 0
	}
	if n := (limit - 128) / descriptorsPerCase; n < usualParallel {
		return max(n, runtime.NumCPU()), limit
	}
	return usualParallel, 0
}
