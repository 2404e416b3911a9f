package verify

import (
	"context"
	"fmt"
	"time"

	"tornwire/checker"
	"tornwire/faults"
)

// Told is a case that can be told as a story: what the application asked for in a run of it,
// and the rules that tore its frames.
type Told struct {
	Case     Case
	Steps    []ToldStep
	Rules    []*faults.Rule
	Broken   []string // rules that were certainly broken in the run
	Verdict  checker.Verdict
	Dialect  string
	Tokens   uint64 // the first that the server gives; 0: its default
	Queue    int    // limit of the server; 0: its default
	Sentence string // of the workload
}

// ToldStep is a step of a story; Word is one of those in a case id with a story.
type ToldStep struct {
	Word        string
	Call        int
	Client, Key string
	Wait, Lease time.Duration // of pause: Wait
}

// Tell runs the only case of the options once, and takes its story from the record. The
// error says what of the case no story can tell.
func Tell(ctx context.Context, o Options) (*Told, error) {
	p, err := NewPlan(o)
	if err != nil {
		return nil, err
	}
	if len(p.Cases) != 1 {
		return nil, usagef("one case is told at a time, not %d", len(p.Cases))
	}
	c := p.Cases[0]
	if why := untold(c.Workload); why != "" {
		return nil, usagef("%s cannot be told as a scenario: %s", c.ID, why)
	}
	rules, err := rulesOf(c, p.Grammar)
	if err != nil {
		return nil, err
	}
	r, end, err := alone(ctx, p)
	if err != nil {
		return nil, err
	}
	defer end()
	res := r.runNow(r.ctx, c)
	if res.Verdict == checker.Inconclusive || res.Verdict == checker.Skipped {
		return nil, unshrinkable(ExitInconclusive, "%s is %s: %s", c.ID, res.Verdict, res.Reason)
	}
	w := c.Workload
	t := &Told{
		Case: c, Broken: certainRules(res.Findings), Verdict: res.Verdict, Dialect: c.ID.Dialect, Tokens: w.FirstToken, Queue: w.QueueLimit,
		Sentence: w.Sentence, Rules: rules.Rules(),
	}
	told, ok := storyOf(c, res)
	if !ok {
		return nil, usagef("%s cannot be told as a scenario: nothing was asked for in it", c.ID)
	}
	for _, s := range told {
		t.Steps = append(t.Steps, ToldStep{Word: string(s.kind), Call: s.call, Client: s.client, Key: s.key, Wait: s.wait, Lease: s.lease})
	}
	return t, nil
}

// storyOf is the story in the id of a case, or that of a run of it.
func storyOf(c Case, res CaseResult) (story, bool) {
	if _, told, err := storyByID(c.ID.Workload); err == nil {
		return told, true
	}
	told := derive(c, res.events)
	return told, told.calls() > 0
}

// untold is what a workload does that no story tells.
func untold(w *Workload) string {
	switch {
	case w.Stub != nil:
		return "a scripted server stands in front of it"
	case w.Nodes > 0:
		return "its leader changes"
	case w.Alone:
		return "its client is stopped"
	case w.Probe:
		return "there is no client in it"
	case w.Own != nil && w.Own.Payload != nil:
		return "what is injected names a request of the run"
	}
	return ""
}

// lone is a runner of single cases, which keeps their histories.
type lone struct {
	*runner
	ctx context.Context
}

// alone makes a runner for cases that are run one by one, with an adapter of its own. The
// function returned ends it.
func alone(ctx context.Context, p *Plan) (*lone, func(), error) {
	r := &runner{p: p, started: time.Now(), report: newReport(p), control: map[string]CaseResult{}, keep: true}
	r.pool = newAdapters(1, p.Start, p.Dialect)
	r.pulse = newPulse(max(p.Parallel, 1), r.pool.strain)
	ctx, cancel := context.WithCancel(ctx)
	r.stop = cancel
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		r.pulse.run(ctx)
	}()
	end := func() {
		r.pool.close()
		cancel()
		<-beating
	}
	conn, err := r.pool.get(ctx)
	if err != nil {
		end()
		return nil, nil, &unreachable{err}
	}
	r.policy = policyFor(p, conn)
	speaks, info := conn.speaks(p.Dialect), conn.info
	r.pool.put(conn)
	if !speaks {
		end()
		return nil, nil, &unspoken{fmt.Sprintf("the adapter speaks %v, not %s", info.Dialects, p.Dialect)}
	}
	return &lone{r, ctx}, end, nil
}

// unspoken is the error about a dialect that the adapter lacks.
type unspoken struct{ reason string }

func (e *unspoken) Error() string { return e.reason }
