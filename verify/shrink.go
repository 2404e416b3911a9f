package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tornwire/checker"
	"tornwire/history"
)

// Limits of a shrinking.
const (
	MaxShrinkRuns   = 2000
	shrinkRuns      = 600 // if nobody says
	MaxShrinkTime   = time.Hour
	shrinkTime      = 5 * time.Minute
	shrinkAtOnce    = 24 // cases in flight
	shrinkRounds    = 40 // of one kind of change
	shrinkConfirms  = 3  // runs of the case that is left
	shrinkBack      = 12 // cases that are confirmed in turn, if that does not succeed each time
	shrinkLate      = 2  // more runs of a case that was too late to judge
	maxShrinkStages = 3
)

// ShrinkOptions say what is kept of a case while it is made smaller. The zero value of a
// field means its default.
type ShrinkOptions struct {
	Rule string        // that must still be broken; "": the gravest that the case breaks
	Runs int           // at most so many, 1 to MaxShrinkRuns; 0: 600
	Time time.Duration // at most so long, 1 s to MaxShrinkTime; 0: 5 minutes
	// Right makes an adapter of a client that is right. A smaller case in which it breaks the
	// rule, too, tells nothing of the other, and is not taken; nil: that is not looked at.
	Right Starter
	// Step, if not nil, is told of each smaller case that still breaks the rule.
	Step func(Shrunk)
}

// Shrunk is a failing case that was made smaller.
type Shrunk struct {
	From, Case CaseID
	Client     string // as its adapter names it
	Finding    checker.Finding
	Events     []history.Event // of the run that gave Finding
	Calls      int             // that the client is asked for
	Faults     int             // 0 or 1
	Steps      int             // of the story
	FirstCalls int             // of the case that it came from
	FirstSteps int
	Runs       int
	// Found of Confirmed runs of the case broke the rule.
	Found, Confirmed int
	Stopped          string // why it was not made smaller still; "": it cannot be
	Replay           string // the command line that runs it
}

// ShrinkError says why a case cannot be shrunk.
type ShrinkError struct {
	msg string
	// Code is the exit code of it (spec/cli.md).
	Code int
}

func (e *ShrinkError) Error() string { return e.msg }

func unshrinkable(code int, format string, args ...any) error {
	return &ShrinkError{fmt.Sprintf(format, args...), code}
}

// Shrink reduces the only case of a plan to the fewest calls, faults and bytes that still
// break a rule for certain. It takes the story of the case from the record of a run,
// leaves out of it what it can, and runs what is left; every smaller case was run and
// judged as any other is. Errors are UsageErrors and ShrinkErrors.
func Shrink(ctx context.Context, p *Plan, o ShrinkOptions) (*Shrunk, error) {
	if err := o.check(p); err != nil {
		return nil, err
	}
	r := &runner{p: p, started: time.Now(), report: newReport(p), control: map[string]CaseResult{}, keep: true}
	r.pool = newAdapters(1, p.Start, p.Dialect)
	r.pulse = newPulse(p.Parallel, r.pool.strain)
	ctx, cancel := context.WithCancel(ctx)
	r.stop = cancel
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { r.pulse.run(ctx) })
	defer r.pool.close()
	conn, err := r.pool.get(ctx)
	if err != nil {
		return nil, unshrinkable(ExitUnreachable, "the adapter cannot be used: %s", err)
	}
	info := conn.info
	speaks := conn.speaks(p.Dialect)
	r.pool.put(conn)
	if !speaks {
		return nil, unshrinkable(ExitInconclusive, "the adapter speaks %v, not %s", info.Dialects, p.Dialect)
	}
	r.policy = checker.Policy{
		Dialect: p.Dialect, Profile: p.Profile, Outcomes: info.Outcomes, Busy: p.Busy, Grace: p.Grace, Tolerance: p.Tolerance,
		SawTable: true, Embedded: true,
	}
	s := &shrinker{runner: r, o: o, until: time.Now().Add(o.Time)}
	s.best.Client = info.Client
	return s.shrink(ctx, p.Cases[0])
}

func (o *ShrinkOptions) check(p *Plan) error {
	switch {
	case len(p.Cases) != 1:
		return usagef("one case is shrunk at a time, not %d", len(p.Cases))
	case p.Upstream != "":
		return usagef("a case is shrunk against the embedded server, not against an upstream")
	case o.Runs < 0 || o.Runs > MaxShrinkRuns:
		return usagef("%d runs are not 1 to %d", o.Runs, MaxShrinkRuns)
	case o.Time != 0 && (o.Time < second || o.Time > MaxShrinkTime):
		return usagef("%s is not 1s to %s", o.Time, MaxShrinkTime)
	}
	if rule, ok := checker.RuleByID(o.Rule); o.Rule != "" && (!ok || rule.Side != "client") {
		return usagef("there is no rule %q about clients; tornwire list rules shows them", o.Rule)
	}
	if o.Runs == 0 {
		o.Runs = shrinkRuns
	}
	if o.Time == 0 {
		o.Time = shrinkTime
	}
	return nil
}

// shrinker makes one case smaller.
type shrinker struct {
	*runner
	o     ShrinkOptions
	until time.Time
	best  Shrunk
	of    Case
	story story
	grave checker.Severity
	stack []accepted // the smaller ones last
	sure  bool       // the first case breaks the rule each time

	mu sync.Mutex // Runs
}

func (s *shrinker) shrink(ctx context.Context, c Case) (*Shrunk, error) {
	res := s.run1(ctx, c)
	f, ok := s.breaks(res)
	if !ok {
		return nil, s.notBroken(ctx, c, res)
	}
	s.o.Rule, s.grave = f.Rule, f.Severity
	s.best.From = c.ID
	_, told, err := storyByID(c.ID.Workload)
	tells := err == nil
	if !tells {
		told = derive(c, res.events)
	}
	s.accept(c, told, f, res.events)
	s.best.FirstCalls, s.best.FirstSteps = s.best.Calls, s.best.Steps
	s.hasty = true
	_, s.sure = s.breaks(s.run1(ctx, c))
	if tells || s.begin(ctx, c.ID, told) {
		s.reduce(ctx)
	} else if !s.spent() {
		s.best.Stopped = fmt.Sprintf("workload %s does more than a story of calls can tell", c.Workload.ID)
	}
	if ctx.Err() != nil {
		return nil, unshrinkable(ExitInconclusive, "stopped")
	}
	if s.best.Stopped == "" && s.spent() {
		s.best.Stopped = fmt.Sprintf("%d runs and %s were not enough", s.o.Runs, s.o.Time)
	}
	s.confirm(ctx)
	return &s.best, nil
}

// begin takes the first story that breaks the rule: that of the record, or one with fewer
// calls, if what was told of the others is not what they did.
func (s *shrinker) begin(ctx context.Context, id CaseID, told story) bool {
	var cases []Case
	var stories []story
	for _, t := range slices.Concat([]story{told}, told.fewerCalls()) {
		for _, id := range s.renumbered(t) {
			if c, ok := s.with(id, t); ok {
				cases, stories = append(cases, c), append(stories, t)
			}
		}
		if len(stories) == 1 && s.try(ctx, cases, stories) {
			return true
		}
	}
	return len(stories) > 1 && s.try(ctx, cases[1:], stories[1:])
}

// notBroken says what came of a case that does not break the rule.
func (s *shrinker) notBroken(ctx context.Context, c Case, res CaseResult) error {
	var others []string
	for _, f := range res.Findings {
		if f.Side == "client" && f.Certainty == checker.Certain && !slices.Contains(others, f.Rule) {
			others = append(others, f.Rule)
		}
	}
	switch {
	case ctx.Err() != nil:
		return unshrinkable(ExitInconclusive, "stopped")
	case len(others) > 0:
		return unshrinkable(ExitUsage, "%s does not break %s, but %s", c.ID, s.o.Rule, strings.Join(others, ", "))
	case res.Verdict == checker.Inconclusive || res.Verdict == checker.Skipped:
		return unshrinkable(ExitInconclusive, "%s is %s: %s", c.ID, res.Verdict, res.Reason)
	}
	return unshrinkable(ExitSafe, "%s is %s: there is nothing to shrink", c.ID, res.Verdict)
}

// reduce makes the case smaller until nothing more can be left out of it: first whole
// calls, then steps, then bytes, then values.
func (s *shrinker) reduce(ctx context.Context) {
	for range maxShrinkStages {
		before := s.best.Case
		s.again(ctx, func() []story { return s.story.fewerCalls() })
		s.again(ctx, func() []story { return s.story.fewerSteps() })
		s.faults(ctx)
		s.again(ctx, func() []story { return s.story.simpler() })
		s.keys(ctx)
		if s.best.Case == before {
			return
		}
	}
}

// again makes the story smaller as long as one of the stories given still breaks the rule.
func (s *shrinker) again(ctx context.Context, smaller func() []story) {
	for range shrinkRounds {
		var cases []Case
		var stories []story
		for _, t := range smaller() {
			for _, id := range s.renumbered(t) {
				if c, ok := s.with(id, t); ok {
					cases, stories = append(cases, c), append(stories, t)
				}
			}
		}
		if !s.try(ctx, cases, stories) {
			return
		}
	}
}

// renumbered lists the ids that a case can have with fewer calls: the frame that its
// fault acts on may then be an earlier one of its kind.
func (s *shrinker) renumbered(t story) []CaseID {
	ids := []CaseID{s.of.ID}
	switch {
	case t.calls() == s.story.calls():
		return ids
	case s.of.ID.Fault == NoFault && t.calls() == 2 && s.of.Workload.Own == nil:
		id := s.of.ID
		id.Frame, id.Fault = secondGreeting, "truncate-silence"
		return append(ids, id)
	case s.of.ID.Fault == NoFault:
		return ids
	}
	for n := 1; n < s.of.ID.Frame.Nth; n++ {
		id := s.of.ID
		id.Frame.Nth = n
		ids = append(ids, id)
	}
	return ids
}

func (s *shrinker) faults(ctx context.Context) {
	var cases []Case
	var stories []story
	for _, id := range s.of.smallerFaults() {
		if c, ok := s.with(id, s.story); ok {
			cases, stories = append(cases, c), append(stories, s.story)
		}
	}
	s.try(ctx, cases, stories)
}

func (s *shrinker) keys(ctx context.Context) {
	t, shorter := s.story.shortKeys()
	if slices.Equal(t, s.story) {
		return
	}
	ids := []CaseID{s.of.ID}
	if s.of.ID.Fault != NoFault && s.of.ID.Offset >= shorter {
		id := s.of.ID
		id.Offset -= shorter
		ids = append(ids, id)
	}
	var cases []Case
	var stories []story
	for _, id := range ids {
		if c, ok := s.with(id, t); ok {
			cases, stories = append(cases, c), append(stories, t)
		}
	}
	s.try(ctx, cases, stories)
}

// with is the case with another story.
func (s *shrinker) with(id CaseID, t story) (Case, bool) {
	parent := id.Workload
	if name, _, ok := splitStory(parent); ok {
		parent = name
	}
	w, ok := WorkloadByID(parent)
	if !ok || t.calls() == 0 {
		return Case{}, false
	}
	w = storyWorkload(w, t)
	id.Workload = w.ID
	c, err := storied(s.p.Grammar, id, w, t)
	return c, err == nil
}

// spent tells whether the limits are reached.
func (s *shrinker) spent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.best.Runs >= s.o.Runs || !time.Now().Before(s.until)
}

// try runs cases, many at once, and takes the first in their order that breaks the rule;
// what is behind it is not waited for.
func (s *shrinker) try(ctx context.Context, cases []Case, stories []story) bool {
	type done struct {
		i       int
		finding checker.Finding
		events  []history.Event
		broken  bool
	}
	ctx, cancel := context.WithDeadline(ctx, s.until)
	over := make(chan done, len(cases))
	room := make(chan struct{}, shrinkAtOnce)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for i, c := range cases {
			room <- struct{}{}
			if s.spent() || ctx.Err() != nil {
				over <- done{i: i}
				<-room
				continue
			}
			wg.Go(func() {
				res := s.run1(ctx, c)
				f, ok := s.breaks(res)
				if ok && s.sure { // and did not by chance, which the next changes would build on
					_, ok = s.breaks(s.run1(ctx, c))
				}
				over <- done{i, f, res.events, ok}
				<-room
			})
		}
	})
	state := make([]*done, len(cases))
	for range cases {
		d := <-over
		state[d.i] = &d
		for _, x := range state {
			if x == nil {
				break
			}
			if x.broken {
				s.accept(cases[x.i], stories[x.i], x.finding, x.events)
				return true
			}
		}
	}
	return false
}

func (s *shrinker) run1(ctx context.Context, c Case) CaseResult {
	for again := 0; ; again++ {
		s.mu.Lock()
		s.best.Runs++
		s.mu.Unlock()
		res := s.runNow(ctx, c)
		if !res.late || again == shrinkLate || s.spent() {
			return res
		}
		s.pulse.rest(ctx)
	}
}

// breaks finds what a run certainly shows of the rule, no less grave than at first.
func (s *shrinker) breaks(res CaseResult) (best checker.Finding, ok bool) {
	if res.Verdict == checker.Inconclusive || res.Verdict == checker.Skipped {
		return best, false
	}
	rank := []checker.Severity{checker.Safety, checker.Contract, checker.Hygiene}
	for _, f := range res.Findings {
		if f.Side != "client" || f.Certainty != checker.Certain || s.o.Rule != "" && f.Rule != s.o.Rule {
			continue
		}
		if s.grave != "" && slices.Index(rank, f.Severity) > slices.Index(rank, s.grave) {
			continue
		}
		if !ok || slices.Index(rank, f.Severity) < slices.Index(rank, best.Severity) {
			best, ok = f, true
		}
	}
	return best, ok
}

// accepted is a case that broke the rule when it was run.
type accepted struct {
	c      Case
	t      story
	f      checker.Finding
	events []history.Event
}

// accept takes a case for the smallest so far.
func (s *shrinker) accept(c Case, t story, f checker.Finding, events []history.Event) {
	s.stack = append(s.stack, accepted{c, t, f, events})
	s.set(c, t, f, events)
	if s.o.Step != nil {
		s.o.Step(s.best)
	}
}

func (s *shrinker) set(c Case, t story, f checker.Finding, events []history.Event) {
	s.of, s.story = c, t
	s.best.Case, s.best.Finding, s.best.Events, s.best.Replay = c.ID, f, events, s.p.replay(c.ID)
	s.best.Calls, s.best.Steps, s.best.Faults = t.calls(), len(t), 1
	if c.ID.Fault == NoFault {
		s.best.Faults = 0
	}
}

// confirm runs the case that is left again. One that does not break the rule each time
// gives way to the one before it, if that does.
func (s *shrinker) confirm(ctx context.Context) {
	best := len(s.stack) - 1
	most := -1
	for back := range min(shrinkBack, len(s.stack)) {
		at := len(s.stack) - 1 - back
		found := s.found(ctx, s.stack[at].c)
		if found > 0 && s.blamesAll(ctx, s.stack[at].c) {
			found = 0
			s.best.Stopped = "a right client breaks the rule in a smaller case, too"
		}
		if found > most {
			best, most = at, found
		}
		if found == shrinkConfirms || ctx.Err() != nil {
			break
		}
	}
	x := s.stack[best]
	s.set(x.c, x.t, x.f, x.events)
	s.best.Found, s.best.Confirmed = max(most, 0), shrinkConfirms
}

// blamesAll tells whether a right client breaks the rule in a case, too.
func (s *shrinker) blamesAll(ctx context.Context, c Case) bool {
	if s.o.Right == nil {
		return false
	}
	r := &runner{p: s.p, started: time.Now(), report: newReport(s.p), control: map[string]CaseResult{}, policy: s.policy, pulse: s.pulse, stop: s.stop}
	r.pool = newAdapters(1, s.o.Right, s.p.Dialect)
	defer r.pool.close()
	_, ok := s.breaks(r.runNow(ctx, c))
	return ok
}

// found counts the runs of a case that break the rule.
func (s *shrinker) found(ctx context.Context, c Case) int {
	var n atomic.Int32
	var wg sync.WaitGroup
	for range shrinkConfirms {
		wg.Go(func() {
			if _, ok := s.breaks(s.run1(ctx, c)); ok {
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return int(n.Load())
}
