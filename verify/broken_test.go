//go:build unix

package verify

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
)

// TestAdapterThatNeverStarts: without a valid init_ok the exit code is 69
// (spec/adapter.md), and the report says why.
func TestAdapterThatNeverStarts(t *testing.T) {
	t.Parallel()
	for how, want := range map[string][]string{
		"exit":       {"the adapter exited", "stderr: word 4 | word 5 | word 6 | word 7 | word 8"},
		"log-first":  {`"starting up…"`, "logs belong on stderr"},
		"mute":       {"no init_ok within " + initLimit.String()},
		"long-first": {"line of over 65536 bytes"},
		"refuse":     {"refused init: no library here"},
		"nameless":   {"init_ok without client"},
		"wordy":      {`init_ok declares outcome "timeuot"`, `did you mean timeout?`},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := runPlan(t, Options{Cases: []string{controlCase}, Start: command(t, how)})
			if r.Verdict != checker.Inconclusive || r.ExitCode != ExitUnreachable || r.Restarts != 0 || len(r.Results) > 0 {
				t.Errorf("%s, exit code %d, %d restarts", r.Verdict, r.ExitCode, r.Restarts)
			}
			for _, w := range want {
				if !strings.Contains(r.Reason, w) {
					t.Errorf("reason %q, without %q", r.Reason, w)
				}
			}
			if strings.Contains(r.Reason, "word 3") {
				t.Errorf("reason %q has more than five lines of stderr", r.Reason)
			}
		})
	}
}

func TestCommandThatIsNotThere(t *testing.T) {
	for want, argv := range map[string][]string{
		"command is empty":         {""},
		"cannot start the adapter": {filepath.Join(t.TempDir(), "nothing")},
	} {
		r := runPlan(t, Options{Cases: []string{controlCase}, Start: Command(argv...)})
		if r.ExitCode != ExitUnreachable || !strings.Contains(r.Reason, want) {
			t.Errorf("%q: exit code %d, %q", argv, r.ExitCode, r.Reason)
		}
	}
}

// TestAdapterThatFailsInACase: the adapter is started again, the case runs once
// more and is then inconclusive, with what went wrong.
func TestAdapterThatFailsInACase(t *testing.T) {
	t.Parallel()
	for how, want := range map[string][]string{
		"exit-later": {"the adapter exited", "stderr: the library has crashed"},
		"log-later":  {`"DEBUG order-42 is mine"`, "is it a log on stdout?"},
		"twice":      {"answered twice", `\"outcome\":\"acquired\"`},
		"unknown-id": {"a request that was never made", "1099511627776"},
		"new-word":   {`outcome \"granted\" of an acquire is none of`},
		"no-token":   {"acquired without a token"},
		"hex-token":  {`token \"0x0A\" is not a decimal`},
		"wide":       {"a line of over 65536 bytes"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			start := command(t, how, strconv.Itoa(adapter.MaxLine+1))
			r := runPlan(t, Options{Cases: []string{controlCase}, Start: start})
			if r.Verdict != checker.Inconclusive || r.ExitCode != ExitInconclusive || r.Cases.Inconclusive != 1 {
				t.Fatalf("%s, exit code %d, %+v:\n%s", r.Verdict, r.ExitCode, r.Cases, text(r))
			}
			res := r.Results[0]
			// A case is told of the adapter's end at once, not when it gives its call up.
			if res.Seconds >= settleAfter.Seconds() {
				t.Errorf("it took %.1f s", res.Seconds)
			}
			// Once for the second try and once for the last run without a fault.
			if res.Repeated != 1 || r.Restarts != 2 {
				t.Errorf("repeated %d times, adapter started again %d times", res.Repeated, r.Restarts)
			}
			for _, w := range want {
				if !strings.Contains(strconv.Quote(res.Reason), w) && !strings.Contains(res.Reason, w) {
					t.Errorf("reason %q, without %q", res.Reason, w)
				}
			}
		})
	}
}

// TestAdapterThatFailsAtOnce: one that fails in the first run without a fault
// leaves the whole run inconclusive.
func TestAdapterThatFailsAtOnce(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"wrong-type":    "is not one of open_ok",
		"never-open":    "did not answer open within " + requestLimit.String(),
		"never-close":   "did not answer close within " + requestLimit.String(),
		"never-release": "did not acquire and release",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := runPlan(t, Options{Cases: []string{controlCase}, Start: command(t, how)})
			if r.Verdict != checker.Inconclusive || r.ExitCode != ExitInconclusive || len(r.Results) > 0 {
				t.Errorf("%s, exit code %d, %+v", r.Verdict, r.ExitCode, r.Cases)
			}
			if !strings.Contains(r.Reason, "the first run without a fault") || !strings.Contains(r.Reason, want) {
				t.Errorf("reason %q, without %q", r.Reason, want)
			}
		})
	}
}

// TestLineOfExactlyTheLimit is the longest line that an adapter may print.
func TestLineOfExactlyTheLimit(t *testing.T) {
	t.Parallel()
	isSafe(t, Options{Cases: []string{controlCase}, Start: command(t, "wide", strconv.Itoa(adapter.MaxLine))})
}

// TestAdapterThatFailsOnce: the case that it failed under runs again, and is
// judged then.
func TestAdapterThatFailsOnce(t *testing.T) {
	t.Parallel()
	mark := 0
	dir := t.TempDir()
	var r *Report
	for range busyTries {
		mark++
		p, err := NewPlan(Options{
			Cases: []string{controlCase}, Start: command(t, "exit-once", filepath.Join(dir, strconv.Itoa(mark))),
		})
		if err != nil {
			t.Fatal(err)
		}
		if r = Run(t.Context(), p, nil); !wasBusy(r) {
			break
		}
	}
	const told = "the adapter failed and was started again once; the cases that were in flight were run again\n"
	if r.Verdict != checker.Safe || r.Restarts != 1 || r.Results[0].Repeated < 1 || r.Cases.Repeated < 1 || !strings.Contains(text(r), told) {
		t.Errorf("%s with %d restarts:\n%s", r.Verdict, r.Restarts, text(r))
	}
}

// TestCallWithoutEnd: an adapter that never answers an acquire is not safe.
func TestCallWithoutEnd(t *testing.T) {
	t.Parallel()
	r := runPlan(t, Options{Cases: []string{controlCase}, Start: command(t, "never-victim"), Strict: true})
	if r.Verdict != checker.NonStrict || r.ExitCode != ExitNonStrict || len(certain(r)) != 1 || certain(r)[0] != "settles" {
		t.Errorf("%s, exit code %d:\n%s", r.Verdict, r.ExitCode, text(r))
	}
}

// TestNothingIsLeft: what an adapter started ends with it, also when the adapter
// itself crashes or does not end.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for how, code := range map[string]int{"grandchild": ExitSafe, "grandchild-exit": ExitInconclusive, "stuck": ExitSafe} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(name, 0o600); err != nil {
				t.Fatal(err)
			}
			pipe, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer pipe.Close()
			r := runPlan(t, Options{Cases: []string{controlCase}, Start: command(t, how, name)})
			if r.ExitCode != code {
				t.Errorf("exit code %d, want %d:\n%s", r.ExitCode, code, text(r))
			}
			// The end of the pipe is the end of the last process that has it open.
			if err := pipe.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(pipe)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("what the adapter started is still alive")
			} else if err != nil {
				t.Error(err)
			}
			if !strings.HasPrefix(string(said), "alive\n") {
				t.Errorf("what the adapter started said %q", said)
			}
		})
	}
}

// TestDialectThatTheAdapterLacks: every case is skipped and the exit code is 2.
func TestDialectThatTheAdapterLacks(t *testing.T) {
	t.Parallel()
	r := runPlan(t, Options{Dialect: dialectV0, Workloads: []string{"single"}, Start: command(t, "current-only")})
	if r.ExitCode != ExitInconclusive || r.Cases.Skipped != r.Cases.Total || r.Cases.Total == 0 {
		t.Errorf("exit code %d, %+v", r.ExitCode, r.Cases)
	}
	if want := "the adapter speaks [ticketing], not ticketing-v0"; r.Reason != want || r.Results[0].Reason != want {
		t.Errorf("reasons %q and %q", r.Reason, r.Results[0].Reason)
	}
}

// TestUnsupported: what a library cannot do skips the cases that need it, and no
// others.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"open", "acquire", "release"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := runPlan(t, Options{Cases: []string{controlCase}, Start: command(t, "unsupported-"+what)})
			want := "the adapter does not support " + what + ": there is no way"
			if r.ExitCode != ExitInconclusive || r.Cases.Skipped != 1 || r.Restarts != 0 || r.Reason != want {
				t.Errorf("exit code %d, %+v, %d restarts, reason %q", r.ExitCode, r.Cases, r.Restarts, r.Reason)
			}
		})
	}
	for _, what := range []string{"close", "ping"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			isSafe(t, Options{
				Cases: append(cuts(dialectCurrent, "single", "s2c.A.1", []int{1, 25}, "truncate-fin", "split"), controlCase),
				Start: command(t, "unsupported-"+what),
			})
		})
	}
}

// TestSettlesNeedsPong: without pong a missing outcome accuses nobody (P11).
func TestSettlesNeedsPong(t *testing.T) {
	t.Parallel()
	r := runPlan(t, Options{
		Cases: shows("never-settles", dialectCurrent)[:1], Start: command(t, "unsupported-ping", "never-settles"),
	})
	if len(r.Findings) > 0 {
		t.Errorf("%s:\n%s", r.Verdict, text(r))
	}
	if len(r.Results) != 1 || r.Results[0].Verdict != checker.Safe || r.Results[0].Seconds < settleAfter.Seconds() {
		t.Errorf("no call was overdue: %+v", r.Results)
	}
}
