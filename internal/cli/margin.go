package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"tornwire/adapter/reference"
	"tornwire/verify"
)

// marginFlags are the flags of tornwire margin.
type marginFlags struct {
	opts   verify.MarginOptions
	format string
}

func marginCommand() *cobra.Command {
	f := &marginFlags{}
	cmd := &cobra.Command{
		Use:   "margin [flags] [-- ADAPTER...]",
		Short: "Measures how late a grant may come before a second holder is in",
		Long: "margin delays the grant of a free key on its way to the client, and finds by bisection the smallest delay with which\n" +
			"the client is still inside when the server has granted the key to the next. A client that counts its lease from its own\n" +
			"send refuses a grant that comes behind it, and has no such delay.\n" +
			"The answer is \"margin N ms\" or \"refuses\"; it takes about twelve times the lease. Without an adapter the built-in\n" +
			"reference client is measured.\n\n" +
			"Exit codes: 0 measured, whatever the answer, 2 not measured, 64 usage, 69 adapter cannot be reached.",
		Example: "  tornwire margin -- python3 adapter.py\n" +
			"  tornwire margin --lease 2s --inside 500ms -- python3 adapter.py\n" +
			"  tornwire margin --dialect ticketing-v0 -- node adapters/saro-ticketing/adapter.mjs",
		RunE: f.run,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.opts.Dialect, "dialect", "ticketing", "dialect of the wire: ticketing or ticketing-v0")
	fs.DurationVar(&f.opts.Wait, "wait", 0, "wait of the call, whole seconds; with a wait over 0 no client can know when its lease began (default 0s; in ticketing-v0 the lease and 4s)")
	fs.DurationVar(&f.opts.Lease, "lease", time.Second, fmt.Sprintf("lease of the call, whole seconds up to %s", verify.MaxMarginLease))
	fs.DurationVar(&f.opts.Inside, "inside", 0, "how long the application stays inside, less than the lease (default 0s)")
	fs.Uint64Var(&f.opts.Seed, "seed", verify.DefaultSeed, "seed of everything random")
	fs.StringVar(&f.format, "format", "text", "what stdout gets: text or json")
	return cmd
}

func (f *marginFlags) run(cmd *cobra.Command, args []string) error {
	if err := onlyAdapter(cmd, args); err != nil {
		return err
	}
	if err := checkFormat(f.format); err != nil {
		return err
	}
	if f.opts.Dialect == "ticketing-v0" && !cmd.Flags().Changed("wait") {
		f.opts.Wait = f.opts.Lease + 4*time.Second
	}
	f.opts.Version, f.opts.Command = Version(), args
	f.opts.Start = verify.Library(reference.Library())
	if len(args) > 0 {
		f.opts.Start = verify.Command(args...)
	}
	stderr := cmd.ErrOrStderr()
	report, err := verify.Margin(cmd.Context(), f.opts, func(p verify.MarginProbe) {
		said := p.Outcome
		if p.Second {
			said += ", a second holder was in"
		}
		fmt.Fprintf(stderr, "delay %d ms: %s\n", p.DelayMS, said)
	})
	if code, stopped := signalCode(cmd.Context()); stopped {
		fmt.Fprintln(stderr, "tornwire: stopped before the margin was found")
		return exitError{code}
	}
	var usage *verify.UsageError
	switch {
	case errors.As(err, &usage):
		return err
	case err != nil:
		fmt.Fprintln(stderr, "tornwire:", err)
		if verify.Unreachable(err) {
			return exitError{verify.ExitUnreachable}
		}
		return exitError{verify.ExitInconclusive}
	}
	return f.write(cmd.OutOrStdout(), report)
}

func (f *marginFlags) write(w io.Writer, r *verify.MarginReport) error {
	if f.format == "json" {
		data, err := json.MarshalIndent(r, "", " ")
		if err == nil {
			_, err = w.Write(append(data, '\n'))
		}
		return err
	}
	_, err := fmt.Fprintf(w, "client %s, dialect %s, wait %g s, lease %g s, %g s inside\n%s\n", r.Client, r.Dialect, r.WaitS, r.LeaseS, r.InsideS, r.Line())
	return err
}
