package verify

import (
	"slices"
	"strings"
	"testing"

	"tornwire/checker"
)

// TestPick: a few cases of each rule are run again, each case once, those on
// messages first.
func TestPick(t *testing.T) {
	list := append(cuts(dialectCurrent, "single", "s2c.greeting.1", []int{1, 2}, "split"),
		cuts(dialectCurrent, "single", "s2c.A.1", []int{1, 2, 3, 4, 5, 6}, "split")...)
	p := plan(t, Options{Cases: list})
	r := newReport(p)
	for i, c := range p.Cases {
		res := ended(c, checker.Unsafe, "exact-token", "one-attempt")
		if i == len(p.Cases)-1 {
			res = ended(c, checker.Safe, "settles")
			res.Findings[0].Certainty = checker.Suspect
		}
		r.add(res)
	}
	var got []string
	for _, c := range r.pick() {
		id := c.ID
		got = append(got, id.String())
	}
	if want := list[2 : 2+candidates]; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestShownFirst: the text report begins with what came back each time it was
// run again.
func TestShownFirst(t *testing.T) {
	p := plan(t, Options{Cases: cuts(dialectCurrent, "single", "s2c.A.1", []int{1, 2, 3, 4, 5}, "split")})
	r := newReport(p)
	for _, c := range p.Cases {
		r.add(ended(c, checker.Unsafe, "exact-token"))
	}
	for range 2 {
		r.replayed(ended(p.Cases[1], checker.Safe))
		r.replayed(ended(p.Cases[3], checker.Unsafe, "exact-token", "exact-token"))
	}
	r.replayed(ended(p.Cases[4], checker.Unsafe, "one-attempt"))
	r.finish(0, 0)
	out := text(r)
	at := func(s string) int { return strings.Index(out, s) }
	if a, b, c := at("s2c.A.1@4:split\n"), at("s2c.A.1@2:split\n"), at("s2c.A.1@5:split\n"); a < 0 || a > b || b > c {
		t.Errorf("shown at %d, %d, %d:\n%s", a, b, c, out)
	}
	for want, n := range map[string]int{
		"replayed 2 times, found again 2 times": 1, "replayed 2 times, found again 0 times": 1, "replayed 1 times, found again 0 times": 1,
	} {
		if strings.Count(out, want) != n {
			t.Errorf("%q is not there %d times:\n%s", want, n, out)
		}
	}
	if r.Cases.Unsafe != 5 || r.rules["exact-token"].Violations != 5 {
		t.Errorf("the replays were counted: %+v", r.Cases)
	}
}

// TestFindingsAreConfirmed: in a sweep, the findings shown were run again.
func TestFindingsAreConfirmed(t *testing.T) {
	t.Parallel()
	r := runPlan(t, Options{Workloads: []string{"single"}, Faults: []string{NoFault}, Start: Library(wrong(t, "wrong-token-released"))})
	var of []Finding
	for _, f := range r.Findings {
		if f.Case == controlCase && f.Rule == "exact-token" {
			of = append(of, f)
		}
	}
	if len(of) == 0 || of[0].Replayed != replays || of[0].Reproduced == 0 {
		t.Errorf("%+v:\n%s", of, text(r))
	}
}
