package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/history"
	"tornwire/verify"
)

// Options say how a scenario is run. The zero value runs it as it is written.
type Options struct {
	// Start makes an adapter that takes the place of the reference client.
	Start verify.Starter
	// Command is what the scenario's command client runs that names no program of its own;
	// Env is added to its environment, and what it prints goes to Output.
	Command []string
	Env     []string
	Output  io.Writer
	// Profile, Busy, Seed and Timeout, where they are set, go before the scenario's.
	Profile, Busy    string
	Seed             *uint64
	Timeout          time.Duration
	Grace, Tolerance *time.Duration
	// Strict gives hygiene findings the exit code 3.
	Strict bool
	// Told, if set, is told of each step when it has been done.
	Told func(Told)
	// Before, if set, is called before each step, from 0, and may keep it waiting until over
	// is closed. Placed is told the addresses of each client. A run that was too late to
	// judge is told again: both begin anew then.
	Before func(step int, over <-chan struct{})
	Placed func(addrs map[string][]string)

	said *witnesses // of a run that can be told of calls; nil: nobody says anything
}

// Told is a step that has been done.
type Told struct {
	Step    Step
	At, End time.Duration // since the run began: when its turn came, and when it was done
}

// Result is how a scenario went.
type Result struct {
	Scenario *Scenario
	Verdict  checker.Verdict // of the oracle
	Reason   string          // why it is inconclusive or skipped
	Findings []checker.Finding
	Checked  []string
	Expect   []Met
	Command  string // how the command failed; "" if it did not
	Events   []history.Event
	ExitCode int
	Elapsed  time.Duration
	Repeated int // times that it was too late to judge

	got verify.CaseResult
}

// Describe tells a person of each finding with its bytes and timeline, and why nothing was
// proved, if so.
func (res *Result) Describe() string { return verify.Describe(res.got) }

// Met tells of an expectation whether it was met, and what was there.
type Met struct {
	Expectation
	Met bool
	Got string
}

// Run runs a scenario in real time. Errors are verify's UsageErrors; all else is in the
// result. What it has armed, opened and started is gone when it returns.
func Run(ctx context.Context, s *Scenario, o Options) (*Result, error) {
	began := time.Now()
	t := newTeller(ctx, s, o)
	start, err := t.starter()
	if err != nil {
		return nil, err
	}
	if err := t.readSecret(); err != nil {
		return nil, err
	}
	res := &Result{Scenario: s}
	opts := verify.Options{
		Profile: t.profile(), Busy: first(o.Busy, s.Busy), Seed: s.Seed, Timeout: s.Timeout, Grace: o.Grace, Tolerance: o.Tolerance,
		Start: start,
	}
	if o.Seed != nil {
		opts.Seed = *o.Seed
	}
	if o.Timeout != 0 {
		opts.Timeout = o.Timeout
	}
	if err := t.reach(ctx); err != nil {
		res.Verdict, res.Reason, res.ExitCode, res.Elapsed = checker.Inconclusive, err.Error(), verify.ExitUnreachable, time.Since(began)
		return res, nil
	}
	got, err := verify.RunPlay(ctx, opts, t.play())
	switch {
	case verify.Unreachable(err):
		res.Verdict, res.Reason, res.ExitCode = checker.Inconclusive, fmt.Sprintf("the adapter cannot be used: %v", err), verify.ExitUnreachable
		res.Elapsed = time.Since(began)
		return res, nil
	case err != nil:
		return nil, err
	}
	res.Elapsed = time.Since(began)
	res.conclude(t, got)
	return res, nil
}

// RunIn runs a scenario whose clients are all the reference client in the bubble of the
// goroutine that asks for it, with a library in the reference client's place. Every scenario
// needs a bubble of its own, and they may share b. strict gives hygiene findings the exit
// code 3.
func RunIn(ctx context.Context, b *verify.Bubble, s *Scenario, strict bool, library func(verify.Inside) adapter.Library) (*Result, error) {
	for _, c := range s.Clients {
		if c.Kind != Reference {
			return nil, fmt.Errorf("client %s is %s: in virtual time there are reference clients alone", c.Name, c.Kind)
		}
	}
	if s.Server.Kind == Upstream {
		return nil, errors.New("an upstream cannot be reached from inside a bubble")
	}
	t := newTeller(ctx, s, Options{Strict: strict})
	res := &Result{Scenario: s}
	res.conclude(t, b.Play(ctx, t.play(), library))
	return res, nil
}

func newTeller(ctx context.Context, s *Scenario, o Options) *teller {
	t := &teller{s: s, o: o, ctx: ctx, said: o.said}
	if t.said == nil {
		t.said = &witnesses{}
	}
	return t
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// starter makes the adapter that the clients of the scenario are driven by.
func (t *teller) starter() (verify.Starter, error) {
	var command []string
	for _, c := range t.s.Clients {
		switch {
		case c.Kind == Command && len(c.Command) == 0 && len(t.o.Command) == 0:
			return nil, usage("%s: client %s is a command, and there is none: write it behind --", t.s.place(c.Line), c.Name)
		case c.Kind != Adapter:
		case command != nil && !slices.Equal(command, c.Command):
			return nil, usage("%s: client %s has an adapter of its own, and a run drives one", t.s.place(c.Line), c.Name)
		default:
			command = c.Command
		}
	}
	switch {
	case t.o.Start != nil:
		return t.o.Start, nil
	case command != nil:
		return verify.Command(command...), nil
	}
	return verify.Library(reference.Library()), nil
}

// reachLimit is how long an upstream may take to accept a connection.
const reachLimit = 5 * time.Second

// reach looks whether an upstream is there, before anything is asked of it.
func (t *teller) reach(ctx context.Context) error {
	addr := t.s.Server.Address
	if addr == "" {
		return nil
	}
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	d := net.Dialer{Timeout: reachLimit}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return fmt.Errorf("%s: the upstream cannot be reached: %w", t.s.place(t.s.Server.Line), err)
	}
	return c.Close()
}

// maxSecret is the most bytes of a secret's file.
const maxSecret = 4096

// readSecret reads that of an upstream; its file is relative to the scenario's.
func (t *teller) readSecret() error {
	name := t.s.Server.SecretFile
	if name == "" {
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(t.s.File), name)
	}
	f, err := os.Open(name)
	if err != nil {
		return usage("%s: secret_file: %v", t.s.place(t.s.Server.Line), err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil || len(b) > maxSecret {
		return usage("%s: secret_file has over %d bytes, or cannot be read: %v", t.s.place(t.s.Server.Line), maxSecret, err)
	}
	t.secret = strings.TrimRight(string(b), "\r\n")
	return nil
}

func usage(format string, args ...any) error { return verify.NewUsageError(format, args...) }

// place is a line of the scenario's file.
func (s *Scenario) place(line int) string {
	return fmt.Sprintf("%s:%d", first(s.File, s.Name), line)
}

// profile is by which the clients are judged: the reference client by all clauses.
func (t *teller) profile() string {
	official := !slices.ContainsFunc(t.s.Clients, func(c Client) bool { return c.Kind != Reference }) && t.o.Start == nil
	if p := first(t.o.Profile, t.s.Profile); p != "" {
		return p
	}
	if official {
		return checker.ProfileOfficial
	}
	return checker.ProfileAny
}

// byWire are the rules that are not judged where an application's new call looks like a
// library's retry (spec/rules.md P13).
var byWire = []string{"one-attempt", "busy-not-retried", "owner-fresh", "settles"}

// policy leaves out what cannot be judged of clients whose calls are not seen. Where a
// witness has told of calls, he has told of all, and nobody knows how old his words are.
func (t *teller) policy(p checker.Policy) checker.Policy {
	if t.said.told() {
		p.Witnessed, p.NoPong = true, true
		return p
	}
	unseen := func(c Client) bool { return c.Kind == Command || c.Kind == Anyone }
	if !slices.ContainsFunc(t.s.Clients, unseen) {
		return p
	}
	only := map[string]bool{}
	for _, r := range checker.Rules() {
		only[r.ID] = !slices.Contains(byWire, r.ID) && (p.Only == nil || p.Only[r.ID])
	}
	p.Only = only
	return p
}

// base is by what a run is judged while it goes on.
func (t *teller) base() checker.Policy {
	own := t.s.Server.Kind != Upstream
	return checker.Policy{
		Dialect: t.s.Dialect, Profile: t.profile(), Busy: first(t.o.Busy, t.s.Busy), Grace: t.o.Grace, Tolerance: t.o.Tolerance,
		SawTable: own, Embedded: own,
	}
}

func (t *teller) play() *verify.Play {
	s := t.s
	return &verify.Play{
		Name: s.Name, Dialect: s.Dialect, Nodes: s.Server.Nodes, FirstToken: s.Server.FirstToken, QueueLimit: s.Server.QueueLimit,
		Upstream: s.Server.Address, Secret: t.secret, Script: t.tell, Policy: t.policy,
	}
}

// conclude makes the result of what came of the play.
func (res *Result) conclude(t *teller, got verify.CaseResult) {
	res.Verdict, res.Reason, res.Findings, res.Checked, res.Events = got.Verdict, got.Reason, got.Findings, got.Checked, got.Events()
	res.Command, res.Repeated, res.got = t.failed, got.Repeated, got
	if got.Policy() == nil {
		res.ExitCode = verify.ExitInconclusive
		if res.Command != "" {
			res.ExitCode = verify.ExitUnsafe
		}
		return
	}
	for _, x := range t.s.Expect {
		res.Expect = append(res.Expect, res.met(t, x))
	}
	lost := slices.IndexFunc(res.Events, func(e history.Event) bool { return e.Kind == history.ServerDialed && e.Detail != "" })
	switch {
	case lost >= 0 && t.s.Server.Kind == Upstream:
		res.Verdict, res.ExitCode = checker.Inconclusive, verify.ExitUnreachable
		res.Reason = fmt.Sprintf("%s: the upstream could not be reached: %s", t.s.place(t.s.Server.Line), res.Events[lost].Detail)
		return
	case len(res.Checked) == 0 && res.Verdict == checker.Safe:
		res.Verdict, res.Reason = checker.Inconclusive, "no rule was checked: what crossed the wire gave no occasion"
	}
	res.ExitCode = res.code(t.o.Strict)
}

// code is the exit code (spec/cli.md).
func (res *Result) code(strict bool) int {
	worst := 0
	for _, f := range res.Findings {
		switch {
		case f.Certainty != checker.Certain || res.wanted(f.Rule):
		case f.Severity != checker.Hygiene:
			return verify.ExitUnsafe
		case strict:
			worst = verify.ExitNonStrict
		}
	}
	unmet := slices.ContainsFunc(res.Expect, func(m Met) bool { return !m.Met })
	switch {
	case unmet || res.Command != "":
		return verify.ExitUnsafe
	case res.Verdict == checker.Inconclusive || res.Verdict == checker.Skipped:
		return verify.ExitInconclusive
	}
	return worst
}

// wanted tells whether a finding of a rule is what the scenario is to show.
func (res *Result) wanted(rule string) bool {
	return slices.ContainsFunc(res.Scenario.Expect, func(x Expectation) bool { return x.Finding == rule })
}

// met looks at one expectation.
func (res *Result) met(t *teller, x Expectation) Met {
	m := Met{Expectation: x}
	var certain []string
	for _, f := range res.Findings {
		if f.Certainty == checker.Certain && !slices.Contains(certain, f.Rule) {
			certain = append(certain, f.Rule)
		}
	}
	said := strings.Join(certain, ", ")
	if said == "" {
		said = "nothing"
	}
	number := func(n int) {
		m.Met, m.Got = x.Count.Has(n), fmt.Sprintf("there were %d", n)
	}
	switch {
	case x.Verdict != "":
		m.Met, m.Got = x.Verdict == string(res.Verdict), fmt.Sprintf("it is %s", res.Verdict)
	case x.Finding != "":
		m.Met, m.Got = slices.Contains(certain, x.Finding), "found was "+said
	case x.NoFinding == AnyRule:
		m.Met, m.Got = len(certain) == 0, "found was "+said
	case x.NoFinding != "":
		m.Met, m.Got = !slices.Contains(certain, x.NoFinding), "found was "+said
	case x.Checked != "":
		m.Met, m.Got = slices.Contains(res.Checked, x.Checked), "it was not"
	case x.Call != "":
		word := t.outcome(x.Call, res.Events)
		m.Met, m.Got = slices.Contains(x.Outcomes, word), "it ended "+first(word, "never")
	case x.Fired != "":
		number(t.count(res.Events, func(e history.Event, _ string) bool { return e.Kind == history.Fired && e.Rule == x.Fired }))
	case x.Frame != "":
		number(t.count(res.Events, t.isFrame(x.Frame, x.Client)))
	default:
		number(t.count(res.Events, func(e history.Event, client string) bool {
			return string(e.Kind) == x.Event && (x.Client == "" || client == x.Client) && (x.Key == "" || e.Key == x.Key)
		}))
	}
	if m.Met {
		m.Got = ""
	}
	return m
}

// String says what is expected.
func (x Expectation) String() string {
	often := map[bool]string{true: "", false: " " + x.Count.String() + " times"}[x.Count == Range{1, -1}]
	switch {
	case x.Verdict != "":
		return "verdict " + x.Verdict
	case x.Finding != "":
		return "a certain finding of " + x.Finding
	case x.NoFinding == AnyRule:
		return "no certain finding"
	case x.NoFinding != "":
		return "no certain finding of " + x.NoFinding
	case x.Checked != "":
		return x.Checked + " checked"
	case x.Call != "":
		return fmt.Sprintf("call %s ends %s", x.Call, strings.Join(x.Outcomes, " or "))
	case x.Fired != "":
		return fmt.Sprintf("rule %s acts%s", x.Fired, often)
	case x.Frame != "":
		return fmt.Sprintf("frame %s comes%s", x.Frame, often)
	}
	return fmt.Sprintf("event %s occurs%s", x.Event, often)
}
