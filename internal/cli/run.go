package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"tornwire/api"
	"tornwire/checker"
	"tornwire/frames"
	"tornwire/scenarios"
	"tornwire/verify"
)

// allScenarios names every scenario that is built in.
const allScenarios = "all"

// runFlags are the flags of tornwire run.
type runFlags struct {
	opts             scenarios.Options
	adapter, verbose bool
	print            bool
	seed             uint64
	grace, tolerance time.Duration
	format, report   string
	dialect          string
	runs             *scenarios.Runs // of the API for commands; nil: there is none
}

func runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] SCENARIO... [-- COMMAND...]",
		Short: "Runs scenarios: failures as stories, with what is expected of them",
		Long: "run runs scenarios, TOML files or built-in ones by their names (tornwire list scenarios; all is every one), one after\n" +
			"the other. A scenario has servers, clients, rules, steps and expectations (docs/scenarios.md).\n\n" +
			"COMMAND is any program, such as a test suite: it plays the client of kind command, finds in its environment\n" +
			scenarios.EnvAddr + " (where to connect), " + scenarios.EnvAddrs + " (all addresses, with commas), and " + envAPI + " and " + scenarios.EnvRun + ", by\n" +
			"which it can be a witness of its calls (docs/scenarios.md). Its exit code is part of the verdict.\n" +
			"With --adapter it is an adapter (adapters/README.md), and takes the place of the reference clients.\n\n" +
			"Exit codes: 0 all is as expected; 1 it is not, a finding that nobody expected, or COMMAND failed; 2 inconclusive;\n" +
			"3 non-strict with --strict; 64 usage or a file that is wrong; 69 the adapter cannot be used; 70 an internal error.",
		Example: "  tornwire run torn-grant\n  tornwire run --adapter all -- go run ./adapters/go-reference\n  tornwire run my-story.toml -- go test ./...",
		RunE:    f.run,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.adapter, "adapter", false, "COMMAND is an adapter, in the place of the reference clients")
	fs.StringVar(&f.dialect, "dialect", "", "of all: only scenarios of this dialect")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of everything random (default the scenario's)")
	fs.DurationVar(&f.opts.Timeout, "timeout", 0, fmt.Sprintf("time limit of a run, 1s to %s (default the scenario's)", scenarios.MaxTimeout))
	fs.StringVar(&f.opts.Profile, "profile", "", "any or official, as for verify (default the scenario's)")
	fs.StringVar(&f.opts.Busy, "busy", "", "unsettled, final or retry, as for verify (default the scenario's)")
	fs.DurationVar(&f.grace, "grace", checker.DefaultGrace, "how long after a call's deadline a client may wait for T or B, as for verify")
	fs.DurationVar(&f.tolerance, "tolerance", checker.DefaultTolerance, "how much later than that a session is still open before it is a finding, as for verify")
	fs.BoolVar(&f.opts.Strict, "strict", false, "a non-strict verdict has exit code 3")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "tell each step when it is done, on stderr")
	fs.BoolVar(&f.print, "print", false, "print the scenarios and run nothing: a start for one of your own")
	fs.StringVar(&f.report, "report", "", "write a report, `json=FILE`")
	fs.StringVar(&f.format, "format", "text", "text or json, of what goes to stdout")
	return cmd
}

func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	command := []string(nil)
	if dash >= 0 {
		if args, command = args[:dash], args[dash:]; len(command) == 0 {
			return usagef("there is no command behind --")
		}
	}
	if err := f.check(cmd, args, command); err != nil {
		return err
	}
	list, err := readScenarios(args, f.dialect)
	if err != nil {
		return err
	}
	if f.print {
		for _, s := range list {
			if _, err := io.WriteString(cmd.OutOrStdout(), s.Source); err != nil {
				return err
			}
		}
		return nil
	}
	if f.report != "" {
		if err := canWrite(strings.TrimPrefix(f.report, "json=")); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
	}
	f.opts.Grace, f.opts.Tolerance = &f.grace, &f.tolerance
	if cmd.Flags().Changed("seed") {
		f.opts.Seed = &f.seed
	}
	f.opts.Output = cmd.ErrOrStderr()
	if f.adapter {
		f.opts.Start = verify.Command(command...)
	} else {
		f.opts.Command = command
	}
	if len(command) > 0 && !f.adapter {
		stop, err := f.serve(cmd.Context())
		if err != nil {
			return err
		}
		defer stop()
	}
	return f.all(cmd, list, command)
}

func (f *runFlags) check(cmd *cobra.Command, args, command []string) error {
	if len(args) == 0 {
		return usagef("run takes scenarios: files, or names that tornwire list scenarios shows")
	}
	if f.adapter && len(command) == 0 {
		return usagef("--adapter says that the command is an adapter, and there is no command behind --")
	}
	if f.print && (len(command) > 0 || f.report != "" || f.format == "json") {
		return usagef("--print runs nothing, so that there is no command, --report or --format")
	}
	if cmd.Flags().Changed("timeout") && (f.opts.Timeout < time.Second || f.opts.Timeout > scenarios.MaxTimeout) {
		return usagef("--timeout is %s, not 1s to %s", f.opts.Timeout, scenarios.MaxTimeout)
	}
	switch {
	case f.dialect != "" && !slices.Contains(frames.Names(), f.dialect):
		return usagef("there is no dialect %q%s; dialects are %s", f.dialect, verify.DidYouMean(f.dialect, frames.Names()), strings.Join(frames.Names(), ", "))
	case f.dialect != "" && !slices.Contains(args, allScenarios):
		return usagef("--dialect chooses among all scenarios, and all is not asked for")
	}
	for _, name := range []string{"profile", "busy", "report", "dialect"} {
		if v, _ := cmd.Flags().GetString(name); cmd.Flags().Changed(name) && v == "" {
			return usagef("--%s is empty; leave it out for its default", name)
		}
	}
	if file, ok := strings.CutPrefix(f.report, "json="); f.report != "" && (!ok || file == "") {
		return usagef("--report %q is not of the form json=FILE", f.report)
	}
	return checkFormat(f.format)
}

// readScenarios reads all that is named, and tells all that is wrong at once.
func readScenarios(names []string, dialect string) ([]*scenarios.Scenario, error) {
	var out []*scenarios.Scenario
	var errs []error
	for _, name := range names {
		if name == allScenarios {
			for _, s := range scenarios.Library() {
				if dialect == "" || s.Dialect == dialect {
					out = append(out, s)
				}
			}
			continue
		}
		if s, ok := scenarios.ByName(name); ok {
			out = append(out, s)
			continue
		}
		source, err := readFile(name, scenarios.MaxSource)
		switch {
		case errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(name, "./"+string(filepath.Separator)):
			var all []string
			for _, s := range scenarios.Library() {
				all = append(all, s.Name)
			}
			errs = append(errs, usagef("there is no scenario %q%s; tornwire list scenarios shows those that are built in, and a file has its path", name, verify.DidYouMean(name, all)))
		case err != nil:
			errs = append(errs, usagef("cannot read the scenario: %v", err))
		default:
			s, err := scenarios.Parse(name, source)
			if err != nil {
				errs = append(errs, usagef("%v", err))
				continue
			}
			out = append(out, s)
		}
	}
	return out, errors.Join(errs...)
}

// readFile reads a file of limited size.
func readFile(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has over %d bytes", name, most)
	}
	return b, err
}

// all runs scenarios one after the other, and has the gravest exit code of theirs.
func (f *runFlags) all(cmd *cobra.Command, list []*scenarios.Scenario, command []string) error {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	rep := runReport{Schema: 1, Tool: "tornwire", Version: Version(), Command: command, Runs: []runView{}}
	if f.verbose {
		f.opts.Told = func(t scenarios.Told) {
			fmt.Fprintf(stderr, "%9s %s %s\n", t.End.Round(time.Millisecond), t.Step.Do, t.Step.Name)
		}
	}
	worst := 0
	for _, s := range list {
		if f.verbose {
			fmt.Fprintf(stderr, "%s: %s\n", s.Name, s.About)
		}
		res, err := f.one(cmd.Context(), s)
		if err != nil {
			return err
		}
		if code, stopped := signalCode(cmd.Context()); stopped {
			res.ExitCode, worst = code, code
		} else {
			worst = graver(worst, res.ExitCode)
		}
		rep.Runs = append(rep.Runs, viewRun(res))
		if f.format == "text" {
			writeRun(stdout, res)
		}
		if cmd.Context().Err() != nil {
			break
		}
	}
	rep.ExitCode = worst
	if err := f.write(stdout, rep); err != nil {
		return err
	}
	if worst != 0 {
		return exitError{worst}
	}
	return nil
}

// one runs a scenario. Where a command plays a client, it is a run of the API that the
// command is told of, so that it can be a witness.
func (f *runFlags) one(ctx context.Context, s *scenarios.Scenario) (*scenarios.Result, error) {
	if f.runs == nil {
		return scenarios.Run(ctx, s, f.opts)
	}
	l, err := f.runs.StartHere(s, f.opts, false)
	if err != nil {
		return nil, err
	}
	select {
	case <-l.Done():
	case <-ctx.Done():
		l.Stop()
	}
	state := l.State()
	return state.Result, state.Err
}

// serve answers the API for commands, on a port of this machine's, until the function that
// it returns is called.
func (f *runFlags) serve(ctx context.Context) (stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot serve the API for the command: %w", err)
	}
	m := api.NewManager(api.Options{Version: Version(), Log: zerolog.Nop()})
	f.runs = m.Runs()
	f.opts.Env = append(f.opts.Env, envAPI+"=http://"+l.Addr().String())
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = api.Serve(ctx, l, m) // it ends when it is told to
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// envAPI is the variable of a command's environment that has the address of the API.
const envAPI = "TORNWIRE_API"

// graver is the exit code that goes before another (spec/cli.md).
func graver(a, b int) int {
	order := []int{verify.ExitUnsafe, verify.ExitInternal, verify.ExitUnreachable, verify.ExitInconclusive, verify.ExitNonStrict}
	for _, code := range order {
		if a == code || b == code {
			return code
		}
	}
	return max(a, b)
}

func (f *runFlags) write(stdout io.Writer, rep runReport) error {
	data, err := json.MarshalIndent(rep, "", " ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if f.format == "json" {
		if _, err := stdout.Write(data); err != nil {
			return err
		}
	} else if len(rep.Runs) > 1 {
		ok := 0
		for _, r := range rep.Runs {
			if r.ExitCode == 0 {
				ok++
			}
		}
		fmt.Fprintf(stdout, "%d of %d scenarios went as expected\n", ok, len(rep.Runs))
	}
	if f.report == "" {
		return nil
	}
	if err := os.WriteFile(strings.TrimPrefix(f.report, "json="), data, 0o644); err != nil {
		if rep.ExitCode == verify.ExitUnsafe {
			return exitError{verify.ExitUnsafe}
		}
		return fmt.Errorf("cannot write the report: %w", err)
	}
	return nil
}

// runReport is the JSON report of tornwire run.
type runReport struct {
	Schema   int       `json:"schema"`
	Tool     string    `json:"tool"`
	Version  string    `json:"version"`
	Command  []string  `json:"command,omitempty"`
	ExitCode int       `json:"exit_code"`
	Runs     []runView `json:"runs"`
}

type runView struct {
	Scenario string            `json:"scenario"`
	File     string            `json:"file"`
	About    string            `json:"about"`
	Clause   string            `json:"clause,omitempty"`
	Verdict  checker.Verdict   `json:"verdict"`
	ExitCode int               `json:"exit_code"`
	Reason   string            `json:"reason"`
	ElapsedS float64           `json:"elapsed_s"`
	Command  string            `json:"command_failed,omitempty"`
	Checked  []string          `json:"checked"`
	Findings []checker.Finding `json:"findings"`
	Expect   []expectView      `json:"expectations"`
}

type expectView struct {
	Line int    `json:"line"`
	What string `json:"what"`
	Met  bool   `json:"met"`
	Got  string `json:"got,omitempty"`
}

func viewRun(res *scenarios.Result) runView {
	s := res.Scenario
	v := runView{
		Scenario: s.Name, File: s.File, About: s.About, Clause: s.Clause, Verdict: res.Verdict, ExitCode: res.ExitCode, Reason: res.Reason,
		ElapsedS: math.Round(res.Elapsed.Seconds()*1000) / 1000, Command: res.Command,
		Checked: append([]string{}, res.Checked...), Findings: append([]checker.Finding{}, res.Findings...), Expect: []expectView{},
	}
	for _, m := range res.Expect {
		v.Expect = append(v.Expect, expectView{m.Line, m.Expectation.String(), m.Met, m.Got})
	}
	return v
}

// writeRun tells a person how a scenario went; the last line is the verdict.
func writeRun(w io.Writer, res *scenarios.Result) {
	s := res.Scenario
	if text := res.Describe(); text != "" {
		fmt.Fprintln(w, text)
	} else if res.Reason != "" {
		fmt.Fprintln(w, res.Reason)
	}
	met := 0
	for _, m := range res.Expect {
		if m.Met {
			met++
		} else {
			fmt.Fprintf(w, "%s:%d: expected: %s; %s\n", s.File, m.Line, m.Expectation, m.Got)
		}
	}
	if res.Command != "" {
		fmt.Fprintf(w, "the command failed: %s\n", res.Command)
	}
	verdict := verify.VerdictWord(res.Verdict)
	if res.ExitCode != 0 && res.Verdict == checker.Safe {
		verdict = "not as expected"
	}
	fmt.Fprintf(w, "%s: %s; %d of %d expectations met, %d rules checked; %.1f s\n", s.Name, verdict, met, len(s.Expect), len(res.Checked), res.Elapsed.Seconds())
}

// listScenarios lists the built-in scenarios for tornwire list.
func listScenarios(w io.Writer) {
	list := scenarios.Library()
	slices.SortStableFunc(list, func(a, b *scenarios.Scenario) int { return strings.Compare(a.Dialect, b.Dialect) })
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Dialect, s.Clause, s.About)
	}
}
