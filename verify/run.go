package verify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tornwire/checker"
	"tornwire/history"
)

// Progress is how far a run has come.
type Progress struct {
	Done, Total int
	Failed      int // unsafe and nonconforming cases
}

// CaseResult is how a case ended.
type CaseResult struct {
	Case     Case
	Verdict  checker.Verdict
	Reason   string
	Fired    bool
	Repeated int
	Checked  []string
	Findings []checker.Finding
	Fencing  int
	Fenced   []string
	Outcomes []outcome
	views    views
	took     time.Duration
	frames   map[FrameID]bool // of a run without a fault: what it contained; false: for a client that had left
	// reached: the clients on whom the fault acted; in a run without one, those on
	// whom the workload's own would.
	reached  map[string]bool
	acquired bool
	released bool
	// sent is a key with more in it than asked, in a run without a fault at the ends of
	// a run; "" if there is none.
	sent, asked string
	notRun      bool // the run was stopped before it was over
	late        bool // it was too late to judge, each time
	// Transcript is what went over the wire, by session and direction, with times; only
	// where it is asked for.
	Transcript string
	events     []history.Event // only until they are recorded
	accepted   []string        // by finding: why the baseline accepts it; nil: it accepts none
	judged     *checker.Policy // by which it has its verdict; nil: Reason says why it has none
	runs       int             // of the case, of which this is the sum; 0: it is one
	shows      [][]int         // by finding: in which of the runs it was there, from 1
}

type outcome struct{ word, raw string }

// runner is a run under way.
type runner struct {
	p          *Plan
	pulse      *pulse
	pool       *adapters
	policy     checker.Policy
	staging    *staging // nil in front of embedded servers
	transcribe bool     // what went over the wire is told with each result
	started    time.Time
	watch      *stopwatch
	keep       bool // the histories, for who runs the cases
	hasty      bool // a case whose fault does not fire is not tried again

	mu       sync.Mutex
	control  map[string]CaseResult // by workload: its run without a fault
	runs     gather                // of cases that are run several times
	progress Progress
	onStep   func(Progress)
	report   *Report
	stop     context.CancelFunc
}

// Run runs a plan and returns its report; the report is complete also when ctx
// was cancelled half-way. onStep, if not nil, is told of every finished case.
func Run(ctx context.Context, p *Plan, onStep func(Progress)) *Report {
	r := &runner{p: p, started: time.Now(), watch: startWatch(), onStep: onStep, report: newReport(p), control: map[string]CaseResult{}, runs: gather{}}
	r.pool = newAdapters(p.Adapters, p.Start, p.Dialect)
	r.pulse = newPulse(p.Parallel, r.pool.strain)
	var cancel context.CancelFunc
	ctx, cancel = context.WithCancel(ctx)
	r.stop = cancel
	var wg sync.WaitGroup
	wg.Go(func() { r.pulse.run(ctx) })
	r.run(ctx)
	r.pool.close()
	cancel()
	wg.Wait()
	r.report.inFlight(r.pulse)
	r.report.Resources = r.watch.end(r.report.Results)
	r.report.finish(time.Since(r.started), r.pool.restarts())
	if err := p.Record.end(r.report.end()); err != nil {
		r.report.unrecorded(err)
		r.report.conclude()
	}
	return r.report
}

// run does the steps of a run; what goes wrong ends up in the report.
func (r *runner) run(ctx context.Context) {
	conn, err := r.pool.get(ctx)
	if err != nil {
		r.begin()
		r.report.unreachable(err)
		return
	}
	r.pool.put(conn)
	if r.p.Upstream != "" {
		r.staging = newStaging(r.p)
	}
	r.report.client(conn.info.Client)
	r.policy = policyFor(r.p, conn)
	r.begin()
	if r.staging != nil {
		if err := r.staging.reach(ctx); err != nil {
			r.report.unreachable(err)
			return
		}
	}
	if !conn.speaks(r.p.Dialect) {
		r.report.skipAll(fmt.Sprintf("the adapter speaks %v, not %s", conn.info.Dialects, r.p.Dialect))
		return
	}
	r.progress.Total = len(r.p.Cases)
	if len(r.p.Cases) == 0 {
		r.report.nothing()
		return
	}
	if !r.sanity(ctx, whenFirst) {
		return
	}
	r.watch.enter(phaseCases)
	r.sweep(ctx, r.controls(ctx))
	for _, res := range r.runs.rest(r.p) {
		r.count(res)
	}
	if len(r.p.Options.Cases) == 0 && r.p.Repeat < 2 {
		r.watch.enter("replays")
		r.confirm(ctx)
	}
	if ctx.Err() == nil {
		r.watch.enter("last")
		r.sanity(ctx, whenLast)
	}
}

// policyFor is by what the cases of a plan are judged with an adapter.
func policyFor(p *Plan, conn *adapterConn) checker.Policy {
	embedded := p.Upstream == ""
	return checker.Policy{
		Dialect: p.Dialect, Profile: p.Profile, Outcomes: conn.info.Outcomes, Only: p.only,
		Busy: p.Busy, Grace: p.Grace, Tolerance: p.Tolerance,
		SawTable: embedded, Embedded: embedded, ClosedWorld: p.ClosedWorld,
	}
}

// sanity runs the fault-free case that opens and closes a run.
func (r *runner) sanity(ctx context.Context, when string) bool {
	res := r.runNow(ctx, Case{ID: CaseID{Dialect: r.p.Dialect, Workload: sanity.ID, Fault: NoFault}, Workload: sanity})
	res.sane()
	if res.Verdict == checker.Inconclusive && !res.notRun && r.upstreamGone(ctx, nil, nil, true) {
		return false
	}
	r.record(when, &res)
	r.report.sanity(when, res)
	if res.Verdict == checker.Skipped && when == whenFirst {
		r.report.skipAll(res.Reason)
	}
	return res.Verdict != checker.Inconclusive && res.Verdict != checker.Skipped
}

// begin begins the record, if there is one; a record that cannot be written ends
// the run.
func (r *runner) begin() {
	m := manifest{
		Schema: recordSchema, Tool: "tornwire", Version: r.p.Version, Client: r.report.Client, Sweep: r.p.Sweep, Seed: r.p.Seed,
		Strict: r.p.Strict, Command: r.p.Command, Policy: r.policy, Limit: r.p.descriptors, Baseline: r.p.Baseline,
		Upstream: r.p.Upstream, SecretFile: r.p.SecretFile, KeyPrefix: r.p.KeyPrefix,
		Workloads: r.p.Workloads, Faults: r.p.Faults, Rules: r.p.Rules, Named: r.p.Options.Cases, Shard: r.p.Shard, Whole: r.p.whole, Repeat: r.p.Repeat, Timeout: r.p.Timeout,
	}
	if m.Policy.Dialect == "" {
		m.Policy = checker.Policy{
			Dialect: r.p.Dialect, Profile: r.p.Profile, Busy: r.p.Busy, Grace: r.p.Grace, Tolerance: r.p.Tolerance, ClosedWorld: r.p.ClosedWorld,
		}
	}
	if m.Baseline != nil && m.Baseline.Today.IsZero() {
		dated := *m.Baseline
		dated.Today = r.started.UTC()
		m.Baseline = &dated
	}
	for _, c := range r.p.Cases {
		m.Cases = append(m.Cases, c.ID.String())
	}
	r.p.Record.begin(m, func(err error) {
		r.report.unrecorded(err)
		r.stop()
	})
}

// record records a run of a case, and forgets its history.
func (r *runner) record(when string, res *CaseResult) {
	if !res.notRun {
		r.p.Record.add(when, *res)
	}
	res.events = nil
}

// done records a run of a case, and puts the case into the report when that was its last.
func (r *runner) done(res CaseResult) {
	if res.notRun {
		return
	}
	r.record(whenCase, &res)
	if res.Case.rep > 0 {
		r.mu.Lock()
		all, last := r.runs.add(res, r.p.Repeat)
		r.mu.Unlock()
		if !last {
			return
		}
		res = all
	}
	r.count(res)
}

// count puts a case into the report.
func (r *runner) count(res CaseResult) {
	verdict := r.report.add(res)
	r.mu.Lock()
	r.progress.Done++
	bad := verdict == checker.Unsafe || verdict == checker.Nonconforming
	if bad {
		r.progress.Failed++
	}
	p := r.progress
	r.mu.Unlock()
	if bad && r.p.FailFast {
		r.stop()
	}
	if r.onStep != nil {
		r.onStep(p)
	}
}
