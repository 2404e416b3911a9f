package scenarios

import (
	"os"
	"strings"
	"testing"

	"tornwire/verify"
)

// TestDocs holds docs/scenarios.md to the code: every action, member and kind is there, and
// the whole scenario in it is right.
func TestDocs(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	words := []string{
		"name", "about", "clause", "dialect", "profile", "busy", "seed", "timeout", "server", "proxies", "clients", "rules", "steps", "expect",
		"kind", "nodes", "first_token", "queue_limit", "address", "secret_file", "node", "listen", "command", "secret", "client", "key", "wait", "lease",
		"when", "within", "count", "after", "outcomes", Nobody, EnvAddr, EnvAddrs, string(Embedded), string(Cluster), string(Upstream), string(Reference), string(Adapter), string(Anyone),
	}
	words = append(append(words, expectWords...), outcomes...)
	for _, a := range Actions() {
		words = append(words, string(a))
	}
	for _, w := range words {
		if !strings.Contains(doc, "`"+w+"`") {
			t.Errorf("docs/scenarios.md does not have `%s`", w)
		}
	}
	_, rest, _ := strings.Cut(doc, "```toml\n")
	text, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("there is no scenario in it")
	}
	s, err := Parse("docs/scenarios.md", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if res := inBubble(t, s, rightIn); res.ExitCode != verify.ExitSafe {
		t.Error(describe(res))
	}
}
