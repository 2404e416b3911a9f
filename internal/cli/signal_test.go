//go:build unix

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"tornwire/adapter"
)

// signalling is a library that sends its parent a signal when an acquire of a
// case is asked for; the first runs without a fault are over then.
type signalling struct {
	adapter.Library
	name string
}

func (l signalling) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c, err := l.Library.Open(dialect, addresses, secret)
	return signallingClient{c, l.name}, err
}

type signallingClient struct {
	adapter.Client
	name string
}

var signals = map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP}

func (c signallingClient) Acquire(ctx context.Context, key string, wait, lease time.Duration) adapter.Result {
	if key == "order-42" {
		if err := syscall.Kill(os.Getppid(), signals[c.name]); err != nil {
			return adapter.Result{Outcome: "error", Raw: err.Error()}
		}
	}
	return c.Client.Acquire(ctx, key, wait, lease)
}

// TestSignal: a signal ends a run with 128 + its number, after a report of what
// was over by then.
func TestSignal(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, number := range signals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(self, programWord, "verify", "--format", "json", "--workload", "single", "--", self, childWord, name).Output()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 128+int(number) {
				t.Errorf("it ended with %v", err)
			}
			var r struct {
				Verdict     string
				ExitCode    int `json:"exit_code"`
				Interrupted bool
				Cases       struct{ Total int }
				Results     []any
				Sanity      []any
			}
			if err := json.Unmarshal(out, &r); err != nil {
				t.Fatalf("%v in %q", err, out)
			}
			if r.Verdict != "inconclusive" || r.ExitCode != 128+int(number) || !r.Interrupted || len(r.Results) >= r.Cases.Total || r.Cases.Total < 100 {
				t.Errorf("%s with %d, interrupted %v, %d of %d cases", r.Verdict, r.ExitCode, r.Interrupted, len(r.Results), r.Cases.Total)
			}
		})
	}
}

// TestSignalEndsServe: a signal ends the daemon and its sessions, with 128 + its
// number.
func TestSignalEndsServe(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, number := range signals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self, programWord, "serve", "--api", "127.0.0.1:0", "--proxy", "p,127.0.0.1:0,127.0.0.1:1", "--log-level", "error")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "listening on 127.0.0.1:") {
				t.Errorf("it said %q, %v", line, err)
			}
			if err := cmd.Process.Signal(number); err != nil {
				t.Error(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(number) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
