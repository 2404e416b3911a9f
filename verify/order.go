package verify

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"tornwire/checker"
	"tornwire/faults"
)

// controls runs each workload that the plan needs without a fault, side by side.
// The channel tells which are over, and is closed after the last.
func (r *runner) controls(ctx context.Context) <-chan *Workload {
	var need []*Workload
	listed := map[*Workload]bool{}
	for _, c := range r.p.Cases {
		if !slices.Contains(need, c.Workload) {
			need = append(need, c.Workload)
		}
		listed[c.Workload] = listed[c.Workload] || c.ID.Fault == NoFault
	}
	over := make(chan *Workload, len(need))
	var wg sync.WaitGroup
	for _, w := range need {
		wg.Go(func() {
			c := Case{ID: CaseID{Dialect: r.p.Dialect, Workload: w.ID, Fault: NoFault}, Workload: w}
			res := CaseResult{Case: c, Verdict: checker.Skipped, Reason: w.bound()}
			if r.staging == nil || w.Anywhere {
				if listed[w] {
					c = r.p.first(c)
				}
				res = r.runNow(ctx, c)
			}
			kept := res
			kept.events = nil
			r.mu.Lock()
			r.control[w.ID] = kept
			r.mu.Unlock()
			if listed[w] {
				r.done(res)
			} else {
				r.record(whenControl, &res)
				r.report.sanity(whenControl, res)
			}
			over <- w
			wg.Go(func() { r.more(ctx, c) })
		})
	}
	go func() {
		wg.Wait()
		close(over)
	}()
	return over
}

// more does the further runs of a case, one after the other.
func (r *runner) more(ctx context.Context, c Case) {
	for {
		next, ok := r.p.next(c)
		if !ok || ctx.Err() != nil {
			return
		}
		r.done(r.runNow(ctx, next))
		c = next
	}
}

// controlOf returns a workload's run without a fault; it is over before any case
// of the workload begins.
func (r *runner) controlOf(w *Workload) CaseResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.control[w.ID]
}

// sweep runs the cases with a fault, many at once: those of each workload whose
// run without a fault is over.
func (r *runner) sweep(ctx context.Context, over <-chan *Workload) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var todo []Case
	for {
		for open := true; open; {
			var w *Workload
			if len(todo) == 0 {
				w, open = <-over
				if !open {
					return
				}
			} else {
				select {
				case w, open = <-over:
				default:
					open = false
				}
			}
			if w != nil {
				todo = r.longestFirst(append(todo, r.possible(w)...))
			}
		}
		c := todo[0]
		if next, ok := r.p.next(c); ok {
			todo[0] = next
		} else {
			todo = todo[1:]
		}
		r.p.Record.room(ctx)
		if !r.pulse.enter(ctx) {
			for range over { // the controls end with ctx
			}
			return
		}
		wg.Go(func() {
			r.done(r.runCase(ctx, c))
		})
	}
}

// possible lists a workload's cases with a fault whose frame can occur; the others
// are done.
func (r *runner) possible(w *Workload) []Case {
	var out []Case
	control := r.controlOf(w)
	for _, c := range r.p.Cases {
		if c.Workload != w || c.ID.Fault == NoFault {
			continue
		}
		v, why := canFire(c, control)
		if v == checker.Safe {
			v, why = r.staging.fits(c)
		}
		if v != checker.Safe {
			r.done(CaseResult{Case: c, Verdict: v, Reason: why})
			continue
		}
		out = append(out, r.p.first(c))
	}
	return out
}

// silent lists faults after which a call or a release ends only at its own limit.
var silent = []string{
	"truncate-silence", "truncate-fin-server", "truncate-rst-server", "truncate-fin-client", "truncate-rst-client", "stall", "drop", "hold",
}

// longestFirst orders cases by how long they will take at most, so that the last
// of them does not begin when all others are over.
func (r *runner) longestFirst(list []Case) []Case {
	likely := func(c Case) time.Duration {
		d := r.controlOf(c.Workload).took
		if t, ok := faults.ByID(c.ID.Fault); ok && (c.Workload.Own != nil || slices.Contains(silent, t.ID)) {
			d += releaseLimit
		}
		return d.Round(time.Second) // equals stay in their order
	}
	slices.SortStableFunc(list, func(a, b Case) int { return cmp.Compare(likely(b), likely(a)) })
	return list
}
