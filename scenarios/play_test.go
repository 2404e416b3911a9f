package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/internal/wrongclient"
	"tornwire/verify"
)

// inBubble runs a scenario in virtual time.
func inBubble(t *testing.T, s *Scenario, library func(verify.Inside) adapter.Library) (res *Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		profile := first(s.Profile, checker.ProfileOfficial)
		b, err := verify.NewBubble(verify.Options{Dialect: s.Dialect, Seed: s.Seed, Profile: profile, Busy: s.Busy, Cases: []string{s.Dialect + "/single/none"}}, synctest.Wait)
		if err != nil {
			t.Fatal(err)
		}
		if res, err = RunIn(t.Context(), b, s, false, library); err != nil {
			t.Fatal(err)
		}
	})
	return res
}

func rightIn(in verify.Inside) adapter.Library {
	return reference.WithDial(in.Dial, in.Seed)
}

func describe(res *Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, exit code %d: %s\n", res.Verdict, res.ExitCode, res.Reason)
	for _, f := range res.Findings {
		fmt.Fprintf(&b, "  %s %s %s: %s\n", f.Rule, f.Severity, f.Certainty, f.Message)
	}
	for _, m := range res.Expect {
		if !m.Met {
			fmt.Fprintf(&b, "  %d: %s: %s\n", m.Line, m.Expectation, m.Got)
		}
	}
	return b.String()
}

// TestLibrary: each scenario that is built in finds the reference client right, and the wrong
// client that was made for its clause wrong, by the rule of the clause.
func TestLibrary(t *testing.T) {
	wrong := map[string][2]string{
		"torn-grant":                  {"partial-is-acquired", "no-partial-frame"},
		"lost-grant":                  {"eof-is-timeout", "indeterminate-stays"},
		"no-second-send":              {"resend-same", "no-resend"},
		"one-attempt":                 {"resend-new-owner", "one-attempt"},
		"fresh-owner":                 {"owner-constant", "owner-fresh"},
		"late-connection":             {"wait-stale", "wait-recomputed"},
		"expired-unsent":              {"send-expired", "expired-unsent"},
		"silent-server":               {"deadline-keeps-session", "deadline-closes"},
		"late-grant":                  {"enter-late", "late-grant"},
		"final-timeout":               {"timeout-as-error", "timeout-final"},
		"final-busy":                  {"busy-as-timeout", "busy-final"},
		"immediate":                   {"zero-forever", "zero-is-immediate"},
		"stray-grant":                 {"key-only", "match-triple"},
		"unmatched-grant":             {"stray-ignored", "unmatched-closes"},
		"answers-out-of-order":        {"fifo-key", "no-fifo"},
		"moved":                       {"moved-keeps", "moved-closes"},
		"moved-to-a-stranger":         {"moved-anywhere", "moved-allowlist"},
		"leader-change-while-waiting": {"moved-as-reply", "moved-uncorrelated"},
		"leader-notice":               {"leader-as-reply", "leader-uncorrelated"},
		"no-leader":                   {"error-keeps", "error-closes"},
		"not-active":                  {"error-keeps", "error-closes"},
		"unknown-op":                  {"unknown-skipped", "unknown-fatal"},
		"cancelled":                   {"cancel-keeps-session", "cancel-closes"},
		"overlong":                    {"overlong-skipped", "framing-closes"},
		"exact-release":               {"wrong-token-released", "exact-token"},
		"lost-release":                {"close-is-release", "close-proves-nothing"},
		"expired-lease":               {"release-by-key", "release-own"},
	}
	for _, s := range Library() {
		t.Run(s.Name, func(t *testing.T) {
			if res := inBubble(t, s, rightIn); res.ExitCode != 0 || res.Verdict != checker.Safe {
				t.Errorf("the reference client: %s", describe(res))
			}
			w, ok := wrong[s.Name]
			if !ok {
				t.Fatal("there is no wrong client for it")
			}
			var res *Result
			found := false
			// Its owners are a random choice, and one with a newline in it acquits it now and then.
			for range 5 {
				res = inBubble(t, s, func(in verify.Inside) adapter.Library {
					lib, err := wrongclient.WithDial(w[0], in.Dial)
					if err != nil {
						panic(err)
					}
					return lib
				})
				for _, f := range res.Findings {
					found = found || f.Rule == w[1] && f.Certainty == checker.Certain
				}
				if found {
					break
				}
			}
			if !found || res.ExitCode != 1 {
				t.Errorf("%s is not found by %s: %s", w[0], w[1], describe(res))
			}
		})
	}
}
