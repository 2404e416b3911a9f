package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/verify"
)

// verifyFlags are the flags of tornwire verify.
type verifyFlags struct {
	output
	opts             verify.Options
	grace, tolerance time.Duration
	record           string
	baseline         string
	list             bool
	export           string
	shard            string
}

func verifyCommand() *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify [flags] [-- ADAPTER...]",
		Short: "Sweeps a client library through torn exchanges and gives a verdict",
		Long: "verify drives a client library through an adapter (see adapters/README.md) against the embedded lock server,\n" +
			"tears the wire at every byte of every frame, and judges what the client then says and does.\n" +
			"Without an adapter it verifies the built-in reference client, under --profile official.\n\n" +
			"Exit codes: 0 safe (or non-strict without --strict), 1 unsafe or nonconforming, 2 inconclusive, 3 non-strict\n" +
			"under --strict, 64 usage, 69 adapter or upstream cannot be reached, 70 internal error.",
		Example: "  tornwire verify\n" +
			"  tornwire verify --workload single --fault truncate\n" +
			"  tornwire verify --case ticketing/single/s2c.A.1@25:truncate-fin\n" +
			"  tornwire verify --dialect ticketing-v0 --report json=report.json -- node adapters/saro-ticketing/adapter.mjs\n" +
			"  tornwire verify --case ticketing/single/s2c.A.1@25:truncate-fin --repeat 20\n" +
			"  tornwire verify --shard 2/4 --report json=shard-2.json -- node adapter.mjs\n" +
			"  tornwire verify --upstream staging.example:7000 --secret-file secret.txt --workload single,server-probe",
		RunE: f.run,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.opts.Dialect, "dialect", "", "dialect of the wire: ticketing or ticketing-v0 (default ticketing, or that of --case)")
	fs.StringSliceVar(&f.opts.Workloads, "workload", nil, "workloads to run, comma-separated, or all (default all)")
	fs.StringSliceVar(&f.opts.Faults, "fault", nil, "faults to inject, ids, families or classes (network, peer, byzantine), comma-separated; none: the runs without a fault (default network,peer)")
	fs.StringSliceVar(&f.opts.Rules, "rule", nil, "rules to judge, comma-separated, or all (default all)")
	fs.StringArrayVar(&f.opts.Cases, "case", nil, "run this case only; repeatable")
	fs.StringVar(&f.opts.Sweep, "sweep", verify.SweepStandard, "smoke: a few offsets and faults, under 10 s; standard: every offset torn, each other fault once a frame; full: everything")
	fs.Uint64Var(&f.opts.Seed, "seed", verify.DefaultSeed, "seed of everything random")
	fs.IntVar(&f.opts.Parallel, "parallel", 0, fmt.Sprintf("cases in flight, 1 to %d (default: from the descriptor limit, at most 1024)", verify.MaxParallel))
	fs.StringVar(&f.shard, "shard", "", "run only the cases that fall to shard `I/N` by the hash of their ids; auto or auto/N takes what is left out from CI_NODE_INDEX and CI_NODE_TOTAL, or from JOB_COMPLETION_INDEX; tornwire merge joins the reports")
	fs.IntVar(&f.opts.Repeat, "repeat", 1, fmt.Sprintf("run each case so many times, 1 to %d, and say of a case that fails in how many of them", verify.MaxRepeat))
	fs.IntVar(&f.opts.Adapters, "adapters", 1, fmt.Sprintf("adapters that run side by side, 1 to %d: for one that can use one processor only", verify.MaxAdapters))
	fs.DurationVar(&f.opts.Timeout, "timeout", verify.DefaultTimeout, "time limit of one case, 1s to 1h")
	fs.StringVar(&f.opts.Profile, "profile", "", "any or official: whether clauses for official clients are held against this one (default any; official without an adapter)")
	fs.StringVar(&f.opts.Busy, "busy", checker.BusyUnsettled, "how a further attempt after B is judged: unsettled (hygiene), final (contract) or retry (allowed)")
	fs.DurationVar(&f.grace, "grace", checker.DefaultGrace, fmt.Sprintf("how long after a call's deadline a client may wait for T or B before it closes the session, 0s to %s", verify.MaxPatience))
	fs.DurationVar(&f.tolerance, "tolerance", checker.DefaultTolerance, fmt.Sprintf("how much later than that a session is still open before it is a finding, 0s to %s", verify.MaxPatience))
	fs.StringVar(&f.opts.Upstream, "upstream", "", "`HOST:PORT` of a staging server in the embedded server's place; what only the embedded one lets the tool do is skipped")
	fs.StringVar(&f.opts.SecretFile, "secret-file", "", "`FILE` with the upstream's shared secret, without its last newline (default no secret)")
	fs.BoolVar(&f.opts.ClosedWorld, "closed-world", false, "nobody else uses the keys at the upstream, and it is not restarted: what is else suspected of it is certain")
	fs.StringVar(&f.opts.KeyPrefix, "key-prefix", "", fmt.Sprintf("goes before every key at the upstream; keys are fresh anyway (at most %d bytes; it moves the offsets in case ids)", verify.MaxKeyPrefix))
	fs.BoolVar(&f.opts.Strict, "strict", false, "a non-strict verdict has exit code 3")
	fs.BoolVar(&f.opts.FailFast, "fail-fast", false, "stop at the first unsafe or nonconforming case")
	f.flags(fs)
	fs.StringVar(&f.record, "record", "", "write the history of every case into this directory, new or empty; tornwire check judges it again")
	fs.StringVar(&f.baseline, "baseline", "", baselineUsage)
	fs.StringVar(&f.export, "export", "", "write the one --case as a scenario into this `FILE`, - for stdout (docs/scenarios.md); it is run before, and has to show the same")
	fs.BoolVar(&f.list, "list", false, "print the ids of the selected cases and run nothing")
	return cmd
}

// run checks the whole command line before anything starts.
func (f *verifyFlags) run(cmd *cobra.Command, args []string) error {
	if err := onlyAdapter(cmd, args); err != nil {
		return err
	}
	if cmd.Flags().Changed("parallel") && f.opts.Parallel < 1 {
		return usagef("--parallel is %d, not 1 to %d", f.opts.Parallel, verify.MaxParallel)
	}
	if cmd.Flags().Changed("adapters") && f.opts.Adapters < 1 {
		return usagef("--adapters is %d, not 1 to %d", f.opts.Adapters, verify.MaxAdapters)
	}
	if cmd.Flags().Changed("repeat") && f.opts.Repeat < 1 {
		return usagef("--repeat is %d, not 1 to %d", f.opts.Repeat, verify.MaxRepeat)
	}
	if cmd.Flags().Changed("timeout") && f.opts.Timeout == 0 {
		return usagef("--timeout is 0s, not 1s to 1h")
	}
	if f.list && f.record != "" {
		return usagef("--list runs nothing, so that there is nothing to --record")
	}
	if f.list && len(f.reports) > 0 {
		return usagef("--list runs nothing, so that there is nothing to --report")
	}
	if f.list && f.format == "json" {
		return usagef("--list prints ids, one a line; it has no --format json")
	}
	for _, name := range []string{"workload", "fault", "rule"} {
		if words, _ := cmd.Flags().GetStringSlice(name); cmd.Flags().Changed(name) && len(words) == 0 {
			return usagef("--%s is empty: name some, or all", name)
		}
	}
	// An empty one is a variable that is not set: it must not be taken for the default.
	for _, name := range []string{"dialect", "sweep", "profile", "busy", "upstream", "secret-file", "record", "shard", "baseline", "export"} {
		if v, _ := cmd.Flags().GetString(name); cmd.Flags().Changed(name) && v == "" {
			return usagef("--%s is empty; leave it out for its default", name)
		}
	}
	err := f.check()
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("baseline") {
		base, err := readBaseline(f.baseline)
		if err != nil {
			return err
		}
		f.opts.Baseline = base
	}
	f.opts.Grace, f.opts.Tolerance = &f.grace, &f.tolerance
	if f.opts.SecretFile != "" {
		if f.opts.Secret, err = readSecret(f.opts.SecretFile); err != nil {
			return usagef("--secret-file: %v", err)
		}
		if f.opts.Upstream == "" {
			return usagef("--secret-file is the upstream's secret, and there is no --upstream")
		}
	}
	if f.shard != "" {
		s, err := verify.ParseShard(f.shard, os.Getenv)
		if err != nil {
			return err
		}
		f.opts.Shard = &s
	} else if s, ok := verify.AutoShard(os.Getenv); ok {
		fmt.Fprintf(cmd.ErrOrStderr(), "tornwire: this is job %s, and runs all cases; --shard auto runs its part of them\n", s)
	}
	f.opts.Command, f.opts.Version = args, Version()
	if len(args) > 0 {
		f.opts.Start = verify.Command(args...)
	} else {
		f.opts.Start = verify.Library(reference.Library())
		if f.opts.Alone, err = ownAdapter(); err != nil {
			return err
		}
		if f.opts.Profile == "" {
			f.opts.Profile = "official"
		}
	}
	if f.export != "" {
		return f.exportCase(cmd)
	}
	plan, err := verify.NewPlan(f.opts)
	if err != nil {
		return err
	}
	if f.list {
		return listCases(cmd.OutOrStdout(), cmd.ErrOrStderr(), plan)
	}
	if cmd.Flags().Changed("record") {
		if plan.Record, err = verify.CreateRecord(f.record); err != nil {
			return err
		}
	}
	collectLess()
	bar := newProgress(cmd.ErrOrStderr())
	report := verify.Run(cmd.Context(), plan, bar.step)
	bar.done()
	if code, stopped := signalCode(cmd.Context()); stopped {
		report.ExitCode = code
	}
	if report.ExitCode == verify.ExitUnreachable || report.ExitCode == verify.ExitInternal || len(plan.Cases) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "tornwire:", report.Reason)
	}
	err = f.write(cmd.OutOrStdout(), cmd.ErrOrStderr(), report)
	code, stopped := signalCode(cmd.Context())
	if !stopped {
		return err
	}
	if exit := (exitError{}); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(cmd.ErrOrStderr(), "tornwire:", err)
	}
	return exitError{code}
}

func listCases(stdout, stderr io.Writer, p *verify.Plan) error {
	if len(p.Cases) == 0 && p.Shard == nil {
		fmt.Fprintln(stderr, "tornwire: no case matches the selection")
		return exitError{verify.ExitInconclusive}
	}
	var b strings.Builder
	for _, c := range p.Cases {
		b.WriteString(c.ID.String() + "\n")
	}
	_, err := io.WriteString(stdout, b.String())
	return err
}

// collectLess: the live heap of a run is small and short-lived; collecting it less
// often is worth more than the memory, which the limit bounds.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(memoryLimit)
	}
}

// memoryLimit is from which on the collector works harder, in bytes.
const memoryLimit = 448 << 20

// quietEvery is how often progress is told where there is no terminal.
const quietEvery = 10 * time.Second
