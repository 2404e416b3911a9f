package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// Limits of a measurement of the lease margin.
const (
	// MarginStep is how close the delays come between which the margin is found.
	MarginStep = time.Millisecond
	// MaxMarginLease is the longest lease with which it is measured: each probe takes as long.
	MaxMarginLease = time.Minute
	marginFar      = 250 * time.Millisecond // behind the end of the lease
	marginNear     = 20 * time.Millisecond
	marginKey      = "margin-1"
	// marginNoise is how much later than meant a grant may be given to a client, and how much
	// longer than at best it may take to tell of that: more stands for another delay.
	marginNoise = 8 * time.Millisecond
	marginTries = 8 // of a delay, of which some were noisy
)

// MarginOptions say how the lease margin is measured.
type MarginOptions struct {
	Dialect string        // "" for ticketing
	Start   Starter       // of the adapter
	Command []string      // of the adapter
	Wait    time.Duration // of the call, whole seconds; in ticketing-v0, where 0 waits for ever, from 1 s
	Lease   time.Duration // of the call, whole seconds from 1 s to MaxMarginLease
	Inside  time.Duration // how long the application stays inside; less than the lease
	Seed    uint64
	Version string
}

// MarginReport says how late a grant may reach a client before a second holder is let in
// beside it.
type MarginReport struct {
	Schema  int     `json:"schema"`
	Tool    string  `json:"tool"`
	Version string  `json:"version"`
	Dialect string  `json:"dialect"`
	Client  string  `json:"client"`
	WaitS   float64 `json:"wait_s"`
	LeaseS  float64 `json:"lease_s"`
	InsideS float64 `json:"inside_s"`
	// Refuses: a grant that comes after its lease is refused; there is no margin then.
	Refuses  bool          `json:"refuses"`
	MarginMS *int          `json:"margin_ms"` // the smallest delay that let a second holder in
	Probes   []MarginProbe `json:"probes"`
}

// MarginProbe is one call whose grant was delayed.
type MarginProbe struct {
	DelayMS int    `json:"delay_ms"`
	Outcome string `json:"outcome"` // of the call
	Raw     string `json:"raw"`
	Second  bool   `json:"second_holder"` // it was let in while the client was inside
	// BesideMS is how long both were, or, where they were not, how much earlier the client
	// had left: negative.
	BesideMS float64 `json:"beside_ms"`
}

// ErrNoMargin says that nothing could be measured.
var ErrNoMargin = errors.New("the lease margin cannot be measured")

// Line is the result in one line.
func (r *MarginReport) Line() string {
	if r.Refuses {
		return "refuses: a grant that comes after its lease has ended is not entered on"
	}
	return fmt.Sprintf("margin %d ms: with a grant that comes so late, a second holder is in beside the client", *r.MarginMS)
}

// Check fails, with a UsageError, where options are wrong.
func (o MarginOptions) Check() error {
	v0 := o.Dialect == dialectV0
	switch {
	case o.Lease < second || o.Lease > MaxMarginLease || o.Lease%second != 0:
		return usagef("--lease is %s, not whole seconds from 1s to %s", o.Lease, MaxMarginLease)
	case o.Wait < 0 || o.Wait > 255*second || o.Wait%second != 0:
		return usagef("--wait is %s, not whole seconds from 0s to 4m15s", o.Wait)
	case v0 && o.Wait == 0:
		return usagef("--wait is 0s, which waits for ever in %s", dialectV0)
	case o.Inside < 0 || o.Inside >= o.Lease:
		return usagef("--inside is %s, not from 0s to less than the lease", o.Inside)
	}
	limit := o.Wait
	if limit == 0 {
		limit = immediateLimit
	}
	if o.Lease+marginFar >= limit {
		return usagef("the call ends %s after it was made, before a grant can come %s behind its lease of %s: take a longer --wait or a shorter --lease",
			limit, marginFar, o.Lease)
	}
	return nil
}

// Margin measures the lease margin: by bisection, the smallest delay of the grant of a free
// key with which the client is still inside when the server has granted the key to the
// next. step is told of every probe, if it is not nil.
//
// The lease runs from the grant (spec/ticketing.md §2), so that a client which takes a
// grant for good whenever it comes has the lease as its margin, less the time that the
// application stays inside; one that counts the lease from its own send refuses
// (§3 clause 8). With a wait over 0 no client can know (§3.3).
func Margin(ctx context.Context, o MarginOptions, step func(MarginProbe)) (*MarginReport, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	p, err := NewPlan(Options{
		Dialect: o.Dialect, Workloads: []string{single.ID}, Faults: []string{NoFault}, Start: o.Start, Command: o.Command,
		Seed: o.Seed, Version: o.Version, Timeout: o.Wait + o.Lease + time.Minute,
	})
	if err != nil {
		return nil, err
	}
	m := &margin{
		o: o, p: p, pool: newAdapters(1, p.Start, p.Dialect), step: step,
		report: &MarginReport{
			Schema: 1, Tool: "tornwire", Version: o.Version, Dialect: p.Dialect, Probes: []MarginProbe{},
			WaitS: o.Wait.Seconds(), LeaseS: o.Lease.Seconds(), InsideS: o.Inside.Seconds(),
		},
	}
	m.pulse = newPulse(1, m.pool.strain)
	beats, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { m.pulse.run(beats) })
	err = m.measure(ctx)
	m.pool.close()
	cancel()
	wg.Wait()
	return m.report, err
}

// margin is a measurement under way.
type margin struct {
	o      MarginOptions
	p      *Plan
	pool   *adapters
	pulse  *pulse
	step   func(MarginProbe)
	report *MarginReport
	best   time.Duration // the shortest that the client took from a grant to its word; 0: none yet
}

// measure looks for a delay with which a second holder is in, and then for the smallest.
func (m *margin) measure(ctx context.Context) error {
	first, err := m.probe(ctx, 0)
	switch {
	case err != nil:
		return err
	case first.Outcome != history.OutcomeAcquired:
		return fmt.Errorf("%w: a free key is not acquired without any delay, but the call ends %s (%s)", ErrNoMargin, first.Outcome, first.Raw)
	case first.Second:
		return m.found(0)
	}
	end := m.o.Lease - m.o.Inside
	for _, hi := range []time.Duration{end + marginFar, end + marginNear} {
		far, err := m.probe(ctx, hi)
		if err != nil {
			return err
		}
		if far.Second {
			return m.bisect(ctx, 0, hi)
		}
	}
	m.report.Refuses = true
	return nil
}

// bisect narrows a delay with which nobody else is in, and one with which somebody is.
func (m *margin) bisect(ctx context.Context, lo, hi time.Duration) error {
	for hi-lo > MarginStep {
		mid := ((lo + hi) / 2).Round(MarginStep)
		at, err := m.probe(ctx, mid)
		if err != nil {
			return err
		}
		if at.Second {
			hi = mid
		} else {
			lo = mid
		}
	}
	return m.found(hi)
}

func (m *margin) found(d time.Duration) error {
	ms := int(d.Milliseconds())
	m.report.MarginMS = &ms
	return nil
}

// probe makes a call and delays its grant; what ran late is tried again.
func (m *margin) probe(ctx context.Context, delay time.Duration) (MarginProbe, error) {
	var late, broken int
	for {
		at, err := m.once(ctx, delay)
		switch {
		case err == nil:
			m.report.Probes = append(m.report.Probes, at)
			if m.step != nil {
				m.step(at)
			}
			return at, nil
		case ctx.Err() != nil:
			return at, context.Cause(ctx)
		case errors.Is(err, errLate) && late < marginTries:
			late++
			m.pulse.rest(ctx)
		case isFailure(err) && broken < adapterTries:
			broken++
		case Unreachable(err):
			return at, err
		default:
			return at, fmt.Errorf("%w: %w", ErrNoMargin, err)
		}
	}
}

func (m *margin) once(ctx context.Context, delay time.Duration) (MarginProbe, error) {
	at := MarginProbe{DelayMS: int(delay.Milliseconds())}
	conn, err := m.pool.get(ctx)
	if err != nil {
		return at, &unreachable{err}
	}
	defer m.pool.put(conn)
	m.report.Client = conn.info.Client
	if !conn.speaks(m.p.Dialect) {
		return at, fmt.Errorf("the adapter speaks %v, not %s", conn.info.Dialects, m.p.Dialect)
	}
	c := Case{ID: CaseID{Dialect: m.p.Dialect, Workload: marginWorkload.ID, Fault: NoFault}, Workload: marginWorkload}
	r, err := newCaseRun(ctx, c, conn, m.p.Seed, m.p.Timeout, nil)
	if err != nil {
		return at, fmt.Errorf("a probe cannot be set up: %w", err)
	}
	r.delayed(m.o, delay)
	cause := context.Cause(r.ctx)
	events := r.finish()
	switch {
	case isFailure(cause):
		return at, conn.explain(cause)
	case cause != nil:
		return at, cause
	case m.pulse.lateSince(r.began):
		return at, errLateTool
	case conn.lateSince(r.began):
		return at, errLateAdapter
	}
	if late, took := at.read(events); took > 0 {
		if late > delay+marginNoise {
			return at, errLateTool
		}
		if m.best == 0 || took < m.best {
			m.best = took
		}
		if took > m.best+marginNoise {
			return at, errLateAdapter
		}
	}
	return at, nil
}

// unreachable is an adapter that cannot be started.
type unreachable struct{ error }

// Unreachable tells whether an error is that of an adapter that cannot be started.
func Unreachable(err error) bool {
	var u *unreachable
	return errors.As(err, &u)
}

// marginWorkload is no workload that is swept: its fault is as long as the measurement
// needs it.
var marginWorkload = &Workload{ID: "margin"}

// delayed is a call whose grant comes late, while the next holder waits for the key.
func (r *caseRun) delayed(o MarginOptions, by time.Duration) {
	delay, _ := faults.ByID("delay")
	if by > 0 {
		err := r.px.Arm(faults.Rule{
			ID: marginKey, Fault: delay, Args: faults.Args{"by": by}, Times: 1,
			Trigger: faults.Trigger{Dir: frames.ServerToClient, Op: "A"},
		})
		if err != nil {
			r.fail(fmt.Errorf("the fault cannot be armed: %w", err))
			return
		}
	}
	if !r.open("c1") {
		return
	}
	c := r.acquire("c1", marginKey, o.Wait, o.Lease)
	asked := r.until(seenLimit, once(func(e history.Event) bool {
		return e.Kind == history.Granted && e.Key == marginKey || e.Kind == history.CallResult
	}))
	if asked { // else the next holder would come first
		defer r.srv.Wait(marginKey, o.Lease+time.Minute, time.Minute)()
	}
	if c.settle() {
		if !asked {
			r.fail(errLateAdapter)
			return
		}
		c.enter()
		if o.Inside > 0 {
			r.pause(o.Inside)
		}
		c.leave()
		c.release()
	}
	r.close("c1")
}

// read tells whether the next holder was let in before the client had left, and returns how
// late the client was given its grant, and how long it took to tell of that, 0 if it did not.
func (p *MarginProbe) read(events []history.Event) (late, took time.Duration) {
	var granted, over, left, got time.Duration // when it was; the lease was; the client; it was given the grant
	expired := false                           // before the client left
	for _, e := range events {
		switch {
		case e.Kind == history.WriteAccepted && e.Dir == frames.ServerToClient && e.Frame.Op == "A":
			got = e.At
		case e.Kind == history.CallResult:
			p.Outcome, p.Raw = e.Outcome, e.Raw
			if e.Outcome == history.OutcomeAcquired && got > 0 {
				late, took = got-granted, e.At-got
			}
		case e.Kind == history.Granted && over == 0:
			granted, over = e.At, e.At+e.Lease
		case e.Kind == history.Left:
			left = e.At
		case e.Kind == history.GrantEnded && e.How == history.Expired && left == 0:
			expired = true
		}
	}
	p.Second = expired && left > 0
	if left > 0 {
		p.BesideMS = float64((left - over).Microseconds()) / 1000
	}
	return late, took
}
