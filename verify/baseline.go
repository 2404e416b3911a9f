package verify

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"tornwire/checker"
	"tornwire/faults"
)

// Baseline lists findings that are accepted: they are shown, but count neither for
// the verdict nor for the exit code.
type Baseline struct {
	File    string
	Entries []Accept
	Today   time.Time // for the dates; zero: now
}

// Accept is an entry of a baseline.
type Accept struct {
	Rule    string
	Case    string    // a glob of case ids as in path.Match; "": all
	Side    string    // "client" or "server"; "": both
	Reason  string    // why it is accepted
	Expires time.Time // the last day, in UTC, on which it is
	Line    int       // in the file
}

func (a Accept) matches(id string, f checker.Finding) bool {
	return a.Rule == f.Rule && (a.Side == "" || a.Side == f.Side) && a.covers(id)
}

// covers tells whether a case is one of the entry's.
func (a Accept) covers(id string) bool {
	if a.Case == "" {
		return true
	}
	ok, err := path.Match(a.Case, id)
	return err == nil && ok
}

// States of an entry of a baseline.
const (
	stateAccepts = "accepts"
	stateExpired = "expired" // it accepts nothing any more
	stateFixed   = "fixed"   // nothing is left that it could accept
	stateUnused  = "unused"  // nothing was found, but not all of its cases were run
)

// BaselineEntry is what a run says of an entry of the baseline.
type BaselineEntry struct {
	Rule     string `json:"rule"`
	Case     string `json:"case"`
	Side     string `json:"side"`
	Reason   string `json:"reason"`
	Expires  string `json:"expires"`
	Line     int    `json:"line"`
	State    string `json:"state"`
	Findings int    `json:"findings"` // that it accepts, or would if it had not expired
	Cases    int    `json:"cases"`    // that it is about, in the standard sweep
	Ran      int    `json:"ran"`      // of these, in this run
}

// expired tells whether the entry's last day is over.
func (b *Baseline) expired(a Accept) bool {
	now := b.Today
	if now.IsZero() {
		now = time.Now()
	}
	return !now.UTC().Before(a.Expires.AddDate(0, 0, 1))
}

// settle marks the accepted findings of a run and takes them out of its verdict. The
// report is locked.
func (r *Report) settle(c *CaseResult) {
	b := r.plan.Baseline
	if b == nil || len(c.Findings) == 0 {
		return
	}
	id := c.Case.ID.String()
	c.accepted = make([]string, len(c.Findings))
	var left checker.Result
	some := false
	for i, f := range c.Findings {
		for n, a := range b.Entries {
			if !a.matches(id, f) {
				continue
			}
			r.matched[n]++
			if !b.expired(a) && c.accepted[i] == "" {
				c.accepted[i] = a.Reason
			}
		}
		if c.accepted[i] == "" {
			left.Findings = append(left.Findings, f)
		}
		some = some || c.accepted[i] != ""
	}
	if some && c.Verdict != checker.Inconclusive && c.Verdict != checker.Skipped {
		c.Verdict = left.Verdict()
		if slices.ContainsFunc(left.Findings, func(f checker.Finding) bool { return f.Side == "server" && f.Certainty == checker.Certain }) {
			c.Verdict = checker.Unsafe // with the embedded server it is inconclusive already
		}
	}
}

// isAccepted tells whether a baseline accepts the nth finding.
func (c *CaseResult) isAccepted(n int) bool { return c.accepted != nil && c.accepted[n] != "" }

// certain lists the rules that are certainly broken and not accepted, once each.
func (c *CaseResult) certain() []string {
	var list []checker.Finding
	for i, f := range c.Findings {
		if !c.isAccepted(i) {
			list = append(list, f)
		}
	}
	return certainRules(list)
}

// baseline says what became of the entries. Results are sorted by then.
func (r *Report) baseline() {
	b := r.plan.Baseline
	if b == nil {
		return
	}
	ran := map[string]bool{}
	for _, c := range r.Results {
		ran[c.Case] = c.Verdict != checker.Inconclusive
	}
	for _, c := range r.Sanity {
		ran[c.Case] = ran[c.Case] || c.Verdict != checker.Inconclusive
	}
	standard, full := r.plan.swept(SweepStandard), []string(nil)
	for i, a := range b.Entries {
		e := BaselineEntry{
			Rule: a.Rule, Case: a.Case, Side: a.Side, Reason: a.Reason, Expires: a.Expires.Format(time.DateOnly), Line: a.Line,
			Findings: r.matched[i],
		}
		own := matching(standard, a)
		if len(own) == 0 {
			if full == nil {
				full = r.plan.swept(SweepFull)
			}
			own = matching(full, a)
		}
		e.Cases = len(own)
		for _, id := range own {
			if ran[id] {
				e.Ran++
			}
		}
		judged := r.rules[a.Rule] != nil && Swept(a.Rule)
		switch {
		case b.expired(a):
			e.State = stateExpired
		case e.Findings > 0:
			e.State = stateAccepts
		case judged && e.Cases > 0 && e.Ran == e.Cases:
			e.State = stateFixed
		default:
			e.State = stateUnused
		}
		r.Baseline = append(r.Baseline, e)
	}
}

// swept lists the ids of a sweep in the plan's dialect, without byzantine faults.
func (p *Plan) swept(sweep string) []string {
	var out []string
	for _, c := range allCases(p.Grammar, sweep, len(p.KeyPrefix)) {
		if t, ok := faults.ByID(c.ID.Fault); sweep == SweepFull || !ok || t.Class != faults.Byzantine {
			out = append(out, c.ID.String())
		}
	}
	return out
}

func matching(ids []string, a Accept) []string {
	var out []string
	for _, id := range ids {
		if a.covers(id) {
			out = append(out, id)
		}
	}
	return out
}

// accepted counts the findings that a baseline accepts.
func (r *Report) accepted() int {
	n := 0
	for _, f := range r.Findings {
		if f.Accepted != "" {
			n++
		}
	}
	return n
}

// textBaseline shows what became of the entries of the baseline.
func (r *Report) textBaseline(b *strings.Builder) {
	for _, e := range r.Baseline {
		where := fmt.Sprintf("%s:%d", r.plan.Baseline.File, e.Line)
		what := e.Rule
		if e.Side != "" {
			what += " of the " + e.Side
		}
		if e.Case != "" {
			what += " in " + e.Case
		}
		switch e.State {
		case stateAccepts:
			fmt.Fprintf(b, "accepted: %s: %s until %s: %s (%s)\n", what, countOf(e.Findings, "finding"), e.Expires, e.Reason, where)
		case stateExpired:
			fmt.Fprintf(b, "expired: %s: it was accepted until %s, and is not any more: %s; %s (%s)\n",
				what, e.Expires, e.Reason, countOf(e.Findings, "finding"), where)
		case stateFixed:
			fmt.Fprintf(b, "fixed: %s: nothing was found in %s; remove the entry (%s)\n", what, countOf(e.Cases, "case"), where)
		default:
			fmt.Fprintf(b, "unused: %s: nothing was found, but only %s of %s ran (%s)\n", what, thousands(e.Ran), countOf(e.Cases, "case"), where)
		}
	}
}

func countOf(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return thousands(n) + " " + what
}

// WriteBaseline writes a baseline that accepts what the report holds against the
// client or the server, an entry for each rule and workload. Reasons and dates are
// for people to fill in: it is refused without them.
func (r *Report) WriteBaseline(w io.Writer) error {
	type entry struct{ rule, side, glob string }
	var order []entry
	count, first := map[entry]int{}, map[entry]Finding{}
	for _, f := range r.Findings {
		id, err := ParseCaseID(f.Case)
		if err != nil || f.Certainty != checker.Certain || f.Accepted != "" {
			continue
		}
		e := entry{f.Rule, f.Side, id.Dialect + "/" + id.Workload + "/*"}
		if count[e]++; count[e] == 1 {
			order, first[e] = append(order, e), f
		}
	}
	slices.SortStableFunc(order, func(a, b entry) int { return ruleAt(a.rule) - ruleAt(b.rule) })
	var b strings.Builder
	b.WriteString("# Accepted findings. Each needs a reason, and the last day on which it is accepted.\n")
	for _, e := range order {
		fmt.Fprintf(&b, "\n# %s, the first in %s:\n# %s\n[[accept]]\nrule = %q\ncase = %q\nside = %q\nreason = \"\"\n# expires = 2000-01-31\n",
			countOf(count[e], "finding"), first[e].Case, strings.Join(strings.Fields(first[e].Message), " "), e.rule, e.glob, e.side)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func ruleAt(id string) int {
	return slices.IndexFunc(checker.Rules(), func(r checker.Rule) bool { return r.ID == id })
}
