package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tornwire/checker"
	"tornwire/faults"
	"tornwire/frames"
	"tornwire/verify"
)

// lists are what tornwire list can print, one line each.
var lists = map[string]func(w io.Writer){
	"workloads": func(w io.Writer) {
		for _, l := range verify.Workloads() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", l.ID, dialectsOf(l), l.Sentence)
		}
	},
	"faults": func(w io.Writer) {
		for _, t := range faults.All() {
			fmt.Fprintf(w, "%s\t%s\t@%s\t%s\n", t.ID, t.Class, t.Range, sentenceOf(t))
		}
	},
	"rules": func(w io.Writer) {
		for _, r := range checker.Rules() {
			swept := "swept"
			if !verify.Swept(r.ID) {
				swept = "not swept"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Side, r.Severity, swept, r.Sentence)
		}
	},
	"scenarios": listScenarios,
	"grammars": func(w io.Writer) {
		for _, name := range frames.Names() {
			g := frames.MustBuiltin(name)
			fmt.Fprintf(w, "%s\t%s\t%d frames and preface lines\n", name, g.Title, len(g.Shapes()))
		}
	},
}

func dialectsOf(w *verify.Workload) string {
	if len(w.Dialects) == 0 {
		return "all dialects"
	}
	return strings.Join(w.Dialects, ", ")
}

func sentenceOf(t *faults.Type) string {
	if args := t.ArgsText(); args != "" {
		return t.Sentence + " [" + args + "]"
	}
	return t.Sentence
}

func listCommand() *cobra.Command {
	var words []string
	for w := range lists {
		words = append(words, w)
	}
	slices.Sort(words)
	all := strings.Join(words, "|")
	return &cobra.Command{
		Use: "list " + all, Short: "Lists what there is, one line each", Example: "  tornwire list faults", ValidArgs: words,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("list takes one of %s", all)
			}
			print, ok := lists[args[0]]
			if !ok {
				return usagef("there is no list of %q%s; list takes one of %s", args[0], verify.DidYouMean(args[0], words), all)
			}
			tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			print(tw)
			return tw.Flush()
		},
	}
}
