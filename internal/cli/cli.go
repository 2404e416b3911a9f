// Package cli is the command line of tornwire: one file a command. It parses,
// calls and prints; it decides nothing.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tornwire/verify"
)

// version is set by the linker in released binaries.
var version = ""

// Version returns the version of this build.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// Main runs the program and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signalContext()
	defer stop()
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root)
	err := root.ExecuteContext(ctx)
	var exit exitError
	if err != nil && !errors.As(err, &exit) {
		for _, line := range strings.Split(err.Error(), "\n") {
			fmt.Fprintln(stderr, "tornwire: "+line)
		}
	}
	return exitCode(err)
}

// signalCode is the exit code of a command that a signal has cut short.
func signalCode(ctx context.Context) (int, bool) {
	var sig signalError
	if !errors.As(context.Cause(ctx), &sig) {
		return 0, false
	}
	n, ok := sig.sig.(syscall.Signal)
	return 128 + int(n), ok
}

// hasteAfter is when a second signal is taken for impatience: some senders
// signal a process and its group, so that one stop arrives twice.
const hasteAfter = time.Second

// signalContext is cancelled by the first SIGINT, SIGTERM or SIGHUP; a second one,
// over hasteAfter later, ends the program at once. A SIGHUP that is ignored when the
// program starts, as under nohup, stays so.
func signalContext() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(ch, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			cancel(signalError{s})
			t := time.NewTimer(hasteAfter)
			defer t.Stop()
			select {
			case <-t.C:
				signal.Stop(ch)
			case <-done:
			}
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tornwire",
		Short: "Tears the wire between lock clients and a lock server, and judges the clients",
		Long: "tornwire tears the wire between a lock client and a lock server at every byte of every frame,\n" +
			"and proves whether the client can be made to enter a critical section that it does not hold.",
		Example:       "  tornwire verify\n  tornwire verify --dialect ticketing-v0 -- node adapters/saro-ticketing/adapter.mjs",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          noSuchCommand,
		Version:       Version(),
	}
	root.SetVersionTemplate("tornwire {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(verifyCommand(), runCommand(), marginCommand(), checkCommand(), mergeCommand(), shrinkCommand(), listCommand(), explainCommand(), lockserverCommand(), serveCommand(), adapterCommand(), versionCommand())
	root.SetHelpCommand(helpCommand(root))
	return root
}

// addCompletion adds cobra's completion command, which writes to the output
// that root has at this moment.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, noSuchCommand
			for _, shell := range c.Commands() {
				shell.Args = noArgs
			}
		}
	}
}

// noSuchCommand shows the help of a command that has only subcommands, or
// refuses an argument that is none of them.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var words []string
	for _, c := range cmd.Commands() {
		words = append(words, c.Name())
	}
	return usagef("there is no command %q%s; see %s --help", args[0], verify.DidYouMean(args[0], words), cmd.CommandPath())
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Shows the help of a command", Example: "  tornwire help verify",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noSuchCommand(root, args)
			}
			return cmd.Help()
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Prints the version", Example: "  tornwire version", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "tornwire "+Version())
			return err
		},
	}
}
