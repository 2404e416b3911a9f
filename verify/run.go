package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tornwire/checker"
	"tornwire/frames"
	"tornwire/history"
)

// How often a case is tried again before it is inconclusive.
const (
	lateTries    = 3 // after being discarded for lateness (P11)
	unfiredTries = 3 // after its fault did not fire
	adapterTries = 1 // after the adapter failed under it
	// maxRestarts is how often the adapter is started again in one run.
	maxRestarts = 20
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
	notRun      bool            // the run was stopped before it was over
	events      []history.Event // only until they are recorded
	accepted    []string        // by finding: why the baseline accepts it; nil: it accepts none
	judged      *checker.Policy // by which it has its verdict; nil: Reason says why it has none
}

type outcome struct{ word, raw string }

// runner is a run under way.
type runner struct {
	p       *Plan
	pulse   *pulse
	pool    *adapterPool
	policy  checker.Policy
	staging *staging // nil in front of embedded servers
	started time.Time

	mu       sync.Mutex
	control  map[string]CaseResult // by workload: its run without a fault
	progress Progress
	onStep   func(Progress)
	report   *Report
	stop     context.CancelFunc
}

// Run runs a plan and returns its report; the report is complete also when ctx
// was cancelled half-way. onStep, if not nil, is told of every finished case.
func Run(ctx context.Context, p *Plan, onStep func(Progress)) *Report {
	r := &runner{p: p, started: time.Now(), onStep: onStep, report: newReport(p), control: map[string]CaseResult{}}
	r.pool = &adapterPool{start: p.Start, dialect: p.Dialect}
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
	r.policy = checker.Policy{
		Dialect: r.p.Dialect, Profile: r.p.Profile, Outcomes: conn.info.Outcomes, Only: r.p.only,
		Busy: r.p.Busy, Grace: r.p.Grace, Tolerance: r.p.Tolerance,
		SawTable: r.staging == nil, Embedded: r.staging == nil, ClosedWorld: r.p.ClosedWorld,
	}
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
	r.sweep(ctx, r.controls(ctx))
	if len(r.p.Options.Cases) == 0 {
		r.confirm(ctx)
	}
	if ctx.Err() == nil {
		r.sanity(ctx, whenLast)
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

// done puts a result into the report.
func (r *runner) done(res CaseResult) {
	if res.notRun {
		return
	}
	r.record(whenCase, &res)
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

var errNotRun = errors.New("the run was stopped before this case was over")

// runCase tries a case until it has a verdict. The caller has entered the pulse;
// each further try enters anew.
func (r *runner) runCase(ctx context.Context, c Case) CaseResult {
	var late, unfired, broken int
	for {
		t := r.try(ctx, c)
		r.pulse.leave()
		t.Repeated = late + unfired + broken
		switch {
		case t.err == nil:
			return t.CaseResult
		case errors.Is(t.err, errLate) && late < lateTries:
			late++
			r.pulse.rest(ctx)
		case errors.Is(t.err, errUnfired) && unfired < unfiredTries:
			unfired++
		case errors.Is(t.err, errUnfired) && slices.Contains(pairing, c.ID.Fault):
			t.Verdict, t.Reason = checker.Skipped, "no frame came behind it that it could be mixed with"
			return t.CaseResult
		case isFailure(t.err) && broken < adapterTries:
			broken++
		default:
			t.Verdict, t.Reason = checker.Inconclusive, t.err.Error()
			var u *errUnsupported
			var s *skipError
			if errors.As(t.err, &u) || errors.As(t.err, &s) {
				t.Verdict = checker.Skipped
			}
			t.notRun = errors.Is(t.err, errNotRun)
			return t.CaseResult
		}
		if !r.pulse.enter(ctx) {
			return CaseResult{Case: c, Verdict: checker.Inconclusive, Reason: errNotRun.Error(), notRun: true}
		}
	}
}

// runNow runs a case as soon as it may start.
func (r *runner) runNow(ctx context.Context, c Case) CaseResult {
	if !r.pulse.enter(ctx) {
		return CaseResult{Case: c, Verdict: checker.Inconclusive, Reason: errNotRun.Error(), notRun: true}
	}
	return r.runCase(ctx, c)
}

func isFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}

// canFire tells from the run without a fault whether a case's frame can occur:
// Safe means that it can.
func canFire(c Case, control CaseResult) (checker.Verdict, string) {
	switch {
	case control.Verdict == checker.Skipped:
		return checker.Skipped, control.Reason
	case control.frames == nil:
		return checker.Inconclusive, "the workload's run without a fault is inconclusive: " + control.Reason
	case !control.frames[c.ID.Frame]:
		if _, came := control.frames[c.ID.Frame]; came {
			return checker.Skipped, fmt.Sprintf("in the run without a fault the client had ended its side of the connection (FIN or RST) before %s came", c.ID.Frame)
		}
		return checker.Skipped, fmt.Sprintf("the client's run without a fault has no frame %s", c.ID.Frame)
	}
	return checker.Safe, ""
}

// pairing lists the faults that need a second frame on the heels of the first. A
// client that waits for each answer never gives them one.
var pairing = []string{"reorder", "splice"}

var (
	errLate        = errors.New("too late to judge, each time")
	errLateTool    = fmt.Errorf("%w: tornwire itself ran late by over 200 ms; the machine is too busy", errLate)
	errLateAdapter = fmt.Errorf("%w: the adapter's pong was over 200 ms late or did not come; it blocks, or the machine is too busy", errLate)
	errUnfired     = errors.New("the fault did not fire, although the frame is there without it")
)

// try is one try of a case; err is set if it has no verdict.
type try struct {
	CaseResult
	err error
}

// try runs a case once and judges it.
func (r *runner) try(ctx context.Context, c Case) try {
	t := try{CaseResult: CaseResult{Case: c}}
	conn, done, err := r.adapterFor(ctx, c)
	if err != nil {
		t.err = err
		if ctx.Err() != nil {
			t.err = errNotRun
		}
		return t
	}
	defer done()
	run, err := newCaseRun(ctx, c, conn, r.p.Seed, r.p.Timeout, r.staging)
	if err != nil {
		t.err = fmt.Errorf("the case cannot be set up: %w", err)
		return t
	}
	run.patience = r.policy.Patience()
	script := c.Workload.Run
	if c.ID.Fault == NoFault && c.Workload.Control != nil {
		script = c.Workload.Control
	}
	script(run)
	cause := context.Cause(run.ctx)
	events := run.finish()
	t.took = time.Since(run.began)
	if r.p.Record != nil {
		t.events = events
	}
	t.read(events)
	t.Fired = t.firedFor(r.controlOf(c.Workload)) && (refusesLater(c) == 0 || run.met.Load())
	switch {
	case ctx.Err() != nil || r.upstreamGone(ctx, events, cause, c.ID.Fault != NoFault && !t.Fired):
		t.err = errNotRun
	case isFailure(cause):
		t.err = conn.explain(cause)
	case cause != nil:
		t.err = cause
	case r.pulse.lateSince(run.began):
		t.err = errLateTool
	case conn.lateSince(run.began):
		t.err = errLateAdapter
	case run.rec.Full():
		t.err = fmt.Errorf("the case has over %d events", history.MaxEvents)
	case c.ID.Fault != NoFault && !t.Fired:
		t.err = errUnfired
	default:
		policy := policyOf(c.Workload, r.policy)
		policy.NoPong = !conn.hasPong()
		t.judge(events, policy)
	}
	return t
}

// unaccepted ends the case where a client is kept waiting for its connection: what it
// does meanwhile says nothing about it.
func (r *caseRun) unaccepted(e history.Event) {
	if e.Kind == history.AcceptFailed {
		r.fail(fmt.Errorf("the proxy cannot accept client %s: %s", e.Client, e.Detail))
	}
}

// judge asks the checker.
func (t *CaseResult) judge(events []history.Event, policy checker.Policy) {
	res := checker.Check(events, policy)
	t.Verdict, t.Checked, t.Findings = res.Verdict(), res.Checked, res.Findings
	t.Fencing, t.Fenced, t.judged = res.NeedsFencing, res.Fenced, &policy
	if len(res.Unknown) > 0 && (t.Verdict == checker.Safe || t.Verdict == checker.NonStrict) {
		t.Verdict = checker.Inconclusive
		t.Reason = fmt.Sprintf("whether the server was right about key %q is not known: the search for an order of the operations was given up", res.Unknown[0])
	}
	for _, f := range t.Findings {
		if f.Side != "server" || f.Certainty != checker.Certain {
			continue
		}
		if !policy.Embedded {
			t.Verdict = checker.Unsafe
			return
		}
		// The embedded server is ours: with it wrong, nothing is proved.
		t.Verdict = checker.Inconclusive
		t.Reason = fmt.Sprintf("the embedded server broke %s: this is a defect of tornwire", f.Rule)
		for i := range t.Findings {
			if t.Findings[i].Side == "client" {
				t.Findings[i].Certainty = checker.Suspect
			}
		}
		return
	}
}

// firedFor tells whether the fault acted: where a workload means it on every
// client, on each that gets the frame without it.
func (t *try) firedFor(control CaseResult) bool {
	for client := range control.reached {
		if !t.reached[client] {
			return false
		}
	}
	return t.Fired
}

// read takes from the events what the report needs besides the judgement.
func (t *CaseResult) read(events []history.Event) {
	t.Fired = slices.ContainsFunc(events, isFiring)
	t.views = viewsOf(t.Case.ID.Workload, events)
	seen := map[FrameID]bool{}
	own := map[FrameID]int{}
	open := map[int]bool{}
	gone := map[int]bool{} // sessions that the client has left
	client := map[int]string{}
	t.reached = map[string]bool{}
	for _, e := range events {
		switch {
		case e.Kind == history.SessionOpened:
			client[e.Session] = e.Client
			opened := FrameID{Session: e.Session, Dir: frames.ClientToServer, Op: opOpen, Nth: 1}
			seen[opened] = true
			if e.Session == 1 {
				opened.Session = 0
				seen[opened] = true
			}
		case e.Kind == history.Fired:
			t.reached[client[e.Session]] = true
		case e.Kind == history.EndSeen && e.Side == history.ClientSide:
			gone[e.Session] = true
		case e.Kind == history.CallAsked:
			open[e.Call] = true
		case e.Kind == history.Received && e.Off == 0 && e.Frame.Op != "" && gone[e.Session] && e.Dir == frames.ServerToClient:
			// A fault on it may find nobody, and is not tried; false says that it came.
			if f := (FrameID{Dir: e.Frame.Dir, Op: e.Frame.Op, Nth: e.Frame.Nth}); !seen[f] {
				seen[f] = false
			}
		case e.Kind == history.Received && e.Off == 0 && e.Frame.Op != "":
			f := FrameID{Dir: e.Frame.Dir, Op: e.Frame.Op}
			of := f
			of.Session = e.Session
			own[of]++
			f.Nth, of.Nth = e.Frame.Nth, own[of]
			seen[of] = true
			if t.Case.ID.Fault == NoFault && t.Case.Workload.holdsEach(f) {
				t.reached[client[e.Session]] = true
			}
			if f.inSession() == 0 || e.Session == 1 {
				seen[f] = true
			}
		case e.Kind == history.CallResult:
			delete(open, e.Call)
			t.Outcomes = append(t.Outcomes, outcome{e.Outcome, e.Raw})
			t.acquired = t.acquired || e.Outcome == history.OutcomeAcquired
		case e.Kind == history.ReleaseResult:
			t.released = t.released || e.Outcome == history.OutcomeReleased
		}
	}
	for range open {
		t.Outcomes = append(t.Outcomes, outcome{word: "none"}) // the adapter never said
	}
	if t.Case.ID.Fault == NoFault {
		t.frames = seen
	}
	if t.Case.Workload == sanity {
		t.sent, t.asked = renamed(t.Case.ID.Dialect, events)
	}
}

func outcomesText(list []outcome) string {
	if len(list) == 0 {
		return ": no call was answered"
	}
	s := ": its calls ended"
	for i, o := range list {
		if i > 0 {
			s += ","
		}
		s += " " + o.word
		if o.raw != "" {
			s += fmt.Sprintf(" (%s)", o.raw)
		}
	}
	return s
}
