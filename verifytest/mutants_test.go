package verifytest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tornwire/adapter"
	"tornwire/checker"
	"tornwire/internal/wrongclient"
	"tornwire/verify"
)

// wrong is a client with a defect, or the right one for "".
func wrong(name string) func(Inside) adapter.Library {
	return func(in Inside) adapter.Library {
		lib, err := wrongclient.WithDial(name, in.Dial)
		if err != nil {
			panic(err)
		}
		return lib
	}
}

// run runs cases with a client, one after the other, until more says no.
func run(t *testing.T, of *verify.Bubble, cases []verify.Case, name string, more func(verify.CaseResult) bool) {
	t.Helper()
	b, lib := of.For(), wrong(name)
	for _, c := range cases {
		var res verify.CaseResult
		synctest.Test(t, func(t *testing.T) { res = b.Run(t.Context(), c, lib) })
		if res.Verdict == checker.Inconclusive {
			t.Errorf("%s: %s", c.ID, res.Reason)
		}
		if !more(res) {
			return
		}
	}
}

// breaks tells whether a case shows for certain that a rule is broken, with a severity
// or any ("").
func breaks(res verify.CaseResult, rule string, severity checker.Severity) bool {
	return slices.ContainsFunc(res.Findings, func(f checker.Finding) bool {
		return f.Rule == rule && f.Certainty == checker.Certain && (severity == "" || f.Severity == severity)
	})
}

// official is cases that hold clients to all that spec/rules.md says.
func official(t *testing.T, ids []string) *verify.Bubble {
	t.Helper()
	b, err := verify.NewBubble(verify.Options{Cases: ids, Profile: "official", Busy: checker.BusyFinal, Strict: true}, synctest.Wait)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// few is a workload of few cases.
const few = 10

// telling lists the cases of a dialect that show the most: those of the workloads that
// have few, then the runs of the others without a fault, then the smoke sweep.
func telling(t *testing.T, dialect string) (quick, smoke []string) {
	t.Helper()
	all := func(o verify.Options) []verify.Case {
		o.Dialect = dialect
		b, err := verify.NewBubble(o, synctest.Wait)
		if err != nil {
			t.Fatal(err)
		}
		return b.Cases()
	}
	standard, n := all(verify.Options{}), map[string]int{}
	for _, c := range standard {
		n[c.ID.Workload]++
	}
	for _, c := range standard {
		if n[c.ID.Workload] <= few {
			quick = append(quick, c.ID.String())
		}
	}
	for _, c := range all(verify.Options{Faults: []string{verify.NoFault}}) {
		if id := c.ID.String(); !slices.Contains(quick, id) {
			quick = append(quick, id)
		}
	}
	if dialect == "ticketing" {
		quick = append(quick, dialect+"/duplicate-grant/s2c.A.1@25:duplicate") // no part of a sweep
	}
	for _, c := range all(verify.Options{Sweep: verify.SweepSmoke}) {
		if id := c.ID.String(); !slices.Contains(quick, id) {
			smoke = append(smoke, id)
		}
	}
	return quick, smoke
}

// frozen are the defects that only a client which is stopped for a while shows.
var frozen = []string{"enters-after-thaw", "forgets-after-thaw"}

// milder is the severity of the defects that do not show their rule at its gravest.
var milder = map[string]checker.Severity{
	"eof-is-timeout": checker.Contract, "eof-is-unsent": checker.Contract, "eof-is-busy": checker.Contract,
	"cancel-as-unsent": checker.Contract,
}

var verdictOf = map[checker.Severity]checker.Verdict{
	checker.Safety: checker.Unsafe, checker.Contract: checker.Nonconforming, checker.Hygiene: checker.NonStrict,
}

// TestMutants: every wrong client whose defect a bubble can show breaks its rule for
// certain, and the case has the verdict of the rule's severity or a graver one.
func TestMutants(t *testing.T) {
	for _, dialect := range dialects {
		quick, smoke := telling(t, dialect)
		b := official(t, slices.Concat(quick, smoke))
		for i, d := range wrongclient.Defects() {
			if i%share > 0 || !slices.Contains(d.Dialects, dialect) {
				continue
			}
			t.Run(dialect+"/"+d.Name, func(t *testing.T) {
				t.Parallel()
				if slices.Contains(frozen, d.Name) {
					isFrozen(t, b, d.Name)
					return
				}
				caught(t, b, d)
			})
		}
	}
}

func caught(t *testing.T, b *verify.Bubble, d wrongclient.Defect) {
	rule, _ := checker.RuleByID(d.Rule)
	severity := rule.Severity
	if s, ok := milder[d.Name]; ok {
		severity = s
	}
	cases, shown := 0, false
	run(t, b, b.Cases(), d.Name, func(res verify.CaseResult) bool {
		cases++
		if shown = breaks(res, d.Rule, severity); shown && !graver(res.Verdict, verdictOf[severity]) {
			t.Errorf("%s breaks %s (%s), and the case is %s", res.Case.ID, d.Rule, severity, res.Verdict)
		}
		return !shown
	})
	if !shown {
		t.Errorf("none of %d cases shows that it breaks %s", cases, d.Rule)
	}
}

// graver tells whether a verdict is at least another.
func graver(v, than checker.Verdict) bool {
	order := []checker.Verdict{checker.NonStrict, checker.Nonconforming, checker.Unsafe}
	return slices.Index(order, v) >= slices.Index(order, than)
}

// isFrozen: what stops a client is skipped with the reason and a way to see it.
func isFrozen(t *testing.T, b *verify.Bubble, name string) {
	i := slices.IndexFunc(b.Cases(), func(c verify.Case) bool { return c.ID.Workload == "frozen" })
	run(t, b, b.Cases()[i:i+1], name, func(res verify.CaseResult) bool {
		if res.Verdict != checker.Skipped || !strings.Contains(res.Reason, "tornwire verify -- ADAPTER shows it") {
			t.Errorf("%s: %s %s", res.Case.ID, res.Verdict, res.Reason)
		}
		return true
	})
}

// TestRight: the right one and the odd ones of spec/rules.md ("Never a finding") are SAFE,
// each in the quick cases and in a part of the smoke sweep, the right one in all of it.
func TestRight(t *testing.T) {
	for _, dialect := range dialects {
		quick, smoke := telling(t, dialect)
		b := official(t, slices.Concat(quick, smoke))
		for i, name := range append([]string{""}, wrongclient.Odd()...) {
			if i%share > 0 {
				continue
			}
			cases := slices.Clone(b.Cases()[:len(quick)])
			for n, c := range b.Cases()[len(quick):] {
				if name == "" || n%parts == i%parts {
					cases = append(cases, c)
				}
			}
			t.Run(dialect+"/right/"+name, func(t *testing.T) {
				t.Parallel()
				safe(t, b, cases, name)
			})
		}
	}
}

// parts of the smoke sweep; an odd client runs one of them.
const parts = 20

func safe(t *testing.T, b *verify.Bubble, cases []verify.Case, name string) {
	ran := 0
	run(t, b, cases, name, func(res verify.CaseResult) bool {
		if res.Verdict == checker.Safe {
			ran++
		}
		if len(res.Findings) > 0 || res.Verdict != checker.Safe && res.Verdict != checker.Skipped {
			t.Errorf("%s: %s\n%s", res.Case.ID, res.Verdict, verify.Describe(res))
		}
		return true
	})
	if ran*10 < len(cases)*9 {
		t.Errorf("%d of %d cases were run", ran, len(cases))
	}
}

// TestResendPartial: a client that takes only whole frames for sent is found wherever a
// write is cut short: by its second attempt, and by the owner from byte 11 on. The right
// one, whose write is cut short as well, is SAFE there.
func TestResendPartial(t *testing.T) {
	size := map[string]int{"ticketing": 20, "ticketing-v0": 14}
	for _, d := range wrongclient.Unseen() {
		for _, dialect := range d.Dialects {
			var ids []string
			for k := range size[dialect] {
				for _, fault := range []string{"truncate-fin", "truncate-rst"} {
					ids = append(ids, fmt.Sprintf("%s/single/c2s.A.1@%d:%s", dialect, k, fault))
				}
			}
			b := official(t, ids)
			safe(t, b, b.Cases(), "")
			run(t, b, b.Cases(), d.Name, func(res verify.CaseResult) bool {
				k := res.Case.ID.Offset
				cut := k > 0 && res.Case.ID.Fault == "truncate-rst"
				if cut && (!breaks(res, d.Rule, "") || res.Verdict != checker.Nonconforming) {
					t.Errorf("%s: %s\n%s", res.Case.ID, res.Verdict, verify.Describe(res))
				}
				if owner := breaks(res, "no-resend", ""); dialect == "ticketing" && cut && owner != (k >= 11) || k == 0 && owner {
					t.Errorf("%s: no-resend is broken: %v", res.Case.ID, owner)
				}
				return true
			})
		}
	}
}
