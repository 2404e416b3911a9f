package proof_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/internal/wrongclient"
	"tornwire/proof"
	"tornwire/verify"
)

// adapterWord makes this binary an adapter of the wrong client that DEFECT names.
const adapterWord = "adapter-of-a-wrong-client"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == adapterWord {
		lib, err := wrongclient.Library(os.Getenv("DEFECT"))
		if err == nil {
			err = adapter.Serve(context.Background(), os.Stdin, os.Stdout, lib)
		}
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Most of a proof is waiting, so that many fit side by side.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// need skips the test where a program is missing, but not where everything must be there.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// shrunk are cases of wrong clients, as small as they get.
var shrunk = []struct{ defect, rule, id string }{
	{"resend-same", "no-resend", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin"},
	{"resend-new-owner", "one-attempt", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin"},
	{"resend-new-owner", "one-attempt", "ticketing-v0/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-rst"},
	{"eof-is-timeout", "indeterminate-stays", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin"},
	{"enters-anyway", "no-entry-unconfirmed", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin"},
	{"partial-is-acquired", "no-partial-frame", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@17:truncate-silence"},
	{"key-only", "match-triple", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:inject-stray"},
	{"op-blind", "close-proves-nothing", "ticketing/single[acquire(c1,k,1s,1s) release(1) released(1)]/s2c.R.1@0:inject-stray"},
	{"fifo-key", "no-fifo", "ticketing/pipelined[hold(k) acquire(c1,k,9s,2s) sent(1) acquire(c1,k,1s,30s) settle(1) free(k) settle(2)]/none"},
	{"wrong-token-released", "exact-token", "ticketing/single[acquire(c1,k,1s,1s) release(1)]/none"},
	{"newline-first", "header-by-count", "ticketing/single[acquire(c1,k,1s,1s)]/none"},
	{"enter-late", "late-grant", "ticketing/late-grant[acquire(c1,k,1s,5s)]/s2c.A.1@0:hold"},
	{"never-settles", "settles", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-rst"},
	{"release-by-key", "release-own", "ticketing-v0/expired[acquire(c1,k,1s,1s) sent(1) expired(k) take(k) pause(50ms) release(1)]/none"},
}

// failing runs a case as it is, and returns what its proof is made of.
func failing(t *testing.T, defect, rule, id string) proof.Case {
	t.Helper()
	lib, err := wrongclient.Library(defect)
	if err != nil {
		t.Fatal(err)
	}
	p, err := verify.NewPlan(verify.Options{Cases: []string{id}, Profile: "official", Start: verify.Library(lib)})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 { // the machine may be too busy to judge
		s, err := verify.Shrink(t.Context(), p, verify.ShrinkOptions{Rule: rule, Runs: 1})
		if err != nil {
			t.Log(err)
			continue
		}
		if s.Calls > 2 || s.Faults > 1 {
			t.Errorf("%d calls and %d faults", s.Calls, s.Faults)
		}
		return proof.Case{
			ID: id, Replay: s.Replay, Client: s.Client, Dialect: s.Case.Dialect, Finding: s.Finding, Events: s.Events,
			Command: []string{os.Args[0], adapterWord},
		}
	}
	t.Fatal("the case does not fail")
	return proof.Case{}
}

// write writes the proof to a file, and holds it to its size.
func write(t *testing.T, lang, file string, c proof.Case) {
	t.Helper()
	text, err := proof.Write(lang, c)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "\n"); n > proof.MaxLines {
		t.Errorf("%d lines, over %d", n, proof.MaxLines)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// judges runs a proof: of a wrong client it fails with the rule's sentence, of the right
// one it passes.
func judges(t *testing.T, defect, says string, command func(ctx context.Context) *exec.Cmd) {
	t.Helper()
	for _, d := range []string{defect, ""} {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		cmd := command(ctx)
		cmd.Env = append(append(os.Environ(), cmd.Env...), "DEFECT="+d)
		cmd.WaitDelay = 10 * time.Second // an adapter may take 5 s to end, and keeps stderr so long
		out, err := cmd.CombinedOutput()
		cancel()
		switch {
		case d == "" && err != nil:
			t.Errorf("the right client does not pass: %v\n%s", err, out)
		case d != "" && (err == nil || !strings.Contains(string(out), says)):
			t.Errorf("%s passes, or not for %q: %v\n%s", d, says, err, out)
		}
	}
}

func sentenceOf(c proof.Case) string {
	text, _ := proof.Write("python", c)
	first, _, _ := strings.Cut(text, "\n")
	_, says, _ := strings.Cut(first, ": ")
	return says
}

// TestProofs: for each shrunk case the proof that starts the adapter fails for the wrong
// client and passes for the right one: of a few in both languages, of the others in turn.
func TestProofs(t *testing.T) {
	t.Parallel()
	for i, x := range shrunk {
		t.Run(x.defect+"/"+strings.Split(x.id, "/")[0], func(t *testing.T) {
			t.Parallel()
			c := failing(t, x.defect, x.rule, x.id)
			for lang, program := range map[string]string{"node": "node", "python": "python3"} {
				t.Run(lang, func(t *testing.T) {
					t.Parallel()
					need(t, program)
					file := filepath.Join(t.TempDir(), "proof.mjs")
					write(t, lang, file, c)
					if i > 2 && (i%2 == 0) != (lang == "node") {
						return
					}
					judges(t, x.defect, sentenceOf(c), func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, program, file) })
				})
			}
			if _, err := proof.Write("go", c); err != nil {
				t.Errorf("go: %v", err)
			}
		})
	}
}

// TestGoProofs compiles proofs in Go with a binding for a Go library, and one that starts
// the adapter.
func TestGoProofs(t *testing.T) {
	t.Parallel()
	binding, err := os.ReadFile("testdata/binding.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		defect, id string
		bound      bool
	}{
		{"resend-new-owner", "ticketing-v0", true},
		{"wrong-token-released", "ticketing/", true},
		{"op-blind", "ticketing/", false},
	} {
		i := slices.IndexFunc(shrunk, func(y struct{ defect, rule, id string }) bool {
			return y.defect == x.defect && strings.HasPrefix(y.id, x.id)
		})
		t.Run(x.defect, func(t *testing.T) {
			t.Parallel()
			c := failing(t, x.defect, shrunk[i].rule, shrunk[i].id)
			if x.bound {
				c.Binding = strings.ReplaceAll(string(binding), "DIALECT", c.Dialect)
			}
			says := sentenceOf(proof.Case{Client: c.Client, Dialect: c.Dialect, Finding: c.Finding, Events: c.Events, Command: []string{"x"}})
			dir := t.TempDir()
			write(t, "go", filepath.Join(dir, "proof_test.go"), c)
			// The library is internal: for the compiler the proof is a package of this module.
			overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{
				filepath.Join(root, "internal", "pasted", "proof_test.go"): filepath.Join(dir, "proof_test.go"),
			}})
			if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "pasted"), "./internal/pasted")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("it does not compile: %v\n%s", err, out)
			}
			judges(t, x.defect, says, func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, filepath.Join(dir, "pasted")) })
		})
	}
}

// TestPythonLibrary proves a defect of a client in Python, which the proof calls itself.
func TestPythonLibrary(t *testing.T) {
	t.Parallel()
	need(t, "python3")
	binding, err := os.ReadFile("testdata/binding.py")
	if err != nil {
		t.Fatal(err)
	}
	c := failing(t, "resend-new-owner", "one-attempt", "ticketing-v0/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-rst")
	says := sentenceOf(c)
	c.Binding, c.Command = string(binding), nil
	file := filepath.Join(t.TempDir(), "proof.py")
	write(t, "python", file, c)
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	judges(t, "resends", says, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "python3", "-B", file)
		cmd.Env = []string{"PYTHONPATH=" + data}
		return cmd
	})
}
