package adapters_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
	"tornwire/proof"
	"tornwire/verify"
)

// saroProofs are the defects of docs/saro-ticketing.md as small as they get: at most two
// calls and one fault.
var saroProofs = []struct{ rule, in string }{
	{"one-attempt", "single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin"},
	{"no-fifo", "pipelined[hold(k) acquire(c1,k,9s,2s) sent(1) acquire(c1,k,1s,5s) sent(2) settle(1) free(k) settle(2)]/s2.s2c.greeting.1@0:truncate-silence"},
	{"release-own", "expired[acquire(c1,k,1s,1s) sent(1) expired(k) take(k) pause(50ms) release(1)]/none"},
	{"release-own", "release-repeated[acquire(c1,k,1s,1s) release(1) take(k)]/s2c.R.1@0:truncate-fin"},
	{"indeterminate-stays", "single[acquire(c1,k,1s,2s)]/s2c.A.1@0:truncate-fin"},
	{"late-grant", "late-grant[acquire(c1,k,1s,5s)]/s2c.A.1@0:hold"},
	{"entry-after-lease", "late-reply[acquire(c1,k,1s,1s) sent(1) expired(k) pause(200ms) let-go()]/s2c.A.1@0:hold"},
	{"settles", "silent-server[acquire(c1,k,1s,1s)]/c2s.A.1@0:drop"},
}

// TestSaroTicketingProofs: a proof of each defect, which calls the library itself, fails.
func TestSaroTicketingProofs(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("node")
	need(t, err == nil, "node is needed: %v", err)
	_, err = os.Stat("saro-ticketing/node_modules/saro-ticketing")
	need(t, !errors.Is(err, os.ErrNotExist), "run npm ci in adapters/saro-ticketing first: %v", err)
	binding, err := os.ReadFile("saro-ticketing/binding.mjs")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Abs("saro-ticketing/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Skip(err)
	}
	for _, x := range saroProofs {
		t.Run(x.rule, func(t *testing.T) {
			t.Parallel()
			s := saroShrunk(t, x.rule, "ticketing-v0/"+x.in)
			if s.Calls > 2 || s.Faults > 1 {
				t.Errorf("%d calls and %d faults", s.Calls, s.Faults)
			}
			text, err := proof.Write("node", proof.Case{
				ID: s.Case.String(), Replay: s.Replay, Client: s.Client, Dialect: "ticketing-v0", Finding: s.Finding, Events: s.Events, Binding: string(binding),
			})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, filepath.Base(t.TempDir())+x.rule+".mjs")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			rule, _ := checker.RuleByID(x.rule)
			out, err := exec.CommandContext(ctx, "node", file).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "FAIL: "+rule.Sentence) {
				t.Errorf("the proof does not fail for its rule: %v\n%s\n%s", err, out, text)
			}
		})
	}
}

// saroShrunk runs a case as it is, until the machine was not too busy.
func saroShrunk(t *testing.T, rule, id string) *verify.Shrunk {
	t.Helper()
	p, err := verify.NewPlan(verify.Options{Cases: []string{id}, Start: verify.Command("node", "saro-ticketing/adapter.mjs")})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		s, err := verify.Shrink(t.Context(), p, verify.ShrinkOptions{Rule: rule, Runs: 1})
		if err == nil {
			return s
		}
		t.Log(err)
	}
	t.Fatal("the case does not fail")
	return nil
}
