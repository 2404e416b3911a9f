package verify

import (
	"encoding/json"
	"fmt"
	"slices"
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
