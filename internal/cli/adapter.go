package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/verify"
)

const adapterWord = "adapter"

// adapterCommand is the reference client as an adapter of its own. verify starts it
// where a case has to stop the client; people need it to see what verify -- does.
func adapterCommand() *cobra.Command {
	return &cobra.Command{
		Use:   adapterWord,
		Short: "Runs the reference client as an adapter",
		Long: "adapter speaks the adapter protocol (see adapters/README.md) for the reference client on stdin and stdout,\n" +
			"until the end of stdin. tornwire verify starts it by itself for the workloads that stop the client's process.",
		Example: "  tornwire verify -- tornwire adapter",
		Args:    noArgs,
		Hidden:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := adapter.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), reference.Library()); err != nil {
				return fmt.Errorf("the adapter has failed: %w", err)
			}
			return nil
		},
	}
}

// ownAdapter starts that command of this program.
func ownAdapter() (verify.Starter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program to start it as an adapter: %w", err)
	}
	return verify.Command(self, adapterWord), nil
}
