package proof_test

import (
	"strings"
	"testing"

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
