package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"tornwire/checker"
	"tornwire/internal/strict"
	"tornwire/scenarios"
)

// engine are the routes of the scenario engine.
var engine = []route{
	{"/scenarios", map[string]action{"GET": listScenarios}},
	{"/scenarios/{scenario}", map[string]action{"GET": showScenario}},
	{"/runs", map[string]action{"GET": listRuns, "POST": startRun}},
	{"/runs/{run}", map[string]action{"GET": showRun, "DELETE": stopRun}},
	{"/runs/{run}/witness", map[string]action{"POST": witness}},
	{"/runs/{run}/pause", map[string]action{"POST": steer((*scenarios.Live).Pause)}},
	{"/runs/{run}/resume", map[string]action{"POST": steer((*scenarios.Live).Resume)}},
	{"/runs/{run}/advance", map[string]action{"POST": steer((*scenarios.Live).Advance)}},
}

var errScenarioNotFound = newError(http.StatusNotFound, "scenario not found")

// ScenarioView is a scenario that is built in.
type ScenarioView struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Clause  string `json:"clause"`
	Dialect string `json:"dialect"`
	Steps   int    `json:"steps"`
	Source  string `json:"source,omitempty"` // its TOML, where one is asked for
}

func viewScenario(s *scenarios.Scenario) ScenarioView {
	return ScenarioView{Name: s.Name, About: s.About, Clause: s.Clause, Dialect: s.Dialect, Steps: len(s.Steps)}
}

func listScenarios(*call) (reply, error) {
	out := []ScenarioView{}
	for _, s := range scenarios.Library() {
		out = append(out, viewScenario(s))
	}
	return reply{http.StatusOK, out}, nil
}

func showScenario(c *call) (reply, error) {
	s, ok := scenarios.ByName(c.vars["scenario"])
	if !ok {
		return reply{}, errScenarioNotFound
	}
	v := viewScenario(s)
	v.Source = s.Source
	return reply{http.StatusOK, v}, nil
}

// RunView is a run of a scenario.
type RunView struct {
	ID        string              `json:"id"`
	Scenario  string              `json:"scenario"`
	State     string              `json:"state"` // running, paused or done
	Began     time.Time           `json:"began"`
	Step      int                 `json:"step"` // that is done next, from 0
	Of        int                 `json:"of"`   // steps in all
	Steps     []StepView          `json:"steps"`
	Addresses map[string][]string `json:"addresses"` // of each client
	Outcome   *OutcomeView        `json:"outcome,omitempty"`
	Error     string              `json:"error,omitempty"` // why it could not be run
}

// StepView is a step that has been done.
type StepView struct {
	Do   string `json:"do"`
	Name string `json:"name"`
	At   string `json:"at"`  // since the run began: its turn
	End  string `json:"end"` // and when it was done
}

// OutcomeView is how a run went.
type OutcomeView struct {
	Verdict  checker.Verdict   `json:"verdict"`
	ExitCode int               `json:"exit_code"` // that tornwire run would have
	Reason   string            `json:"reason"`
	Checked  []string          `json:"checked"`
	Findings []checker.Finding `json:"findings"`
	Expect   []ExpectView      `json:"expectations"`
}

// ExpectView is what was expected of a run.
type ExpectView struct {
	What string `json:"what"`
	Met  bool   `json:"met"`
	Got  string `json:"got,omitempty"`
}

func viewLive(l *scenarios.Live) RunView {
	s := l.State()
	v := RunView{
		ID: l.ID, Scenario: l.Scenario.Name, State: s.State, Began: l.Began.UTC(), Step: s.Step, Of: len(l.Scenario.Steps),
		Steps: []StepView{}, Addresses: s.Places,
	}
	if v.Addresses == nil {
		v.Addresses = map[string][]string{}
	}
	for _, t := range s.Told {
		name := t.Step.Name
		if t.Step.Do == scenarios.DoPause {
			name = t.Step.Time.String()
		}
		v.Steps = append(v.Steps, StepView{string(t.Step.Do), name, t.At.Round(time.Microsecond).String(), t.End.Round(time.Microsecond).String()})
	}
	if s.Err != nil {
		v.Error = s.Err.Error()
	}
	if r := s.Result; r != nil {
		v.Outcome = &OutcomeView{
			Verdict: r.Verdict, ExitCode: r.ExitCode, Reason: r.Reason, Checked: append([]string{}, r.Checked...),
			Findings: append([]checker.Finding{}, r.Findings...), Expect: []ExpectView{},
		}
		for _, m := range r.Expect {
			v.Outcome.Expect = append(v.Outcome.Expect, ExpectView{m.Expectation.String(), m.Met, m.Got})
		}
	}
	return v
}

func listRuns(c *call) (reply, error) {
	out := []RunView{}
	for _, l := range c.m.runs.List() {
		out = append(out, viewLive(l))
	}
	return reply{http.StatusOK, out}, nil
}

// run finds the run that the path names.
func (c *call) run() (*scenarios.Live, error) {
	l, err := c.m.runs.Get(c.vars["run"])
	return l, runError(err)
}

func showRun(c *call) (reply, error) {
	l, err := c.run()
	if err != nil {
		return reply{}, err
	}
	return reply{http.StatusOK, viewLive(l)}, nil
}

// stopRun ends a run, if it has not ended; it stays in the list.
func stopRun(c *call) (reply, error) {
	l, err := c.run()
	if err != nil {
		return reply{}, err
	}
	l.Stop()
	return reply{http.StatusOK, viewLive(l)}, nil
}

func steer(how func(*scenarios.Live) error) action {
	return func(c *call) (reply, error) {
		l, err := c.run()
		if err != nil {
			return reply{}, err
		}
		if err := how(l); err != nil {
			return reply{}, runError(err)
		}
		return reply{http.StatusOK, viewLive(l)}, nil
	}
}

// WitnessView is the answer to a witness: what the bytes and his words show by now.
type WitnessView struct {
	Findings []checker.Finding `json:"findings"`
}

// witness takes what a client, or the test suite that drives it, says of one of its calls.
func witness(c *call) (reply, error) {
	l, err := c.run()
	if err != nil {
		return reply{}, err
	}
	body, err := c.read()
	if err != nil {
		return reply{}, err
	}
	o, bad, err := parse(body)
	if err != nil {
		return reply{}, err
	}
	s := scenarios.ReadSaying(o)
	if err := refusal(*bad); err != nil {
		return reply{}, err
	}
	found, err := l.Say(s)
	if err != nil {
		return reply{}, newError(http.StatusConflict, "%v", err)
	}
	return reply{http.StatusOK, WitnessView{append([]checker.Finding{}, found...)}}, nil
}

// runError is what is told about an error of the runs.
func runError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, scenarios.ErrNoRun):
		return newError(http.StatusNotFound, "%v", err)
	case errors.Is(err, scenarios.ErrOver):
		return newError(http.StatusConflict, "%v", err)
	case errors.Is(err, scenarios.ErrRuns):
		return newError(statusFull, "%v", err)
	case errors.Is(err, scenarios.ErrStopped):
		return errClosed
	}
	return newError(http.StatusBadRequest, "%v", err)
}

// startRun starts a run of a scenario: one that is built in, by its name, or the one that is
// in the body, as TOML (source) or as the object that says the same (story).
func startRun(c *call) (reply, error) {
	body, err := c.read()
	if err != nil {
		return reply{}, err
	}
	o, bad, err := parse(body)
	if err != nil {
		return reply{}, err
	}
	s := chosen(o)
	var opts scenarios.Options
	var seed uint64
	if strict.Read(o, "seed", "a whole number from 0 to 18446744073709551615", &seed) {
		opts.Seed = &seed
	}
	if o.Span("timeout", &opts.Timeout) && (opts.Timeout < time.Second || opts.Timeout > scenarios.MaxTimeout) {
		o.Problem("timeout", "is %s, not 1s to %s", opts.Timeout, scenarios.MaxTimeout)
	}
	paused := false
	o.Flag("paused", &paused)
	o.Done()
	if err := refusal(*bad); err != nil {
		return reply{}, err
	}
	l, err := c.m.runs.Start(s, opts, paused)
	if err != nil {
		return reply{}, runError(err)
	}
	c.m.opt.Log.Info().Str("run", l.ID).Str("scenario", s.Name).Bool("paused", paused).Msg("run started")
	return reply{http.StatusCreated, viewLive(l)}, nil
}

// chosen finds the scenario of a body; what is wrong with it is a problem of o.
func chosen(o *strict.Object) *scenarios.Scenario {
	var name, source string
	var story json.RawMessage
	given := 0
	for _, there := range []bool{o.Text("scenario", &name), o.Text("source", &source), strict.Read(o, "story", "an object", &story)} {
		if there {
			given++
		}
	}
	var s *scenarios.Scenario
	var err error
	field := "scenario"
	switch {
	case o.Bad.Has("scenario") || o.Bad.Has("source") || o.Bad.Has("story"):
		return nil
	case given != 1:
		o.Problem("scenario", "is one of three: the name of a scenario, its TOML in source, or its object in story; there are %d", given)
		return nil
	case name != "":
		var ok bool
		if s, ok = scenarios.ByName(name); !ok {
			var all []string
			for _, x := range scenarios.Library() {
				all = append(all, x.Name)
			}
			o.Problem("scenario", "%s", strict.OneOf(name, all, "scenario"))
		}
		return s
	case story != nil:
		field = "story"
		s, err = scenarios.ParseJSON(story)
	default:
		field = "source"
		s, err = scenarios.Parse("source", []byte(source))
	}
	if err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			o.Problem(field, "is not right: %s", line)
		}
	}
	return s
}
