package verifytest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"tornwire/adapter"
	"tornwire/scenarios"
	"tornwire/verify"
)

// RunScenarios runs scenarios as subtests of t, each in a bubble of its own, with clients of
// the library in the place of the reference clients: those of scenarios.Library, or what
// scenarios.Parse has read. Scenarios with other clients or with an upstream are fatal for
// their subtest. Of the options Profile, Seed, Outcomes and Strict have a meaning; a dialect
// leaves out the scenarios of others.
func RunScenarios(t *testing.T, o Options, list []*scenarios.Scenario, open func(Env) Client) {
	t.Helper()
	if open == nil {
		t.Fatal("verifytest: there is no function that opens a client")
	}
	ran := 0
	for _, s := range list {
		if o.Dialect != "" && o.Dialect != s.Dialect {
			continue
		}
		ran++
		t.Run(s.Name, func(t *testing.T) {
			lib := func(in Inside) adapter.Library { return &library{o: o, name: t.Name(), open: open, in: in} }
			if text := story(t, o, s, lib); text != "" {
				t.Errorf("%s\nalone: go test -run %s", text, inShell(alone(t.Name())))
			}
		})
	}
	if ran == 0 {
		t.Fatal("verifytest: the options select no scenario")
	}
}

// story runs one scenario, and tells how it did not go as expected.
func story(t *testing.T, o Options, s *scenarios.Scenario, lib func(Inside) adapter.Library) string {
	t.Helper()
	seed, profile := s.Seed, s.Profile
	if o.Seed != 0 {
		seed = o.Seed
	}
	if o.Profile != "" {
		profile = o.Profile
	}
	b, err := verify.NewBubble(verify.Options{
		Dialect: s.Dialect, Seed: seed, Profile: profile, Busy: s.Busy, Strict: o.Strict, Cases: []string{s.Dialect + "/" + verify.Workloads()[0].ID + "/none"},
	}, synctest.Wait)
	if err != nil {
		t.Fatalf("verifytest: %v", err)
	}
	var res *scenarios.Result
	synctest.Test(t, func(t *testing.T) { res, err = scenarios.RunIn(t.Context(), b, s, o.Strict, lib) })
	if err != nil {
		t.Fatalf("verifytest: %v", err)
	}
	if res.ExitCode == verify.ExitSafe {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", verify.VerdictWord(res.Verdict), s.About)
	if text := res.Describe(); text != "" {
		fmt.Fprintln(&out, text)
	}
	for _, m := range res.Expect {
		if !m.Met {
			fmt.Fprintf(&out, "%s:%d: expected: %s; %s\n", s.File, m.Line, m.Expectation, m.Got)
		}
	}
	return strings.TrimSuffix(out.String(), "\n")
}
