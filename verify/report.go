package verify

import (
	"fmt"
	"math"
	"sync"

	"tornwire/checker"
	"tornwire/faults"
)

// Report is the result of a run, in the form of the JSON report (spec/cli.md).
type Report struct {
	Schema      int             `json:"schema"`
	Tool        string          `json:"tool"`
	Version     string          `json:"version"`
	Dialect     string          `json:"dialect"`
	Client      string          `json:"client"`
	Profile     string          `json:"profile"`
	Busy        string          `json:"busy"`
	Seed        uint64          `json:"seed"`
	Selection   Selection       `json:"selection"`
	Shard       *Shard          `json:"shard,omitempty"` // nil: the run was not divided
	Verdict     checker.Verdict `json:"verdict"`
	Reason      string          `json:"reason"` // why a run is inconclusive
	ExitCode    int             `json:"exit_code"`
	ElapsedS    float64         `json:"elapsed_s"`
	Interrupted bool            `json:"interrupted"`
	Restarts    int             `json:"adapter_restarts"`
	Cases       Counts          `json:"cases"`
	Flaky       int             `json:"flaky,omitempty"` // cases that failed in some of their runs only
	Fencing     int             `json:"needs_fencing"`
	Fenced      []string        `json:"fenced"` // the entries counted there: both holders and tokens
	Coverage    Coverage        `json:"coverage"`
	InFlight    InFlight        `json:"in_flight"`
	Resources   Resources       `json:"resources"`
	Outcomes    []OutcomeCount  `json:"outcomes"`
	Rules       []RuleCount     `json:"rules"`
	Sanity      []SanityResult  `json:"sanity"`
	Results     []Result        `json:"results"`
	Findings    []Finding       `json:"findings"`
	Baseline    []BaselineEntry `json:"baseline,omitempty"`

	mu        sync.Mutex
	file      string // it was read from
	plan      *Plan
	index     map[CaseID]int
	outcomes  map[outcome]int
	rules     map[string]*RuleCount
	cut       map[frameOf]map[int]bool
	possible  map[frameOf]int
	broke     map[CaseID][]string // rules that a case certainly broke
	replays   map[string]int      // how often a case was run again
	again     map[ruleOf]int      // how often a rule was then broken again
	internal  bool                // the embedded server broke a rule
	fatal     int                 // exit code of what kept the run from starting
	skipped   bool                // that is that every case was skipped
	insane    bool                // a sanity case failed
	endless   bool                // its record has no end
	byClient  map[uint64]bool     // views of the cases
	byServer  map[uint64]bool
	matched   map[int]int    // findings by entry of the baseline
	faultless map[string]int // rules broken in runs that are no cases of the plan
}

type frameOf struct {
	workload string
	frame    FrameID
}

// Counts counts cases by verdict; NotRun are those that a run which was stopped
// did not come to. Repeated counts tries that were not judged.
type Counts struct {
	Total         int `json:"total"`
	Safe          int `json:"safe"`
	Unsafe        int `json:"unsafe"`
	Nonconforming int `json:"nonconforming"`
	NonStrict     int `json:"non_strict"`
	Inconclusive  int `json:"inconclusive"`
	Skipped       int `json:"skipped"`
	Repeated      int `json:"repeated"`
	NotRun        int `json:"not_run"`
}

// Coverage counts the offsets at which frames were really cut, and, apart from
// them, how many exchanges differed: to a client all offsets inside its own request
// look alike (spec/faults.md).
type Coverage struct {
	Possible int             `json:"offsets_possible"`
	Cut      int             `json:"offsets_cut"`
	Distinct int             `json:"distinct_exchanges"`        // as the client could tell them apart
	Servers  int             `json:"distinct_exchanges_server"` // as the server could
	ByFrame  []FrameCoverage `json:"by_frame"`
}

// InFlight is how many cases were under way at once.
type InFlight struct {
	Limit       int  `json:"limit"`
	Peak        int  `json:"peak"`
	Descriptors int  `json:"descriptors"` // the limit of open files that the limit comes from; 0 if it does not
	Bound       bool `json:"bound"`       // the limit was reached
	Adapters    int  `json:"adapters"`    // among which they were spread
}

// FrameCoverage is the coverage of one frame of a workload: offset k is cut when
// a fault acted behind k bytes; a frame of Size bytes has Size + 1 offsets.
type FrameCoverage struct {
	Workload string `json:"workload"`
	Frame    string `json:"frame"`
	Size     int    `json:"size"`
	Possible int    `json:"offsets_possible"`
	Cut      int    `json:"offsets_cut"`
}

// OutcomeCount is how often calls ended in one way, in the adapter's word and
// the library's own.
type OutcomeCount struct {
	Outcome string `json:"outcome"`
	Raw     string `json:"raw"`
	Count   int    `json:"count"`
}

// RuleCount is in how many cases a rule was really checked and broken. Severity is the
// gravest that it can be under the policy of the run.
type RuleCount struct {
	ID         string           `json:"id"`
	Severity   checker.Severity `json:"severity"`
	Checked    int              `json:"checked"`
	Violations int              `json:"violations"`
	// Workloads says in how many cases of each workload it was checked.
	Workloads map[string]int `json:"workloads,omitempty"`
}

// Result is the verdict of a case.
type Result struct {
	Case     string          `json:"case"`
	Verdict  checker.Verdict `json:"verdict"`
	Fired    bool            `json:"fired"`
	Reason   string          `json:"reason"`
	Repeated int             `json:"repeated,omitempty"`
	Seconds  float64         `json:"seconds"` // that its last try took
	// Runs is how often the case was run, where that is more than once, and Found in how
	// many of these runs it broke a rule for certain: its flake score.
	Runs  int   `json:"runs,omitempty"`
	Found int   `json:"found,omitempty"`
	Part  *Part `json:"part,omitempty"` // in the report of a shard
}

// SanityResult is the verdict of a run without a fault that is no case of the
// plan: the first and last of a run, and those that tell which frames a client
// sends.
type SanityResult struct {
	When string `json:"when"` // first, last, control
	Result
}

// Finding is a broken rule in a case.
type Finding struct {
	Case string `json:"case"`
	checker.Finding
	Class  string `json:"class"` // of the fault; none without one
	Replay string `json:"replay"`
	// Accepted is why the baseline accepts it; it does not count then.
	Accepted string `json:"accepted,omitempty"`
	// Replayed is how often the case was run again before the report was written,
	// and Reproduced how often the rule was broken then. Only the findings that the
	// text report shows are run again.
	Replayed   int `json:"replayed,omitempty"`
	Reproduced int `json:"reproduced,omitempty"`
	// Runs and Found are those of Result, of this finding.
	Runs  int `json:"runs,omitempty"`
	Found int `json:"found,omitempty"`
}

func newReport(p *Plan) *Report {
	r := &Report{
		Schema: 1, Tool: "tornwire", Version: p.Version, Dialect: p.Dialect, Profile: p.Profile, Busy: p.Busy, Seed: p.Seed,
		Selection: p.selection(), Shard: p.Shard,
		plan: p, index: map[CaseID]int{}, outcomes: map[outcome]int{}, rules: map[string]*RuleCount{},
		cut: map[frameOf]map[int]bool{}, possible: map[frameOf]int{},
		byClient: map[uint64]bool{}, byServer: map[uint64]bool{},
		broke: map[CaseID][]string{}, matched: map[int]int{}, faultless: map[string]int{}, replays: map[string]int{}, again: map[ruleOf]int{},
		Outcomes: []OutcomeCount{}, Results: []Result{}, Findings: []Finding{}, Sanity: []SanityResult{}, Fenced: []string{},
	}
	for i, c := range p.Cases {
		r.index[c.ID] = i
	}
	policy := checker.Policy{Dialect: p.Dialect, Profile: p.Profile, Busy: p.Busy}
	for _, rule := range checker.Rules() {
		if p.only == nil || p.only[rule.ID] {
			r.rules[rule.ID] = &RuleCount{ID: rule.ID, Severity: policy.Severity(rule)}
		}
	}
	r.Cases.Total = len(p.Cases)
	return r
}

func (r *Report) client(name string) { r.Client = name }

// unreachable ends a run whose adapter or upstream cannot be reached.
func (r *Report) unreachable(err error) {
	r.fatally(ExitUnreachable, err.Error())
}

// skipAll ends a run in which no case can run.
func (r *Report) skipAll(why string) {
	r.skipped = r.fatally(ExitInconclusive, why)
	for _, c := range r.plan.Cases {
		r.add(CaseResult{Case: c, Verdict: checker.Skipped, Reason: why})
	}
}

// unrecorded ends a run whose record cannot be written.
func (r *Report) unrecorded(err error) { r.fatally(ExitInternal, err.Error()) }

// fatally notes what keeps a run from its verdict, and its exit code. An internal
// error goes before all else.
func (r *Report) fatally(code int, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fatal == ExitInternal {
		return false
	}
	r.fatal, r.Reason = code, why
	return true
}

// end is what the last line of the record says.
func (r *Report) end() recordEnd {
	e := recordEnd{
		Verdict: r.Verdict, ExitCode: r.ExitCode, ElapsedS: r.ElapsedS, Restarts: r.Restarts, InFlight: r.InFlight, Took: r.Resources,
		Fatal: r.fatal, SkipAll: r.skipped,
	}
	if r.fatal != 0 {
		e.Reason = r.Reason
	}
	return e
}

// nothing ends a run without cases. A shard to which none of the selected ones falls is
// none of its own.
func (r *Report) nothing() {
	if r.plan.whole == 0 {
		r.fatally(ExitInconclusive, "no case matches the selection")
	}
}

// sanity adds a run that is no case of the plan. Its findings count.
func (r *Report) sanity(when string, c CaseResult) {
	if c.notRun {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(&c)
	r.Sanity = append(r.Sanity, SanityResult{When: when, Result: r.result(c)})
	r.take(c)
	for _, id := range c.certain() {
		r.faultless[id]++
	}
	if c.Verdict == checker.Inconclusive && when != whenControl {
		r.insane = true
		r.Reason = fmt.Sprintf("the %s run without a fault is inconclusive: %s", when, c.Reason)
	}
}

func (r *Report) result(c CaseResult) Result {
	res := resultOf(c)
	if r.Shard != nil {
		res.Part = partOf(c)
	}
	return res
}

func resultOf(c CaseResult) Result {
	return Result{Runs: c.runs, Found: c.found(), Case: c.Case.ID.String(), Verdict: c.Verdict, Fired: c.Fired, Reason: c.Reason, Repeated: c.Repeated, Seconds: math.Round(c.took.Seconds()*1000) / 1000}
}

// add adds a case of the plan, and returns its verdict without what is accepted.
func (r *Report) add(c CaseResult) checker.Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(&c)
	r.Results = append(r.Results, r.result(c))
	n := map[checker.Verdict]*int{
		checker.Safe: &r.Cases.Safe, checker.Unsafe: &r.Cases.Unsafe, checker.Nonconforming: &r.Cases.Nonconforming,
		checker.NonStrict: &r.Cases.NonStrict, checker.Inconclusive: &r.Cases.Inconclusive, checker.Skipped: &r.Cases.Skipped,
	}[c.Verdict]
	*n++
	r.take(c)
	r.broke[c.Case.ID] = c.certain()
	for _, id := range r.broke[c.Case.ID] {
		if n := r.rules[id]; n != nil {
			n.Violations++
		}
	}
	r.cover(c)
	if c.views != (views{}) {
		r.byClient[c.views.client], r.byServer[c.views.server] = true, true
	}
	return c.Verdict
}

// inFlight notes how many cases were under way at once.
func (r *Report) inFlight(p *pulse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.InFlight = InFlight{Limit: p.maxRoom, Peak: p.peak, Descriptors: r.plan.descriptors, Bound: p.peak >= p.maxRoom, Adapters: r.plan.Adapters}
}

// take adds what a run says of outcomes, rules and findings.
func (r *Report) take(c CaseResult) {
	r.Cases.Repeated += c.Repeated
	r.Fencing += c.Fencing
	for _, l := range c.Fenced {
		r.Fenced = append(r.Fenced, c.Case.ID.String()+": "+l)
	}
	for _, o := range c.Outcomes {
		r.outcomes[o]++
	}
	for _, id := range c.Checked {
		if n := r.rules[id]; n != nil {
			n.Checked++
			if n.Workloads == nil {
				n.Workloads = map[string]int{}
			}
			n.Workloads[c.Case.ID.Workload]++
		}
	}
	for i, f := range c.Findings {
		out := Finding{Case: c.Case.ID.String(), Finding: f, Class: classOf(c.Case.ID), Replay: r.plan.replay(c.Case.ID)}
		if c.runs > 0 {
			out.Runs, out.Found = c.runs, len(c.shows[i])
		}
		if c.isAccepted(i) {
			out.Accepted = c.accepted[i]
		}
		r.Findings = append(r.Findings, out)
		r.internal = r.internal || f.Certainty == checker.Certain && f.Side == "server" && r.plan.Upstream == ""
	}
}

func classOf(id CaseID) string {
	if t, ok := faults.ByID(id.Fault); ok {
		return string(t.Class)
	}
	return NoFault
}

// cover notes at which offset a frame was cut.
func (r *Report) cover(c CaseResult) {
	t, ok := faults.ByID(c.Case.ID.Fault)
	if !ok || t.Range == faults.Start || t.Injects != "" || t.Class == faults.Byzantine || c.Verdict == checker.Skipped {
		return
	}
	f := frameOf{c.Case.ID.Workload, c.Case.ID.Frame}
	r.possible[f] = c.Case.Frame.Size
	if c.Fired && c.Verdict != checker.Inconclusive {
		if r.cut[f] == nil {
			r.cut[f] = map[int]bool{}
		}
		r.cut[f][c.Case.ID.Offset] = true
	}
}
