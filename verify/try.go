package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		case errors.Is(t.err, errUnfired) && unfired < unfiredTries && !r.hasty:
			unfired++
		case isFailure(t.err) && broken < adapterTries:
			broken++
		default:
			t.unjudged()
			return t.CaseResult
		}
		if !r.pulse.enter(ctx) {
			return CaseResult{Case: c, Verdict: checker.Inconclusive, Reason: errNotRun.Error(), notRun: true}
		}
	}
}

// unjudged gives the last try of a case its verdict, if it has none.
func (t *try) unjudged() {
	var u *errUnsupported
	var s *skipError
	switch {
	case t.err == nil:
		return
	case errors.Is(t.err, errUnfired) && slices.Contains(pairing, t.Case.ID.Fault):
		t.Verdict, t.Reason = checker.Skipped, "no frame came behind it that it could be mixed with"
		return
	case errors.As(t.err, &u) || errors.As(t.err, &s):
		t.Verdict = checker.Skipped
	default:
		t.Verdict = checker.Inconclusive
	}
	t.Reason = t.err.Error()
	t.notRun = errors.Is(t.err, errNotRun)
	t.late = errors.Is(t.err, errLate)
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
	if r.p.Record != nil || r.keep || c.Workload.play != nil {
		t.events = events
	}
	if r.transcribe {
		t.Transcript = transcript(events)
	}
	t.read(events)
	if conn.inside == nil { // a report counts them
		t.views = viewsOf(c.ID.Workload, events)
	}
	t.Fired = t.firedFor(r.controlOf(c.Workload)) && (refusesLater(c) == 0 || run.met.Load())
	switch {
	case ctx.Err() != nil || r.upstreamGone(ctx, events, cause, c.ID.Fault != NoFault && !t.Fired):
		t.err = errNotRun
	case isFailure(cause):
		t.err = conn.explain(cause)
	case cause != nil:
		t.err = cause
	case r.pulse != nil && r.pulse.lateSince(run.began):
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
