package verify

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
	"tornwire/faults"
	"tornwire/frames"
)

func plan(t *testing.T, o Options) *Plan {
	t.Helper()
	p, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ids(p *Plan) []string {
	var out []string
	for _, c := range p.Cases {
		out = append(out, c.ID.String())
	}
	return out
}

// swath is what the golden list says of one frame of a workload.
type swath struct {
	dialect, workload, frame string
	size                     int
}

// goldenFrames reads testdata/frames.golden: the frames of every workload with
// their sizes, counted by hand from spec/ticketing.md §1.
func goldenFrames(t *testing.T) []swath {
	t.Helper()
	f, err := os.Open("testdata/frames.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []swath
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var s swath
		line := strings.Fields(sc.Text())
		if len(line) != 4 {
			t.Fatalf("line %q", sc.Text())
		}
		s.dialect, s.workload, s.frame = line[0], line[1], line[2]
		if _, err := fmt.Sscan(line[3], &s.size); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// TestEveryOffsetIsSwept holds the list of cases to the golden frames: truncate
// at every offset of every frame, its end included, and split inside it; and
// these ids have not changed (spec/cli.md: ids are stable).
func TestEveryOffsetIsSwept(t *testing.T) {
	for _, dialect := range frames.Names() {
		var want []string
		for _, s := range goldenFrames(t) {
			if s.dialect != dialect {
				continue
			}
			for _, f := range each[:3] {
				for k := range s.size + 1 {
					want = append(want, fmt.Sprintf("%s/%s/%s@%d:%s", dialect, s.workload, s.frame, k, f))
				}
			}
			for k := 1; k < s.size; k++ {
				want = append(want, fmt.Sprintf("%s/%s/%s@%d:split", dialect, s.workload, s.frame, k))
			}
		}
		got := ids(plan(t, Options{
			Dialect: dialect, Workloads: []string{"single", "immediate", "expired", "contended", "timeout", "busy", "pipelined", "half-close", "keep-alive"},
			Faults: each,
		}))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d cases, want %d; missing %.3q, unexpected %.3q", dialect, len(got), len(want), minus(want, got), minus(got, want))
		}
	}
}

// minus lists what is in a and not in b.
func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// TestListIsUniqueAndComplete: no id twice, every id can be read back and picked,
// every workload has its run without a fault.
func TestListIsUniqueAndComplete(t *testing.T) {
	t.Parallel()
	for _, dialect := range frames.Names() {
		p := plan(t, Options{Dialect: dialect})
		list := ids(p)
		if again := ids(plan(t, Options{Dialect: dialect})); !slices.Equal(list, again) {
			t.Errorf("%s: two lists differ", dialect)
		}
		seen := map[string]bool{}
		for i, s := range list {
			if seen[s] {
				t.Errorf("%s is there twice", s)
			}
			seen[s] = true
			if id, err := ParseCaseID(s); err != nil || id != p.Cases[i].ID {
				t.Errorf("%s is read as %+v, %v", s, id, err)
			}
			if id := p.Cases[i].ID; id.Fault != NoFault && id.Frame.Op != opOpen && p.Cases[i].Frame.Size == 0 {
				t.Errorf("%s has a frame of unknown size", s)
			}
		}
		for _, w := range Workloads() {
			if none := dialect + "/" + w.ID + "/none"; seen[none] != w.Knows(dialect) {
				t.Errorf("%s is there: %v", none, seen[none])
			}
		}
		if picked := ids(plan(t, Options{Cases: list})); !slices.Equal(picked, list) {
			t.Errorf("%s: picking all gives %d of %d", dialect, len(picked), len(list))
		}
	}
}

// TestEveryIDCanFire: the rule of each case would act on its frame and on no
// other of its exchange.
func TestEveryIDCanFire(t *testing.T) {
	t.Parallel()
	for _, dialect := range frames.Names() {
		for _, c := range plan(t, Options{Dialect: dialect}).Cases {
			rules, err := rulesOf(c, frames.MustBuiltin(dialect))
			if err != nil {
				t.Fatalf("%s: %v", c.ID, err)
			}
			if c.ID.Fault == NoFault || c.Workload.EachSession || c.Workload.Own != nil && c.Workload.Own.Payload != nil {
				continue // the last arm their rule when the request has come that it is about
			}
			var hit []string
			session, nth, own := 0, map[string]int{}, map[string]int{}
			client, clientNth := "", 0
			for _, x := range c.Workload.Exchange(frames.MustBuiltin(dialect)) {
				if x.Frame.Op == opOpen {
					session++
					own = map[string]int{}
					client, clientNth = x.Client, x.ClientNth
				}
				k := x.Frame.Dir.String() + x.Frame.Op
				nth[k]++
				own[k]++
				f := faults.Frame{Dir: x.Frame.Dir, Op: x.Frame.Op, Session: session, Nth: nth[k], SessionNth: own[k]}
				if x.Frame.Op == opOpen {
					f.Client, f.ClientNth = client, clientNth
				}
				if slices.ContainsFunc(rules.Rules(), func(r *faults.Rule) bool { return r.Trigger.Applies(f) }) {
					hit = append(hit, x.Frame.String())
				}
			}
			if !slices.Equal(hit, []string{c.ID.Frame.String()}) {
				t.Fatalf("%s acts on %v", c.ID, hit)
			}
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	count := func(o Options) int { return len(plan(t, o).Cases) }
	all := count(Options{})
	if n := count(Options{Workloads: []string{"all"}, Faults: []string{"all"}, Rules: []string{"all"}}); n != all {
		t.Errorf("all words: %d of %d cases", n, all)
	}
	sum := 0
	for _, w := range Workloads() {
		sum += count(Options{Workloads: []string{w.ID}})
	}
	if sum != all {
		t.Errorf("the workloads add up to %d of %d cases", sum, all)
	}
	family := ids(plan(t, Options{Workloads: []string{"single"}, Faults: []string{"truncate"}}))
	var each []string
	for _, f := range faults.Select("truncate") {
		each = append(each, f.ID)
	}
	if one := ids(plan(t, Options{Workloads: []string{"single"}, Faults: each})); !slices.Equal(family, one) || len(each) < 3 {
		t.Errorf("the family has %d cases, its faults %v have %d", len(family), each, len(one))
	}
	if got := ids(plan(t, Options{Workloads: []string{"single", "expired"}, Faults: []string{NoFault}})); !slices.Equal(got, []string{
		"ticketing/single/none", "ticketing/expired/none",
	}) {
		t.Errorf("without a fault: %v", got)
	}
	if n := count(Options{Dialect: dialectV0, Workloads: []string{"immediate"}}); n != 0 {
		t.Errorf("a workload that the dialect does not have: %d cases", n)
	}
	p := plan(t, Options{Rules: []string{"settles", "one-attempt"}})
	if len(p.only) != 2 || !p.only["settles"] || len(p.Cases) != all {
		t.Errorf("rules %v, %d cases", p.only, len(p.Cases))
	}
	if r := newReport(p); len(r.rules) != 2 {
		t.Errorf("the report counts %d rules", len(r.rules))
	}
}

func TestCasesAsNamed(t *testing.T) {
	a, b := "ticketing-v0/single/s2c.A.1@3:split", "ticketing-v0/single/none"
	p := plan(t, Options{Cases: []string{a, b, a}})
	if !slices.Equal(ids(p), []string{a, b}) || p.Dialect != dialectV0 {
		t.Errorf("%v of dialect %s", ids(p), p.Dialect)
	}
	if p.Cases[0].Frame.Size != 18 || p.Cases[0].Workload != single {
		t.Errorf("%+v", p.Cases[0])
	}
}

// TestWrongOptions: every mistake is one line that names it and, where there is
// one, the nearest right word.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	one := func(s ...string) []string { return s }
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Dialect: "tiketing"}, `there is no dialect "tiketing"; did you mean ticketing?`},
		{Options{Dialect: "smtp-esmtp"}, `there is no dialect "smtp-esmtp"`},
		{Options{Workloads: one("singel")}, `there is no workload "singel"; did you mean single?; tornwire list workloads shows them`},
		{Options{Workloads: one("sanity")}, `there is no workload "sanity"`},
		{Options{Workloads: one("single", "")}, `there is no workload ""`},
		{Options{Faults: one("trunkate")}, `there is no fault "trunkate"; did you mean truncate?`},
		{Options{Faults: one("Split")}, `there is no fault "Split"; did you mean split?`},
		{Options{Rules: one("no-resent")}, `there is no rule "no-resent"; did you mean no-resend?`},
		{Options{Profile: "offical"}, `there is no profile "offical"; did you mean official?`},
		{Options{Sweep: "smok"}, `there is no sweep "smok"; did you mean smoke?; sweeps are smoke, standard, full`},
		{Options{Busy: "finale"}, `there is no --busy "finale"; did you mean final?; it is unsettled, final, retry`},
		{Options{Grace: patience(-time.Millisecond)}, "--grace is -1ms, not 0s to 1m0s"},
		{Options{Grace: patience(MaxPatience + 1)}, "not 0s to 1m0s"},
		{Options{Tolerance: patience(-1)}, "--tolerance is -1ns, not 0s to 1m0s"},
		{Options{Tolerance: patience(time.Hour)}, "--tolerance is 1h0m0s, not 0s to 1m0s"},
		{Options{Parallel: -1}, "--parallel is -1, not 1 to 4096"},
		{Options{Parallel: MaxParallel + 1}, "--parallel is 4097, not 1 to 4096"},
		{Options{Timeout: time.Second - 1}, "--timeout is 999.999999ms, not 1s to 1h"},
		{Options{Timeout: time.Hour + 1}, "not 1s to 1h"},
		{Options{Cases: one("ticketing/single")}, `case id "ticketing/single" is not of the form`},
		{Options{Cases: one("ticketing/singel/none")}, `there is no workload "singel"; did you mean ticketing/single/none?`},
		{Options{Cases: one("tiketing/single/none")}, `there is no dialect "tiketing"; did you mean ticketing?`},
		{Options{Cases: one("ticketing-v0/immediate/none")}, "workload immediate is not part of dialect ticketing-v0"},
		{Options{Cases: one("ticketing/single/s2c.A.1@3:splat")}, `there is no fault "splat"; did you mean ticketing/single/s2c.A.1@3:split?`},
		{Options{Cases: one("ticketing/single/s2c.A.2@3:split")}, "workload single has no frame s2c.A.2"},
		{Options{Cases: one("ticketing/single/s2.s2c.A.1@3:split")}, "workload single has no frame s2.s2c.A.1"},
		{Options{Cases: one("ticketing/single/s2c.A.1@26:split")}, "s2c.A.1 has 26 bytes, and split at 26 is not swept there"},
		{Options{Cases: one("ticketing/single/s2c.A.1@0:split")}, "split at 0 is not swept there"},
		{Options{Cases: one("ticketing/single/s2c.A.1@27:truncate-fin")}, "truncate-fin at 27 is not swept there"},
		{Options{Cases: one("ticketing/late-reply/s2c.A.1@3:split")}, "s2c.A.1 has 24 bytes, and split at 3 is not swept there"},
		{Options{Cases: one("ticketing/single/none", "ticketing-v0/single/none")}, "one run has one dialect"},
		{Options{Dialect: dialectV0, Cases: one("ticketing/single/none")}, "is of dialect ticketing, but this run is of ticketing-v0"},
		{Options{Workloads: one("expired"), Cases: one("ticketing/single/none")}, "is not among the workloads and faults that --workload and --fault select"},
		{Options{Faults: one("truncate"), Cases: one("ticketing/single/s2c.A.1@3:split")}, "is not among the workloads and faults"},
	} {
		_, err := NewPlan(c.o)
		var usage *UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%+v: error %v", c.o, err)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q, want one line with %q", err, c.want)
		}
	}
}

func patience(d time.Duration) *time.Duration { return &d }

func TestDefaults(t *testing.T) {
	plan(t, Options{Grace: patience(0), Tolerance: patience(MaxPatience)})
	p := plan(t, Options{})
	if p.Dialect != dialectCurrent || p.Profile != checker.ProfileAny || p.Timeout != DefaultTimeout || p.only != nil {
		t.Errorf("%+v", p.Options)
	}
	if p.Parallel < 1 || p.Parallel > MaxParallel {
		t.Errorf("%d in flight", p.Parallel)
	}
	for _, n := range []int{1, MaxParallel} {
		if p := plan(t, Options{Parallel: n, Timeout: time.Hour}); p.Parallel != n || p.Timeout != time.Hour {
			t.Errorf("%+v", p.Options)
		}
	}
}

// TestSweeps: each sweep is a part of the next; standard has every fault but the
// byzantine ones, and those come when they are named.
func TestSweeps(t *testing.T) {
	t.Parallel()
	for _, dialect := range frames.Names() {
		smoke, standard, full := ids(plan(t, Options{Dialect: dialect, Sweep: SweepSmoke})), ids(plan(t, Options{Dialect: dialect})), ids(plan(t, Options{Dialect: dialect, Sweep: SweepFull}))
		if extra := minus(smoke, standard); len(extra) > 0 || len(smoke) < 50 || len(smoke) > len(standard)/5 {
			t.Errorf("%s: smoke has %d of %d cases; not in standard: %.5q", dialect, len(smoke), len(standard), extra)
		}
		if extra := minus(standard, full); len(extra) > 0 || len(full) <= len(standard) {
			t.Errorf("%s: standard has %d of %d cases; not in full: %.5q", dialect, len(standard), len(full), extra)
		}
		count := map[string]int{}
		for _, c := range plan(t, Options{Dialect: dialect}).Cases {
			count[c.ID.Fault]++
		}
		for _, f := range faults.All() {
			has := count[f.ID] > 0
			notice := f.ID == "inject-notice" && dialect == dialectV0 // there is none in it
			if want := f.Class != faults.Byzantine && !notice; has != want {
				t.Errorf("%s: the standard sweep has %d cases of %s", dialect, count[f.ID], f.ID)
			}
			if named := plan(t, Options{Dialect: dialect, Faults: []string{f.ID}}).Cases; len(named) == 0 && !notice {
				t.Errorf("%s: --fault %s selects nothing", dialect, f.ID)
			}
		}
		if n := len(plan(t, Options{Dialect: dialect, Faults: []string{"byzantine"}}).Cases); n == 0 {
			t.Errorf("%s: --fault byzantine selects nothing", dialect)
		}
	}
}
