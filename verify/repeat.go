package verify

import (
	"fmt"
	"slices"
	"strings"

	"tornwire/checker"
)

// MaxRepeat is how often a case may be run.
const MaxRepeat = 1000

// first is the first run of a case.
func (p *Plan) first(c Case) Case {
	if p.Repeat > 1 {
		c.rep = 1
	}
	return c
}

// next is the run of a case behind another, if there is one.
func (p *Plan) next(c Case) (Case, bool) {
	if c.rep == 0 || c.rep >= p.Repeat {
		return c, false
	}
	c.rep++
	return c, true
}

// gather collects the runs of cases that are run several times.
type gather map[CaseID][]CaseResult

// add adds a run; it returns the case when that was the last one.
func (g gather) add(res CaseResult, repeat int) (CaseResult, bool) {
	id := res.Case.ID
	g[id] = append(g[id], res)
	if len(g[id]) < repeat {
		return CaseResult{}, false
	}
	out := fold(g[id])
	delete(g, id)
	return out, true
}

// rest are the cases of which not every run came about, in the order of the plan.
func (g gather) rest(p *Plan) []CaseResult {
	var out []CaseResult
	for _, c := range p.Cases {
		if len(g[c.ID]) > 0 {
			out = append(out, fold(g[c.ID]))
			delete(g, c.ID)
		}
	}
	return out
}

// fold makes one result of several runs of a case: the gravest of them, with what only
// others have found, and in which of them each finding was there.
func fold(runs []CaseResult) CaseResult {
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b CaseResult) int { return a.Case.rep - b.Case.rep })
	gravity := func(c CaseResult) int {
		if c.Verdict == checker.Skipped {
			return -1 // a run that came about says more
		}
		return slices.Index(graver, c.Verdict)
	}
	out := runs[0]
	for _, c := range runs[1:] {
		if gravity(c) > gravity(out) {
			out = c
		}
	}
	out.runs, out.Case.rep = len(runs), 0
	out.Findings = slices.Clone(out.Findings)
	out.Repeated, out.Fencing, out.Checked, out.Fenced, out.Outcomes = 0, 0, nil, nil, nil
	for _, c := range runs {
		out.Repeated += c.Repeated
		out.Fencing += c.Fencing
		out.Fenced = append(out.Fenced, c.Fenced...)
		out.Outcomes = append(out.Outcomes, c.Outcomes...)
		out.took = max(out.took, c.took)
		out.Fired = out.Fired || c.Fired
		if out.frames == nil {
			out.frames, out.reached = c.frames, c.reached
		}
		for _, f := range c.Findings {
			if !slices.ContainsFunc(out.Findings, sameAs(f)) {
				out.Findings = append(out.Findings, f)
			}
		}
	}
	for _, rule := range checker.Rules() {
		if slices.ContainsFunc(runs, func(c CaseResult) bool { return slices.Contains(c.Checked, rule.ID) }) {
			out.Checked = append(out.Checked, rule.ID)
		}
	}
	out.shows = make([][]int, len(out.Findings))
	for i, f := range out.Findings {
		for nth, c := range runs {
			if slices.ContainsFunc(c.Findings, sameAs(f)) {
				out.shows[i] = append(out.shows[i], nth+1)
			}
		}
	}
	return out
}

// sameAs tells of findings whether they say the same of a client or a server.
func sameAs(f checker.Finding) func(checker.Finding) bool {
	return func(o checker.Finding) bool {
		return o.Rule == f.Rule && o.Side == f.Side && o.Certainty == f.Certainty
	}
}

// found is in how many of its runs a case certainly broke a rule that no baseline accepts.
func (c *CaseResult) found() int {
	in := map[int]bool{}
	for i, f := range c.Findings {
		if i < len(c.shows) && f.Certainty == checker.Certain && !c.isAccepted(i) {
			for _, nth := range c.shows[i] {
				in[nth] = true
			}
		}
	}
	return len(in)
}

// countFlaky counts the cases that failed in some of their runs only.
func (r *Report) countFlaky() {
	r.Flaky = 0
	for _, c := range r.Results {
		if c.flaky() {
			r.Flaky++
		}
	}
}

func (c Result) flaky() bool { return c.Found > 0 && c.Found < c.Runs }

// textFlaky shows which cases failed in some of their runs only, and in how many.
func (r *Report) textFlaky(b *strings.Builder) {
	if r.Flaky == 0 {
		return
	}
	shown := 0
	fmt.Fprintf(b, "flaky: %s failed in some runs only\n", countOf(r.Flaky, "case"))
	for _, c := range r.Results {
		if !c.flaky() {
			continue
		}
		if shown++; shown > findingsShown {
			fmt.Fprintf(b, "  … and %d more: --format json lists them all\n", r.Flaky-findingsShown)
			return
		}
		fmt.Fprintf(b, "  %s: %d of %d runs\n", c.Case, c.Found, c.Runs)
	}
}
