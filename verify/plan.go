package verify

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"

	"tornwire/checker"
	"tornwire/faults"
	"tornwire/frames"
)

var errTable = errors.New("the embedded server's table refused a free key: this is a defect of tornwire")

// DefaultTimeout bounds one case.
const DefaultTimeout = time.Minute

// MaxParallel is the most cases in flight.
const MaxParallel = 1024

// Options say what is verified and how. The zero value of a field means its
// default.
type Options struct {
	Dialect   string        // "ticketing"; with Cases: theirs
	Workloads []string      // ids or "all"; empty: all
	Faults    []string      // ids, families, "none" or "all"; empty: all
	Rules     []string      // ids or "all"; empty: all
	Cases     []string      // case ids; empty: all that the other fields select
	Seed      uint64        // of everything random
	Parallel  int           // cases in flight, 1 to MaxParallel; 0: from the descriptor limit
	Timeout   time.Duration // per case; 0: DefaultTimeout
	Profile   string        // "any" or "official"; "": any
	Strict    bool          // a non-strict verdict has exit code 3
	FailFast  bool          // stop at the first case that is not safe
	Start     Starter       // makes the adapter
	Command   []string      // the adapter's command, for replay lines; empty: in process
	Version   string        // of the tool, for the report
}

// UsageError is a wrong option; Error is one line that says what to do.
type UsageError struct{ msg string }

func (e *UsageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Case is one case of a plan.
type Case struct {
	ID       CaseID
	Workload *Workload
	Size     int // bytes of the frame; 0 without a fault
}

// Plan is a checked list of cases.
type Plan struct {
	Options
	Grammar *frames.Grammar
	Cases   []Case
	only    map[string]bool // rules; nil: all
}

// NewPlan checks the options and lists the cases they select. Every error is a
// UsageError; an empty selection is none.
func NewPlan(o Options) (*Plan, error) {
	p := &Plan{Options: o}
	if err := p.checkWords(); err != nil {
		return nil, err
	}
	if err := p.checkNumbers(); err != nil {
		return nil, err
	}
	all := allCases(p.Grammar)
	if len(o.Cases) > 0 {
		return p, p.pickCases(all)
	}
	for _, c := range all {
		if p.selected(c) {
			p.Cases = append(p.Cases, c)
		}
	}
	return p, nil
}

// allCases lists every case of a dialect, in workload, exchange, fault and
// offset order.
func allCases(g *frames.Grammar) []Case {
	var out []Case
	for _, w := range workloads {
		if !w.Knows(g.Name) {
			continue
		}
		base := CaseID{Dialect: g.Name, Workload: w.ID}
		none := base
		none.Fault = NoFault
		out = append(out, Case{ID: none, Workload: w})
		list := w.Exchange(g)
		if own := w.Own; own != nil {
			id := base
			id.Frame, id.Offset, id.Fault = own.Frame, own.At, own.Fault
			out = append(out, Case{ID: id, Workload: w, Size: sizeOf(list, own.Frame)})
			continue
		}
		for _, x := range list {
			out = append(out, sweep(base, w, x)...)
		}
	}
	return out
}

// swept lists the faults that are done to every frame of a workload without a
// fault of its own.
func swept() []*faults.Type {
	return slices.DeleteFunc(faults.All(), func(t *faults.Type) bool {
		return t.Class == faults.Byzantine || t.Range == faults.Start
	})
}

// sweep lists the cases of one frame.
func sweep(base CaseID, w *Workload, x Expected) []Case {
	var out []Case
	for _, t := range swept() {
		for _, k := range t.Range.Offsets(x.Size) {
			id := base
			id.Frame, id.Offset, id.Fault = x.Frame, k, t.ID
			out = append(out, Case{ID: id, Workload: w, Size: x.Size})
		}
	}
	return out
}

func sizeOf(list []Expected, f FrameID) int {
	for _, x := range list {
		if x.Frame == f {
			return x.Size
		}
	}
	return 0
}

// selected tells whether the workload and fault filters let a case through.
func (p *Plan) selected(c Case) bool {
	if !wants(p.Workloads, c.ID.Workload) {
		return false
	}
	if len(p.Faults) == 0 || slices.Contains(p.Faults, "all") || slices.Contains(p.Faults, c.ID.Fault) {
		return true
	}
	t, ok := faults.ByID(c.ID.Fault)
	return ok && slices.Contains(p.Faults, t.Family)
}

func wants(list []string, word string) bool {
	return len(list) == 0 || slices.Contains(list, "all") || slices.Contains(list, word)
}

// pickCases takes the cases named one by one.
func (p *Plan) pickCases(all []Case) error {
	known := map[string]Case{}
	var words []string
	for _, c := range all {
		known[c.ID.String()] = c
		words = append(words, c.ID.String())
	}
	for _, s := range p.Options.Cases {
		id, err := ParseCaseID(s)
		if err != nil {
			return usagef("%s%s", err, DidYouMean(s, words))
		}
		c, ok := known[id.String()]
		if !ok {
			return usagef("there is no case %q: %s%s", s, p.whyNot(id, all), DidYouMean(s, words))
		}
		if !p.selected(c) {
			return usagef("case %q is not among the workloads and faults that --workload and --fault select", s)
		}
		if !slices.ContainsFunc(p.Cases, func(have Case) bool { return have.ID == c.ID }) {
			p.Cases = append(p.Cases, c)
		}
	}
	return nil
}

// whyNot says which part of an id does not exist.
func (p *Plan) whyNot(id CaseID, all []Case) string {
	w, ok := WorkloadByID(id.Workload)
	switch {
	case !ok:
		return fmt.Sprintf("there is no workload %q", id.Workload)
	case !w.Knows(id.Dialect):
		return fmt.Sprintf("workload %s is not part of dialect %s", id.Workload, id.Dialect)
	}
	if _, ok := faults.ByID(id.Fault); !ok && id.Fault != NoFault {
		return fmt.Sprintf("there is no fault %q", id.Fault)
	}
	size := -1
	for _, c := range all {
		if c.ID.Workload == id.Workload && c.ID.Frame == id.Frame && c.Size > 0 {
			size = c.Size
		}
	}
	if size < 0 {
		return fmt.Sprintf("workload %s has no frame %s", id.Workload, id.Frame)
	}
	return fmt.Sprintf("%s has %d bytes, and %s at %d is not swept there", id.Frame, size, id.Fault, id.Offset)
}

// checkWords checks every name in the options.
func (p *Plan) checkWords() error {
	if p.Dialect == "" {
		p.Dialect = dialectCurrent
		if len(p.Options.Cases) > 0 {
			if id, err := ParseCaseID(p.Options.Cases[0]); err == nil {
				p.Dialect = id.Dialect
			}
		}
	}
	g, ok := frames.Builtin(p.Dialect)
	if !ok {
		return usagef("there is no dialect %q%s; dialects are %s", p.Dialect, DidYouMean(p.Dialect, frames.Names()), strings.Join(frames.Names(), ", "))
	}
	p.Grammar = g
	for _, s := range p.Options.Cases {
		if id, err := ParseCaseID(s); err == nil && id.Dialect != p.Dialect {
			return usagef("case %q is of dialect %s, but this run is of %s: one run has one dialect", s, id.Dialect, p.Dialect)
		}
	}
	var names []string
	for _, w := range workloads {
		names = append(names, w.ID)
	}
	if err := known("workload", p.Workloads, names); err != nil {
		return err
	}
	if err := known("fault", p.Faults, append(faults.Words(), NoFault)); err != nil {
		return err
	}
	var rules []string
	for _, r := range checker.Rules() {
		rules = append(rules, r.ID)
	}
	if err := known("rule", p.Rules, rules); err != nil {
		return err
	}
	if len(p.Rules) > 0 && !slices.Contains(p.Rules, "all") {
		p.only = map[string]bool{}
		for _, r := range p.Rules {
			p.only[r] = true
		}
	}
	return nil
}

func known(what string, got, words []string) error {
	for _, g := range got {
		if g != "all" && !slices.Contains(words, g) {
			return usagef("there is no %s %q%s; tornwire list %ss shows them", what, g, DidYouMean(g, words), what)
		}
	}
	return nil
}

// checkNumbers checks the rest of the options and sets defaults.
func (p *Plan) checkNumbers() error {
	switch p.Profile {
	case "":
		p.Profile = "any"
	case "any", "official":
	default:
		return usagef("there is no profile %q%s", p.Profile, DidYouMean(p.Profile, []string{"any", "official"}))
	}
	if p.Parallel < 0 || p.Parallel > MaxParallel {
		return usagef("--parallel is %d, not 1 to %d", p.Parallel, MaxParallel)
	}
	if p.Parallel == 0 {
		p.Parallel = defaultParallel()
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.Timeout < time.Second || p.Timeout > time.Hour {
		return usagef("--timeout is %s, not 1s to 1h", p.Timeout)
	}
	return nil
}

// Descriptors: a case with three clients of two connections each has four
// listeners and, in this process, 24 ends of connections at most.
const descriptorsPerCase = 24

// defaultParallel derives the cases in flight from the descriptor limit.
func defaultParallel() int {
	n := 512
	if limit, ok := descriptorLimit(); ok {
		n = min(n, (limit-128)/descriptorsPerCase)
	}
	return max(n, runtime.NumCPU())
}

// DidYouMean returns "; did you mean …?" with the nearest words, or "".
func DidYouMean(word string, words []string) string {
	type near struct {
		w string
		d int
	}
	var list []near
	for _, w := range words {
		d := distance(strings.ToLower(word), w)
		if len(word) >= 3 && strings.HasPrefix(w, strings.ToLower(word)) {
			d = 1
		}
		if d <= max(2, len(word)/3) {
			list = append(list, near{w, d})
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].d < list[j].d })
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", list[0].w)
}

// distance is the number of single-byte edits between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diag, row[j] = row[j], min(row[j]+1, row[j-1]+1, diag+cost)
		}
	}
	return row[len(b)]
}
