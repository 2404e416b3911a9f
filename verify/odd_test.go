package verify

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"tornwire/checker"
	"tornwire/internal/wrongclient"
)

var (
	oddNames = flag.String("odd", "", "sweep these right but odd clients, comma-separated, or all of them, or right")
	oddSweep = flag.String("odd-sweep", SweepStandard, "with -odd: smoke, standard or full")
)

// TestOddSweep runs whole sweeps with clients that are odd and yet right
// (spec/rules.md, "Never a finding"): no finding at all. It takes about a minute a
// client and dialect; TestRightClients is the short form.
func TestOddSweep(t *testing.T) {
	if *oddNames == "" {
		t.Skip("needs -odd; .ci/slow runs it")
	}
	all := append([]string{"right"}, wrongclient.Odd()...)
	names := strings.Split(*oddNames, ",")
	if *oddNames == "all" {
		names = all
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			t.Fatalf("there is no odd client %q; there are %s", name, strings.Join(all, ", "))
		}
		for _, dialect := range []string{dialectCurrent, dialectV0} {
			t.Run(name+"/"+dialect, func(t *testing.T) {
				lib := strings.TrimPrefix(name, "right")
				r := runPlan(t, Options{
					Dialect: dialect, Sweep: *oddSweep, Profile: "official", Busy: checker.BusyFinal,
					Start: Library(wrong(t, lib)), Alone: asProcess(lib),
				})
				t.Logf("%+v, %d findings", r.Cases, len(r.Findings))
				if len(r.Findings) > 0 || r.Cases.Safe+r.Cases.Skipped+r.Cases.Inconclusive != r.Cases.Total {
					t.Errorf("not right: %s\n%s", r.Verdict, text(r))
				}
				for _, c := range r.Results {
					if c.Verdict == checker.Inconclusive {
						t.Logf("%s: %s", c.Case, c.Reason)
					}
				}
			})
		}
	}
}
