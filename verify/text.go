package verify

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tornwire/checker"
)

// findingsShown is how many findings of one rule the text report shows.
const findingsShown = 3

var signs = map[checker.Verdict]string{
	checker.Safe: "SAFE ✔", checker.Unsafe: "UNSAFE ✘", checker.Nonconforming: "NONCONFORMING ✘",
	checker.NonStrict: "NON-STRICT △", checker.Inconclusive: "INCONCLUSIVE ?", checker.Skipped: "SKIPPED –",
}

// VerdictWord is a verdict as people read it, in capitals.
func VerdictWord(v checker.Verdict) string {
	word, _, _ := strings.Cut(signs[v], " ")
	return word
}

// WriteText writes the report for people. Its last line is the verdict with its
// coverage.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "client %s, dialect %s, profile %s, busy %s, seed %d", orNone(r.Client), r.Dialect, r.Profile, r.Busy, r.Seed)
	if n := r.Selection.Repeat; n > 1 {
		fmt.Fprintf(&b, ", each case %d times", n)
	}
	b.WriteByte('\n')
	r.textFindings(&b)
	r.textBaseline(&b)
	r.textFlaky(&b)
	r.textDoubts(&b)
	r.textOutcomes(&b)
	if r.Fencing > 0 {
		entries := "entries"
		if r.Fencing == 1 {
			entries = "entry"
		}
		fmt.Fprintf(&b, "needs fencing: %d %s on a grant whose lease had ended unseen; only a resource that checks tokens refuses that\n", r.Fencing, entries)
		for _, l := range r.Fenced[:min(len(r.Fenced), findingsShown)] {
			fmt.Fprintf(&b, "  %s\n", l)
		}
		if more := len(r.Fenced) - findingsShown; more > 0 {
			fmt.Fprintf(&b, "  … and %d more: --format json lists them all\n", more)
		}
	}
	if c := r.Coverage; c.Cut > 0 {
		fmt.Fprintf(&b, "%s offsets cut; the client could tell %s exchanges apart\n", thousands(c.Cut), thousands(c.Distinct))
	}
	if f := r.InFlight; f.Bound && f.Descriptors > 0 {
		fmt.Fprintf(&b, "at most %d cases were in flight, because this process may open only %d files: raise it with ulimit -n\n", f.Limit, f.Descriptors)
	}
	if n := r.Restarts; n > 0 {
		how := "once"
		if n > 1 {
			how = fmt.Sprintf("%d times", n)
		}
		fmt.Fprintf(&b, "the adapter failed and was started again %s; the cases that were in flight were run again\n", how)
	}
	r.textResources(&b)
	b.WriteString(r.LastLine() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// textFindings shows the findings by rule, the certain ones first.
func (r *Report) textFindings(b *strings.Builder) {
	for _, certainty := range []checker.Certainty{checker.Certain, checker.Suspect} {
		for _, rule := range checker.Rules() {
			var list []Finding
			for _, f := range r.Findings {
				if f.Rule == rule.ID && f.Certainty == certainty && f.Accepted == "" {
					list = append(list, f)
				}
			}
			if len(list) == 0 {
				continue
			}
			fmt.Fprintf(b, "\n%s (%s, %s): %s\n", rule.ID, gravest(list), certainty, rule.Sentence)
			for i, f := range r.shown(list) {
				if i == findingsShown {
					fmt.Fprintf(b, "  … and %d more: --format json lists them all\n", len(list)-i)
					break
				}
				textFinding(b, f, i == 0)
			}
		}
	}
	if len(r.Findings) > r.accepted() {
		b.WriteByte('\n')
	}
}

// gravest is the worst severity among findings.
func gravest(list []Finding) checker.Severity {
	for _, s := range []checker.Severity{checker.Safety, checker.Contract} {
		if slices.ContainsFunc(list, func(f Finding) bool { return f.Severity == s }) {
			return s
		}
	}
	return checker.Hygiene
}

func textFinding(b *strings.Builder, f Finding, whole bool) {
	fmt.Fprintf(b, "  %s\n    %s (fault class %s)\n", f.Case, f.Message, f.Class)
	e := f.Evidence
	if e.FrameHex != "" {
		fmt.Fprintf(b, "    bytes: session %d, %s = %s, delivered %d to %d\n", e.Session, e.Frame, e.FrameHex, e.Delivered[0], e.Delivered[1])
	}
	if e.ServerState != "" {
		fmt.Fprintf(b, "    server: %s\n", e.ServerState)
	}
	for _, l := range e.Application {
		fmt.Fprintf(b, "    application: %s\n", l)
	}
	if whole {
		for _, l := range e.Timeline {
			fmt.Fprintf(b, "    | %s\n", l)
		}
	}
	if f.Replayed > 0 {
		fmt.Fprintf(b, "    replayed %d times, found again %d times\n", f.Replayed, f.Reproduced)
	}
	if f.Runs > 0 {
		fmt.Fprintf(b, "    found in %d of %d runs of the case\n", f.Found, f.Runs)
	}
	if f.Replay != "" {
		fmt.Fprintf(b, "    replay: %s\n", f.Replay)
	}
}

// textDoubts shows what could not be judged.
func (r *Report) textDoubts(b *strings.Builder) {
	if r.Reason != "" {
		fmt.Fprintf(b, "reason: %s\n", r.Reason)
	}
	shown, more := 0, 0
	for _, c := range r.Results {
		if c.Verdict != checker.Inconclusive {
			continue
		}
		if shown == findingsShown {
			more++
			continue
		}
		shown++
		fmt.Fprintf(b, "%s %s: %s\n", signs[c.Verdict], c.Case, c.Reason)
	}
	if more > 0 {
		fmt.Fprintf(b, "… and %d more inconclusive cases\n", more)
	}
	reasons := map[string]int{}
	var order []string
	for _, c := range r.Results {
		if c.Verdict == checker.Skipped {
			if reasons[c.Reason] == 0 {
				order = append(order, c.Reason)
			}
			reasons[c.Reason]++
		}
	}
	for _, why := range order {
		fmt.Fprintf(b, "%s %d cases: %s\n", signs[checker.Skipped], reasons[why], why)
	}
}

func (r *Report) textOutcomes(b *strings.Builder) {
	if len(r.Outcomes) == 0 {
		return
	}
	b.WriteString("calls ended:")
	for i, o := range r.Outcomes {
		if i == 12 {
			fmt.Fprintf(b, "; and %d other endings", len(r.Outcomes)-i)
			break
		}
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(b, " %s", o.Outcome)
		if o.Raw != "" {
			fmt.Fprintf(b, " (%s)", o.Raw)
		}
		fmt.Fprintf(b, " %s", thousands(o.Count))
	}
	b.WriteByte('\n')
}

// LastLine is the verdict in one sentence, built from the rules.
func (r *Report) LastLine() string {
	var b strings.Builder
	name, _, _ := strings.Cut(signs[r.Verdict], " ")
	c := r.Cases
	n := map[checker.Verdict]int{
		checker.Safe: c.Safe, checker.Unsafe: c.Unsafe + c.Nonconforming, checker.Nonconforming: c.Nonconforming,
		checker.NonStrict: c.NonStrict, checker.Inconclusive: c.Inconclusive + c.NotRun,
	}[r.Verdict]
	fmt.Fprintf(&b, "%s: %s of %s cases", name, thousands(n), thousands(c.Total))
	if list := r.broken(func(rule RuleCount) int { return rule.Violations }); list != "" {
		fmt.Fprintf(&b, " (%s)", list)
	}
	if list := r.broken(func(rule RuleCount) int { return r.faultless[rule.ID] }); list != "" && n == 0 {
		fmt.Fprintf(&b, "; already without a fault (%s)", list)
	}
	if c.Skipped > 0 {
		fmt.Fprintf(&b, ", %s skipped", thousands(c.Skipped))
	}
	if n := r.accepted(); n > 0 {
		fmt.Fprintf(&b, ", %s accepted", countOf(n, "finding"))
	}
	checked := 0
	for _, rule := range r.Rules {
		if rule.Checked > 0 {
			checked++
		}
	}
	sep := "; "
	if r.Verdict == checker.Safe {
		sep = ", "
	}
	fmt.Fprintf(&b, "%s%d of %d rules checked", sep, checked, len(r.Rules))
	if r.Verdict == checker.Safe {
		fmt.Fprintf(&b, ", %s", r.covered())
	}
	fmt.Fprintf(&b, "; %.1f s", r.ElapsedS)
	return b.String()
}

// broken lists the rules with certain findings, and in how many runs, most severe
// first.
func (r *Report) broken(count func(RuleCount) int) string {
	var parts []string
	for _, s := range []checker.Severity{checker.Safety, checker.Contract, checker.Hygiene} {
		for _, rule := range r.Rules {
			if n := count(rule); rule.Severity == s && n > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", rule.ID, thousands(n)))
			}
		}
	}
	return strings.Join(parts, ", ")
}

func (r *Report) covered() string {
	c := r.Coverage
	if c.Possible == 0 {
		return "no offset cut"
	}
	frames := fmt.Sprintf("%d frames", len(c.ByFrame))
	if len(c.ByFrame) == 1 {
		frames = "1 frame"
	}
	if c.Cut == c.Possible {
		return "every offset of " + frames
	}
	return fmt.Sprintf("%s of %s offsets of %s", thousands(c.Cut), thousands(c.Possible), frames)
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
