package verifytest

import (
	"slices"
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

// found runs cases with a wrong client, and returns the rules that it breaks for
// certain and the worst verdict.
func found(t *testing.T, name string, o verify.Options) (rules map[string]int, worst checker.Verdict) {
	t.Helper()
	b, err := verify.NewBubble(o, synctest.Wait)
	if err != nil {
		t.Fatal(err)
	}
	rules, worst = map[string]int{}, checker.Safe
	for _, c := range b.Cases() {
		var res verify.CaseResult
		synctest.Test(t, func(t *testing.T) {
			res = b.Run(t.Context(), c, wrong(name))
		})
		for _, f := range res.Findings {
			if f.Certainty == checker.Certain {
				rules[f.Rule]++
			}
		}
		order := []checker.Verdict{checker.Skipped, checker.Safe, checker.NonStrict, checker.Nonconforming, checker.Unsafe, checker.Inconclusive}
		if slices.Index(order, res.Verdict) > slices.Index(order, worst) {
			worst = res.Verdict
		}
		if res.Verdict == checker.Inconclusive {
			t.Errorf("%s: %s", c.ID, res.Reason)
		}
	}
	return rules, worst
}

// TestResendPartial: a client that takes only whole frames for sent is found where a
// write is cut short: by its second attempt, and by the owner from byte 11 on. The right
// one, whose write is cut short as well, is SAFE there.
func TestResendPartial(t *testing.T) {
	for _, d := range wrongclient.Unseen() {
		for _, dialect := range d.Dialects {
			o := verify.Options{Dialect: dialect, Workloads: []string{"single"}, Faults: []string{"truncate-rst"}, Profile: "official"}
			rules, worst := found(t, d.Name, o)
			if rules[d.Rule] == 0 || (dialect == "ticketing") != (rules["no-resend"] > 0) || worst != checker.Nonconforming {
				t.Errorf("%s in %s: %s, broken are %v", d.Name, dialect, worst, rules)
			}
			if rules, worst := found(t, "", o); len(rules) > 0 || worst != checker.Safe {
				t.Errorf("right in %s: %s, broken are %v", dialect, worst, rules)
			}
		}
	}
}
