package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
	"tornwire/history"
)

// counted counts how often an adapter is started.
func counted(s Starter) (Starter, *atomic.Int32) {
	n := new(atomic.Int32)
	return func() (transport, error) {
		n.Add(1)
		return s()
	}, n
}

// untilSane runs until the machine was not too busy for the first run without a
// fault; its cases may have been late.
func untilSane(t *testing.T, run func() *Report) *Report {
	t.Helper()
	for range busyTries {
		if r := run(); len(r.Results) > 0 || !wasBusy(r) {
			return r
		}
	}
	t.Fatal("the machine is too busy")
	return nil
}

// TestInterruptedRun: a run that is cancelled half-way leaves a report of what
// was over by then, and no verdict.
func TestInterruptedRun(t *testing.T) {
	t.Parallel()
	p := plan(t, Options{Workloads: []string{"single"}, Start: Library(referenceLibrary())})
	var told []Progress
	r := untilSane(t, func() *Report {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told = nil
		var mu sync.Mutex
		return Run(ctx, p, func(s Progress) {
			mu.Lock()
			defer mu.Unlock()
			if told = append(told, s); len(told) == 20 {
				cancel()
			}
		})
	})
	if r.Verdict != checker.Inconclusive || r.ExitCode != ExitInconclusive || !r.Interrupted || !strings.Contains(r.Reason, "stopped") {
		t.Errorf("%s with %d, interrupted %v, reason %q", r.Verdict, r.ExitCode, r.Interrupted, r.Reason)
	}
	if n := len(r.Results); n < 20 || n >= len(p.Cases) || n != len(told) || r.Cases.Total != len(p.Cases) {
		t.Errorf("%d results of %d cases, %d steps", n, r.Cases.Total, len(told))
	}
	for i, s := range told {
		if s.Total != len(p.Cases) || s.Done < 1 || s.Done > len(told) || s.Failed != 0 {
			t.Fatalf("step %d: %+v", i, s)
		}
	}
	if want := fmt.Sprintf("INCONCLUSIVE: %s of ", thousands(r.Cases.Total-len(r.Results)+r.Cases.Inconclusive)); !strings.HasPrefix(r.LastLine(), want) {
		t.Errorf("last line %q, want %q", r.LastLine(), want)
	}
}

// TestCancelledBeforeItBegan is a stop while the adapter starts.
func TestCancelledBeforeItBegan(t *testing.T) {
	p := plan(t, Options{Cases: []string{controlCase}, Start: Library(referenceLibrary())})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := Run(ctx, p, nil); r.Verdict != checker.Inconclusive || len(r.Results) > 0 {
		t.Errorf("%s with %d results", r.Verdict, len(r.Results))
	}
}

// TestFailFast stops at the first case that is not safe, and says so with 1.
func TestFailFast(t *testing.T) {
	t.Parallel()
	p := plan(t, Options{
		Workloads: []string{"single"}, Faults: []string{"truncate-fin"}, FailFast: true, Start: Library(wrong(t, "enters-anyway")),
	})
	r := untilSane(t, func() *Report { return Run(t.Context(), p, nil) })
	if r.Verdict != checker.Unsafe || r.ExitCode != ExitUnsafe || !r.Interrupted || len(r.Results) >= len(p.Cases) {
		t.Errorf("%s with %d, %d of %d cases:\n%s", r.Verdict, r.ExitCode, len(r.Results), len(p.Cases), text(r))
	}
}

// testRunner is what Run builds, for a look at single cases.
func testRunner(t *testing.T, p *Plan) *runner {
	t.Helper()
	r := &runner{p: p, started: time.Now(), report: newReport(p)}
	r.pool = newAdapters(1, p.Start, p.Dialect)
	r.pulse = newPulse(p.Parallel, r.pool.strain)
	r.policy = checker.Policy{Dialect: p.Dialect, SawTable: true, Embedded: true}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	var wg sync.WaitGroup
	wg.Go(func() { r.pulse.run(ctx) })
	t.Cleanup(func() {
		r.pool.close()
		cancel()
		wg.Wait()
	})
	return r
}

// TestUnfiredFault: a case whose fault never acts is tried four times and is
// then inconclusive, never safe.
func TestUnfiredFault(t *testing.T) {
	t.Parallel()
	p := plan(t, Options{Cases: []string{controlCase}, Start: Library(referenceLibrary())})
	r := testRunner(t, p)
	id, err := ParseCaseID("ticketing/single/s2c.N.1@1:truncate-fin") // a release of its own ticket is not refused
	if err != nil {
		t.Fatal(err)
	}
	for range busyTries {
		res := r.runNow(t.Context(), Case{ID: id, Workload: single, Frame: Expected{Frame: id.Frame, Size: 18}})
		if strings.Contains(res.Reason, "too busy") {
			continue
		}
		if res.Verdict != checker.Inconclusive || res.Fired || res.Repeated < unfiredTries || res.Reason != errUnfired.Error() {
			t.Errorf("%+v", res)
		}
		r.report.add(res)
		r.report.finish(0, 0)
		if r.report.Verdict != checker.Inconclusive || r.report.ExitCode != ExitInconclusive {
			t.Errorf("%s with %d", r.report.Verdict, r.report.ExitCode)
		}
		return
	}
	t.Fatal("the machine is too busy")
}

// TestCanFire: what the run without a fault says about a case.
func TestCanFire(t *testing.T) {
	p := plan(t, Options{Cases: cuts(dialectCurrent, "single", "s2c.A.1", []int{3}, "split")})
	c := p.Cases[0]
	for want, control := range map[checker.Verdict]CaseResult{
		checker.Safe:         {Verdict: checker.NonStrict, frames: map[FrameID]bool{c.ID.Frame: true}},
		checker.Skipped:      {Verdict: checker.Safe, frames: map[FrameID]bool{}},
		checker.Inconclusive: {Verdict: checker.Inconclusive, Reason: "the adapter exited"},
	} {
		if got, why := canFire(c, control); got != want || (why == "") != (want == checker.Safe) {
			t.Errorf("%+v: %s, %q", control, got, why)
		}
	}
	if got, why := canFire(c, CaseResult{Verdict: checker.Skipped, Reason: "no way"}); got != checker.Skipped || why != "no way" {
		t.Errorf("%s, %q", got, why)
	}
	ref := &history.FrameRef{Dir: c.ID.Frame.Dir, Op: c.ID.Frame.Op, Nth: c.ID.Frame.Nth}
	came := history.Event{Kind: history.Received, Session: 1, Dir: ref.Dir, Frame: ref}
	left := history.Event{Kind: history.EndSeen, Session: 1, Side: history.ClientSide}
	control := CaseResult{Case: Case{ID: CaseID{Dialect: dialectCurrent, Workload: "single", Fault: NoFault}, Workload: single}}
	for why, events := range map[string][]history.Event{
		"": {came, left},
		"in the run without a fault the client had ended its side of the connection (FIN or RST) before s2c.A.1 came": {left, came},
		"the client's run without a fault has no frame s2c.A.1":                                                       {left},
	} {
		control.read(events)
		if got, said := canFire(c, control); (got == checker.Safe) != (why == "") || said != why {
			t.Errorf("%s, %q, want %q", got, said, why)
		}
	}
}

// TestLatenessIsInconclusive: without pongs nobody can tell whether the client
// ran (P11).
func TestLatenessIsInconclusive(t *testing.T) {
	t.Parallel()
	p := plan(t, Options{Cases: []string{controlCase}, Start: command(t, "never-ping")})
	r := Run(t.Context(), p, nil)
	if !wasBusy(r) || r.Verdict != checker.Inconclusive || r.Cases.Repeated < lateTries || len(r.Findings) > 0 {
		t.Errorf("%s, %+v:\n%s", r.Verdict, r.Cases, text(r))
	}
}

// TestFullAdapterIsReplaced: a library that cannot close its clients gets a new
// process from time to time; no case is lost by it.
func TestFullAdapterIsReplaced(t *testing.T) {
	t.Parallel()
	lib := restricted{wrong(t, ""), func(i *adapter.Info) { i.Features = []string{"owner"} }}
	start, starts := counted(Library(lib))
	o := Options{Workloads: []string{"single", "immediate"}, Faults: []string{"split"}, Start: start}
	if n := len(plan(t, o).Cases); n <= opensPerAdapter {
		t.Fatalf("%d cases do not fill an adapter", n)
	}
	r := isSafe(t, o)
	if starts.Load() < 2 || r.Restarts != 0 || len(r.Results) != r.Cases.Total {
		t.Errorf("%d starts, %d of them after a failure, %d of %d cases", starts.Load(), r.Restarts, len(r.Results), r.Cases.Total)
	}
}

// TestPoolReplacesOnlyWhatCannotClose is that at the level of the pool: the old
// adapter ends when its last case has put it back.
func TestPoolReplacesOnlyWhatCannotClose(t *testing.T) {
	for _, feature := range []string{"owner", "close"} {
		lib := restricted{wrong(t, ""), func(i *adapter.Info) { i.Features = []string{feature} }}
		p := newAdapters(1, Library(lib), dialectCurrent)
		first, err := p.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range opensPerAdapter - 1 {
			first.opened()
		}
		if again, err := p.get(t.Context()); err != nil || again != first {
			t.Errorf("%s: replaced before it was full, %v", feature, err)
		}
		p.put(first)
		first.opened()
		second, err := p.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if (second != first) != (feature == "owner") {
			t.Errorf("%s: replaced %v", feature, second != first)
		}
		if first.isGone() {
			t.Errorf("%s: the old adapter has ended under a case", feature)
		}
		p.put(second)
		p.put(first)
		if second != first {
			<-first.gone
		}
		if p.restarts() != 0 {
			t.Errorf("%s: %d restarts", feature, p.restarts())
		}
		p.close()
	}
}

// TestKeptConnections are closed with their adapter, also when they are handed
// in afterwards.
func TestKeptConnections(t *testing.T) {
	p := newAdapters(1, Library(referenceLibrary()), dialectCurrent)
	c, err := p.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, after := &closeable{}, &closeable{}
	c.keep(before)
	if before.closed {
		t.Error("a kept connection is closed at once")
	}
	p.put(c)
	p.close()
	c.keep(after)
	if !before.closed || !after.closed {
		t.Errorf("after the adapter's end: kept before closed %v, kept after closed %v", before.closed, after.closed)
	}
}

// closeable is a connection that is only closed.
type closeable struct {
	net.Conn
	closed bool
}

func (c *closeable) Close() error {
	c.closed = true
	return nil
}

// TestRestartsHaveALimit: an adapter that fails again and again is given up.
func TestRestartsHaveALimit(t *testing.T) {
	start, starts := counted(Library(referenceLibrary()))
	p := newAdapters(1, start, dialectCurrent)
	defer p.close()
	for range maxRestarts + 1 {
		c, err := p.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.put(c)
		c.fail(&failure{reason: "it broke"})
	}
	for range 2 {
		_, err := p.get(t.Context())
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("failed %d times, the last time so: it broke", maxRestarts+1)) {
			t.Errorf("error %v", err)
		}
	}
	if n := starts.Load(); n != maxRestarts+1 || p.restarts() != maxRestarts {
		t.Errorf("%d starts, %d restarts", n, p.restarts())
	}
}

// TestRestartThatFails: no further start is tried.
func TestRestartThatFails(t *testing.T) {
	n := 0
	p := newAdapters(1, func() (transport, error) {
		if n++; n > 1 {
			return nil, errors.New("no memory")
		}
		return Library(referenceLibrary())()
	}, dialectCurrent)
	defer p.close()
	c, err := p.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.put(c)
	c.fail(&failure{reason: "it broke"})
	for range 2 {
		if _, err := p.get(t.Context()); err == nil || err.Error() != "no memory" {
			t.Errorf("error %v", err)
		}
	}
	if n != 2 {
		t.Errorf("%d starts", n)
	}
}
