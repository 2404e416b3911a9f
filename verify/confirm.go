package verify

import (
	"context"
	"slices"
	"sync"

	"tornwire/checker"
)

// Confirming: the text report shows a few findings of each rule, and its replay
// lines must hold what they promise. So the candidates are run again before the
// report is written, and those that come back each time are shown first.
const (
	candidates = 5 // cases of each rule that are run again
	replays    = 4 // how often
)

// confirm runs the candidates for the text report again.
func (r *runner) confirm(ctx context.Context) {
	picked := r.report.pick()
	var wg sync.WaitGroup
	defer wg.Wait()
	for range replays {
		for _, id := range picked {
			c := Case{ID: id, Workload: mustWorkload(id.Workload)}
			if !r.pulse.enter(ctx) {
				return
			}
			wg.Go(func() {
				if res := r.runCase(ctx, c); !res.notRun {
					r.report.replayed(res)
				}
			})
		}
	}
}

func mustWorkload(id string) *Workload {
	w, ok := WorkloadByID(id)
	if !ok {
		panic("verify: no workload " + id) // ids come from the plan
	}
	return w
}

// pick chooses the cases to run again: for each rule the first ones of the plan,
// those without a fault or with a fault on a message before those on a preface
// line, in which several connections of a client race.
func (r *Report) pick() []CaseID {
	r.mu.Lock()
	defer r.mu.Unlock()
	byRule := map[string][]CaseID{}
	for _, c := range r.plan.Cases {
		for _, rule := range r.broke[c.ID] {
			byRule[rule] = append(byRule[rule], c.ID)
		}
	}
	var out []CaseID
	for _, rule := range checker.Rules() {
		ids := byRule[rule.ID]
		slices.SortStableFunc(ids, func(a, b CaseID) int { return a.Frame.inSession() - b.Frame.inSession() })
		for _, id := range ids[:min(len(ids), candidates)] {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// replayed counts which findings of a case came back. A run that proved nothing
// does not count.
func (r *Report) replayed(c CaseResult) {
	if c.Verdict == checker.Inconclusive {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replays[c.Case.ID.String()]++
	for _, rule := range certainRules(c.Findings) {
		r.again[ruleOf{c.Case.ID.String(), rule}]++
	}
}

type ruleOf struct{ id, rule string }

// certainRules lists the rules that are certainly broken, once each.
func certainRules(findings []checker.Finding) []string {
	var out []string
	for _, f := range findings {
		if f.Certainty == checker.Certain && !slices.Contains(out, f.Rule) {
			out = append(out, f.Rule)
		}
	}
	return out
}

// shown orders the findings of one rule for people: those that came back each
// time they were replayed first, then the others that were replayed.
func (r *Report) shown(list []Finding) []Finding {
	rank := func(f Finding) int {
		switch {
		case f.Replayed == 0:
			return 2
		case f.Reproduced == f.Replayed:
			return 0
		}
		return 1
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Finding) int { return rank(a) - rank(b) })
	return list
}
