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
		for _, c := range picked {
			r.p.Record.room(ctx)
			if !r.pulse.enter(ctx) {
				return
			}
			wg.Go(func() {
				if res := r.runCase(ctx, c); !res.notRun {
					r.record(whenReplay, &res)
					r.report.replayed(res)
				}
			})
		}
	}
}

// pick chooses the cases to run again: for each rule the first ones of the plan,
// those without a fault or with a fault on a message before those on a preface
// line, in which several connections of a client race.
func (r *Report) pick() []Case {
	r.mu.Lock()
	defer r.mu.Unlock()
	byRule := map[string][]Case{}
	for _, c := range r.plan.Cases {
		for _, rule := range r.broke[c.ID] {
			byRule[rule] = append(byRule[rule], c)
		}
	}
	var out []Case
	for _, rule := range checker.Rules() {
		list := byRule[rule.ID]
		slices.SortStableFunc(list, func(a, b Case) int { return a.ID.Frame.inSession() - b.ID.Frame.inSession() })
		for _, c := range list[:min(len(list), candidates)] {
			if !slices.ContainsFunc(out, func(o Case) bool { return o.ID == c.ID }) {
				out = append(out, c)
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
		case f.Runs > 0 && f.Found < f.Runs:
			return 1
		case f.Replayed == 0 && f.Runs == 0:
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
