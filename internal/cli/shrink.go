package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/proof"
	"tornwire/verify"
)

// shrinkFlags are the flags of tornwire shrink.
type shrinkFlags struct {
	opts    verify.Options
	shrink  verify.ShrinkOptions
	proofs  []string
	binding string

	grace, tolerance time.Duration
}

func shrinkCommand() *cobra.Command {
	f := &shrinkFlags{}
	cmd := &cobra.Command{
		Use:   "shrink [flags] CASE [-- ADAPTER...]",
		Short: "Reduces a failing case to the fewest calls, faults and bytes, and writes a proof of it",
		Long: "shrink runs a failing case, takes its story (what the application asked for, and when) from the record, and leaves\n" +
			"out of it whatever the same rule is broken without: calls, steps, the fault, bytes before it, time. Each smaller case\n" +
			"was run and judged as verify does. What is left is printed as a command line and, with --proof, written as a test of\n" +
			"at most 60 lines with a byte-scripted server, that needs no tornwire: for the tracker of the library.\n\n" +
			"Exit codes: 1 the case fails, and was shrunk as far as it goes; 0 it does not fail; 2 inconclusive, or what is left\n" +
			"does not fail each time; 64 usage; 69 the adapter cannot be used; 70 a proof cannot be written.",
		Example: "  tornwire shrink ticketing-v0/pipelined/none -- node adapters/saro-ticketing/adapter.mjs\n" +
			"  tornwire shrink --rule one-attempt --proof node=proof.mjs ticketing-v0/single/s2c.A.1@0:truncate-fin -- node adapters/saro-ticketing/adapter.mjs\n" +
			"  tornwire shrink --proof go=proof_test.go --binding binding.go ticketing/single/s2c.A.1@17:truncate-rst -- ./my-adapter",
		RunE: f.run,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.shrink.Rule, "rule", "", "rule that must still be broken (default the gravest that the case breaks)")
	fs.StringArrayVar(&f.proofs, "proof", nil, "write a proof, `LANGUAGE=FILE`; languages are "+strings.Join(proof.Languages(), ", ")+"; repeatable")
	fs.StringVar(&f.binding, "binding", "", "`FILE` with the part of the proof that calls the library (docs/proofs.md); default: the proof starts the adapter")
	fs.IntVar(&f.shrink.Runs, "runs", 600, fmt.Sprintf("most runs of cases, 1 to %d", verify.MaxShrinkRuns))
	fs.DurationVar(&f.shrink.Time, "time", 5*time.Minute, fmt.Sprintf("most time, 1s to %s", verify.MaxShrinkTime))
	fs.Uint64Var(&f.opts.Seed, "seed", verify.DefaultSeed, "seed of everything random")
	fs.StringVar(&f.opts.Profile, "profile", "", "any or official, as for verify")
	fs.StringVar(&f.opts.Busy, "busy", checker.BusyUnsettled, "unsettled, final or retry, as for verify")
	fs.DurationVar(&f.grace, "grace", checker.DefaultGrace, "how long after a call's deadline a client may wait for T or B, as for verify")
	fs.DurationVar(&f.tolerance, "tolerance", checker.DefaultTolerance, "how much later than that a session is still open before it is a finding, as for verify")
	fs.DurationVar(&f.opts.Timeout, "timeout", verify.DefaultTimeout, "time limit of one case, 1s to 1h")
	return cmd
}

func (f *shrinkFlags) run(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		dash = len(args)
	} else if dash == len(args) {
		return usagef("there is no adapter command behind --")
	}
	if dash != 1 {
		return usagef("shrink needs one case id; tornwire verify prints those of cases that fail")
	}
	if f.shrink.Runs < 1 || f.shrink.Time <= 0 {
		return usagef("--runs is %d and --time %s: they are 1 to %d and 1s to %s", f.shrink.Runs, f.shrink.Time, verify.MaxShrinkRuns, verify.MaxShrinkTime)
	}
	if f.opts.Timeout == 0 {
		return usagef("--timeout is 0s, not 1s to 1h")
	}
	files, err := proofFiles(f.proofs)
	if err != nil {
		return err
	}
	for _, p := range files {
		if err := canWrite(p.name); err != nil {
			return fmt.Errorf("cannot write the proof: %w", err)
		}
	}
	binding, err := f.readBinding(len(files))
	if err != nil {
		return err
	}
	f.opts.Grace, f.opts.Tolerance = &f.grace, &f.tolerance
	f.opts.Cases, f.opts.Command, f.opts.Version = args[:1], args[dash:], Version()
	if len(f.opts.Command) > 0 {
		f.opts.Start = verify.Command(f.opts.Command...)
	} else {
		f.opts.Start = verify.Library(reference.Library())
		if f.opts.Profile == "" {
			f.opts.Profile = "official"
		}
	}
	plan, err := verify.NewPlan(f.opts)
	if err != nil {
		return err
	}
	f.shrink.Right = verify.Library(reference.Library())
	var last verify.Shrunk
	f.shrink.Step = func(s verify.Shrunk) {
		last = s
		fmt.Fprintf(cmd.ErrOrStderr(), "run %d: %s in %s\n", s.Runs, count(s.Calls, "call"), s.Case)
	}
	s, err := verify.Shrink(cmd.Context(), plan, f.shrink)
	if code, stopped := signalCode(cmd.Context()); stopped {
		fmt.Fprintln(cmd.ErrOrStderr(), "tornwire: stopped before the smallest case was found; there is no proof")
		if last.Replay != "" {
			fmt.Fprintln(cmd.OutOrStdout(), last.Replay)
		}
		return exitError{code}
	}
	var no *verify.ShrinkError
	if errors.As(err, &no) {
		fmt.Fprintln(cmd.ErrOrStderr(), "tornwire: "+no.Error())
		return exitError{no.Code}
	}
	if err != nil {
		return err
	}
	if err := writeShrunk(cmd.OutOrStdout(), s); err != nil {
		return err
	}
	if s.Found == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "tornwire: what is left did not break the rule when it was run again, or is no mistake of this client alone; there is no proof")
		return exitError{verify.ExitInconclusive}
	}
	if err := f.writeProofs(cmd.OutOrStdout(), cmd.ErrOrStderr(), s, files, binding); err != nil {
		return err
	}
	if s.Found < s.Confirmed {
		return exitError{verify.ExitInconclusive}
	}
	return exitError{verify.ExitUnsafe}
}

// proofFile is a proof that is asked for.
type proofFile struct{ lang, name string }

func proofFiles(words []string) ([]proofFile, error) {
	var out []proofFile
	for _, w := range words {
		lang, name, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, usagef("--proof %q is not of the form LANGUAGE=FILE", w)
		}
		if !slices.Contains(proof.Languages(), lang) {
			return nil, usagef("--proof: there is no proof in %q%s; languages are %s", lang, verify.DidYouMean(lang, proof.Languages()), strings.Join(proof.Languages(), ", "))
		}
		out = append(out, proofFile{lang, name})
	}
	return out, nil
}

func (f *shrinkFlags) readBinding(proofs int) (string, error) {
	switch {
	case f.binding == "":
		return "", nil
	case proofs != 1:
		return "", usagef("--binding is written in the language of one --proof, and there are %d", proofs)
	}
	file, err := os.Open(f.binding)
	if err != nil {
		return "", usagef("--binding: %v", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, proof.MaxBinding+1))
	if err != nil {
		return "", usagef("--binding: %v", err)
	}
	if len(b) > proof.MaxBinding || len(strings.TrimSpace(string(b))) == 0 {
		return "", usagef("--binding: %s has not 1 to %d bytes", f.binding, proof.MaxBinding)
	}
	return string(b), nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func writeShrunk(w io.Writer, s *verify.Shrunk) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s breaks %s (%s): %s\n", s.Case, s.Finding.Rule, s.Finding.Severity, s.Finding.Message)
	fmt.Fprintf(&b, "%s and %s, from %s and %s; %s, the last %d broke it %s\n", count(s.Calls, "call"), count(s.Steps, "step"),
		count(s.FirstCalls, "call"), count(s.FirstSteps, "step"), count(s.Runs, "run"), s.Confirmed, times(s.Found, s.Confirmed))
	if s.Stopped != "" {
		fmt.Fprintf(&b, "it was not made smaller: %s\n", s.Stopped)
	}
	fmt.Fprintf(&b, "%s\n", s.Replay)
	_, err := io.WriteString(w, b.String())
	return err
}

func times(n, of int) string {
	if n == of {
		return "each time"
	}
	return fmt.Sprintf("%d times", n)
}

// writeProofs writes the proofs that are asked for; one that cannot be written does not
// keep the others from it.
func (f *shrinkFlags) writeProofs(stdout, stderr io.Writer, s *verify.Shrunk, files []proofFile, binding string) error {
	failed := false
	for _, p := range files {
		text, err := proof.Write(p.lang, proof.Case{
			ID: s.Case.String(), Replay: s.Replay, Client: s.Client, Dialect: s.Case.Dialect,
			Finding: s.Finding, Events: s.Events, Command: f.opts.Command, Binding: binding,
		})
		if err == nil {
			err = os.WriteFile(p.name, []byte(text), 0o644)
		}
		if err != nil {
			failed = true
			fmt.Fprintf(stderr, "tornwire: the proof %s=%s was not written: %v\n", p.lang, p.name, err)
			continue
		}
		fmt.Fprintf(stdout, "the proof is in %s (%d lines)\n", p.name, strings.Count(text, "\n"))
	}
	if failed {
		return exitError{verify.ExitInternal}
	}
	return nil
}
