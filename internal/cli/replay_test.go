//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tornwire/verify"
)

// TestReplayLines: the line that a finding prints is a command line that finds it again,
// unless the report says itself that it did not come back each time (what a client does at
// the end of a greeting is a race):
// under each policy that a line has to name, in both dialects, for cases with a fault, for
// workloads without one and for the runs at both ends.
func TestReplayLines(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		defect string
		args   string
	}{
		{"enters-anyway", "--workload single --fault truncate-fin --seed 7"},
		{"enters-anyway", "--case ticketing-v0/single/s2c.A.1@17:truncate-fin --repeat 2 --profile official --grace 1s --tolerance 2500ms"},
		{"busy-retried", "--workload busy --fault none --busy final --shard 1/1"},
		{"owner-constant", "--workload single --fault none"},
	} {
		t.Run(c.defect+" "+c.args, func(t *testing.T) {
			t.Parallel()
			r := reportOf(t, append(append([]string{"verify"}, strings.Fields(c.args)...), "--", self, childWord, c.defect))
			if len(r.Findings) == 0 {
				t.Fatal("nothing was found")
			}
			seen, sweeps := map[string]bool{}, strings.Contains(c.args, "truncate-fin --seed")
			for _, f := range r.Findings {
				if strings.Contains(f.Case, "/sanity/") != (c.defect == "owner-constant") {
					continue // what came of a timeout at the ends of a run need not come again
				}
				shown := f.Reproduced == f.Replayed && (f.Replayed > 0 || !sweeps)
				if f.Certainty != "certain" || seen[f.Replay] || len(seen) == 3 || !shown {
					continue
				}
				seen[f.Replay] = true
				words := shellWords(t, f.Replay)
				if words[0] != "tornwire" {
					t.Fatalf("%q is no command line of tornwire", f.Replay)
				}
				again := reportOf(t, words[1:])
				if again.Seed != r.Seed || again.Profile != r.Profile || again.Busy != r.Busy || again.Selection.Grace != r.Selection.Grace {
					t.Errorf("%s runs under another policy", f.Replay)
				}
				// The runs at both ends are made once.
				listed := slices.ContainsFunc(r.Results, func(res verify.Result) bool { return res.Case == f.Case })
				if listed && again.Selection.Repeat != r.Selection.Repeat {
					t.Errorf("%s runs the case %d times, not %d", f.Replay, again.Selection.Repeat, r.Selection.Repeat)
				}
				if !slices.ContainsFunc(again.Findings, func(o verify.Finding) bool { return o.Case == f.Case && o.Rule == f.Rule && o.Severity == f.Severity }) {
					t.Errorf("%s in %s is not found by %s", f.Rule, f.Case, f.Replay)
				}
			}
			if c.defect == "owner-constant" && !seen["tornwire verify --dialect ticketing --workload single --fault none -- "+self+" "+childWord+" "+c.defect] {
				t.Errorf("no replay of a run at the ends, but %v", seen)
			}
			if len(seen) == 0 {
				t.Error("no finding is certain")
			}
		})
	}
}

// reportOf runs the program until the machine was not too busy.
func reportOf(t *testing.T, args []string) *verify.Report {
	t.Helper()
	at := slices.Index(args, "--")
	args = slices.Insert(slices.Clone(args), at, "--format", "json")
	for range busyTries {
		var out, complaints bytes.Buffer
		if code := Main(args, strings.NewReader(""), &out, &complaints); code != verify.ExitUnsafe {
			if strings.Contains(out.String(), "too busy") {
				continue
			}
			t.Fatalf("%q ends with %d\n%s", args, code, complaints.String())
		}
		r := new(verify.Report)
		if err := json.Unmarshal(out.Bytes(), r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Fatal("the machine is too busy")
	return nil
}

// shellWords has a shell read a line.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
