package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tornwire/verify"
)

// usageError is a wrong command line or file; the exit code is 64.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

// usagef makes a usageError. Its text is one line that says what to do next.
func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// exitError ends the program with a code, after everything was said.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// signalError is the cause of a context that a signal has cancelled.
type signalError struct{ sig os.Signal }

func (e signalError) Error() string { return "stopped by " + e.sig.String() }

// exitCode is the code of spec/cli.md for an error.
func exitCode(err error) int {
	var (
		exit  exitError
		usage usageError
		plan  *verify.UsageError
	)
	switch {
	case err == nil:
		return verify.ExitSafe
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage), errors.As(err, &plan):
		return verify.ExitUsage
	}
	return verify.ExitInternal
}

// flagError turns the flag parser's error into a usage error with a hint.
func flagError(cmd *cobra.Command, err error) error {
	msg := err.Error()
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var words []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { words = append(words, "--"+f.Name) })
		name := "--" + unknown.GetSpecifiedName()
		if len(unknown.GetSpecifiedName()) == 1 {
			name = name[1:]
		}
		return usagef("there is no flag %s%s; see %s --help", name, verify.DidYouMean(name, words), cmd.CommandPath())
	}
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		kinds := map[string]string{
			"uint64": "a whole number from 0", "int": "a whole number", "duration": "a duration such as 30s", "bool": "true or false",
		}
		if kind := kinds[value.GetFlag().Value.Type()]; kind != "" {
			return usagef("--%s is %q, not %s; see %s --help", value.GetFlag().Name, value.GetValue(), kind, cmd.CommandPath())
		}
	}
	return usagef("%s; see %s --help", strings.TrimSuffix(msg, "."), cmd.CommandPath())
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, but got %q; see %s --help", cmd.Name(), args[0], cmd.CommandPath())
	}
	return nil
}
