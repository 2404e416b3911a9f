package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tornwire/verify"
)

// output is where the report of a run goes.
type output struct {
	format  string
	reports []string
	files   []reportFile // once checked
}

// reportFile is a report to write: json, or a baseline to fill in.
type reportFile struct{ format, name string }

var reportFormats = []string{"json", "baseline"}

func (o *output) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.format, "format", "text", "what stdout gets: text or json")
	fs.StringArrayVar(&o.reports, "report", nil, "write a report: json=FILE, or baseline=FILE: what was found, as a file for --baseline to be filled in; repeatable")
}

// checkFormat checks --format.
func checkFormat(format string) error {
	if format != "text" && format != "json" {
		return usagef("there is no format %q%s; formats are text and json", format, verify.DidYouMean(format, []string{"text", "json"}))
	}
	return nil
}

// onlyAdapter checks that a command's only arguments are the adapter's command.
func onlyAdapter(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0 && len(args) > 0 || dash > 0:
		return usagef("unexpected argument %q: the adapter's command goes behind --", args[0])
	case dash == 0 && len(args) == 0:
		return usagef("there is no adapter command behind --")
	}
	return nil
}

// check checks the flags.
func (o *output) check() (err error) {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if o.files, err = reportFiles(o.reports); err != nil {
		return err
	}
	for _, f := range o.files {
		if err := canWrite(f.name); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
	}
	return nil
}

// canWrite fails if a file cannot be written, and changes nothing. A run should not end
// with that. What is no file, a pipe or a device, is not opened before its time.
func canWrite(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		return errors.Join(f.Close(), os.Remove(name))
	}
	info, statErr := os.Stat(name)
	switch {
	case statErr != nil:
		return err
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	if f, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
		return err
	}
	return f.Close()
}

// write writes the reports; a verdict goes before a report that cannot be written.
func (o *output) write(stdout, stderr io.Writer, r *verify.Report) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if o.format == "json" {
		_, err = stdout.Write(data)
	} else {
		err = r.WriteText(stdout)
	}
	if err != nil {
		err = fmt.Errorf("cannot write to stdout: %w", err)
	}
	for _, f := range o.files {
		content := data
		if f.format == "baseline" {
			var b bytes.Buffer
			_ = r.WriteBaseline(&b)
			content = b.Bytes()
		}
		if werr := os.WriteFile(f.name, content, 0o644); werr != nil && err == nil {
			err = fmt.Errorf("cannot write the report: %w", werr)
		}
	}
	if err != nil && r.ExitCode != verify.ExitUnsafe {
		return err
	}
	if err != nil {
		fmt.Fprintln(stderr, "tornwire:", err)
	}
	if r.ExitCode != verify.ExitSafe {
		return exitError{r.ExitCode}
	}
	return nil
}

// reportFiles checks the --report flags.
func reportFiles(specs []string) ([]reportFile, error) {
	var files []reportFile
	for _, s := range specs {
		format, file, ok := strings.Cut(s, "=")
		switch {
		case !ok || file == "":
			return nil, usagef("--report %q is not of the form json=FILE", s)
		case file == "-":
			return nil, usagef("--report %q: for a report on stdout use --format json", s)
		case !slices.Contains(reportFormats, format):
			return nil, usagef("there is no report format %q%s; there are json=FILE and baseline=FILE", format, verify.DidYouMean(format, reportFormats))
		}
		files = append(files, reportFile{format, file})
	}
	return files, nil
}
