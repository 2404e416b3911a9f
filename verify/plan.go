package verify

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tornwire/checker"
	"tornwire/faults"
	"tornwire/frames"
	"tornwire/internal/words"
)

var errTable = errors.New("the embedded server's table refused a free key: this is a defect of tornwire")

// DefaultTimeout bounds one case.
const DefaultTimeout = time.Minute

// MaxParallel is the most cases in flight.
const MaxParallel = 4096

// MaxPatience bounds Options.Grace and Options.Tolerance.
const MaxPatience = time.Minute

// Options say what is verified and how. The zero value of a field means its
// default.
type Options struct {
	Dialect   string        // "ticketing"; with Cases: theirs
	Workloads []string      // ids or "all"; empty: all
	Faults    []string      // ids, families, "none" or "all"; empty: all
	Rules     []string      // ids or "all"; empty: all
	Cases     []string      // case ids; empty: all that the other fields select
	Sweep     string        // SweepSmoke, SweepStandard or SweepFull; "": standard
	Seed      uint64        // of everything random
	Parallel  int           // cases in flight, 1 to MaxParallel; 0: from the descriptor limit
	Shard     *Shard        // which part of the cases is run; nil: all
	Repeat    int           // how often each case is run, 1 to MaxRepeat; 0: once
	Adapters  int           // among which the cases are spread, 1 to MaxAdapters; 0: 1
	Timeout   time.Duration // per case; 0: DefaultTimeout
	Profile   string        // "any" or "official"; "": any
	Busy      string        // "unsettled", "final" or "retry"; "": unsettled
	// Grace and Tolerance are how long after a call's deadline its session may still
	// be open (spec/ticketing.md §3.2), added up: each 0 to MaxPatience; nil is
	// checker.DefaultGrace and checker.DefaultTolerance.
	Grace, Tolerance *time.Duration
	Strict           bool    // a non-strict verdict has exit code 3
	FailFast         bool    // stop at the first case that is not safe
	Start            Starter // makes the adapter
	// Alone makes an adapter of the same client that is a process of its own, for the
	// workloads that stop it; nil: Start, where that makes processes, else these
	// workloads are skipped.
	Alone Starter
	// Upstream is a server, host:port, that is used in the embedded server's place.
	// Its table is not seen (spec/rules.md P14). Secret is that of its preface.
	Upstream string
	Secret   string
	// SecretFile is where the secret was read, for replay lines.
	SecretFile string
	// ClosedWorld declares that nobody else uses the keys there and that the server is
	// not restarted: what is else suspected of it is then certain.
	ClosedWorld bool
	// KeyPrefix goes before every key there; at most MaxKeyPrefix bytes.
	KeyPrefix string
	Command   []string  // the adapter's command, for replay lines; empty: in process
	Version   string    // of the tool, for the report
	Record    *Record   // where the histories go; nil: nowhere
	Baseline  *Baseline // accepted findings; nil: none
}

// UsageError is a wrong option; Error is one line that says what to do.
type UsageError struct{ msg string }

func (e *UsageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return NewUsageError(format, args...) }

// NewUsageError is an error about what somebody has asked for.
func NewUsageError(format string, args ...any) *UsageError {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Case is one case of a plan.
type Case struct {
	ID       CaseID
	Workload *Workload
	Frame    Expected // that the fault acts on; zero without one
	rep      int      // which of its runs this is, from 1; 0: its only one
}

// Plan is a checked list of cases.
type Plan struct {
	Options
	Grammar *frames.Grammar
	Cases   []Case
	only    map[string]bool // rules; nil: all
	whole   int             // cases of all shards; 0: the run is not divided
	// descriptors is the limit of open files if that, and nobody's wish, bounds the
	// cases in flight; else 0.
	descriptors int
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
	if err := p.checkUpstream(); err != nil {
		return nil, err
	}
	if p.Shard != nil {
		if err := p.Shard.check("--shard"); err != nil {
			return nil, err
		}
	}
	if err := p.list(); err != nil {
		return nil, err
	}
	if p.Shard != nil {
		p.take(*p.Shard)
	}
	return p, nil
}

// list lists the cases of all shards.
func (p *Plan) list() error {
	if len(p.Options.Cases) > 0 {
		return p.pickCases()
	}
	for _, c := range allCases(p.Grammar, p.Sweep, len(p.KeyPrefix)) {
		if p.selected(c) && (p.Sweep != SweepSmoke || c.Workload.Smoke || slices.Contains(p.Workloads, c.ID.Workload)) {
			p.Cases = append(p.Cases, c)
		}
	}
	return nil
}

// selected tells whether the workload and fault filters let a case through.
func (p *Plan) selected(c Case) bool {
	if !wants(p.Workloads, c.ID.Workload) {
		return false
	}
	if slices.Contains(p.Faults, c.ID.Fault) {
		return true
	}
	t, ok := faults.ByID(c.ID.Fault)
	if ok && (slices.Contains(p.Faults, t.Family) || slices.Contains(p.Faults, string(t.Class))) {
		return true
	}
	// No network does what a byzantine fault does: it has to be named
	// (spec/rules.md P12).
	byzantine := ok && t.Class == faults.Byzantine && len(p.Options.Cases) == 0
	return (len(p.Faults) == 0 || slices.Contains(p.Faults, "all")) && !byzantine
}

func wants(list []string, word string) bool {
	return len(list) == 0 || slices.Contains(list, "all") || slices.Contains(list, word)
}

// pickCases takes the cases named one by one. Only the workloads that they name are
// listed.
func (p *Plan) pickCases() error {
	named := map[string]bool{}
	for _, s := range p.Options.Cases {
		if id, err := ParseCaseID(s); err == nil {
			named[id.Workload] = true
		}
	}
	list := casesOf(slices.DeleteFunc(Workloads(), func(w *Workload) bool { return !named[w.ID] }), p.Grammar, SweepFull, len(p.KeyPrefix))
	known := make(map[CaseID]Case, len(list))
	for _, c := range list {
		known[c.ID] = c
	}
	taken := map[CaseID]bool{}
	for _, s := range p.Options.Cases {
		id, err := ParseCaseID(s)
		if err != nil {
			return usagef("%s%s", err, p.nearest(s))
		}
		c, ok := known[id]
		if _, _, tells := splitStory(id.Workload); tells {
			if c, err = storyCase(p.Grammar, id); err != nil {
				return usagef("there is no case %q: %s", s, err)
			}
			id, ok = c.ID, true
		}
		if !ok {
			return usagef("there is no case %q: %s%s", s, p.whyNot(id, list), p.nearest(s))
		}
		if !p.selected(c) {
			return usagef("case %q is not among the workloads and faults that --workload and --fault select", s)
		}
		if !taken[id] {
			taken[id] = true
			p.Cases = append(p.Cases, c)
		}
	}
	return nil
}

// nearest suggests the case id that is nearest to a wrong one.
func (p *Plan) nearest(s string) string {
	var words []string
	for _, c := range allCases(p.Grammar, SweepFull, len(p.KeyPrefix)) {
		words = append(words, c.ID.String())
	}
	return DidYouMean(s, words)
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
		if c.ID.Workload == id.Workload && c.ID.Frame == id.Frame && c.ID.Fault != NoFault {
			size = c.Frame.Size
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
	if err := known("fault", p.Faults, append(faults.Words(), NoFault, string(faults.Network), string(faults.Peer), string(faults.Byzantine))); err != nil {
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
		return usagef("there is no profile %q%s; profiles are any and official", p.Profile, DidYouMean(p.Profile, []string{"any", "official"}))
	}
	if p.Busy == "" {
		p.Busy = checker.BusyUnsettled
	}
	if words := []string{checker.BusyUnsettled, checker.BusyFinal, checker.BusyRetry}; !slices.Contains(words, p.Busy) {
		return usagef("there is no --busy %q%s; it is %s", p.Busy, DidYouMean(p.Busy, words), strings.Join(words, ", "))
	}
	if err := p.checkPatience(); err != nil {
		return err
	}
	if p.Sweep == "" {
		p.Sweep = SweepStandard
	}
	if words := []string{SweepSmoke, SweepStandard, SweepFull}; !slices.Contains(words, p.Sweep) {
		return usagef("there is no sweep %q%s; sweeps are %s", p.Sweep, DidYouMean(p.Sweep, words), strings.Join(words, ", "))
	}
	if p.Parallel < 0 || p.Parallel > MaxParallel {
		return usagef("--parallel is %d, not 1 to %d", p.Parallel, MaxParallel)
	}
	if p.Adapters < 0 || p.Adapters > MaxAdapters {
		return usagef("--adapters is %d, not 1 to %d", p.Adapters, MaxAdapters)
	}
	p.Adapters = max(p.Adapters, 1)
	if p.Repeat < 0 || p.Repeat > MaxRepeat {
		return usagef("--repeat is %d, not 1 to %d", p.Repeat, MaxRepeat)
	}
	if p.Parallel == 0 {
		p.Parallel, p.descriptors = defaultParallel()
		if p.Upstream != "" && p.Parallel > stagingParallel {
			p.Parallel, p.descriptors = stagingParallel, 0
		}
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if p.Timeout < time.Second || p.Timeout > time.Hour {
		return usagef("--timeout is %s, not 1s to 1h", p.Timeout)
	}
	return nil
}

// checkPatience checks how long a session may be open after a deadline.
func (p *Plan) checkPatience() error {
	for _, f := range []struct {
		name string
		d    *time.Duration
	}{{"grace", p.Grace}, {"tolerance", p.Tolerance}} {
		if f.d != nil && (*f.d < 0 || *f.d > MaxPatience) {
			return usagef("--%s is %s, not 0s to %s", f.name, *f.d, MaxPatience)
		}
	}
	return nil
}

// checkUpstream checks what is said of a server in the embedded one's place.
func (p *Plan) checkUpstream() error {
	if p.Upstream == "" {
		switch {
		case p.Secret != "":
			return usagef("--secret-file is the upstream's secret, and there is no --upstream")
		case p.ClosedWorld:
			return usagef("--closed-world is about the upstream, and there is no --upstream")
		case p.KeyPrefix != "":
			return usagef("--key-prefix is for keys of the upstream, and there is no --upstream")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(p.Upstream)
	if n, numErr := strconv.Atoi(port); numErr == nil && (n < 1 || n > 65535) {
		return usagef("--upstream is %q, and ports are 1 to 65535", p.Upstream)
	}
	if err != nil || host == "" || port == "" {
		return usagef("--upstream is %q, not HOST:PORT", p.Upstream)
	}
	if len(p.KeyPrefix) > MaxKeyPrefix {
		return usagef("--key-prefix has %d bytes, over %d", len(p.KeyPrefix), MaxKeyPrefix)
	}
	shape := p.Grammar.MustShape(frames.ClientToServer, "R")
	if err := shape.CheckTail([]byte(p.KeyPrefix + singleKey)); err != nil {
		return usagef("--key-prefix %q cannot be in a key: %s", p.KeyPrefix, err)
	}
	return nil
}

// DidYouMean returns "; did you mean …?" with the nearest of the words, or "".
func DidYouMean(word string, list []string) string { return words.DidYouMean(word, list) }
