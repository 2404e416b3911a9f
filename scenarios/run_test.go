package scenarios

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"tornwire/checker"
	"tornwire/history"
	"tornwire/internal/wrongclient"
	"tornwire/verify"
)

const head = `name = "story"
about = "It shows something."
`

// parsed reads a scenario that is right.
func parsed(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := Parse("story.toml", []byte(head+text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a scenario until the machine was not too busy.
func run(t *testing.T, s *Scenario, o Options) *Result {
	t.Helper()
	for range 8 {
		res, err := Run(t.Context(), s, o)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(res.Reason, "too busy") {
			return res
		}
	}
	t.Fatal("the machine was too busy each time")
	return nil
}

func rules(res *Result) (out []string) {
	for _, f := range res.Findings {
		if f.Certainty == checker.Certain {
			out = append(out, f.Rule)
		}
	}
	return out
}

// torn is a cut in the answer to a program that the run starts.
const torn = `
[[clients]]
name = "program"
kind = "command"

[[rules]]
id = "lose"
dir = "s2c"
op = "A"
nth = 1
fault = { type = "truncate-rst", at = 0 }

[[expect]]
fired = "lose"
`

// TestCommand: a program that nobody drives is judged by the wire alone, and its exit code
// is part of the verdict.
func TestCommand(t *testing.T) {
	t.Parallel()
	for word, x := range map[string]struct {
		code    int
		finding string
		failed  bool
	}{
		"ask":       {0, "", false},
		"ask-twice": {verify.ExitUnsafe, "no-resend", false}, // with its owner, behind a lost answer
		"fail":      {verify.ExitUnsafe, "", true},
	} {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			res := run(t, parsed(t, torn), Options{Command: []string{os.Args[0], commandWord, word}, Output: &out})
			if res.ExitCode != x.code || (res.Command != "") != x.failed || x.finding != "" && !slices.Contains(rules(res), x.finding) || x.finding == "" && len(rules(res)) > 0 {
				t.Errorf("command %q: %s\n%s", res.Command, describe(res), out.String())
			}
			if x.failed && (!strings.Contains(res.Command, "exit status 7") || out.String() != "as it was asked to\n") {
				t.Errorf("%q, %q", res.Command, out.String())
			}
			for _, rule := range byWire {
				if slices.Contains(res.Checked, rule) {
					t.Errorf("%s is judged by the wire alone", rule)
				}
			}
		})
	}
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		ctx, stop := context.WithCancel(t.Context())
		out := writer(func([]byte) { stop() }) // when it hangs
		res, err := Run(ctx, parsed(t, torn), Options{Command: []string{os.Args[0], commandWord, "hang"}, Output: out})
		if err != nil || res.Verdict != checker.Inconclusive || res.ExitCode != verify.ExitInconclusive || res.Command != "" {
			t.Errorf("%v, %s", err, describe(res))
		}
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		res := run(t, parsed(t, torn), Options{Command: []string{"./nowhere"}})
		if res.ExitCode != verify.ExitInconclusive || !strings.Contains(res.Reason, "story.toml:4: client program: ") {
			t.Error(describe(res))
		}
		if _, err := Run(t.Context(), parsed(t, torn), Options{}); err == nil || !strings.Contains(err.Error(), "story.toml:4: client program is a command, and there is none") {
			t.Error(err)
		}
	})
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// TestConditions: each kind of condition is waited for, and one that does not come in time
// ends the run where it stands.
func TestConditions(t *testing.T) {
	t.Parallel()
	var told []Told
	res := run(t, parsed(t, `
[[clients]]
name = "c1"
[[clients]]
name = "c2"
[[rules]]
id = "see"
dir = "c2s"
op = "A"
signal = "seen"
[[rules]]
id = "keep"
armed = false
dir = "s2c"
op = "T"
fault = { type = "hold", until = "go", args = { most = "1m" } }
[[steps]]
open = "c1"
[[steps]]
hold = "k"
[[steps]]
arm = "keep"
[[steps]]
acquire = "a"
client = "c1"
key = "k"
wait = "0s"
lease = "5s"
[[steps]]
when = { fired = "keep" }
gate = "go"
[[steps]]
when = { event = "call_result", call = "a", client = "c1" }
disarm = "keep"
[[steps]]
shut = "go"
[[steps]]
acquire = "b"
client = "c2"
key = "k"
wait = "5s"
lease = "1s"
[[steps]]
when = { frame = "c2s.A", client = "c2" }
free = "k"
[[steps]]
when = { frame = "s2c.A.1", count = 1, within = "5s" }
settle = "b"
[[steps]]
enter = "b"
[[steps]]
leave = "b"
[[steps]]
expired = "k"
[[steps]]
take = "k"
[[steps]]
when = { after = "1ms" }
await = "a moment"
[[steps]]
close = "c2"
[[steps]]
free = "k"
[[expect]]
call = "a"
outcomes = ["timeout"]
[[expect]]
event = "entered"
count = "2"
[[expect]]
frame = "c2s.A"
client = "c2"
count = "1"
`), Options{Told: func(x Told) { told = append(told, x) }})
	if res.ExitCode != 0 {
		t.Error(describe(res))
	}
	if n := len(res.Scenario.Steps); len(told) < n || told[len(told)-1].Step.Do != DoFree || told[len(told)-1].End < told[len(told)-1].At {
		t.Errorf("told of %d steps of %d", len(told), n)
	}

	res = run(t, parsed(t, `
[[steps]]
acquire = "a"
key = "k"
wait = "1s"
lease = "5s"
[[steps]]
when = { frame = "s2c.B", within = "20ms" }
release = "a"
`), Options{})
	if want := "story.toml:10: frame s2c.B did not come within 20ms (there were 0)"; res.ExitCode != verify.ExitInconclusive || res.Reason != want {
		t.Errorf("%s\nwant %s", describe(res), want)
	}
	if slices.ContainsFunc(res.Events, func(e history.Event) bool { return e.Kind == history.ReleaseAsked }) {
		t.Error("the story went on")
	}
}

// TestExpected: a finding that is wanted is what the scenario is to show; one that is not is
// a failure, and so is what was expected and is not there.
func TestExpected(t *testing.T) {
	t.Parallel()
	lib, err := wrongclient.Library("resend-new-owner")
	if err != nil {
		t.Fatal(err)
	}
	story := torn[strings.Index(torn, "[[rules]]"):strings.Index(torn, "[[expect]]")] + `
[[steps]]
acquire = "a"
key = "k"
wait = "1s"
lease = "5s"
[[steps]]
settle = "a"
`
	for expect, code := range map[string]int{
		"":                               verify.ExitUnsafe,
		"finding = \"one-attempt\"":      0,
		"no_finding = \"settles\"":       verify.ExitUnsafe,
		"verdict = \"nonconforming\"":    verify.ExitUnsafe, // the finding was not wanted
		"finding = \"no-partial-frame\"": verify.ExitUnsafe,
	} {
		text := story
		if expect != "" {
			text += "[[expect]]\n" + expect + "\n"
		}
		if res := run(t, parsed(t, text), Options{Start: verify.Library(lib)}); res.ExitCode != code {
			t.Errorf("%s: %s", expect, describe(res))
		}
	}
	// Of the reference client there is none to show.
	res := run(t, parsed(t, story+"[[expect]]\nfinding = \"one-attempt\"\n[[expect]]\nfired = \"lose\"\ncount = \"..0\"\n"), Options{})
	if res.ExitCode != verify.ExitUnsafe || res.Expect[0].Met || res.Expect[0].Got != "found was nothing" || res.Expect[1].Met || res.Expect[1].Got != "there were 1" {
		t.Error(describe(res))
	}
}

// TestUnreachable: an adapter that cannot be started is told as one.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	s, _ := ByName("torn-grant")
	res := run(t, s, Options{Start: verify.Command("./nowhere")})
	if res.ExitCode != verify.ExitUnreachable || !strings.Contains(res.Reason, "nowhere") {
		t.Error(describe(res))
	}
}
