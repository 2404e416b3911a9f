package verify

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
)

// sometimes is a library that is wrong in each third of its clients.
type sometimes struct {
	adapter.Library
	wrong adapter.Library
	opens atomic.Int64
}

func (s *sometimes) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	if s.opens.Add(1)%3 == 0 {
		return s.wrong.Open(dialect, addresses, secret)
	}
	return s.Library.Open(dialect, addresses, secret)
}

// runsOf are runs of the first case of threeCases, which broke these rules.
func runsOf(t *testing.T, verdicts []checker.Verdict, rules ...string) []CaseResult {
	t.Helper()
	c := threeCases(t).Cases[0]
	var out []CaseResult
	for i, v := range verdicts {
		c.rep = i + 1
		res := ended(c, v)
		if rules[i] != "" {
			res = ended(c, v, rules[i])
		}
		res.Outcomes = []outcome{{"error", "x"}}
		out = append(out, res)
	}
	return out
}

// TestFold: of several runs of a case the gravest counts, and nothing is lost that
// another has found.
func TestFold(t *testing.T) {
	const safe, bad, loose, doubt, skip = checker.Safe, checker.Nonconforming, checker.NonStrict, checker.Inconclusive, checker.Skipped
	for name, c := range map[string]struct {
		verdicts []checker.Verdict
		rules    []string
		verdict  checker.Verdict
		found    int
		findings int
	}{
		"all safe":              {[]checker.Verdict{safe, safe, safe}, []string{"", "", ""}, safe, 0, 0},
		"one fails":             {[]checker.Verdict{safe, bad, safe}, []string{"", "one-attempt", ""}, bad, 1, 1},
		"all fail":              {[]checker.Verdict{bad, bad, bad}, []string{"one-attempt", "one-attempt", "one-attempt"}, bad, 3, 1},
		"two ways":              {[]checker.Verdict{loose, bad, safe}, []string{"settles", "one-attempt", ""}, bad, 2, 2},
		"a doubt":               {[]checker.Verdict{safe, doubt, loose}, []string{"", "", "settles"}, doubt, 1, 1},
		"a doubt behind a flaw": {[]checker.Verdict{bad, doubt, safe}, []string{"one-attempt", "", ""}, bad, 1, 1},
		"one came about":        {[]checker.Verdict{skip, safe, skip}, []string{"", "", ""}, safe, 0, 0},
		"none came about":       {[]checker.Verdict{skip, skip, skip}, []string{"", "", ""}, skip, 0, 0},
	} {
		runs := runsOf(t, c.verdicts, c.rules...)
		slices.Reverse(runs) // they end in any order
		got := fold(runs)
		if got.Verdict != c.verdict || got.found() != c.found || len(got.Findings) != c.findings || got.runs != 3 || len(got.Outcomes) != 3 {
			t.Errorf("%s: %s, found in %d of %d runs, %d findings, %d outcomes", name, got.Verdict, got.found(), got.runs, len(got.Findings), len(got.Outcomes))
		}
		if n := len(runs[0].Findings) + len(runs[1].Findings) + len(runs[2].Findings); c.found != n {
			t.Errorf("%s: the runs have %d findings now", name, n)
		}
	}
	if got := fold(runsOf(t, []checker.Verdict{loose, bad}, "settles", "one-attempt")); !slices.Equal(got.Checked, []string{"one-attempt", "settles"}) && !slices.Equal(got.Checked, []string{"settles", "one-attempt"}) {
		t.Errorf("checked %v", got.Checked)
	}
}

// TestFlakeScore is what the report says of cases that fail in some of their runs.
func TestFlakeScore(t *testing.T) {
	p := threeCases(t)
	p.Repeat = 3
	fill := func() *Report {
		r := newReport(p)
		r.add(fold(runsOf(t, []checker.Verdict{checker.Safe, checker.Nonconforming, checker.Safe}, "", "one-attempt", "")))
		for _, c := range p.Cases[1:] {
			r.add(CaseResult{Case: c, Verdict: checker.Safe, runs: 3})
		}
		r.finish(0, 0)
		return r
	}
	r := fill()
	if r.ExitCode != ExitUnsafe || r.Flaky != 1 || r.Results[0].Runs != 3 || r.Results[0].Found != 1 || r.Results[1].Found != 0 || r.Findings[0].Found != 1 {
		t.Errorf("exit code %d, %d flaky, %+v, %+v", r.ExitCode, r.Flaky, r.Results, r.Findings)
	}
	out := text(r)
	for _, want := range []string{
		", each case 3 times\n", "    found in 1 of 3 runs of the case\n", "flaky: 1 case failed in some runs only\n  " + p.Cases[0].ID.String() + ": 1 of 3 runs\n",
		"replay: tornwire verify --case " + p.Cases[0].ID.String() + " --repeat 3 ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	p.Baseline = &Baseline{Entries: []Accept{{Rule: "one-attempt", Reason: "known", Expires: time.Now().AddDate(1, 0, 0)}}}
	if r := fill(); r.ExitCode != ExitSafe || r.Flaky != 0 || r.Results[0].Found != 0 || r.Findings[0].Found != 1 {
		t.Errorf("accepted: exit code %d, %d flaky, %+v", r.ExitCode, r.Flaky, r.Results[0])
	}
	p.Baseline = nil
	cut := newReport(p)
	for _, c := range p.Cases {
		cut.add(CaseResult{Case: c, Verdict: checker.Safe, runs: 2})
	}
	if cut.finish(0, 0); cut.ExitCode != ExitInconclusive || !cut.Interrupted {
		t.Errorf("two of three runs: exit code %d, %s", cut.ExitCode, cut.Reason)
	}
}

// TestRandomOfRepetition: each run of a case has its own nonces, the same each time, and
// the first those of a run that is not repeated.
func TestRandomOfRepetition(t *testing.T) {
	a, b := threeCases(t).Cases[0], threeCases(t).Cases[1]
	draw := func(seed uint64, c Case, rep int) uint64 {
		c.rep = rep
		return randomOf(seed, c).Uint64()
	}
	if draw(1, a, 0) != draw(1, a, 1) {
		t.Error("the first of several runs draws differently from the only one")
	}
	seen := map[uint64]bool{}
	for _, n := range []uint64{draw(1, a, 1), draw(1, a, 2), draw(1, a, 3), draw(2, a, 1), draw(1, b, 1), draw(1, b, 2)} {
		seen[n] = true
	}
	if len(seen) != 6 {
		t.Errorf("of six runs %d draw differently", len(seen))
	}
}

// TestRepeat runs a client that is wrong now and then: its cases are found in some of
// their runs, a record of it is judged alike, and a shard is joined with its scores.
func TestRepeat(t *testing.T) {
	t.Parallel()
	o := Options{
		Start: Library(&sometimes{Library: wrong(t, ""), wrong: wrong(t, "enters-anyway")}), Repeat: 6, Parallel: 1, Shard: &Shard{1, 1},
		Cases: []string{"ticketing/single/s2c.A.1@25:truncate-fin", "ticketing/single/none"},
	}
	r, dir := recorded(t, o)
	row, clean := r.Results[0], r.Results[1]
	if row.Case != o.Cases[0] || row.Runs != 6 || row.Found == 0 || row.Found == 6 || r.Flaky != 1 || r.ExitCode != ExitUnsafe {
		t.Errorf("%+v, %d flaky, exit code %d", row, r.Flaky, r.ExitCode)
	}
	if clean.Runs != 6 || clean.Found != 0 || clean.Verdict != checker.Safe {
		t.Errorf("%+v", clean)
	}
	for _, f := range r.Findings {
		if f.Runs != 6 || f.Found == 0 || f.Found > row.Found || !strings.Contains(f.Replay, " --repeat 6") {
			t.Errorf("%s was found in %d of %d runs; replay: %s", f.Rule, f.Found, f.Runs, f.Replay)
		}
	}
	if a, b := asJSON(t, r), asJSON(t, checked(t, dir, CheckOptions{})); a != b {
		t.Errorf("judged again it is another: %s", firstDifference(a, b))
	}
	joined, err := Merge([]ShardReport{{"1.json", []byte(asJSON(t, r))}})
	if err != nil {
		t.Fatal(err)
	}
	joined.Shard, joined.Results[0].Part = r.Shard, r.Results[0].Part
	if got, want := joined.Results[0], row; got.Found != want.Found || got.Runs != want.Runs || joined.Flaky != 1 || joined.Findings[0].Found != r.Findings[0].Found {
		t.Errorf("joined %+v, not %+v", got, want)
	}
}
