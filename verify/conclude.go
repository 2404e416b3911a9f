package verify

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"tornwire/checker"
)

// Exit codes of spec/cli.md.
const (
	ExitSafe         = 0
	ExitUnsafe       = 1
	ExitInconclusive = 2
	ExitNonStrict    = 3
	ExitUsage        = 64
	ExitUnreachable  = 69
	ExitInternal     = 70
)

// finish sorts everything and computes verdict and exit code.
func (r *Report) finish(elapsed time.Duration, restarts int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ElapsedS = math.Round(elapsed.Seconds()*10) / 10
	r.Restarts = restarts
	order := r.sortResults()
	r.sortSanity()
	sort.SliceStable(r.Findings, func(i, j int) bool {
		a, b := r.Findings[i], r.Findings[j]
		if order[a.Case] != order[b.Case] {
			return order[a.Case] < order[b.Case]
		}
		return a.Case < b.Case
	})
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Replayed, f.Reproduced = r.replays[f.Case], r.again[ruleOf{f.Case, f.Rule}]
	}
	sort.Strings(r.Fenced)
	for o, n := range r.outcomes {
		r.Outcomes = append(r.Outcomes, OutcomeCount{o.word, o.raw, n})
	}
	sort.Slice(r.Outcomes, func(i, j int) bool {
		a, b := r.Outcomes[i], r.Outcomes[j]
		return a.Count > b.Count || a.Count == b.Count && a.Outcome+a.Raw < b.Outcome+b.Raw
	})
	for _, rule := range checker.Rules() {
		if n := r.rules[rule.ID]; n != nil {
			r.Rules = append(r.Rules, *n)
		}
	}
	r.coverage()
	r.baseline()
	r.conclude()
}

// sortResults puts the results into the order of the plan, and returns that.
func (r *Report) sortResults() map[string]int {
	order := map[string]int{}
	for id, i := range r.index {
		order[id.String()] = i + 1
	}
	sort.SliceStable(r.Results, func(i, j int) bool { return order[r.Results[i].Case] < order[r.Results[j].Case] })
	return order
}

// sortSanity puts the first run before the controls, which go in the order of the
// workloads, and the last behind them.
func (r *Report) sortSanity() {
	rank := func(s SanityResult) int {
		switch s.When {
		case "first":
			return -1
		case "last":
			return len(workloads)
		}
		id, _ := ParseCaseID(s.Case)
		return slices.IndexFunc(workloads, func(w *Workload) bool { return w.ID == id.Workload })
	}
	sort.SliceStable(r.Sanity, func(i, j int) bool { return rank(r.Sanity[i]) < rank(r.Sanity[j]) })
}

func (r *Report) coverage() {
	r.Coverage.ByFrame = []FrameCoverage{}
	r.Coverage.Distinct, r.Coverage.Servers = len(r.byClient), len(r.byServer)
	seen := map[frameOf]bool{}
	for _, c := range r.plan.Cases {
		f := frameOf{c.ID.Workload, c.ID.Frame}
		size, ok := r.possible[f]
		if !ok || seen[f] {
			continue
		}
		seen[f] = true
		fc := FrameCoverage{Workload: f.workload, Frame: f.frame.String(), Size: size, Possible: size + 1, Cut: len(r.cut[f])}
		r.Coverage.Possible += fc.Possible
		r.Coverage.Cut += fc.Cut
		r.Coverage.ByFrame = append(r.Coverage.ByFrame, fc)
	}
}

// conclude computes the verdict of the run and its exit code (spec/cli.md:
// 1 > 70 > 69 > 2 > 3 > 0).
func (r *Report) conclude() {
	worst := func(v checker.Verdict) bool {
		return slices.ContainsFunc(r.Results, func(c Result) bool { return c.Verdict == v }) ||
			slices.ContainsFunc(r.Sanity, func(c SanityResult) bool { return c.Verdict == v })
	}
	r.countFlaky()
	partly := slices.ContainsFunc(r.Results, func(c Result) bool { return c.Runs > 0 && c.Runs < r.Selection.Repeat })
	r.Interrupted = r.endless || r.fatal == 0 && !r.insane && (partly || len(r.Results) < r.Cases.Total)
	r.Cases.NotRun = r.Cases.Total - len(r.Results)
	switch {
	case worst(checker.Unsafe):
		r.Verdict, r.ExitCode = checker.Unsafe, ExitUnsafe
	case worst(checker.Nonconforming):
		r.Verdict, r.ExitCode = checker.Nonconforming, ExitUnsafe
	case r.internal:
		r.Verdict, r.ExitCode = checker.Inconclusive, ExitInternal
		r.Reason = "the embedded server broke a rule: this is a defect of tornwire"
	case r.fatal != 0:
		r.Verdict, r.ExitCode = checker.Inconclusive, r.fatal
	case r.insane, worst(checker.Inconclusive), r.Interrupted:
		r.Verdict, r.ExitCode = checker.Inconclusive, ExitInconclusive
	case r.Cases.Total == 0 && r.plan.whole > 0:
		r.Verdict, r.ExitCode = checker.Skipped, ExitSafe
		r.Reason = fmt.Sprintf("none of the %s selected cases falls to shard %s", thousands(r.plan.whole), r.Shard)
	case r.Cases.Skipped == r.Cases.Total:
		r.Verdict, r.ExitCode = checker.Inconclusive, ExitInconclusive
		r.Reason = "every case was skipped"
	case worst(checker.NonStrict):
		r.Verdict, r.ExitCode = checker.NonStrict, ExitSafe
		if r.plan.Strict {
			r.ExitCode = ExitNonStrict
		}
	case !slices.ContainsFunc(r.Rules, func(n RuleCount) bool { return n.Checked > 0 }):
		r.Verdict, r.ExitCode = checker.Inconclusive, ExitInconclusive
		r.Reason = "no rule was checked in any case"
	default:
		r.Verdict, r.ExitCode = checker.Safe, ExitSafe
	}
	if r.Verdict == checker.Inconclusive && r.Reason == "" {
		r.Reason = r.firstReason()
	}
}

// firstReason finds out why a run is inconclusive.
func (r *Report) firstReason() string {
	if r.endless && len(r.Results) == r.Cases.Total {
		return "the record has no end: its run was killed, or is not over"
	}
	if r.Interrupted {
		return "the run was stopped before all its cases were over"
	}
	for _, c := range r.Results {
		if c.Verdict == checker.Inconclusive {
			return c.Case + ": " + c.Reason
		}
	}
	for _, c := range r.Sanity {
		if c.Verdict == checker.Inconclusive {
			return c.Case + ": " + c.Reason
		}
	}
	return ""
}
