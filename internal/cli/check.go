package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tornwire/verify"
)

// checkFlags are the flags of tornwire check.
type checkFlags struct {
	output
	opts             verify.CheckOptions
	strict           bool
	grace, tolerance time.Duration
	baseline         string
}

func checkCommand() *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Judges recorded histories again",
		Long: "check judges every history that tornwire verify --record has written, and reports as verify does: the same\n" +
			"findings, the same verdict, the same exit code. Flags change the policy that it was recorded under.",
		Example: "  tornwire verify --record histories\n" +
			"  tornwire check histories\n" +
			"  tornwire check histories --profile official --busy final --strict",
		RunE: f.run,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&f.opts.Rules, "rule", nil, "rules to judge, comma-separated, or all (default as recorded)")
	fs.StringVar(&f.opts.Profile, "profile", "", "any or official: whether clauses for official clients are held against this one (default as recorded)")
	fs.StringVar(&f.opts.Busy, "busy", "", "how a further attempt after B is judged: unsettled (hygiene), final (contract) or retry (allowed) (default as recorded)")
	fs.DurationVar(&f.grace, "grace", 0, "how long after a call's deadline a client may wait for T or B before it closes the session (default as recorded)")
	fs.DurationVar(&f.tolerance, "tolerance", 0, "how much later than that a session is still open before it is a finding (default as recorded)")
	fs.BoolVar(&f.strict, "strict", false, "a non-strict verdict has exit code 3 (default as recorded)")
	fs.StringVar(&f.baseline, "baseline", "", baselineUsage+" (default as recorded)")
	f.flags(fs)
	return cmd
}

func (f *checkFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("check takes one directory that tornwire verify --record has written")
	}
	if cmd.Flags().Changed("rule") && len(f.opts.Rules) == 0 {
		return usagef("--rule is empty: name some, or all")
	}
	for _, name := range []string{"profile", "busy"} {
		if v, _ := cmd.Flags().GetString(name); cmd.Flags().Changed(name) && v == "" {
			return usagef("--%s is empty", name)
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	if cmd.Flags().Changed("strict") {
		f.opts.Strict = &f.strict
	}
	if cmd.Flags().Changed("grace") {
		f.opts.Grace = &f.grace
	}
	if cmd.Flags().Changed("tolerance") {
		f.opts.Tolerance = &f.tolerance
	}
	if cmd.Flags().Changed("baseline") {
		base, err := readBaseline(f.baseline)
		if err != nil {
			return err
		}
		f.opts.Baseline = base
	}
	if args[0] == "" {
		return usagef("the record's directory is empty: it is a variable that is not set")
	}
	rec, err := verify.OpenRecord(args[0])
	if err != nil {
		return err
	}
	collectLess()
	report, err := rec.Check(cmd.Context(), f.opts)
	if code, stopped := signalCode(cmd.Context()); stopped {
		return exitError{code}
	}
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	if rec.Cut {
		fmt.Fprintln(stderr, "tornwire: the record has no end: its run was killed, or is not over; what it has is judged")
	}
	if rec.Version != Version() {
		fmt.Fprintf(stderr, "tornwire: recorded by tornwire %s, judged by %s\n", rec.Version, Version())
	}
	if report.ExitCode == verify.ExitUnreachable || report.ExitCode == verify.ExitInternal {
		fmt.Fprintln(stderr, "tornwire:", report.Reason)
	}
	return f.write(cmd.OutOrStdout(), stderr, report)
}
