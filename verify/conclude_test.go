package verify

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
)

// TestVerdictAndExitCode is the precedence of spec/cli.md: 1 > 70 > 69 > 2 > 3 > 0.
func TestVerdictAndExitCode(t *testing.T) {
	type results []checker.Verdict
	const safe, bad, wrong, loose, doubt, skip = checker.Safe, checker.Unsafe, checker.Nonconforming, checker.NonStrict, checker.Inconclusive, checker.Skipped
	noAdapter := func(r *Report) { r.unreachable(fmt.Errorf("no adapter")) }
	ourFault := func(r *Report) { r.sanity("control", ended(sanityCase, doubt, "echo-matches")) }
	sanityIs := func(when string, v checker.Verdict) func(r *Report) {
		return func(r *Report) { r.sanity(when, ended(sanityCase, v)) }
	}
	for name, c := range map[string]struct {
		results results
		more    []func(*Report)
		strict  bool
		verdict checker.Verdict
		code    int
		reason  string
	}{
		"all safe":                  {results{safe, safe, safe}, nil, true, safe, 0, ""},
		"one skipped":               {results{safe, skip, safe}, nil, true, safe, 0, ""},
		"non-strict":                {results{safe, loose, safe}, nil, false, loose, 0, ""},
		"non-strict, held to it":    {results{safe, loose, safe}, nil, true, loose, 3, ""},
		"a doubt before non-strict": {results{loose, doubt, safe}, nil, true, doubt, 2, "@2:truncate-fin"},
		"all skipped":               {results{skip, skip, skip}, nil, false, doubt, 2, "every case was skipped"},
		"nothing selected":          {nil, []func(*Report){(*Report).nothing}, false, doubt, 2, "no case matches"},
		"stopped":                   {results{safe, safe}, nil, false, doubt, 2, "stopped before"},
		"stopped, but unsafe":       {results{safe, bad}, nil, false, bad, 1, ""},
		"first run failed":          {nil, []func(*Report){sanityIs("first", doubt)}, false, doubt, 2, "first run without a fault"},
		"last run failed":           {results{safe, safe, safe}, []func(*Report){sanityIs("last", doubt)}, false, doubt, 2, "last run without a fault"},
		"unsafe without a fault":    {results{safe, safe, safe}, []func(*Report){sanityIs("control", bad)}, false, bad, 1, ""},
		"doubtful control":          {results{safe, safe, safe}, []func(*Report){sanityIs("control", doubt)}, false, doubt, 2, "sanity/none"},
		"no adapter":                {nil, []func(*Report){noAdapter}, true, doubt, 69, "no adapter"},
		"no adapter before a doubt": {results{doubt, loose}, []func(*Report){noAdapter}, true, doubt, 69, "no adapter"},
		"our own defect":            {results{safe, safe, safe}, []func(*Report){ourFault}, false, doubt, 70, "defect of tornwire"},
		"our own before no adapter": {nil, []func(*Report){ourFault, noAdapter}, false, doubt, 70, "defect of tornwire"},
		"nonconforming":             {results{safe, wrong, loose}, nil, true, wrong, 1, ""},
		"unsafe":                    {results{wrong, bad, doubt}, nil, true, bad, 1, ""},
		"unsafe before our own":     {results{bad, safe, safe}, []func(*Report){ourFault}, false, bad, 1, ""},
		"unsafe before no adapter":  {results{wrong}, []func(*Report){noAdapter}, false, wrong, 1, ""},
	} {
		p := threeCases(t)
		p.Strict = c.strict
		r := newReport(p)
		for i, v := range c.results {
			r.add(ended(p.Cases[i], v))
		}
		for _, f := range c.more {
			f(r)
		}
		r.finish(0, 0)
		if r.Verdict != c.verdict || r.ExitCode != c.code {
			t.Errorf("%s: %s with %d, want %s with %d", name, r.Verdict, r.ExitCode, c.verdict, c.code)
		}
		if c.reason != "" && !strings.Contains(r.Reason, c.reason) || c.reason == "" && r.Reason != "" && c.code != 1 {
			t.Errorf("%s: reason %q, want %q", name, r.Reason, c.reason)
		}
		if want := len(c.results) == 2 && len(c.more) == 0; r.Interrupted != want {
			t.Errorf("%s: interrupted %v", name, r.Interrupted)
		}
	}
}

// TestCoverage counts an offset once, whichever faults cut there, and not where
// nothing fired or nothing could be judged.
func TestCoverage(t *testing.T) {
	list := append(cuts(dialectCurrent, "single", "s2c.A.1", []int{1, 2, 3, 4}, "truncate-fin", "split"),
		cuts(dialectCurrent, "single", "c2s.R.1", []int{0, 18}, "truncate-rst")...)
	list = append(list, "ticketing/single/none", "ticketing/late-reply/s2c.A.1@0:hold",
		"ticketing/expired/s2.s2c.greeting.1@5:split")
	p := plan(t, Options{Cases: list})
	r := newReport(p)
	for _, c := range p.Cases {
		res := ended(c, checker.Safe)
		switch {
		case c.ID.Offset == 3 && c.ID.Fault == "split":
			res.Fired = false
		case c.ID.Offset == 3:
			res.Verdict = checker.Inconclusive
		case c.ID.Offset == 4 && c.ID.Fault == "split":
			res.Verdict = checker.Unsafe
		case c.ID.Workload == "expired":
			res.Verdict = checker.Skipped
		}
		r.add(res)
	}
	r.finish(0, 0)
	want := Coverage{Possible: 27 + 19, Cut: 3 + 2, ByFrame: []FrameCoverage{
		{"single", "s2c.A.1", 26, 27, 3}, {"single", "c2s.R.1", 18, 19, 2},
	}}
	if fmt.Sprint(r.Coverage) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", r.Coverage, want)
	}
}

// TestOrderIsStable: whatever order cases end in, the report is the same.
func TestOrderIsStable(t *testing.T) {
	p := plan(t, Options{Workloads: []string{"single"}, Faults: []string{"truncate-fin"}})
	var want string
	for n := range 6 {
		random := rand.New(rand.NewPCG(uint64(n), 1))
		r := newReport(p)
		for _, i := range random.Perm(len(p.Cases)) {
			res := ended(p.Cases[i], checker.Unsafe, "one-attempt", "exact-token")
			res.Outcomes = []outcome{{"error", strconv.Itoa(i % 7)}, {"timeout", ""}}
			if i == 3 {
				r.sanity("control", ended(sanityCase, checker.NonStrict, "settles"))
			}
			r.add(res)
		}
		r.finish(time.Second, 0)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(data) + text(r); want == "" {
			want = got
		} else if got != want {
			t.Fatalf("order %d gives another report", n)
		}
		for i, res := range r.Results {
			if res.Case != p.Cases[i].ID.String() {
				t.Fatalf("result %d is of %s", i, res.Case)
			}
		}
		if len(r.Findings) != 2*len(p.Cases)+1 {
			t.Fatalf("%d findings", len(r.Findings))
		}
	}
}

// TestCountsOfRules: a rule counts once a case, suspects do not count.
func TestCountsOfRules(t *testing.T) {
	p := threeCases(t)
	r := newReport(p)
	twice := ended(p.Cases[0], checker.Nonconforming, "one-attempt", "one-attempt")
	twice.Checked = []string{"one-attempt"}
	r.add(twice)
	suspect := ended(p.Cases[1], checker.Safe, "one-attempt", "mutual-exclusion")
	for i := range suspect.Findings {
		suspect.Findings[i].Certainty = checker.Suspect
	}
	r.add(suspect)
	r.add(ended(p.Cases[2], checker.Safe))
	r.finish(0, 0)
	got := map[string]RuleCount{}
	for _, n := range r.Rules {
		got[n.ID] = n
	}
	if n := got["one-attempt"]; n.Checked != 2 || n.Violations != 1 || n.Severity != checker.Contract {
		t.Errorf("%+v", n)
	}
	if n := got["mutual-exclusion"]; n.Violations != 0 || r.ExitCode != ExitUnsafe {
		t.Errorf("%+v, exit code %d", n, r.ExitCode)
	}
	if len(r.Rules) != len(checker.Rules()) || len(r.Findings) != 4 {
		t.Errorf("%d rules, %d findings", len(r.Rules), len(r.Findings))
	}
}
