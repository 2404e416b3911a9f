package verifytest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/verify"
)

var (
	sweepName = flag.String("sweep", "smoke", "smoke, standard or full, of the reference client")
	runs      = flag.Int("runs", sameRuns, "how often the transcripts are compared")
)

func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage) // for the tests that do without Run, too
	}
	os.Exit(m.Run())
}

var dialects = []string{"ticketing", "ticketing-v0"}

func referenceOf(in Inside) adapter.Library {
	return reference.WithDial(reference.Dial(in.Dial), in.Seed)
}

// TestReference: the reference client is SAFE in a sweep. The alone pattern of a case is
// tried by TestAlone.
func TestReference(t *testing.T) {
	for _, d := range dialects {
		RunLibrary(t, Options{Dialect: d, Sweep: *sweepName, Profile: "official", Strict: true}, referenceOf)
	}
}

// TestTranscripts: each run of a case puts the same bytes on the wire at the same times.
func TestTranscripts(t *testing.T) {
	for _, d := range dialects {
		first := map[string]string{}
		for n := range max(*runs/share, 2) {
			for id, got := range transcripts(t, verify.Options{Dialect: d, Sweep: *sweepName, Profile: "official"}) {
				switch want, ok := first[id]; {
				case !ok && n == 0:
					first[id] = got
				case got != want:
					t.Errorf("%s: %s", id, unlike(want, got))
				}
			}
		}
		if n := len(first); n < 400 {
			t.Errorf("%d cases of %s have a transcript", n, d)
		}
	}
}

// unlike tells where two transcripts part.
func unlike(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d is\n%s\nand another time\n%s", i+1, x[i], y[i])
		}
	}
	return fmt.Sprintf("%d lines, and another time %d", len(x), len(y))
}

// transcripts runs cases, two at a time, and returns what went over the wire in each.
func transcripts(t *testing.T, o verify.Options) map[string]string {
	t.Helper()
	b, err := verify.NewBubble(o, synctest.Wait)
	if err != nil {
		t.Fatal(err)
	}
	b.Transcribe = true
	var mu sync.Mutex
	all := map[string]string{}
	s := sweep{count: &count{}, b: b, lib: referenceOf, told: func(res verify.CaseResult) {
		mu.Lock()
		defer mu.Unlock()
		if res.Transcript != "" {
			all[res.Case.ID.String()] = res.Transcript
		}
	}}
	t.Run("run", s.run)
	return all
}

// TestSeed: what the client draws comes from the seed.
func TestSeed(t *testing.T) {
	one := verify.Options{Cases: []string{"ticketing/single/none"}}
	first := transcripts(t, one)
	one.Seed = 1
	for id, got := range transcripts(t, one) {
		if got == "" || got == first[id] {
			t.Errorf("with another seed:\n%s", got)
		}
	}
}

// TestAlone: a case that fails is told with a pattern that runs it and nothing else.
func TestAlone(t *testing.T) {
	if os.Getenv(failing) != "" {
		RunLibrary(t, Options{Workloads: []string{"single"}, Sweep: "smoke"}, wrong("enters-anyway"))
		return
	}
	out := again(t, "^TestAlone$")
	_, line, ok := strings.Cut(out, "alone: go test -run '")
	pattern, _, _ := strings.Cut(line, "'")
	if !ok || !strings.Contains(out, "UNSAFE") || !strings.Contains(out, "no-entry-unconfirmed") {
		t.Fatalf("it printed\n%s", out)
	}
	if n := strings.Count(out, "--- FAIL: "); n < 10 {
		t.Errorf("%d tests failed of those with a cut", n)
	}
	alone := again(t, pattern, "-test.v")
	if n := strings.Count(alone, "=== RUN"); n != 4 || !strings.Contains(alone, "UNSAFE") {
		t.Errorf("-run '%s' ran %d tests, the case and the three around it are 4:\n%s", pattern, n, alone)
	}
	short := again(t, "TestAlone/ticketing/single/s2c.A.1@25:truncate-rst$", "-test.v")
	if n := strings.Count(short, "=== RUN"); n != 4 || !strings.Contains(short, "--- FAIL: TestAlone/ticketing/single/s2c.A.1@25:truncate-rst (") {
		t.Errorf("the name of the case ran %d tests:\n%s", n, short)
	}
}

const failing = "TORNWIRE_TEST_FAILING"

// again runs tests of this binary with failing set; they must fail.
func again(t *testing.T, pattern string, args ...string) string {
	t.Helper()
	return againAs(t, "1", pattern, args...)
}

// againAs is again with another value.
func againAs(t *testing.T, value, pattern string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-test.run", pattern}, args...)...)
	cmd.Env = append(os.Environ(), failing+"="+value)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("-run '%s' passed:\n%s", pattern, out)
	}
	return string(out)
}

// never is a client that says error whatever it is asked, and sends nothing.
type never struct{}

func (never) Acquire(context.Context, string, time.Duration, time.Duration) Result {
	return Result{Outcome: "error", Raw: "not today"}
}
func (never) Close() error { return nil }

// TestProvesNothing: a client that acquires nothing is not SAFE, nor is a run in which no
// rule is checked.
func TestProvesNothing(t *testing.T) {
	switch os.Getenv(failing) {
	case "":
	case "rules":
		RunLibrary(t, Options{Cases: []string{"ticketing/single/none"}, Rules: []string{"no-overstay"}}, referenceOf)
		return
	default:
		RunWith(t, Options{Workloads: []string{"single"}, Sweep: "smoke"}, func(Env) Client { return never{} })
		return
	}
	out := again(t, "^TestProvesNothing$")
	if !strings.Contains(out, "nothing can be proved of this client: the client did not acquire and release a free key without a fault") || !strings.Contains(out, "not today") {
		t.Errorf("of a client that acquires nothing:\n%s", out)
	}
	if out := againAs(t, "rules", "^TestProvesNothing$"); !strings.Contains(out, "no rule was checked in any case") {
		t.Errorf("without a rule:\n%s", out)
	}
}

// TestOptions: what cannot be run is fatal, and said.
func TestOptions(t *testing.T) {
	for want, o := range map[string]verify.Options{
		"there is no workload \"singel\"; did you mean single?": {Workloads: []string{"singel"}},
		"a server that is not in this process":                  {Upstream: "127.0.0.1:1"},
	} {
		if _, err := verify.NewBubble(o, synctest.Wait); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

// TestUnfired: what needs a second frame on the heels of the first is skipped for a
// client that gives it none, as tornwire verify does.
func TestUnfired(t *testing.T) {
	b, err := verify.NewBubble(verify.Options{Workloads: []string{"single"}, Faults: []string{"reorder", "splice"}}, synctest.Wait)
	if err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, c := range b.Cases() {
		var res verify.CaseResult
		synctest.Test(t, func(t *testing.T) { res = b.Run(t.Context(), c, referenceOf) })
		switch {
		case res.Verdict == checker.Skipped && res.Repeated > 0 && strings.HasPrefix(res.Reason, "no frame came behind it"):
			skipped++
		case !res.Fired:
			t.Errorf("%s: %s after %d tries more: %s", c.ID, res.Verdict, res.Repeated, res.Reason)
		}
	}
	if skipped == 0 {
		t.Error("a second frame came always")
	}
}

// TestUnopened: a client that cannot be opened, although nothing is torn, is
// INCONCLUSIVE with the reason.
func TestUnopened(t *testing.T) {
	in := &library{name: "nobody", open: func(Env) Client { return Unopened(fmt.Errorf("no such host")) }}
	b, err := verify.NewBubble(verify.Options{Cases: []string{"ticketing/single/none"}}, synctest.Wait)
	if err != nil {
		t.Fatal(err)
	}
	var res verify.CaseResult
	synctest.Test(t, func(t *testing.T) {
		res = b.Run(t.Context(), b.Cases()[0], func(Inside) adapter.Library { return in })
	})
	if res.Verdict != "inconclusive" || !strings.Contains(res.Reason, "no such host") {
		t.Errorf("%s: %s", res.Verdict, res.Reason)
	}
}
