//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tornwire/adapter"
	"tornwire/internal/wrongclient"
)

// childWord makes this binary an adapter: childWord [DEFECT]. programWord makes
// it the program.
const (
	childWord   = "adapter"
	programWord = "program"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childWord {
		os.Exit(serveClient(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == programWord {
		os.Exit(Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// serveClient is an adapter of a client with the defect that is named, of a
// right one without.
func serveClient(args []string) int {
	var signal string
	if len(args) > 0 && strings.HasPrefix(args[0], "SIG") {
		signal, args = args[0], args[1:]
	}
	lib, err := wrongclient.Library(strings.Join(args, ""))
	if err == nil {
		if signal != "" {
			lib = signalling{lib, signal}
		}
		err = adapter.Serve(context.Background(), os.Stdin, os.Stdout, lib)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// script is a test of the command line as a file: a command a line, behind it
// the files that it needs, each under a line "-- NAME --". In commands, $WORK is
// a directory of its own with these files, and $ADAPTER a client as an adapter.
//
//	exits CODE ARG...        runs tornwire in process, which must end with CODE
//	stdout [N] REGEXP        stdout of the last run has a match, or exactly N
//	!stdout REGEXP           it has none; stderr and !stderr are the same
//	lastline REGEXP          the whole last line of stdout
//	usage REGEXP             nothing on stdout, exactly one line on stderr, with a match
//	same FILE FILE           the files are equal; stdout is one
//	save FILE                keeps stdout
//	json FILE KEY=VALUE...   the file is one JSON object with these values
//	absent FILE              there is no such file
type script struct {
	*testing.T
	work           string
	self           string
	stdout, stderr string
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{T: t, work: t.TempDir(), self: self}
			for i, line := range strings.Split(s.unpack(string(text)), "\n") {
				words, err := split(line)
				if err == nil && len(words) > 0 {
					err = s.do(words[0], s.expand(words[1:]))
				}
				if err != nil {
					t.Fatalf("%s:%d: %s\n%v\nstdout:\n%s\nstderr:\n%s", name, i+1, line, err, s.stdout, s.stderr)
				}
			}
		})
	}
}

// unpack writes the files of a script and returns its commands.
func (s *script) unpack(text string) string {
	parts := regexp.MustCompile(`(?m)^-- (\S+) --\n`).Split(text, -1)
	names := regexp.MustCompile(`(?m)^-- (\S+) --\n`).FindAllStringSubmatch(text, -1)
	for i, n := range names {
		if err := os.WriteFile(filepath.Join(s.work, n[1]), []byte(parts[i+1]), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	return parts[0]
}

// split cuts a line into words; a word in single quotes may have spaces.
func split(line string) ([]string, error) {
	var words []string
	for line = strings.TrimSpace(line); line != "" && line[0] != '#'; line = strings.TrimSpace(line) {
		if line[0] != '\'' {
			w, rest, _ := strings.Cut(line, " ")
			words, line = append(words, w), rest
			continue
		}
		w, rest, ok := strings.Cut(line[1:], "'")
		if !ok {
			return nil, errors.New("a quote is not closed")
		}
		words, line = append(words, w), rest
	}
	return words, nil
}

func (s *script) expand(words []string) []string {
	var out []string
	for _, w := range words {
		if w == "$ADAPTER" {
			out = append(out, s.self, childWord)
			continue
		}
		out = append(out, strings.ReplaceAll(w, "$WORK", s.work))
	}
	return out
}

func (s *script) do(command string, args []string) error {
	need := map[string]int{
		"exits": 1, "stdout": 1, "!stdout": 1, "stderr": 1, "!stderr": 1, "lastline": 1, "usage": 1, "same": 2, "save": 1, "json": 1, "absent": 1,
	}[command]
	if need == 0 || len(args) < need {
		return errors.New("there is no such command, or it has too few words")
	}
	switch last := args[len(args)-1]; command {
	case "exits":
		return s.exits(args[0], args[1:])
	case "stdout":
		return matches(s.stdout, last, args[:len(args)-1])
	case "stderr":
		return matches(s.stderr, last, args[:len(args)-1])
	case "!stdout":
		return matches(s.stdout, last, []string{"0"})
	case "!stderr":
		return matches(s.stderr, last, []string{"0"})
	case "lastline":
		_, line, _ := cutLast(strings.TrimSuffix(s.stdout, "\n"))
		return matches(line, `\A(?:`+last+`)\z`, nil)
	case "usage":
		line, rest, _ := strings.Cut(s.stderr, "\n")
		if s.stdout != "" || rest != "" || !strings.HasPrefix(line, "tornwire: ") {
			return errors.New("not exactly one line on stderr, and no more")
		}
		return matches(line, last, nil)
	case "same":
		if s.read(args[0]) != s.read(args[1]) {
			return errors.New("they differ")
		}
	case "save":
		return os.WriteFile(last, []byte(s.stdout), 0o600)
	case "json":
		return hasJSON(s.read(args[0]), args[1:])
	case "absent":
		if _, err := os.Stat(last); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it is there: %w", err)
		}
	}
	return nil
}

func cutLast(s string) (before, last string, found bool) {
	i := strings.LastIndexByte(s, '\n')
	return s[:max(i, 0)], s[i+1:], i >= 0
}

func (s *script) read(name string) string {
	if name == "stdout" {
		return s.stdout
	}
	b, err := os.ReadFile(name)
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}

// busyTries is how often a command is run again because the machine was too busy
// to judge.
const busyTries = 8

func (s *script) exits(want string, args []string) error {
	code := 0
	for range busyTries {
		var out, complaints bytes.Buffer
		code = Main(args, strings.NewReader(""), &out, &complaints)
		s.stdout, s.stderr = out.String(), complaints.String()
		if code != 2 || !strings.Contains(s.stdout, "too busy") {
			break
		}
	}
	if strconv.Itoa(code) != want {
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

// matches looks for a regular expression, the given number of times if any.
func matches(text, expr string, count []string) error {
	re, err := regexp.Compile("(?m)" + expr)
	if err != nil {
		return err
	}
	n := len(re.FindAllString(text, -1))
	if len(count) == 0 && n == 0 || len(count) > 0 && strconv.Itoa(n) != count[0] {
		return fmt.Errorf("%d matches", n)
	}
	return nil
}

// hasJSON wants one object and nothing else; keys are paths with dots.
func hasJSON(text string, want []string) error {
	var doc map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(&doc); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one object")
	}
	for _, w := range want {
		key, value, _ := strings.Cut(w, "=")
		var v any = doc
		for _, k := range strings.Split(key, ".") {
			switch m := v.(type) {
			case []any:
				v = nil
				if i, err := strconv.Atoi(k); err == nil && i < len(m) {
					v = m[i]
				}
			case map[string]any:
				v = m[k]
			default:
				v = nil
			}
		}
		if got := fmt.Sprint(v); got != value {
			return fmt.Errorf("%s is %s", key, got)
		}
	}
	return nil
}
