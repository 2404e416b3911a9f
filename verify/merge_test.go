package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
)

// judgedRun is a record that was judged again.
type judgedRun struct {
	rec     *Recorded
	results []CaseResult
}

func judged(t *testing.T, dir string) judgedRun {
	t.Helper()
	rec, err := OpenRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rec.plan(CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	results, err := rec.judge(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return judgedRun{rec, results}
}

// shard is the report that the run of a shard would have given: on its cases, and on every
// control that is another's case.
func (j judgedRun) shard(t *testing.T, s Shard) []byte {
	t.Helper()
	p, err := j.rec.plan(CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Cases, p.Shard = slices.Clone(p.Cases), &s
	p.take(s)
	r := newReport(p)
	r.client(j.rec.from.Client)
	for i, res := range j.results {
		id := res.Case.ID.String()
		switch when := j.rec.lines[i].When; {
		case when == whenReplay && s.Has(id):
			r.replayed(res)
		case when == whenReplay:
		case when == whenCase && s.Has(id):
			r.add(res)
		case when == whenCase && res.Case.ID.Fault == NoFault:
			r.sanity(whenControl, res)
		case when != whenCase:
			r.sanity(when, res)
		}
	}
	e := j.rec.end
	r.InFlight, r.Resources = e.InFlight, e.Took
	r.finish(0, e.Restarts/s.Of)
	return []byte(asJSON(t, r))
}

// alike is the JSON of a report without what is measured of the run itself.
func alike(t *testing.T, r *Report) string {
	t.Helper()
	same := map[string]any{}
	if err := json.Unmarshal([]byte(asJSON(t, r)), &same); err != nil {
		t.Fatal(err)
	}
	delete(same, "elapsed_s")
	delete(same, "resources")
	data, err := json.MarshalIndent(same, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestMergedIsTheWhole: the joined report is that of the undivided run, of a right client
// and a wrong one, with and without a baseline.
func TestMergedIsTheWhole(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"right": {Start: Library(referenceLibrary()), Profile: "official"},
		"wrong": {Start: Library(wrong(t, "enters-anyway")), Command: []string{"./adapter", "a b"}},
		"accepted": {Start: Library(wrong(t, "enters-anyway")), Strict: true, Baseline: &Baseline{
			File: "b.toml", Entries: []Accept{{Rule: "no-entry-unconfirmed", Reason: "known", Expires: time.Now().AddDate(1, 0, 0)}, {Rule: "settles", Reason: "old"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Workloads, o.Sweep = []string{"single", "immediate"}, SweepSmoke
			_, dir := recorded(t, o)
			whole := checked(t, dir, CheckOptions{})
			if name == "wrong" && (whole.ExitCode != ExitUnsafe || !slices.ContainsFunc(whole.Findings, func(f Finding) bool { return f.Replayed > 0 })) {
				t.Fatalf("exit code %d, %d findings", whole.ExitCode, len(whole.Findings))
			}
			if name == "accepted" && whole.accepted() == 0 {
				t.Fatal("nothing was accepted")
			}
			j := judged(t, dir)
			for _, n := range []int{1, 4, 16} {
				var files []ShardReport
				for i := range n {
					files = append(files, ShardReport{fmt.Sprintf("%d.json", i), j.shard(t, Shard{(i*5+2)%n + 1, n})})
				}
				merged, err := Merge(files)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := alike(t, merged), alike(t, whole); got != want {
					t.Errorf("of %d shards: %s", n, firstDifference(got, want))
				}
			}
		})
	}
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is %s, not %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, not %d", len(a), len(b))
}

// TestMergeRefuses: what is no whole run is told, with the files.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	_, dir := recorded(t, Options{Start: Library(referenceLibrary()), Workloads: []string{"single"}, Faults: []string{"truncate"}, Sweep: SweepSmoke})
	j := judged(t, dir)
	shard := func(i, n int, change ...func(*Report)) ShardReport {
		r := &Report{}
		if err := json.Unmarshal(j.shard(t, Shard{i, n}), r); err != nil {
			t.Fatal(err)
		}
		for _, f := range change {
			f(r)
		}
		return ShardReport{fmt.Sprintf("%d-of-%d", i, n), []byte(asJSON(t, r))}
	}
	for want, files := range map[string][]ShardReport{
		"there is no report to merge":                                 {},
		"shards are missing: 2/3":                                     {shard(1, 3), shard(3, 3)},
		"shard 2/3 is there twice: 2-of-3 and 2-of-3":                 {shard(1, 3), shard(2, 3), shard(2, 3)},
		"2-of-4 is one of 4 shards, and 1-of-3 one of 3":              {shard(1, 3), shard(2, 4)},
		"x is not a JSON report of tornwire verify":                   {{"x", []byte("{")}},
		"y is not a JSON report of tornwire verify":                   {{"y", []byte("{}")}},
		"1-of-1 has schema 2":                                         {shard(1, 1, func(r *Report) { r.Schema = 2 })},
		"1-of-1 is not the report of a shard":                         {shard(1, 1, func(r *Report) { r.Shard = nil })},
		"its seed is 7, and that of 1-of-2 is 0":                      {shard(1, 2), shard(2, 2, func(r *Report) { r.Seed = 7 })},
		"its busy is final, and that of 1-of-2 is unsettled":          {shard(1, 2), shard(2, 2, func(r *Report) { r.Busy = "final" })},
		"its client is other, and that":                               {shard(1, 2), shard(2, 2, func(r *Report) { r.Client = "other" })},
		"its strict is true, and that":                                {shard(1, 2), shard(2, 2, func(r *Report) { r.Selection.Strict = true })},
		"its faults is [all], and that of 1-of-2 is [truncate]":       {shard(1, 2), shard(2, 2, func(r *Report) { r.Selection.Faults = []string{"all"} })},
		"which does not fall to shard 1/2":                            {shard(1, 2, func(r *Report) { r.Shard.Index = 2 }), shard(2, 2, func(r *Report) { r.Shard.Index = 1 })},
		`there is no verdict "fine"`:                                  {shard(1, 1, func(r *Report) { r.Results[0].Verdict = "fine" })},
		"what a shard says of it is not there":                        {shard(1, 1, func(r *Report) { r.Results[0].Part = nil })},
		"it is not whole":                                             {shard(1, 1, func(r *Report) { r.Results = r.Results[1:] })},
		"findings of case ticketing/nowhere/none that none":           {shard(1, 1, func(r *Report) { r.Findings = append(r.Findings, Finding{Case: "ticketing/nowhere/none"}) })},
		"it is unsafe without a finding":                              {shard(1, 1, func(r *Report) { r.Results[0].Verdict = checker.Unsafe })},
		" twice":                                                      {shard(1, 1, func(r *Report) { r.Results[1].Case = r.Results[0].Case })},
		"which its selection does not have":                           {shard(1, 1, func(r *Report) { r.Results[0].Case = "ticketing/busy/none" })},
		"was made by another tornwire: there is no workload \"solo\"": {shard(1, 1, func(r *Report) { r.Selection.Workloads = []string{"solo"} })},
	} {
		_, err := Merge(files)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestMergeOfTroubled: a shard that was stopped, or never reached its adapter, is seen in
// the whole; one to which nothing falls is no trouble.
func TestMergeOfTroubled(t *testing.T) {
	t.Parallel()
	lib := Library(referenceLibrary())
	o := Options{Start: lib, Cases: []string{"ticketing/single/none"}}
	var files []ShardReport
	mine := 0
	for i := 1; i <= 3; i++ {
		o.Shard = &Shard{i, 3}
		r := runPlan(t, o)
		if o.Shard.Has("ticketing/single/none") {
			mine = i
		} else if r.Verdict != checker.Skipped || r.ExitCode != ExitSafe || !strings.Contains(r.Reason, "none of the 1 selected cases falls to shard") {
			t.Errorf("without a case: %s, %d, %q", r.Verdict, r.ExitCode, r.Reason)
		}
		files = append(files, ShardReport{fmt.Sprint(i), []byte(asJSON(t, r))})
	}
	if r, err := Merge(files); err != nil || r.Verdict != checker.Safe || r.Cases.Total != 1 || r.Cases.Safe != 1 {
		t.Errorf("%v, %v", r, err)
	}
	stopped := &Report{}
	if err := json.Unmarshal(files[mine-1].Data, stopped); err != nil {
		t.Fatal(err)
	}
	stopped.Results = nil
	stopped.Cases.NotRun = stopped.Cases.Total
	stopped.ExitCode = 130
	files[mine-1].Data = []byte(asJSON(t, stopped))
	if r, err := Merge(files); err != nil || r.ExitCode != ExitInconclusive || !r.Interrupted || r.Cases.NotRun != 1 {
		t.Errorf("%v, %v", r, err)
	}
	o.Shard, o.Start = &Shard{mine, 3}, Command("./is-not-there")
	files[mine-1].Data = []byte(asJSON(t, runPlan(t, o)))
	if r, err := Merge(files); err != nil || r.ExitCode != ExitUnreachable || !strings.Contains(r.Reason, fmt.Sprintf("shard %d/3: cannot start the adapter", mine)) {
		t.Errorf("%v, %v", r, err)
	}
}
