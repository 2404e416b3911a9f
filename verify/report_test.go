package verify

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
)

// threeCases is a plan to fill reports with.
func threeCases(t *testing.T) *Plan {
	t.Helper()
	return plan(t, Options{Seed: DefaultSeed, Cases: cuts(dialectCurrent, "single", "s2c.A.1", []int{1, 2, 25}, "truncate-fin")})
}

// ended makes the result of a case; it broke the rules for certain.
func ended(c Case, v checker.Verdict, rules ...string) CaseResult {
	res := CaseResult{Case: c, Verdict: v, Fired: true, Checked: []string{"settles"}}
	for _, id := range rules {
		r, _ := checker.RuleByID(id)
		res.Checked = append(res.Checked, id)
		res.Findings = append(res.Findings, checker.Finding{
			Rule: id, Severity: r.Severity, Certainty: checker.Certain, Side: r.Side, Message: "it broke " + id,
			Evidence: checker.Evidence{Session: 1, Frame: "s2c.A.1", Timeline: []string{"one", "two"}},
		})
	}
	return res
}

var sanityCase = Case{ID: CaseID{Dialect: dialectCurrent, Workload: "sanity", Fault: NoFault}, Workload: sanity}

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

// TestReportKeys: the JSON report has the keys of spec/cli.md, of these types.
func TestReportKeys(t *testing.T) {
	p := threeCases(t)
	r := newReport(p)
	r.client("x 1")
	broken := ended(p.Cases[0], checker.Nonconforming, "one-attempt")
	broken.Outcomes = []outcome{{"acquired", "ok"}}
	r.add(broken)
	r.sanity("first", ended(sanityCase, checker.Safe))
	r.finish(1234*time.Millisecond, 0)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	keysOf(got, "", doc)
	want := map[string]string{
		"": "schema: n, tool: s, version: s, dialect: s, client: s, profile: s, busy: s, seed: n, verdict: s, exit_code: n, elapsed_s: n, " +
			"cases: o, needs_fencing: n, coverage: o, outcomes: a, rules: a, results: a, findings: a",
		"cases":             "total: n, safe: n, unsafe: n, nonconforming: n, non_strict: n, inconclusive: n, skipped: n, repeated: n",
		"coverage":          "offsets_possible: n, offsets_cut: n, by_frame: a",
		"coverage.by_frame": "workload: s, frame: s, size: n, offsets_possible: n, offsets_cut: n",
		"outcomes":          "outcome: s, raw: s, count: n",
		"rules":             "id: s, severity: s, checked: n, violations: n",
		"results":           "case: s, verdict: s, fired: b, reason: s",
		"findings": "case: s, rule: s, severity: s, certainty: s, side: s, class: s, message: s, replay: s, " +
			"evidence: o",
		"findings.evidence": "session: n, frame: s, offset: n, frame_hex: s, delivered: a, outcome: s, server_state: s, timeline: a",
	}
	for at, list := range want {
		for _, k := range strings.Split(list, ", ") {
			if !strings.Contains(got[at], k+";") {
				t.Errorf("%q has no %s but %s", at, k, got[at])
			}
		}
	}
	if r.Schema != 1 || r.Tool != "tornwire" || r.ElapsedS != 1.2 {
		t.Errorf("schema %d of %s after %v s", r.Schema, r.Tool, r.ElapsedS)
	}
	for _, empty := range []string{`"outcomes":[]`, `"results":[]`, `"findings":[]`, `"by_frame":[]`} {
		none := newReport(p)
		none.nothing()
		none.finish(0, 0)
		if data, err := json.Marshal(none); err != nil || !strings.Contains(string(data), empty) {
			t.Errorf("an empty report has no %s: %s, %v", empty, data, err)
		}
	}
}

// keysOf lists the keys of each object with the first letter of their types.
func keysOf(out map[string]string, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			typ := map[string]string{"float64": "n", "string": "s", "bool": "b", "[]interface {}": "a", "map[string]interface {}": "o"}[fmt.Sprintf("%T", e)]
			out[at] += " " + k + ": " + typ + ";"
			keysOf(out, strings.TrimPrefix(at+"."+k, "."), e)
		}
	case []any:
		for _, e := range v {
			keysOf(out, at, e)
		}
	}
}

// TestVerdictTokens are the words of spec/cli.md in the JSON report.
func TestVerdictTokens(t *testing.T) {
	p := plan(t, Options{Cases: cuts(dialectCurrent, "single", "s2c.A.1", []int{1, 2, 3, 4, 5, 6}, "split")})
	r := newReport(p)
	for i, v := range []checker.Verdict{
		checker.Safe, checker.Unsafe, checker.Nonconforming, checker.NonStrict, checker.Inconclusive, checker.Skipped,
	} {
		r.add(ended(p.Cases[i], v))
	}
	r.finish(0, 0)
	var got []string
	for _, res := range r.Results {
		got = append(got, string(res.Verdict))
	}
	if want := strings.Fields("safe unsafe nonconforming non_strict inconclusive skipped"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if (r.Cases != Counts{6, 1, 1, 1, 1, 1, 1, 0, 0}) {
		t.Errorf("%+v", r.Cases)
	}
}

// TestLastLine holds the last line to the forms of spec/cli.md.
func TestLastLine(t *testing.T) {
	rules := func(list ...RuleCount) []RuleCount {
		for len(list) < 44 {
			n := 0
			if len(list) < 31 {
				n = 1
			}
			list = append(list, RuleCount{Severity: checker.Hygiene, Checked: n})
		}
		return list
	}
	frames14 := Coverage{Possible: 2000, Cut: 2000, ByFrame: make([]FrameCoverage, 14)}
	part := Coverage{Possible: 2000, Cut: 1999, ByFrame: make([]FrameCoverage, 1)}
	own, two := RuleCount{ID: "release-own", Severity: checker.Safety, Checked: 99, Violations: 11},
		RuleCount{ID: "one-attempt", Severity: checker.Contract, Checked: 99, Violations: 30}
	for want, r := range map[string]*Report{
		"UNSAFE: 41 of 5,832 cases (release-own 11, one-attempt 30); 31 of 44 rules checked; 38.2 s": {
			Verdict: checker.Unsafe, Cases: Counts{Total: 5832, Safe: 5791, Unsafe: 11, Nonconforming: 30},
			Rules: rules(two, own), ElapsedS: 38.2, Results: make([]Result, 5832),
		},
		"SAFE: 5,832 of 5,832 cases, 31 of 44 rules checked, every offset of 14 frames; 36.0 s": {
			Verdict: checker.Safe, Cases: Counts{Total: 5832, Safe: 5832}, Rules: rules(), ElapsedS: 36,
			Coverage: frames14, Results: make([]Result, 5832),
		},
		"SAFE: 9 of 10 cases, 1 skipped, 31 of 44 rules checked, 1,999 of 2,000 offsets of 1 frame; 0.1 s": {
			Verdict: checker.Safe, Cases: Counts{Total: 10, Safe: 9, Skipped: 1}, Rules: rules(), ElapsedS: 0.1,
			Coverage: part, Results: make([]Result, 10),
		},
		"SAFE: 1 of 1 cases, 31 of 44 rules checked, no offset cut; 0.0 s": {
			Verdict: checker.Safe, Cases: Counts{Total: 1, Safe: 1}, Rules: rules(), Results: make([]Result, 1),
		},
		"NONCONFORMING: 1,000 of 2,000 cases (one-attempt 30); 31 of 44 rules checked; 0.0 s": {
			Verdict: checker.Nonconforming, Cases: Counts{Total: 2000, Nonconforming: 1000}, Rules: rules(two), Results: make([]Result, 2000),
		},
		"NON-STRICT: 3 of 9 cases; 31 of 44 rules checked; 0.0 s": {
			Verdict: checker.NonStrict, Cases: Counts{Total: 9, NonStrict: 3}, Rules: rules(), Results: make([]Result, 9),
		},
		"INCONCLUSIVE: 7 of 9 cases, 1 skipped; 31 of 44 rules checked; 0.0 s": { // 2 judged so, 5 not run
			Verdict: checker.Inconclusive, Cases: Counts{Total: 9, Safe: 1, Inconclusive: 2, Skipped: 1, NotRun: 5}, Rules: rules(), Results: make([]Result, 4),
		},
	} {
		if got := r.LastLine(); got != want {
			t.Errorf("last line\n%s\nwant\n%s", got, want)
		}
		if out := text(r); !strings.HasSuffix(out, "\n"+want+"\n") {
			t.Errorf("the text ends with %q", out[max(0, len(out)-200):])
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 12345: "12,345", 123456: "123,456", 1234567: "1,234,567", -999: "-999", -1000: "-1,000",
	} {
		if got := thousands(n); got != want {
			t.Errorf("%d is written %s, not %s", n, got, want)
		}
	}
}

// TestReplay: a finding's replay line runs its case again.
func TestReplay(t *testing.T) {
	const id = "ticketing/single/s2c.A.1@25:truncate-fin"
	node := []string{"node", "my adapter.mjs", "--name=it's $HOME", "", "50%"}
	for want, o := range map[string]Options{
		"tornwire verify --case " + id:                                   {Seed: DefaultSeed, Profile: "official"},
		"tornwire verify --case " + id + " --profile any":                {Seed: DefaultSeed},
		"tornwire verify --case " + id + " --seed 7":                     {Seed: 7, Profile: "official"},
		"tornwire verify --case " + id + " -- ./a":                       {Seed: DefaultSeed, Command: []string{"./a"}},
		"tornwire verify --case " + id + " --profile official -- ./a -b": {Seed: DefaultSeed, Profile: "official", Command: []string{"./a", "-b"}},
		"tornwire verify --case " + id + ` -- node 'my adapter.mjs' '--name=it'\''s $HOME' '' 50%`: {
			Seed: DefaultSeed, Command: node,
		},
	} {
		o.Cases = []string{id}
		p := plan(t, o)
		if got := p.replay(p.Cases[0].ID); got != want {
			t.Errorf("replay\n%s\nwant\n%s", got, want)
		}
	}
	grace, tolerance := 0*time.Second, 90*time.Millisecond
	usual := checker.DefaultTolerance
	for want, o := range map[string]Options{
		" --grace 0s --tolerance 90ms": {Grace: &grace, Tolerance: &tolerance},
		" --grace 0s":                  {Grace: &grace, Tolerance: &usual},
	} {
		o.Cases, o.Profile, o.Seed = []string{id}, "official", DefaultSeed
		p := plan(t, o)
		if got := p.replay(p.Cases[0].ID); got != "tornwire verify --case "+id+want {
			t.Errorf("replay\n%s\nwant%s", got, want)
		}
	}
	want := "tornwire verify --dialect ticketing --workload single --fault none --profile any"
	if got := threeCases(t).replay(sanityCase.ID); got != want {
		t.Errorf("replay of the sanity run\n%s\nwant\n%s", got, want)
	}
}

// TestShellWord has a shell read the words back.
func TestShellWord(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	words := []string{"plain-1_./:=@%+,", "", " ", "two words", "it's", `"$HOME" \n`, "*", "~", "#x", "a;b&c|d", "(x)", "`id`", "é", "new\nline", "''"}
	line := `printf '%s\0'`
	for _, w := range words {
		line += " " + shellWord(w)
	}
	out, err := exec.Command(sh, "-c", line).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("the shell reads %q as %q", line, got)
	}
	if got := shellWord(words[0]); got != words[0] {
		t.Errorf("%s is quoted without need: %s", words[0], got)
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

// TestTextReport is the report for people: what was found, with its replay, what
// could not be judged and why, and no more than three of a kind.
func TestTextReport(t *testing.T) {
	p := plan(t, Options{Seed: DefaultSeed, Profile: "official", Workloads: []string{"single"}, Faults: []string{"split"}})
	r := newReport(p)
	r.client("x 1")
	for i, c := range p.Cases {
		res := ended(c, checker.Safe)
		switch {
		case i < 5:
			res = ended(c, checker.Unsafe, "exact-token")
		case i < 10:
			res.Verdict, res.Reason = checker.Inconclusive, "no idea"
		case i < 20:
			res.Verdict, res.Reason = checker.Skipped, "cannot"
		case i == 20:
			res.Fencing, res.Outcomes = 2, []outcome{{"error", "Boom"}}
		}
		r.add(res)
	}
	r.finish(0, 0)
	out := text(r)
	for want, n := range map[string]int{
		"client x 1, dialect ticketing, profile official, busy unsettled, seed 1\n": 1,
		"exact-token (safety, certain): ":                                           1,
		"it broke exact-token (fault class network)":                                findingsShown,
		"replay: tornwire verify --case ticketing/single/s2c.greeting.1@1:sp":       1,
		"… and 2 more: --format json lists them all":                                1,
		"INCONCLUSIVE ? ticketing":                                                  findingsShown,
		"… and 2 more inconclusive cases":                                           1,
		"SKIPPED – 10 cases: cannot\n":                                              1,
		"calls ended: error (Boom) 1\n":                                             1,
		"needs fencing: 2 entries":                                                  1,
		"    | one\n":                                                               1,
		"\nUNSAFE: 5 of ":                                                           1,
	} {
		if got := strings.Count(out, want); got != n {
			t.Errorf("%q is there %d times, want %d", want, got, n)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}
