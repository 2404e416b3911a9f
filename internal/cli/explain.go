package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tornwire/checker"
	"tornwire/faults"
	"tornwire/frames"
	"tornwire/verify"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Explains a rule, fault, workload or case in plain words",
		Example: "  tornwire explain one-attempt\n  tornwire explain ticketing/single/s2c.A.1@25:truncate-fin",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("explain takes one id of a rule, fault, workload or case")
			}
			text, err := explain(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
}

func explain(id string) (string, error) {
	if r, ok := checker.RuleByID(id); ok {
		return explainRule(r), nil
	}
	if t, ok := faults.ByID(id); ok {
		return explainFault(t), nil
	}
	if family := faults.Select(id); len(family) > 0 {
		var b strings.Builder
		fmt.Fprintf(&b, "%s: family of %d faults; --fault %s selects them all\n", id, len(family), id)
		for _, t := range family {
			b.WriteString("\n" + explainFault(t))
		}
		return b.String(), nil
	}
	if w, ok := verify.WorkloadByID(id); ok {
		return explainWorkload(w), nil
	}
	if strings.Contains(id, "/") {
		return explainCase(id)
	}
	var words []string
	for _, r := range checker.Rules() {
		words = append(words, r.ID)
	}
	words = append(words, faults.Words()...)
	for _, w := range verify.Workloads() {
		words = append(words, w.ID)
	}
	return "", usagef("there is no rule, fault or workload %q%s; tornwire list shows them", id, verify.DidYouMean(id, words))
}

func explainRule(r checker.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s rule about the %s\n%s\nsource: %s\n", r.ID, r.Severity, r.Side, r.Sentence, r.Source)
	if policy := checker.Depends(r); policy != "" {
		fmt.Fprintf(&b, "severity: %s\n", policy)
	}
	fmt.Fprintf(&b, "broken like this:\n\n%s\n", checker.Drawing(r.ID))
	fmt.Fprintf(&b, "certain: %s\nprovoked: %s\n", r.Certain, r.Provoked)
	for _, d := range frames.Names() {
		if list := verify.ChecksOf(r.ID, d); len(list) > 0 {
			fmt.Fprintf(&b, "checked in %s: %s\n", d, checksText(list))
		}
	}
	if !verify.Swept(r.ID) {
		b.WriteString("checked in no case of the sweep\n")
	}
	fmt.Fprintf(&b, "example: tornwire verify --rule %s\n", r.ID)
	return b.String()
}

// checksShown is how many workloads of a rule are named.
const checksShown = 8

// checksText tells in how many cases of which workloads a rule is checked.
func checksText(list []verify.Count) string {
	total := 0
	var parts []string
	for i, c := range list {
		total += c.Cases
		if i < checksShown {
			parts = append(parts, fmt.Sprintf("%s %d", c.Workload, c.Cases))
		}
	}
	if more := len(list) - checksShown; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more workloads", more))
	}
	cases := "cases"
	if total == 1 {
		cases = "case"
	}
	return fmt.Sprintf("%d %s of a standard run (%s)", total, cases, strings.Join(parts, ", "))
}

func explainFault(t *faults.Type) string {
	s := fmt.Sprintf("%s: %s fault, family %s\n%s\noffsets: @%s of a frame of n bytes; k bytes pass before it acts\n",
		t.ID, t.Class, t.Family, t.Sentence, t.Range)
	if args := t.ArgsText(); args != "" {
		s += "arguments: " + args + "\n"
	}
	return s + fmt.Sprintf("source: spec/faults.md\nexample: tornwire verify --fault %s\n", t.ID)
}

func explainWorkload(w *verify.Workload) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: workload, %s\n%s\n", w.ID, dialectsOf(w), w.Sentence)
	for _, name := range frames.Names() {
		if !w.Knows(name) || w.Exchange == nil {
			continue
		}
		fmt.Fprintf(&b, "exchange in %s:", name)
		for _, x := range w.Exchange(frames.MustBuiltin(name)) {
			fmt.Fprintf(&b, " %s (%s)", x.Frame, sizeText(x))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "example: tornwire verify --workload %s\n", w.ID)
	return b.String()
}

func explainCase(s string) (string, error) {
	p, err := verify.NewPlan(verify.Options{Cases: []string{s}})
	if err != nil {
		return "", err
	}
	c := p.Cases[0]
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nworkload %s: %s\n", c.ID, c.Workload.ID, c.Workload.Sentence)
	if t, ok := faults.ByID(c.ID.Fault); ok {
		fmt.Fprintf(&b, "fault %s on %s (%s) with k = %d: %s\n", t.ID, c.ID.Frame, sizeText(c.Frame), c.ID.Offset, t.Sentence)
	} else {
		b.WriteString("without a fault\n")
	}
	fmt.Fprintf(&b, "example: tornwire verify --case %s\n", c.ID)
	return b.String(), nil
}

func sizeText(x verify.Expected) string {
	switch x.Size {
	case 0:
		return "a connection"
	case 1:
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", x.Size)
}
