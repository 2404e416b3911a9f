package verify

import (
	"fmt"
	"slices"
	"testing"

	"tornwire/checker"
	"tornwire/internal/wrongclient"
)

// cuts lists the cases of a frame at the given offsets, for each fault.
func cuts(dialect, workload, frame string, offsets []int, faults ...string) []string {
	var out []string
	for _, k := range offsets {
		for _, f := range faults {
			out = append(out, fmt.Sprintf("%s/%s/%s@%d:%s", dialect, workload, frame, k, f))
		}
	}
	return out
}

// sizes of the frames of workload single that the mutants are shown on.
var singleSize = map[string]struct{ request, grant, header, release int }{
	dialectCurrent: {20, 26, 17, 18},
	dialectV0:      {14, 18, 9, 10},
}

// shows lists the cases that show a defect in a dialect.
func shows(defect, dialect string) []string {
	n := singleSize[dialect]
	answer := func(faults ...string) []string {
		return cuts(dialect, "single", "s2c.A.1", []int{0, 1, n.header, n.grant - 1}, faults...)
	}
	request := func(faults ...string) []string {
		return cuts(dialect, "single", "c2s.A.1", []int{n.request}, faults...)
	}
	none := []string{dialect + "/single/none"}
	switch defect {
	case "enters-anyway":
		return append(answer("truncate-fin", "truncate-rst", "truncate-silence"), request("truncate-fin")...)
	case "partial-is-acquired":
		return cuts(dialect, "single", "s2c.A.1", []int{n.header, n.header + 1, n.grant - 1}, "truncate-fin", "truncate-silence", "split")
	case "eof-is-timeout", "eof-is-unsent", "eof-is-busy", "resend-same", "resend-new-owner":
		return append(answer("truncate-fin", "truncate-rst"), request("truncate-fin", "truncate-rst")...)
	case "newline-first":
		return append(cuts(dialect, "single", "s2c.A.1", []int{1, n.header, n.grant - 1}, "split"), dialect+"/single/none", dialect+"/newline-token/none")
	case "release-by-key":
		return append(cuts(dialect, "single", "c2s.R.1", []int{n.release}, "truncate-fin"), dialect+"/expired/none")
	case "wrong-token-released":
		return append(cuts(dialect, "single", "c2s.R.1", []int{n.release}, "truncate-fin", "truncate-rst"), none...)
	case "never-settles":
		return append(answer("truncate-rst"), request("truncate-rst")...)
	case "stale-zero":
		return []string{dialect + "/late-reply/s2c.A.1@0:hold"}
	case "fifo-key", "fifo-connection":
		ids := []string{dialect + "/pipelined/none"}
		if dialect == dialectCurrent {
			ids = append(ids, dialect+"/reversed-replies/none")
		}
		return ids
	case "key-only":
		return append(cuts(dialect, "single", "s2c.A.1", []int{0}, "inject-stray"), cuts(dialect, "stray-reply", "s2c.keepalive.1", []int{0}, "inject-stray")...)
	case "owner-constant", "zero-as-one":
		return []string{dialect + "/immediate/none"}
	case "owner-restarts":
		return []string{dialect + "/half-close/none"}
	case "wait-stale", "wait-255", "zero-forever", "send-expired":
		return []string{dialect + "/late-connect/s2c.greeting.1@0:hold-greeting"}
	case "wait-rounded-down":
		return []string{dialect + "/keep-alive/none"}
	case "deadline-restarts":
		return cuts(dialect, "reconnect", "s2c.greeting.1", []int{0, 26}, "truncate-fin", "truncate-rst")
	case "enter-late", "late-not-released":
		return []string{dialect + "/late-grant/s2c.A.1@0:hold"}
	case "timeout-as-error":
		return []string{dialect + "/immediate/none", dialect + "/timeout/none"}
	case "busy-as-timeout", "busy-retried":
		// One case is not enough: with a newline in its owner, which is drawn, a B proves
		// nothing about a word.
		return append(cuts(dialect, "busy", "c2s.A.1", []int{5, 9}, "split"), dialect+"/busy/none")
	case "release-twice":
		return []string{dialect + "/contended/none"}
	}
	for _, more := range []func(string, string) []string{strayShows, sessionShows, clusterShows, paceShows, tableShows, nearShows} {
		if ids := more(defect, dialect); len(ids) > 0 {
			return ids
		}
	}
	return nil
}

// severityShown is that of the defects that do not show their rule at its gravest.
var severityShown = map[string]checker.Severity{
	"eof-is-timeout": checker.Contract,
	"eof-is-unsent":  checker.Contract,
	"eof-is-busy":    checker.Contract,

	"cancel-as-unsent": checker.Contract,
}

// besides lists a second rule that a defect certainly breaks.
var besides = map[string]string{"late-not-released": "release-known", "stray-ignored": "unmatched-released"}

var verdictOf = map[checker.Severity]checker.Verdict{
	checker.Safety: checker.Unsafe, checker.Contract: checker.Nonconforming, checker.Hygiene: checker.NonStrict,
}

// TestMutants holds the sweep to spec/mutants.md: each defect gives the verdict
// of its rule's severity, and the rule is named.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, d := range wrongclient.Defects() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			rule, ok := checker.RuleByID(d.Rule)
			if !ok {
				t.Fatalf("there is no rule %s to hold it to", d.Rule)
			}
			severity := rule.Severity
			if s, ok := severityShown[d.Name]; ok {
				severity = s
			}
			for _, dialect := range d.Dialects {
				t.Run(dialect, func(t *testing.T) {
					t.Parallel()
					mutant(t, d, dialect, verdictOf[severity])
				})
			}
		})
	}
}

func mutant(t *testing.T, d wrongclient.Defect, dialect string, want checker.Verdict) {
	ids := shows(d.Name, dialect)
	if len(ids) == 0 {
		t.Fatal("no case is said to show it")
	}
	r := runPlan(t, Options{Cases: ids, Profile: "official", Busy: checker.BusyFinal, Strict: true, Start: Library(wrong(t, d.Name)), Alone: asProcess(d.Name)})
	code := map[checker.Verdict]int{
		checker.Unsafe: ExitUnsafe, checker.Nonconforming: ExitUnsafe, checker.NonStrict: ExitNonStrict,
	}[want]
	if r.Verdict != want || r.ExitCode != code {
		t.Errorf("verdict %s with exit code %d, want %s with %d", r.Verdict, r.ExitCode, want, code)
	}
	if !slices.Contains(certain(r), d.Rule) {
		t.Errorf("broken for certain: %v, and not %s", certain(r), d.Rule)
	}
	if also, ok := besides[d.Name]; ok && !slices.Contains(certain(r), also) {
		t.Errorf("broken for certain: %v, and not %s besides", certain(r), also)
	}
	if t.Failed() {
		t.Log(text(r))
	}
}

// TestEveryRuleHasAMutant: there is a client that breaks each rule about clients, but
// for the one about the application, which in verify is the tool's own.
func TestEveryRuleHasAMutant(t *testing.T) {
	shown := map[string]bool{}
	for _, d := range wrongclient.Defects() {
		shown[d.Rule], shown[besides[d.Name]] = true, true
	}
	for _, r := range checker.Rules() {
		if r.Side == "client" && !shown[r.ID] && r.ID != "no-overstay" {
			t.Errorf("no defect breaks %s", r.ID)
		}
	}
}

// TestRightClients runs every case that shows a mutant with clients that are
// right, the odd ones of spec/rules.md ("Never a finding") too: no finding at all.
func TestRightClients(t *testing.T) {
	t.Parallel()
	all := map[string][]string{}
	for _, d := range wrongclient.Defects() {
		for _, dialect := range d.Dialects {
			all[dialect] = append(all[dialect], shows(d.Name, dialect)...)
		}
	}
	for dialect, ids := range all {
		for _, name := range append([]string{""}, wrongclient.Odd()...) {
			t.Run("right/"+name+"/"+dialect, func(t *testing.T) {
				t.Parallel()
				isSafe(t, Options{Cases: ids, Profile: "official", Busy: checker.BusyFinal, Start: Library(wrong(t, name)), Alone: asProcess(name)})
			})
		}
		t.Run("reference/"+dialect, func(t *testing.T) {
			t.Parallel()
			isSafe(t, Options{Cases: ids, Profile: "official", Start: Library(referenceLibrary()), Alone: asProcess(referenceName)})
		})
	}
}

func isSafe(t *testing.T, o Options) *Report {
	t.Helper()
	r := runPlan(t, o)
	if r.Verdict != checker.Safe || r.ExitCode != ExitSafe || len(r.Findings) > 0 || r.Cases.Safe != r.Cases.Total {
		t.Errorf("verdict %s, exit code %d, %+v, and %d findings:\n%s", r.Verdict, r.ExitCode, r.Cases, len(r.Findings), text(r))
	}
	return r
}
