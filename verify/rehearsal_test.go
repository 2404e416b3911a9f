package verify

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tornwire/checker"
)

// rehearsed is the report of a run in which each case is safe, and each run without a
// fault as change makes it.
func rehearsed(t *testing.T, o Options, change func(when string, c CaseResult) CaseResult) *Report {
	t.Helper()
	p := plan(t, o)
	r := newReport(p)
	r.client("x 1")
	made := func(when string, c Case) CaseResult {
		res := ended(c, checker.Safe)
		res.Outcomes = []outcome{{"acquired", "ok"}}
		return change(when, res)
	}
	r.sanity(whenFirst, made(whenFirst, sanityCase))
	for _, w := range workloads {
		c := Case{ID: CaseID{Dialect: p.Dialect, Workload: w.ID, Fault: NoFault}, Workload: w}
		of := func(o Case) bool { return o.Workload == w }
		if slices.ContainsFunc(p.Cases, of) && !slices.ContainsFunc(p.Cases, func(o Case) bool { return o.ID == c.ID }) {
			r.sanity(whenControl, made(whenControl, c))
		}
	}
	for _, c := range p.Cases {
		r.add(made(whenCase, c))
	}
	r.sanity(whenLast, made(whenLast, sanityCase))
	r.finish(time.Second, 0)
	return r
}

// TestRehearsalsCountOnce: what each shard runs for itself counts once in the whole, with
// its findings, whether it is a case of the run or not.
func TestRehearsalsCountOnce(t *testing.T) {
	fails := func(when string, c CaseResult) CaseResult {
		if c.Case.ID.Fault == NoFault {
			out := ended(c.Case, checker.Nonconforming, "one-attempt", "settles")
			out.Outcomes = c.Outcomes
			return out
		}
		return c
	}
	for _, faults := range [][]string{{"split"}, {"split", "none"}} {
		o := Options{Workloads: []string{"single", "busy"}, Faults: faults, Sweep: SweepSmoke}
		want := alike(t, rehearsed(t, o, fails))
		for _, n := range []int{1, 2, 5} {
			var files []ShardReport
			for i := 1; i <= n; i++ {
				o.Shard = &Shard{i, n}
				files = append(files, ShardReport{fmt.Sprint(i), []byte(asJSON(t, rehearsed(t, o, fails)))})
			}
			merged, err := Merge(files)
			if err != nil {
				t.Fatal(err)
			}
			if got := alike(t, merged); got != want {
				t.Errorf("%v, %d shards: %s", faults, n, firstDifference(got, want))
			}
		}
	}
}

// TestRehearsalOfOneShard: what only one shard has seen is not lost.
func TestRehearsalOfOneShard(t *testing.T) {
	id := "ticketing/single/none"
	for name, c := range map[string]struct {
		faults  []string
		when    string
		runs    int
		finding string
	}{
		"a control":                {[]string{"split"}, whenControl, 0, id},
		"a control that is a case": {[]string{"split", "none"}, whenControl, 0, id},
		"of a repeated case":       {[]string{"split", "none"}, whenControl, 2, id},
		"the last run":             {[]string{"split"}, whenLast, 0, "ticketing/sanity/none"},
	} {
		o := Options{Workloads: []string{"single"}, Faults: c.faults, Sweep: SweepSmoke, Repeat: c.runs}
		var files []ShardReport
		for i := 1; i <= 3; i++ {
			o.Shard = &Shard{i, 3}
			odd := i == 1 && !o.Shard.Has(id) || i == 2 && Shard{1, 3}.Has(id)
			r := rehearsed(t, o, func(when string, res CaseResult) CaseResult {
				if odd && when == c.when {
					return ended(res.Case, checker.Nonconforming, "one-attempt")
				}
				if when == whenCase && c.runs > 0 {
					res.runs = c.runs
				}
				return res
			})
			files = append(files, ShardReport{fmt.Sprint(i), []byte(asJSON(t, r))})
		}
		r, err := Merge(files)
		if err != nil {
			t.Fatal(err)
		}
		if r.ExitCode != ExitUnsafe || len(r.Findings) != 1 || r.Findings[0].Case != c.finding || len(r.Results) != r.Cases.Total {
			t.Errorf("%s: exit code %d, findings %+v", name, r.ExitCode, r.Findings)
		}
	}
	a := ended(sanityCase, checker.Nonconforming, "one-attempt")
	b := ended(sanityCase, checker.Unsafe, "exact-token")
	if got := worstRun([]CaseResult{a, b, a}); got.Verdict != checker.Unsafe || len(got.Findings) != 2 || len(b.Findings) != 1 {
		t.Errorf("%s with %d findings", got.Verdict, len(got.Findings))
	}
}
