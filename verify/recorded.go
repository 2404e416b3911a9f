package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"tornwire/checker"
	"tornwire/history"
)

// Limits of what is read.
const (
	maxManifest = 256 << 20 // bytes
	// problemsShown is how many damaged files are named.
	problemsShown = 20
)

// Recorded is a record of a run.
type Recorded struct {
	Version string // of the tornwire that wrote it
	// Cut says that the record has no end: its run was killed, or is not over.
	Cut bool

	dir   string
	from  manifest
	lines []resultLine
	cases []Case
	end   *recordEnd
}

// CheckOptions change how a record is judged. What is not set is as it was
// recorded.
type CheckOptions struct {
	Profile string   // "any" or "official"
	Busy    string   // "unsettled", "final" or "retry"
	Rules   []string // ids or "all"
	Strict  *bool
	// Grace and Tolerance are those of Options.
	Grace, Tolerance *time.Duration
	// Baseline are the accepted findings, in the place of those of the recorded run.
	Baseline *Baseline
}

// OpenRecord reads what a record says of its run, but no history yet. A UsageError
// names each file and line that is not right.
func OpenRecord(dir string) (*Recorded, error) {
	data, err := readLimited(filepath.Join(dir, manifestFile), maxManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usagef("%s holds no record: there is no %s; tornwire verify --record writes one", dir, manifestFile)
	case err != nil:
		return nil, usagef("cannot read the record: %s", err)
	}
	rec := &Recorded{dir: dir}
	if err := rec.readManifest(data); err != nil {
		return nil, err
	}
	if err := rec.readResults(); err != nil {
		return nil, err
	}
	return rec, nil
}

// openFile opens a file, and nothing else: a pipe would wait for a writer.
func openFile(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err != nil {
		return nil, err
	}
	return os.Open(name)
}

func readLimited(name string, limit int64) ([]byte, error) {
	f, err := openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has over %s bytes", name, thousands(int(limit)))
	}
	return data, err
}

func (rec *Recorded) readManifest(data []byte) error {
	name := filepath.Join(rec.dir, manifestFile)
	var only struct{ Schema *int }
	if err := json.Unmarshal(data, &only); err != nil {
		return usagef("%s:%d: %s", name, lineAt(data, err), err)
	}
	switch {
	case only.Schema == nil || *only.Schema < 1:
		return usagef("%s: it has no schema; it is not the manifest of a record", name)
	case *only.Schema > recordSchema:
		return usagef("%s: the record has schema %d, and this tornwire reads up to %d; a newer one wrote it, use that", name, *only.Schema, recordSchema)
	}
	if err := json.Unmarshal(data, &rec.from); err != nil {
		return usagef("%s:%d: %s", name, lineAt(data, err), err)
	}
	rec.Version = rec.from.Version
	plan := &Plan{Options: Options{Dialect: rec.from.Policy.Dialect}}
	if err := plan.checkWords(); err != nil {
		return usagef("%s: %s", name, err)
	}
	if n := rec.from.Repeat; n < 0 || n > MaxRepeat {
		return usagef("%s: each case is run %d times, not 1 to %d", name, n, MaxRepeat)
	}
	if n := len(rec.from.KeyPrefix); n > MaxKeyPrefix {
		return usagef("%s: the prefix of its keys has %d bytes, over %d", name, n, MaxKeyPrefix)
	}
	known := map[CaseID]Case{}
	for _, c := range allCases(plan.Grammar, SweepFull, len(rec.from.KeyPrefix)) {
		known[c.ID] = c
	}
	for _, s := range rec.from.Cases {
		id, err := ParseCaseID(s)
		if err != nil {
			return usagef("%s: %s", name, err)
		}
		c, ok := known[id]
		if _, _, tells := splitStory(id.Workload); tells {
			c, err = storyCase(plan.Grammar, id)
			ok = err == nil
		}
		if !ok {
			return usagef("%s: this tornwire (%s) has no case %q; tornwire %s wrote the record", name, plan.Dialect, s, rec.Version)
		}
		rec.cases = append(rec.cases, c)
	}
	return nil
}

// lineAt is the line of a JSON error, 1 if it has none.
func lineAt(data []byte, err error) int {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	at := int64(0)
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &typed):
		at = typed.Offset
	}
	return 1 + bytes.Count(data[:min(max(at, 0), int64(len(data)))], []byte{'\n'})
}

// readResults reads the lines of the results. The last may be cut short.
func (rec *Recorded) readResults() error {
	name := filepath.Join(rec.dir, resultsFile)
	f, err := openFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		rec.Cut = true // killed behind the manifest
		return nil
	}
	if err != nil {
		return usagef("cannot read the record: %s", err)
	}
	defer f.Close()
	had := map[string][]int{} // runs
	for _, c := range rec.cases {
		had[c.ID.String()] = nil
	}
	r := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			rec.Cut = rec.end == nil
			return nil
		}
		if err != nil {
			return usagef("%s:%d: %s", name, n, err)
		}
		if rec.end != nil {
			return usagef("%s:%d: there is a line behind the end of the record", name, n)
		}
		if n > maxRecordCases {
			return usagef("%s:%d: more than %d lines", name, n, maxRecordCases)
		}
		var l resultLine
		if err := json.Unmarshal(line, &l); err != nil {
			return usagef("%s:%d: %s", name, n, err)
		}
		if l.End != nil {
			rec.end = l.End
			continue
		}
		if err := rec.fits(l); err != nil {
			return usagef("%s:%d: %s", name, n, err)
		}
		if l.When == whenCase {
			runs, ok := had[l.Case]
			switch {
			case !ok:
				return usagef("%s:%d: case %s is not among those of the manifest", name, n, l.Case)
			case slices.Contains(runs, l.Run):
				return usagef("%s:%d: case %s is there twice", name, n, l.Case)
			}
			had[l.Case] = append(runs, l.Run)
		}
		rec.lines = append(rec.lines, l)
	}
}

// readLine returns the next whole line; a last one without its end is none.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > history.MaxLine:
			return nil, fmt.Errorf("more than %d bytes", history.MaxLine)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// fits checks a line for words that this version does not know.
func (rec *Recorded) fits(l resultLine) error {
	id, err := ParseCaseID(l.Case)
	if err != nil {
		return err
	}
	if _, ok := WorkloadByID(id.Workload); !ok || id.Dialect != rec.from.Policy.Dialect {
		return fmt.Errorf("this tornwire has no case %q in %s", l.Case, rec.from.Policy.Dialect)
	}
	if !slices.Contains([]string{whenCase, whenFirst, whenLast, whenControl, whenReplay}, l.When) {
		return fmt.Errorf("unknown kind of run %q", l.When)
	}
	verdicts := []checker.Verdict{
		checker.Safe, checker.Unsafe, checker.Nonconforming, checker.NonStrict, checker.Inconclusive, checker.Skipped,
	}
	if !slices.Contains(verdicts, l.Verdict) {
		return fmt.Errorf("unknown verdict %q", l.Verdict)
	}
	if repeat := max(rec.from.Repeat, 1); l.Run < 0 || l.Run > 0 && (repeat == 1 || l.Run > repeat || l.When != whenCase) {
		return fmt.Errorf("run %d of a case that is run %d times", l.Run, repeat)
	}
	if l.Judged && l.File == "" {
		return errors.New("a case that was judged has no history")
	}
	if !l.Judged && l.Verdict != checker.Inconclusive && l.Verdict != checker.Skipped {
		return fmt.Errorf("a case that was not judged is %s", l.Verdict)
	}
	return nil
}

// Check judges every history again and returns the report of the run. A UsageError
// names, one a line, each history that cannot be read.
func (rec *Recorded) Check(ctx context.Context, o CheckOptions) (*Report, error) {
	p, err := rec.plan(o)
	if err != nil {
		return nil, err
	}
	report := newReport(p)
	report.client(rec.from.Client)
	report.endless = rec.end == nil
	results, err := rec.judge(ctx, p)
	if err != nil {
		return nil, err
	}
	if e := rec.end; e != nil && e.SkipAll {
		report.skipAll(e.Reason)
	} else if e != nil && e.Fatal != 0 {
		report.fatally(e.Fatal, e.Reason)
	}
	runs := gather{}
	for i, res := range results {
		switch when := rec.lines[i].When; when {
		case whenCase:
			last := true
			if res.Case.rep > 0 {
				res, last = runs.add(res, p.Repeat)
			}
			if last {
				report.add(res)
			}
		case whenReplay:
			report.replayed(res)
		default:
			report.sanity(when, res)
		}
	}
	for _, res := range runs.rest(p) {
		report.add(res)
	}
	var elapsed time.Duration
	restarts := 0
	if e := rec.end; e != nil {
		elapsed, restarts, report.InFlight = time.Duration(e.ElapsedS*float64(time.Second)), e.Restarts, e.InFlight
		report.Resources = e.Took
	}
	report.finish(elapsed, restarts)
	return report, nil
}

// plan is the plan of the recorded run, with another policy if that is asked for.
func (rec *Recorded) plan(o CheckOptions) (*Plan, error) {
	m := rec.from
	p := &Plan{Options: Options{
		Dialect: m.Policy.Dialect, Sweep: m.Sweep, Seed: m.Seed, Strict: m.Strict, Command: m.Command, Version: m.Version,
		Profile: m.Policy.Profile, Busy: m.Policy.Busy, Grace: m.Policy.Grace, Tolerance: m.Policy.Tolerance, Rules: o.Rules, Baseline: o.Baseline,
		Upstream: m.Upstream, SecretFile: m.SecretFile, KeyPrefix: m.KeyPrefix, ClosedWorld: m.Policy.ClosedWorld,
		Timeout: m.Timeout,
	}}
	if o.Profile != "" {
		p.Profile = o.Profile
	}
	if o.Busy != "" {
		p.Busy = o.Busy
	}
	if o.Grace != nil {
		p.Grace = o.Grace
	}
	if o.Tolerance != nil {
		p.Tolerance = o.Tolerance
	}
	if o.Baseline == nil && m.Baseline != nil {
		p.Baseline = m.Baseline
	}
	if o.Strict != nil {
		p.Strict = *o.Strict
	}
	if err := p.checkWords(); err != nil {
		return nil, err
	}
	if err := p.checkNumbers(); err != nil {
		return nil, err
	}
	if len(o.Rules) == 0 {
		p.only = m.Policy.Only
	}
	p.Cases, p.descriptors = rec.cases, m.Limit
	p.Workloads, p.Faults, p.Options.Cases, p.Shard, p.whole = m.Workloads, m.Faults, m.Named, m.Shard, m.Whole
	p.Repeat = m.Repeat
	if len(o.Rules) == 0 {
		p.Rules = m.Rules
	}
	return p, nil
}

// judge judges the recorded runs, several at once.
func (rec *Recorded) judge(ctx context.Context, p *Plan) ([]CaseResult, error) {
	root, err := os.OpenRoot(rec.dir)
	if err != nil {
		return nil, usagef("cannot read the record: %s", err)
	}
	defer root.Close()
	byID := map[string]Case{}
	for _, c := range rec.cases {
		byID[c.ID.String()] = c
	}
	results := make([]CaseResult, len(rec.lines))
	problems := make([]error, len(rec.lines))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				c, ok := byID[rec.lines[i].Case]
				if !ok {
					c.ID, _ = ParseCaseID(rec.lines[i].Case)
					c.Workload, _ = WorkloadByID(c.ID.Workload)
				}
				c.rep = rec.lines[i].Run
				results[i], problems[i] = rec.again(root, rec.lines[i], c, p)
			}
		})
	}
	for i := range rec.lines {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return results, damage(problems)
}

// damage puts the problems of a record into one error, a line each.
func damage(problems []error) error {
	var lines []string
	more := 0
	for _, err := range problems {
		switch {
		case err == nil:
		case len(lines) < problemsShown:
			lines = append(lines, err.Error())
		default:
			more++
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more histories that cannot be read", more))
	}
	return usagef("%s", strings.Join(lines, "\n"))
}

// again judges one recorded run.
func (rec *Recorded) again(root *os.Root, l resultLine, c Case, p *Plan) (CaseResult, error) {
	res := CaseResult{
		Case: c, Verdict: l.Verdict, Reason: l.Reason, Repeated: l.Repeated,
		took: time.Duration(l.Seconds * float64(time.Second)),
	}
	if l.File != "" {
		events, err := readHistory(root, rec.dir, l.File)
		if err != nil {
			return res, err
		}
		if !l.ownsFile() {
			return res, fmt.Errorf("%s is not the history of %s", filepath.Join(rec.dir, l.File), l.Case)
		}
		res.read(events)
		res.views = viewsOf(res.Case.ID.Workload, events)
		if l.Judged {
			res.Reason = ""
			res.judge(events, policyOf(c.Workload, rec.policy(l, p)))
		}
		// What is found in a history that was changed may be looked at; it proves nothing good.
		if why := changed(events, l.Events); why != "" && (res.Verdict == checker.Safe || res.Verdict == checker.NonStrict) {
			res.Verdict, res.Reason = checker.Inconclusive, "its history is not as it was recorded: "+why
		}
	}
	res.Fired = l.Fired
	if l.When == whenFirst || l.When == whenLast {
		res.sane()
	}
	return res, nil
}

// ownsFile tells whether the file of a line is one for its run of its case.
func (l resultLine) ownsFile() bool {
	id, err := ParseCaseID(l.Case)
	if err != nil {
		return false
	}
	if l.When != whenReplay {
		return l.File == historyFile(id, l.When, l.Run)
	}
	for n := 1; n <= 2*replays; n++ {
		if l.File == historyFile(id, l.When, n) {
			return true
		}
	}
	return false
}

// changed tells what shows that events are not those that were recorded.
func changed(events []history.Event, recorded int) string {
	if len(events) != recorded {
		return fmt.Sprintf("it has %d events, not %d", len(events), recorded)
	}
	at := time.Duration(0)
	for i, e := range events {
		if e.Seq != uint64(i+1) || e.At < at {
			return fmt.Sprintf("event %d is not in its place", i+1)
		}
		at = e.At
		if e.Kind == history.Received && e.N != len(e.Data) {
			return fmt.Sprintf("event %d has %d bytes, not %d", i+1, len(e.Data), e.N)
		}
	}
	return ""
}

// policy is the recorded policy of a run with what the plan changes of it. Which rules
// the workload leaves out is for the caller.
func (rec *Recorded) policy(l resultLine, p *Plan) checker.Policy {
	policy := rec.from.Policy
	if l.Policy != nil {
		policy = *l.Policy
	}
	policy.Dialect, policy.Profile, policy.Busy, policy.Only = p.Dialect, p.Profile, p.Busy, p.only
	policy.Grace, policy.Tolerance = p.Grace, p.Tolerance
	return policy
}

func readHistory(root *os.Root, dir, name string) ([]history.Event, error) {
	shown := filepath.Join(dir, name)
	info, err := root.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, withoutPath(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", shown)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, withoutPath(err))
	}
	defer f.Close()
	events, err := history.ReadJSON(f)
	if err != nil {
		at, rest, _ := strings.Cut(strings.TrimPrefix(err.Error(), "line "), ": ")
		return nil, fmt.Errorf("%s:%s: %s", shown, at, rest)
	}
	for i, e := range events {
		if !kinds[e.Kind] {
			return nil, fmt.Errorf("%s:%d: unknown kind of event %q: the file is damaged, or a newer tornwire wrote it", shown, i+1, e.Kind)
		}
		if e.Frame == nil && slices.Contains(ofFrames, e.Kind) {
			return nil, fmt.Errorf("%s:%d: an event %q without its frame", shown, i+1, e.Kind)
		}
	}
	return events, nil
}

func withoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// ofFrames are the kinds of events that are about a frame.
var ofFrames = []history.Kind{history.Received, history.WriteBegun, history.WriteAccepted}

// kinds are the kinds of events that this version knows.
var kinds = func() map[history.Kind]bool {
	m := map[history.Kind]bool{}
	for _, k := range history.Kinds() {
		m[k] = true
	}
	return m
}()
