package proof_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
	"tornwire/history"
	"tornwire/proof"
)

// TestRefused: what no script can tell is refused, and it is said why.
func TestRefused(t *testing.T) {
	t.Parallel()
	finding := func(rule string) checker.Finding {
		return checker.Finding{Rule: rule, Evidence: checker.Evidence{Call: 1}}
	}
	two := []history.Event{
		{Kind: history.CallAsked, Call: 1, Client: "c1", Key: "k"},
		{Kind: history.CallAsked, Call: 2, Client: "c2", Key: "k"},
	}
	command := []string{"adapter"}
	for says, x := range map[string]struct {
		lang string
		c    proof.Case
	}{
		`no proof in "rust"`:         {"rust", proof.Case{Dialect: "ticketing", Command: command}},
		`no dialect "tiketing"`:      {"go", proof.Case{Dialect: "tiketing", Command: command}},
		"no proof for this rule":     {"go", proof.Case{Dialect: "ticketing", Command: command, Finding: finding("owner-fresh")}},
		"the case has two clients":   {"go", proof.Case{Dialect: "ticketing", Command: command, Finding: finding("one-attempt"), Events: two}},
		"does not show where":        {"go", proof.Case{Dialect: "ticketing", Command: command, Finding: finding("one-attempt"), Events: two[:1]}},
		"needs a binding":            {"go", proof.Case{Dialect: "ticketing", Finding: finding("settles"), Events: two[:1]}},
		"the binding has":            {"go", proof.Case{Dialect: "ticketing", Binding: strings.Repeat("x", proof.MaxBinding+1)}},
		"lines, over 60: shrink the": {"go", proof.Case{Dialect: "ticketing", Binding: strings.Repeat("x\n", 60), Finding: finding("settles"), Events: two[:1]}},
	} {
		if text, err := proof.Write(x.lang, x.c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\n%s", says, err, text)
		}
	}
}

// TestBroken: where the adapter cannot be used, a proof ends and says that, and not that the
// client is wrong; a name in its header ends no comment.
func TestBroken(t *testing.T) {
	t.Parallel()
	c := failing(t, "resend-new-owner", "one-attempt", "ticketing/single[acquire(c1,k,1s,1s)]/s2c.A.1@0:truncate-fin")
	c.Client = "lock\u2028client\u0085 \x0b2"
	for lang, program := range map[string]string{"node": "node", "python": "python3"} {
		for name, command := range map[string][]string{"ends": {program, "nowhere.file"}, "missing": {"./nowhere"}, "logs": {"echo", "ready"}} {
			t.Run(lang+" "+name, func(t *testing.T) {
				t.Parallel()
				need(t, program)
				file, c := filepath.Join(t.TempDir(), "proof.mjs"), c
				c.Command = command
				write(t, lang, file, c)
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				out, err := exec.CommandContext(ctx, program, file).CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 2 {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
