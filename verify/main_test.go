package verify

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/internal/wrongclient"
)

// TestMain makes this binary an adapter too: with childWord as its first
// argument it is one that misbehaves as the second says.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childWord {
		os.Exit(childMain(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) > 2 && os.Args[1] == aloneWord {
		os.Exit(aloneMain(os.Args[2]))
	}
	// Most of a run is waiting, so that many tests fit side by side.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	initLimit, requestLimit, restLimit = 5*time.Second, 3*time.Second, 5*time.Second
	goleak.VerifyTestMain(m)
}

// controlCase is the run without a fault of the workload that broken adapters
// strike at.
const controlCase = "ticketing/single/none"

// busyTries is how often a run is made again because the machine was too busy
// to judge (spec/rules.md P11).
const busyTries = 8

// runPlan runs what the options select until the machine was not too busy.
func runPlan(t *testing.T, o Options) *Report {
	t.Helper()
	p, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	var r *Report
	for range busyTries {
		if r = Run(t.Context(), p, nil); !wasBusy(r) {
			return r
		}
	}
	t.Fatalf("the machine was too busy %d times, the last time so:\n%s", busyTries, text(r))
	return nil
}

// wasBusy tells whether a run has no better verdict than inconclusive because
// something was late.
func wasBusy(r *Report) bool {
	late := func(res Result) bool { return strings.Contains(res.Reason, "too busy") }
	return r.ExitCode == ExitInconclusive && (slices.ContainsFunc(r.Results, late) ||
		slices.ContainsFunc(r.Sanity, func(s SanityResult) bool { return late(s.Result) }))
}

// text is the report for people.
func text(r *Report) string {
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		return err.Error()
	}
	for _, s := range r.Sanity {
		fmt.Fprintf(&b, "%s: %s %s %s\n", s.When, s.Case, s.Verdict, s.Reason)
	}
	return b.String()
}

// certain lists the rules with a certain finding, sorted.
func certain(r *Report) []string {
	var out []string
	for _, f := range r.Findings {
		if f.Certainty == checker.Certain {
			out = append(out, f.Rule)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// wrong returns the client with a defect.
func wrong(t *testing.T, defect string) adapter.Library {
	t.Helper()
	lib, err := wrongclient.Library(defect)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func referenceLibrary() adapter.Library { return reference.Library() }

// restricted is a library that tells less than it can do.
type restricted struct {
	adapter.Library
	change func(*adapter.Info)
}

func (r restricted) Info() adapter.Info {
	i := r.Library.Info()
	r.change(&i)
	return i
}
