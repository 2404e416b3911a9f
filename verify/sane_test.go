package verify

import (
	"context"
	"strings"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
)

// affixed is a library that puts something around every key.
type affixed struct {
	adapter.Library
	before, after string
}

func (a affixed) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c, err := a.Library.Open(dialect, addresses, secret)
	return affixedClient{c, a}, err
}

type affixedClient struct {
	adapter.Client
	a affixed
}

func (c affixedClient) Acquire(ctx context.Context, key string, wait, lease time.Duration) adapter.Result {
	return c.Client.Acquire(ctx, c.a.before+key+c.a.after, wait, lease)
}

// TestRenamedKeys: a library that puts its prefix before every key accuses itself of
// nothing, and its adapter's author is told what to do.
func TestRenamedKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, says string }{
		{"lock:", "", `asked for key "sanity-1", the client sent "lock:sanity-1": keys have to go onto the wire as they are`},
		{"", ":v2", `asked for key "sanity-1", the client sent "sanity-1:v2"`},
		{"", "", ""},
	} {
		for _, dialect := range []string{dialectCurrent, dialectV0} {
			r := runPlan(t, Options{
				Cases: []string{dialect + "/single/none"}, Start: Library(affixed{referenceLibrary(), c.before, c.after}),
			})
			if c.says == "" {
				if r.Verdict != checker.Safe {
					t.Errorf("%s: %s", dialect, text(r))
				}
				continue
			}
			if r.Verdict != checker.Inconclusive || r.ExitCode != ExitInconclusive || len(r.Findings) > 0 || !strings.Contains(text(r), c.says) {
				t.Errorf("%s: %s with %d: %s", dialect, r.Verdict, r.ExitCode, text(r))
			}
		}
	}
}
