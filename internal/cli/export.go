package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tornwire/checker"
	"tornwire/scenarios"
	"tornwire/verify"
)

// exportTries is how often a scenario made of a case may fail to show what the case shows.
const exportTries = 3

// exportCase writes the one case of the options as a scenario, which is run before: it has
// to show what the case shows.
func (f *verifyFlags) exportCase(cmd *cobra.Command) error {
	if len(f.opts.Cases) != 1 {
		return usagef("--export writes one case, and there are %d: name it with --case", len(f.opts.Cases))
	}
	for _, name := range []string{"record", "report", "repeat", "shard", "upstream", "list", "baseline", "workload", "fault", "rule", "format"} {
		if cmd.Flags().Changed(name) {
			return usagef("--export writes a case, and does not go with --%s", name)
		}
	}
	if f.export != "-" {
		if err := canWrite(f.export); err != nil {
			return fmt.Errorf("cannot write the scenario: %w", err)
		}
	}
	told, err := verify.Tell(cmd.Context(), f.opts)
	var no *verify.ShrinkError
	switch {
	case errors.As(err, &no):
		fmt.Fprintln(cmd.ErrOrStderr(), "tornwire: "+no.Error())
		return exitError{no.Code}
	case verify.Unreachable(err):
		fmt.Fprintf(cmd.ErrOrStderr(), "tornwire: the adapter cannot be used: %v\n", err)
		return exitError{verify.ExitUnreachable}
	case err != nil:
		return err
	}
	text, err := scenarios.FromCase(told)
	if err != nil {
		return usagef("%v", err)
	}
	s, err := scenarios.Parse(f.export, []byte(text))
	if err != nil {
		return fmt.Errorf("the scenario that was made is not right, which is a defect of tornwire:\n%w", err)
	}
	if err := f.showsTheSame(cmd, s, told); err != nil {
		return err
	}
	if f.export == "-" {
		_, err = io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	if err := os.WriteFile(f.export, []byte(text), 0o644); err != nil {
		return fmt.Errorf("cannot write the scenario: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the scenario is in %s; tornwire run %s\n", f.export, f.export)
	return err
}

// showsTheSame runs a scenario made of a case.
func (f *verifyFlags) showsTheSame(cmd *cobra.Command, s *scenarios.Scenario, told *verify.Told) error {
	var shows string
	for range exportTries {
		res, err := scenarios.Run(cmd.Context(), s, scenarios.Options{
			Start: f.opts.Start, Profile: f.opts.Profile, Busy: f.opts.Busy, Seed: &f.opts.Seed, Timeout: f.opts.Timeout, Grace: &f.grace, Tolerance: &f.tolerance,
		})
		if err != nil {
			return err
		}
		if code, stopped := signalCode(cmd.Context()); stopped {
			return exitError{code}
		}
		var broken []string
		for _, x := range res.Findings {
			if x.Certainty == checker.Certain && !slices.Contains(broken, x.Rule) {
				broken = append(broken, x.Rule)
			}
		}
		unmet := slices.IndexFunc(res.Expect, func(m scenarios.Met) bool { return !m.Met })
		if res.Reason == "" && unmet < 0 && slices.Equal(sorted(broken), sorted(told.Broken)) {
			return nil
		}
		shows = listed(broken)
		if unmet >= 0 {
			shows = fmt.Sprintf("%s, but not that %s", shows, res.Expect[unmet].Expectation)
		}
		if res.Reason != "" {
			shows = res.Reason
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "tornwire: %s does more than a scenario can tell: the case shows %s, and its story %s\n", told.Case.ID, listed(told.Broken), shows)
	return exitError{verify.ExitInconclusive}
}

func sorted(words []string) []string { return slices.Sorted(slices.Values(words)) }

func listed(rules []string) string {
	if len(rules) == 0 {
		return "no finding"
	}
	return strings.Join(rules, ", ")
}
