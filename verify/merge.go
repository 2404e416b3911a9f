package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"tornwire/checker"
)

// Selection is what a run was asked for, so far as it decides which cases it has and how
// they are judged.
type Selection struct {
	Sweep       string        `json:"sweep"`
	Workloads   []string      `json:"workloads,omitempty"`
	Faults      []string      `json:"faults,omitempty"`
	Rules       []string      `json:"rules,omitempty"`
	Cases       []string      `json:"cases,omitempty"`
	Repeat      int           `json:"repeat,omitempty"` // how often each case is run, if not once
	Grace       time.Duration `json:"grace_ns"`
	Tolerance   time.Duration `json:"tolerance_ns"`
	Timeout     time.Duration `json:"timeout_ns"` // of a case
	Strict      bool          `json:"strict"`
	Upstream    string        `json:"upstream,omitempty"`
	SecretFile  string        `json:"secret_file,omitempty"`
	ClosedWorld bool          `json:"closed_world,omitempty"`
	KeyPrefix   string        `json:"key_prefix,omitempty"`
	Command     []string      `json:"command,omitempty"`
	Baseline    string        `json:"baseline,omitempty"`     // its file
	BaselineDay string        `json:"baseline_day,omitempty"` // on which it was read
}

// Part is what a shard says of a case besides its result, so that the whole can be put
// together.
type Part struct {
	Checked  []string    `json:"checked,omitempty"`
	Outcomes [][2]string `json:"outcomes,omitempty"`
	Client   string      `json:"client_view,omitempty"`
	Server   string      `json:"server_view,omitempty"`
	Fencing  int         `json:"needs_fencing,omitempty"`
	Fenced   []string    `json:"fenced,omitempty"`
	Findings int         `json:"findings,omitempty"` // so many of those of its case, in their order
	Shows    [][]int     `json:"shows,omitempty"`    // by finding: in which runs of the case it was there
}

func (p *Plan) selection() Selection {
	s := Selection{
		Sweep: p.Sweep, Workloads: p.Workloads, Faults: p.Faults, Rules: p.Rules, Cases: p.Options.Cases, Strict: p.Strict,
		Grace: checker.DefaultGrace, Tolerance: checker.DefaultTolerance, Timeout: p.Timeout, Upstream: p.Upstream, SecretFile: p.SecretFile,
		ClosedWorld: p.ClosedWorld, KeyPrefix: p.KeyPrefix, Command: p.Command,
	}
	if p.Repeat > 1 {
		s.Repeat = p.Repeat
	}
	if p.Grace != nil {
		s.Grace = *p.Grace
	}
	if p.Tolerance != nil {
		s.Tolerance = *p.Tolerance
	}
	if b := p.Baseline; b != nil {
		day := b.Today
		if day.IsZero() {
			day = time.Now()
		}
		s.Baseline, s.BaselineDay = b.File, day.UTC().Format(time.DateOnly)
	}
	return s
}

func partOf(c CaseResult) *Part {
	p := &Part{Checked: c.Checked, Fencing: c.Fencing, Fenced: c.Fenced, Findings: len(c.Findings), Shows: c.shows}
	for _, o := range c.Outcomes {
		p.Outcomes = append(p.Outcomes, [2]string{o.word, o.raw})
	}
	if c.views != (views{}) {
		p.Client, p.Server = strconv.FormatUint(c.views.client, 16), strconv.FormatUint(c.views.server, 16)
	}
	return p
}

// ShardReport is the JSON report of a shard, and the file it came from.
type ShardReport struct {
	File string
	Data []byte
}

// Merge joins the reports of all shards of a run into the one that the run would have
// given undivided: as long as the longest of them, and with what was largest in any. Each
// shard must be there once, and all must be of one run: the same tornwire, client,
// selection and policy. Errors are UsageErrors, one line each.
func Merge(files []ShardReport) (*Report, error) {
	var shards []*Report
	var errs []error
	for _, f := range files {
		r := &Report{}
		if err := json.Unmarshal(f.Data, r); err != nil || r.Tool != "tornwire" {
			errs = append(errs, usagef("%s is not a JSON report of tornwire verify", f.File))
			continue
		}
		switch {
		case r.Schema != 1:
			errs = append(errs, usagef("%s has schema %d, and this tornwire reads 1", f.File, r.Schema))
		case r.Shard == nil || r.Shard.check("") != nil:
			errs = append(errs, usagef("%s is not the report of a shard, but of a whole run", f.File))
		default:
			r.file = f.File
			shards = append(shards, r)
		}
	}
	if len(errs) == 0 && len(shards) == 0 {
		return nil, usagef("there is no report to merge")
	}
	if errs = append(errs, complete(shards)...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return join(shards)
}

// complete tells what keeps shards from being one run.
func complete(shards []*Report) (errs []error) {
	if len(shards) == 0 {
		return nil
	}
	first := shards[0]
	have := map[int]string{}
	for _, r := range shards {
		if r.Shard.Of != first.Shard.Of {
			errs = append(errs, usagef("%s is one of %d shards, and %s one of %d", r.file, r.Shard.Of, first.file, first.Shard.Of))
			continue
		}
		if other, twice := have[r.Shard.Index]; twice {
			errs = append(errs, usagef("shard %s is there twice: %s and %s", r.Shard, other, r.file))
			continue
		}
		have[r.Shard.Index] = r.file
		if name, a, b := differs(first, r); name != "" {
			errs = append(errs, usagef("%s is of another run: its %s is %s, and that of %s is %s", r.file, name, b, first.file, a))
		}
		for _, c := range r.Results {
			if !r.Shard.Has(c.Case) {
				errs = append(errs, usagef("%s has case %s, which does not fall to shard %s", r.file, c.Case, r.Shard))
				break
			}
		}
	}
	var missing []string
	for i := 1; i <= first.Shard.Of; i++ {
		if have[i] == "" {
			missing = append(missing, Shard{i, first.Shard.Of}.String())
		}
	}
	if len(missing) > 0 && len(errs) == 0 {
		errs = append(errs, usagef("shards are missing: %s", strings.Join(missing, ", ")))
	}
	return errs
}

// differs names what two shards do not have in common.
func differs(a, b *Report) (name, ofA, ofB string) {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"version", a.Version, b.Version},
		{"dialect", a.Dialect, b.Dialect},
		{"client", a.Client, b.Client},
		{"profile", a.Profile, b.Profile},
		{"busy", a.Busy, b.Busy},
		{"seed", a.Seed, b.Seed},
		{"selection", a.Selection, b.Selection},
	} {
		// What never reached its adapter does not know its client.
		if f.name == "client" && (a.Client == "" || b.Client == "") || reflect.DeepEqual(f.a, f.b) {
			continue
		}
		if f.name == "selection" {
			return differentField(a.Selection, b.Selection)
		}
		return f.name, fmt.Sprintf("%v", f.a), fmt.Sprintf("%v", f.b)
	}
	return "", "", ""
}

func differentField(a, b Selection) (name, ofA, ofB string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		u, v := x.Field(i).Interface(), y.Field(i).Interface()
		if !reflect.DeepEqual(u, v) {
			name, _, _ = strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
			return name, fmt.Sprintf("%v", u), fmt.Sprintf("%v", v)
		}
	}
	return "", "", ""
}

// planOf makes the plan of the undivided run.
func planOf(r *Report) (*Plan, error) {
	s := r.Selection
	o := Options{
		Dialect: r.Dialect, Workloads: s.Workloads, Faults: s.Faults, Rules: s.Rules, Cases: s.Cases, Sweep: s.Sweep, Seed: r.Seed,
		Profile: r.Profile, Busy: r.Busy, Grace: &s.Grace, Tolerance: &s.Tolerance, Timeout: s.Timeout, Strict: s.Strict, Command: s.Command, Version: r.Version,
		Upstream: s.Upstream, SecretFile: s.SecretFile, ClosedWorld: s.ClosedWorld, KeyPrefix: s.KeyPrefix,
		Repeat: s.Repeat,
	}
	p, err := NewPlan(o)
	if err != nil {
		return nil, usagef("%s was made by another tornwire: %v", r.file, err)
	}
	if s.Baseline == "" {
		return p, nil
	}
	day, err := time.Parse(time.DateOnly, s.BaselineDay)
	if err != nil {
		return nil, usagef("%s: the day of its baseline is %q", r.file, s.BaselineDay)
	}
	p.Baseline = &Baseline{File: s.Baseline, Today: day}
	for _, e := range r.Baseline {
		expires, err := time.Parse(time.DateOnly, e.Expires)
		if err != nil {
			return nil, usagef("%s: an entry of its baseline expires on %q", r.file, e.Expires)
		}
		p.Baseline.Entries = append(p.Baseline.Entries, Accept{Rule: e.Rule, Case: e.Case, Side: e.Side, Reason: e.Reason, Expires: expires, Line: e.Line})
	}
	return p, nil
}

// join puts complete shards together.
func join(shards []*Report) (*Report, error) {
	sort.Slice(shards, func(i, j int) bool { return shards[i].Shard.Index < shards[j].Shard.Index })
	p, err := planOf(shards[0])
	if err != nil {
		return nil, err
	}
	whole := newReport(p)
	byID := map[string]Case{}
	for _, c := range p.Cases {
		byID[c.ID.String()] = c
	}
	sum, elapsed, restarts := Resources{Phases: []Phase{}}, 0.0, 0
	also := rehearsals{ends: map[string][]CaseResult{}, controls: map[string][]CaseResult{}}
	for _, r := range shards {
		if err := r.full(p.Cases); err != nil {
			return nil, err
		}
		if r.Client != "" {
			whole.client(r.Client)
		}
		if err := whole.addShard(r, byID, also); err != nil {
			return nil, err
		}
		elapsed, restarts = max(elapsed, r.ElapsedS), restarts+r.Restarts
		sum.join(r.Resources)
		whole.InFlight.join(r.InFlight)
		if r.ExitCode == ExitUnreachable || r.ExitCode == ExitInternal {
			whole.fatally(r.ExitCode, fmt.Sprintf("shard %s: %s", r.Shard, r.Reason))
		}
	}
	for _, when := range []string{whenFirst, whenLast} {
		if runs := also.ends[when]; len(runs) > 0 {
			whole.sanity(when, worstRun(runs))
		}
	}
	for id, runs := range also.controls {
		if _, listed := byID[id]; listed {
			whole.add(worstRun(runs))
		} else {
			whole.sanity(whenControl, worstRun(runs))
		}
	}
	sum.conclude(whole.Results)
	whole.Resources = sum
	whole.finish(time.Duration(math.Round(elapsed*10))*time.Second/10, restarts)
	return whole, nil
}

// full tells whether a shard has as many results as cases that fall to it, but for those
// that it says were not run.
func (r *Report) full(cases []Case) error {
	fall := 0
	for _, c := range cases {
		if r.Shard.Has(c.ID.String()) {
			fall++
		}
	}
	if r.ExitCode == ExitUnreachable && len(r.Results) == 0 {
		return nil // it has not begun
	}
	if have := len(r.Results) + r.Cases.NotRun; have != fall || r.Cases.Total != fall {
		return usagef("%s says of %d cases, %d of them not run, and %d fall to shard %s: it is not whole", r.file, have, r.Cases.NotRun, fall, r.Shard)
	}
	return nil
}

// rehearsals are the runs without a fault that more than one shard has made, each of
// which the whole run makes once.
type rehearsals struct {
	ends     map[string][]CaseResult // by when
	controls map[string][]CaseResult // by case
}

// worstRun is the gravest of several runs of a case, with what only others have found.
func worstRun(runs []CaseResult) CaseResult {
	out := runs[0]
	for _, c := range runs[1:] {
		if slices.Index(graver, c.Verdict) > slices.Index(graver, out.Verdict) {
			out = c
		}
	}
	out.Findings, out.shows = slices.Clone(out.Findings), slices.Clone(out.shows)
	for _, c := range runs {
		for _, f := range c.Findings {
			if !slices.ContainsFunc(out.Findings, sameAs(f)) {
				out.Findings, out.shows = append(out.Findings, f), append(out.shows, nil)
			}
		}
	}
	return out
}

// graver orders verdicts, the gravest last.
var graver = []checker.Verdict{checker.Safe, checker.Skipped, checker.NonStrict, checker.Inconclusive, checker.Nonconforming, checker.Unsafe}

// addShard adds the results of a shard, but for the runs without a fault: those that
// other shards have made, too, count once.
func (r *Report) addShard(s *Report, byID map[string]Case, also rehearsals) error {
	findings := map[string][]Finding{}
	for _, f := range s.Findings {
		findings[f.Case] = append(findings[f.Case], f)
		if f.Replayed > 0 {
			r.replays[f.Case], r.again[ruleOf{f.Case, f.Rule}] = f.Replayed, f.Reproduced
		}
	}
	twice := map[string]bool{}
	for _, res := range s.Results {
		if twice[res.Case] {
			return usagef("%s has case %s twice", s.file, res.Case)
		}
		twice[res.Case] = true
		c, ok := byID[res.Case]
		if !ok {
			return usagef("%s has case %s, which its selection does not have", s.file, res.Case)
		}
		back, err := restored(c, res, findings)
		switch {
		case err != nil:
			return usagef("%s: case %s: %v", s.file, res.Case, err)
		case c.ID.Fault == NoFault:
			also.controls[res.Case] = append(also.controls[res.Case], back)
		default:
			r.add(back)
		}
	}
	for _, res := range s.Sanity {
		id, err := ParseCaseID(res.Case)
		w, ok := WorkloadByID(id.Workload)
		if err != nil || !ok {
			return usagef("%s has a run of %s, which there is not", s.file, res.Case)
		}
		back, err := restored(Case{ID: id, Workload: w}, res.Result, findings)
		if err != nil {
			return usagef("%s: case %s: %v", s.file, res.Case, err)
		}
		if res.When == whenControl {
			also.controls[res.Case] = append(also.controls[res.Case], back)
		} else {
			also.ends[res.When] = append(also.ends[res.When], back)
		}
	}
	for id, left := range findings {
		if len(left) > 0 {
			return usagef("%s has %d findings of case %s that none of its results has", s.file, len(left), id)
		}
	}
	return nil
}

// restored is the result of a case as it was before it was told. It takes its findings.
func restored(c Case, res Result, findings map[string][]Finding) (CaseResult, error) {
	back := CaseResult{
		Case: c, Verdict: res.Verdict, Reason: res.Reason, Fired: res.Fired, Repeated: res.Repeated,
		took: time.Duration(math.Round(res.Seconds * float64(time.Second))),
	}
	if !slices.Contains(graver, res.Verdict) {
		return back, fmt.Errorf("there is no verdict %q", res.Verdict)
	}
	if res.Part == nil {
		return back, errors.New("what a shard says of it is not there")
	}
	own := findings[res.Case]
	n := res.Part.Findings
	if n < 0 || n > len(own) {
		return back, fmt.Errorf("it has %d findings, not %d", len(own), n)
	}
	for _, f := range own[:n] {
		back.Findings = append(back.Findings, f.Finding)
	}
	findings[res.Case] = own[n:]
	if (res.Verdict == checker.Unsafe || res.Verdict == checker.Nonconforming) && n == 0 {
		return back, fmt.Errorf("it is %s without a finding", res.Verdict)
	}
	back.runs, back.shows = res.Runs, res.Part.Shows
	if back.runs < 0 || back.runs > MaxRepeat || back.runs > 0 && len(back.shows) != len(back.Findings) {
		return back, errors.New("what it says of its runs is wrong")
	}
	back.Checked, back.Fencing, back.Fenced = res.Part.Checked, res.Part.Fencing, res.Part.Fenced
	for _, o := range res.Part.Outcomes {
		back.Outcomes = append(back.Outcomes, outcome{o[0], o[1]})
	}
	if res.Part.Client == "" {
		return back, nil
	}
	var err, err2 error
	back.views.client, err = strconv.ParseUint(res.Part.Client, 16, 64)
	back.views.server, err2 = strconv.ParseUint(res.Part.Server, 16, 64)
	return back, errors.Join(err, err2)
}

func (f *InFlight) join(o InFlight) {
	f.Limit, f.Peak, f.Adapters = max(f.Limit, o.Limit), max(f.Peak, o.Peak), max(f.Adapters, o.Adapters)
	f.Descriptors, f.Bound = max(f.Descriptors, o.Descriptors), f.Bound || o.Bound
}
