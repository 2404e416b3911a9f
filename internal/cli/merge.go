package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"tornwire/verify"
)

// maxReport is how large a report of a shard may be, in bytes.
const maxReport = 1 << 30

func mergeCommand() *cobra.Command {
	out := &output{}
	cmd := &cobra.Command{
		Use:   "merge [flags] REPORT...",
		Short: "Joins the reports of shards into the one of the whole run",
		Long: "merge reads the JSON reports of all shards of a run (verify --shard I/N --report json=FILE), and gives the report and\n" +
			"the exit code that the run would have had undivided. A shard that is missing, there twice, or of another run\n" +
			"(another version, client, dialect, seed, selection or policy) is refused with exit code 64.",
		Example: "  tornwire merge shard-*.json\n" +
			"  tornwire merge --report json=report.json shard-1.json shard-2.json",
		RunE: func(cmd *cobra.Command, args []string) error { return merge(cmd, out, args) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	out.flags(fs)
	return cmd
}

func merge(cmd *cobra.Command, out *output, args []string) error {
	if len(args) == 0 {
		return usagef("merge takes the JSON reports of all shards of a run")
	}
	if err := out.check(); err != nil {
		return err
	}
	var shards []verify.ShardReport
	for _, name := range args {
		data, err := readReport(name)
		if err != nil {
			return usagef("cannot read the report: %v", err)
		}
		shards = append(shards, verify.ShardReport{File: name, Data: data})
	}
	report, err := verify.Merge(shards)
	if err != nil {
		return err
	}
	if report.ExitCode == verify.ExitUnreachable || report.ExitCode == verify.ExitInternal {
		fmt.Fprintln(cmd.ErrOrStderr(), "tornwire:", report.Reason)
	}
	return out.write(cmd.OutOrStdout(), cmd.ErrOrStderr(), report)
}

func readReport(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxReport {
		return nil, fmt.Errorf("%s has %d bytes, over %d", name, info.Size(), maxReport)
	}
	return os.ReadFile(name)
}
