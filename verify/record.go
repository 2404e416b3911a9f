package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"tornwire/checker"
	"tornwire/history"
)

// Limits of a record.
const (
	// MaxRecord is the most bytes that a record may have. A standard run takes a
	// hundredth of it.
	MaxRecord = 16 << 30
	// maxRecordCases is the most cases, and runs of them, in one.
	maxRecordCases = 1 << 20
	// recordQueue is how many histories wait to be written before no more cases
	// start.
	recordQueue = 64
	// findingsSaid is how many findings the line of a case repeats; they all come
	// out of its history.
	findingsSaid = 20
)

// recordSchema is the form of a record. A reader refuses a newer one.
const recordSchema = 1

// Files of a record, beside the histories.
const (
	manifestFile = "manifest.json"
	resultsFile  = "results.jsonl"
	historiesDir = "histories"
)

// manifest is what a record says of its run; it is written before the first case.
type manifest struct {
	Schema  int            `json:"schema"`
	Tool    string         `json:"tool"`
	Version string         `json:"version"`
	Client  string         `json:"client"`
	Sweep   string         `json:"sweep"`
	Seed    uint64         `json:"seed"`
	Strict  bool           `json:"strict"`
	Command []string       `json:"command"` // the adapter's; empty: the reference client
	Policy  checker.Policy `json:"policy"`
	Limit   int            `json:"descriptors"` // the limit of open files, where that bounded the cases in flight
	// Upstream, SecretFile and KeyPrefix are those of Options.
	Upstream   string `json:"upstream,omitempty"`
	SecretFile string `json:"secret_file,omitempty"`
	KeyPrefix  string `json:"key_prefix,omitempty"`
	// Baseline is that of the run, with the day on which it was made.
	Baseline *Baseline `json:"baseline,omitempty"`
	Cases    []string  `json:"cases"`
	// Workloads to Named are what was selected, Shard the part of it that was run, and
	// Whole how many cases all parts have.
	Workloads []string `json:"workloads,omitempty"`
	Faults    []string `json:"faults,omitempty"`
	Rules     []string `json:"rules,omitempty"`
	Named     []string `json:"named,omitempty"`
	Shard     *Shard   `json:"shard,omitempty"`
	Whole     int      `json:"whole,omitempty"`
	Repeat    int      `json:"repeat,omitempty"` // how often each case was run
	// Timeout is that of a case.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}

// When a recorded run of a case was made. A replay is one that confirms a finding.
const (
	whenCase    = "case"
	whenFirst   = "first"
	whenLast    = "last"
	whenControl = "control"
	whenReplay  = "replay"
)

// resultLine is a line of the results: a run of a case and what was said of it, or
// the end of the record.
type resultLine struct {
	When     string          `json:"when,omitempty"`
	Case     string          `json:"case,omitempty"`
	Run      int             `json:"run,omitempty"`  // which of several runs of the case
	File     string          `json:"file,omitempty"` // its history, if there is one
	Events   int             `json:"events,omitempty"`
	Judged   bool            `json:"judged"` // the verdict is the checker's; else Reason says why there is none
	Verdict  checker.Verdict `json:"verdict,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Fired    bool            `json:"fired"`
	Repeated int             `json:"repeated,omitempty"`
	Seconds  float64         `json:"seconds"`
	Policy   *checker.Policy `json:"policy,omitempty"` // where it is not the manifest's
	Checked  []string        `json:"checked,omitempty"`
	Findings []saidFinding   `json:"findings,omitempty"`
	End      *recordEnd      `json:"end,omitempty"`
}

// saidFinding repeats a finding in short.
type saidFinding struct {
	Rule      string            `json:"rule"`
	Severity  checker.Severity  `json:"severity"`
	Certainty checker.Certainty `json:"certainty"`
	Message   string            `json:"message"`
}

// recordEnd is the last line of a record whose run came to its end.
type recordEnd struct {
	Verdict  checker.Verdict `json:"verdict"`
	ExitCode int             `json:"exit_code"`
	ElapsedS float64         `json:"elapsed_s"`
	Restarts int             `json:"adapter_restarts"`
	InFlight InFlight        `json:"in_flight"`
	Took     Resources       `json:"resources"`
	Fatal    int             `json:"fatal,omitempty"` // the exit code of what kept the run from starting
	Reason   string          `json:"reason,omitempty"`
	SkipAll  bool            `json:"skip_all,omitempty"`
}

// Record is a directory into which a run writes the history of every case.
type Record struct {
	dir  string
	root *os.Root
	max  int64 // bytes

	jobs   chan job
	failed chan struct{} // closed at the first error
	wg     sync.WaitGroup

	err      error // set before failed is closed
	results  *os.File
	policy   checker.Policy
	left     int64
	replayed map[CaseID]int
	made     map[string]bool // directories
}

type job struct {
	when string
	res  CaseResult
}

// CreateRecord makes the directory of a record, which must be new or empty. A
// UsageError says that it is neither.
func CreateRecord(dir string) (*Record, error) {
	list, err := os.ReadDir(dir)
	switch {
	case err == nil && len(list) > 0:
		return nil, usagef("--record %s: the directory is not empty; name a new one, or empty it", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		if info, serr := os.Stat(dir); serr == nil && !info.IsDir() {
			return nil, usagef("--record %s is a file, not a directory", dir)
		}
		return nil, fmt.Errorf("cannot record: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, historiesDir), 0o755); err != nil {
		return nil, fmt.Errorf("cannot record: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot record: %w", err)
	}
	return &Record{dir: dir, root: root, max: MaxRecord}, nil
}

// begin writes the manifest and starts to write. fail is called once, at the first
// error.
func (w *Record) begin(m manifest, fail func(error)) {
	if w == nil || w.jobs != nil {
		return
	}
	w.left, w.policy, w.replayed, w.made = w.max, m.Policy, map[CaseID]int{}, map[string]bool{}
	w.jobs, w.failed = make(chan job, recordQueue), make(chan struct{})
	w.wg.Go(func() {
		err := w.open(m)
		if err != nil {
			w.fail(err, fail)
		}
		for j := range w.jobs {
			if err != nil || j.when == "" {
				continue
			}
			if err = w.write(j); err != nil {
				w.fail(err, fail)
			}
		}
	})
}

func (w *Record) fail(err error, tell func(error)) {
	w.err = fmt.Errorf("cannot record to %s: %w", w.dir, err)
	close(w.failed)
	tell(w.err)
}

// open writes the manifest as a whole, and opens the results.
func (w *Record) open(m manifest) error {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	if err := w.file(manifestFile+".new", append(data, '\n')); err != nil {
		return err
	}
	if err := w.root.Rename(manifestFile+".new", manifestFile); err != nil {
		return err
	}
	w.results, err = w.root.OpenFile(resultsFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	return err
}

// add hands a run of a case over; it waits while too many are not yet written.
func (w *Record) add(when string, res CaseResult) {
	if w == nil || w.jobs == nil {
		return
	}
	select {
	case w.jobs <- job{when, res}:
	case <-w.failed:
	}
}

// room waits until what is recorded has been written but for a few.
func (w *Record) room(ctx context.Context) {
	if w == nil || w.jobs == nil {
		return
	}
	select {
	case w.jobs <- job{}:
	case <-w.failed:
	case <-ctx.Done():
	}
}

// end writes what is left, and the last line; nothing may be added any more.
func (w *Record) end(e recordEnd) error {
	if w == nil {
		return nil
	}
	if w.jobs != nil {
		close(w.jobs)
		w.wg.Wait()
	}
	err := w.err
	if w.results != nil {
		if err == nil {
			if err = w.line(resultLine{End: &e}); err != nil {
				err = fmt.Errorf("cannot record to %s: %w", w.dir, err)
			}
		}
		if cerr := w.results.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("cannot record to %s: %w", w.dir, cerr)
		}
	}
	_ = w.root.Close()
	return err
}

// write writes the history of a run and then its line, so that a line's history is
// always there.
func (w *Record) write(j job) error {
	l := w.lineOf(j)
	if j.res.events != nil {
		var b bytes.Buffer
		if err := history.WriteJSON(&b, redacted(j.res.events)); err != nil {
			return fmt.Errorf("%s: %w", l.Case, err)
		}
		if dir := path.Dir(l.File); !w.made[dir] {
			if err := w.root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			w.made[dir] = true
		}
		if err := w.file(l.File, b.Bytes()); err != nil {
			return err
		}
	}
	return w.line(l)
}

func (w *Record) lineOf(j job) resultLine {
	c := resultOf(j.res)
	l := resultLine{
		When: j.when, Case: c.Case, Run: j.res.Case.rep, Judged: j.res.judged != nil, Verdict: c.Verdict, Reason: c.Reason, Fired: c.Fired,
		Repeated: c.Repeated, Seconds: c.Seconds, Checked: j.res.Checked, Events: len(j.res.events),
	}
	if j.res.events != nil {
		nth := j.res.Case.rep
		if j.when == whenReplay {
			w.replayed[j.res.Case.ID]++
			nth = w.replayed[j.res.Case.ID]
		}
		l.File = historyFile(j.res.Case.ID, j.when, nth)
	}
	if p := j.res.judged; p != nil && !reflect.DeepEqual(*p, w.policy) {
		l.Policy = p
	}
	for _, f := range j.res.Findings[:min(len(j.res.Findings), findingsSaid)] {
		l.Findings = append(l.Findings, saidFinding{f.Rule, f.Severity, f.Certainty, f.Message})
	}
	return l
}

// historyFile names the file of a history. A colon, which is in every case id, is
// not allowed in names everywhere.
func historyFile(id CaseID, when string, nth int) string {
	if parent, text, ok := splitStory(id.Workload); ok { // which is too long for a name
		h := fnv.New64a()
		_, _ = h.Write([]byte(text))
		id.Workload = fmt.Sprintf("%s-%016x", parent, h.Sum64())
	}
	_, rest, _ := strings.Cut(id.String(), "/")
	name := strings.ReplaceAll(rest, ":", ".")
	switch when {
	case whenCase:
		if nth > 1 {
			name += fmt.Sprintf(".run%d", nth)
		}
	case whenReplay:
		name += fmt.Sprintf(".%s%d", when, nth)
	default:
		name += "." + when
	}
	return path.Join(historiesDir, name+".jsonl")
}

// file writes a new file.
func (w *Record) file(name string, data []byte) error {
	if err := w.spend(len(data)); err != nil {
		return err
	}
	f, err := w.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// line appends to the results with one write.
func (w *Record) line(l resultLine) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := w.spend(len(data) + 1); err != nil {
		return err
	}
	n, err := w.results.Write(append(data, '\n'))
	if err == nil && n < len(data)+1 {
		err = io.ErrShortWrite
	}
	return err
}

func (w *Record) spend(n int) error {
	if w.left -= int64(n); w.left < 0 {
		return fmt.Errorf("it would have over %s bytes; select fewer cases", thousands(int(w.max)))
	}
	return nil
}

// redacted leaves out what a client has made of the secret: nobody needs it to
// judge, and a record is for sharing.
func redacted(events []history.Event) []history.Event {
	var out []history.Event
	for i, e := range events {
		if e.Frame == nil || e.Frame.Op != opAuth || len(e.Data) == 0 {
			continue
		}
		if out == nil {
			out = append(out, events...)
		}
		out[i].Data = bytes.Repeat([]byte{'*'}, len(e.Data))
		if e.Data[len(e.Data)-1] == '\n' {
			out[i].Data[len(e.Data)-1] = '\n'
		}
	}
	if out == nil {
		return events
	}
	return out
}
