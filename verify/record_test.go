package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tornwire/adapter"
	"tornwire/checker"
	"tornwire/history"
)

// recorded runs what the options select and records it, until the machine was not
// too busy.
func recorded(t *testing.T, o Options) (*Report, string) {
	t.Helper()
	for range busyTries {
		dir := filepath.Join(t.TempDir(), "record")
		p := plan(t, o)
		rec, err := CreateRecord(dir)
		if err != nil {
			t.Fatal(err)
		}
		p.Record = rec
		if r := Run(t.Context(), p, nil); !wasBusy(r) {
			return r, dir
		}
	}
	t.Fatal("the machine is too busy")
	return nil, ""
}

func checked(t *testing.T, dir string, o CheckOptions) *Report {
	t.Helper()
	rec, err := OpenRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rec.Check(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func asJSON(t *testing.T, r *Report) string {
	t.Helper()
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRecordedIsJudgedAgain: check gives what verify gave, to the letter: the report
// as JSON and as text, findings, replays and exit code.
func TestRecordedIsJudgedAgain(t *testing.T) {
	t.Parallel()
	smoke := Options{Workloads: []string{"single", "busy", "late-reply", "early-reply", "moved"}, Sweep: SweepSmoke, Profile: "official", Strict: true}
	for name, change := range map[string]func(o *Options){
		"":                 func(*Options) {},
		"resend-new-owner": func(o *Options) { o.Workloads = []string{"single"} },
		"stale-zero": func(o *Options) {
			o.Workloads, o.Rules = []string{"single", "late-reply"}, []string{"entry-after-lease", "settles"}
		},
		"busy-retried":  func(o *Options) { o.Workloads, o.Busy, o.Profile = []string{"busy"}, checker.BusyFinal, "any" },
		"enters-anyway": func(o *Options) { o.Cases = []string{"ticketing/single/s2c.A.1@25:truncate-fin"} },
		"newline-first": func(o *Options) { o.Workloads, o.Dialect = []string{"single", "moved"}, dialectV0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := smoke
			o.Start, o.Version = Library(wrong(t, name)), "1.2.3"
			if change(&o); len(o.Cases) > 0 {
				o.Workloads, o.Sweep = nil, ""
			}
			r, dir := recorded(t, o)
			again := checked(t, dir, CheckOptions{})
			if a, b := asJSON(t, r), asJSON(t, again); a != b {
				t.Errorf("the reports differ:\n%s\n%s", text(r), text(again))
			}
			if a, b := text(r), text(again); a != b {
				t.Errorf("the texts differ:\n%s\n%s", a, b)
			}
			if name != "" && (again.ExitCode == ExitSafe || len(again.Findings) == 0) {
				t.Errorf("it is a wrong client, but the exit code is %d:\n%s", again.ExitCode, text(again))
			}
		})
	}
}

// TestUnjudgedIsRecorded: so it is where there is nothing to judge.
func TestUnjudgedIsRecorded(t *testing.T) {
	t.Parallel()
	other := restricted{referenceLibrary(), func(i *adapter.Info) { i.Dialects = []string{dialectV0} }}
	for name, o := range map[string]Options{
		"another dialect": {Start: Library(other)},
		"no adapter":      {Start: func() (transport, error) { return nil, &failure{reason: "there is none"} }},
		"no upstream":     {Upstream: "127.0.0.1:1", ClosedWorld: true, Start: Library(referenceLibrary())},
		"no case":         {Faults: []string{"truncate-fin"}, Workloads: []string{"late-reply"}, Start: Library(referenceLibrary())},
	} {
		o.Workloads = append(o.Workloads, "late-grant")
		r, dir := recorded(t, o)
		if again := checked(t, dir, CheckOptions{}); asJSON(t, again) != asJSON(t, r) || r.ExitCode == ExitSafe {
			t.Errorf("%s: the reports differ:\n%s\n%s", name, text(r), text(again))
		}
	}
}

// TestCheckOptions: what is asked for goes before what was recorded.
func TestCheckOptions(t *testing.T) {
	t.Parallel()
	_, dir := recorded(t, Options{
		Cases: []string{"ticketing/busy/none"}, Busy: checker.BusyRetry, Start: Library(wrong(t, "busy-retried")),
	})
	strict := true
	for want, o := range map[int]CheckOptions{
		ExitSafe:      {},
		ExitNonStrict: {Busy: checker.BusyUnsettled, Strict: &strict},
		ExitUnsafe:    {Busy: checker.BusyFinal},
	} {
		if r := checked(t, dir, o); r.ExitCode != want {
			t.Errorf("%+v: exit code %d, want %d:\n%s", o, r.ExitCode, want, text(r))
		}
	}
	r := checked(t, dir, CheckOptions{Busy: checker.BusyFinal, Rules: []string{"settles"}, Profile: "official"})
	if r.ExitCode != ExitSafe || len(r.Rules) != 1 || r.Profile != "official" {
		t.Errorf("one rule: exit code %d, %d rules, profile %s", r.ExitCode, len(r.Rules), r.Profile)
	}
	rec, err := OpenRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []CheckOptions{{Busy: "x"}, {Profile: "x"}, {Rules: []string{"setles"}}} {
		if _, err := rec.Check(t.Context(), o); err == nil || !strings.Contains(err.Error(), "there is no") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rec.Check(ctx, CheckOptions{}); err == nil {
		t.Error("a check that was stopped has a report")
	}
}

// edit changes a file of a record.
func edit(t *testing.T, dir, name string, change func(string) string) {
	t.Helper()
	name = filepath.Join(dir, name)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	after := change(string(data))
	if after == string(data) {
		t.Fatalf("%s is as it was", name)
	}
	if err := os.WriteFile(name, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// without drops the lines with a text.
func without(words ...string) func(string) string {
	return func(s string) string {
		var out []string
		for _, l := range strings.SplitAfter(s, "\n") {
			all := true
			for _, w := range words {
				all = all && strings.Contains(l, w)
			}
			if !all {
				out = append(out, l)
			}
		}
		return strings.Join(out, "")
	}
}

// twice repeats the line with a text.
func twice(word string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for l := range strings.Lines(s) {
			out.WriteString(l)
			if strings.Contains(l, word) {
				out.WriteString(l)
			}
		}
		return out.String()
	}
}

const recordedCase = "histories/single/s2c.A.1@25.split.jsonl"

func small(t *testing.T) string {
	t.Helper()
	_, dir := recorded(t, Options{Cases: []string{"ticketing/single/s2c.A.1@25:split"}, Start: Library(referenceLibrary())})
	return dir
}

// TestMutatedRecord: a record is evidence, and the verdict hangs on it.
func TestMutatedRecord(t *testing.T) {
	t.Parallel()
	dir := small(t)
	if r := checked(t, dir, CheckOptions{}); r.Verdict != checker.Safe {
		t.Fatal(text(r))
	}
	edit(t, dir, recordedCase, without(`"kind":"write_begun"`, `"op":"A"`, `"dir":"s2c"`, `"off":25`))
	r := checked(t, dir, CheckOptions{})
	if r.Verdict != checker.Unsafe || r.ExitCode != ExitUnsafe || !strings.Contains(text(r), "no-entry-unconfirmed") {
		t.Errorf("the newline of the grant was never written, and yet:\n%s", text(r))
	}
}

// TestChangedRecord: a history that is not as it was recorded proves nothing good, also
// where nothing is found in what is left of it.
func TestChangedRecord(t *testing.T) {
	t.Parallel()
	dir := small(t)
	lines := func(change func([]string) []string) func(string) string {
		return func(s string) string { return strings.Join(change(strings.SplitAfter(s, "\n")), "") }
	}
	replace := func(from, to string) func(string) string {
		return func(s string) string { return strings.Replace(s, from, to, 1) }
	}
	for want, change := range map[string]func(string) string{
		"it has 9 events, not ":       lines(func(l []string) []string { return l[:9] }),
		"it has 0 events, not ":       func(string) string { return "" },
		"event 2 is not in its place": lines(func(l []string) []string { l[1], l[2] = l[2], l[1]; return l }),
		"event 3 is not in its place": replace(`{"seq":3,`, `{"seq":2,`),
		"event 1 is not in its place": lines(func(l []string) []string {
			l[0] = regexp.MustCompile(`"at":\d+`).ReplaceAllString(l[0], `"at":-5`)
			return l
		}),
		" has 20 bytes, not 9999": replace(`"n":20,"data"`, `"n":9999,"data"`),
	} {
		before, err := os.ReadFile(filepath.Join(dir, recordedCase))
		if err != nil {
			t.Fatal(err)
		}
		edit(t, dir, recordedCase, change)
		r := checked(t, dir, CheckOptions{})
		if r.Verdict != checker.Inconclusive || r.ExitCode != ExitInconclusive || !strings.Contains(r.Reason, "its history is not as it was recorded: ") || !strings.Contains(r.Reason, want) {
			t.Errorf("want %q: %s, %q", want, r.Verdict, r.Reason)
		}
		if err := os.WriteFile(filepath.Join(dir, recordedCase), before, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit(t, dir, resultsFile, without(`"end":`))
	if r := checked(t, dir, CheckOptions{}); r.Verdict != checker.Inconclusive || !strings.Contains(r.Reason, "the record has no end") {
		t.Errorf("without an end: %s, %q", r.Verdict, r.Reason)
	}
}

// TestNothingChecked: a run in which no rule was checked has proved nothing.
func TestNothingChecked(t *testing.T) {
	t.Parallel()
	r := runPlan(t, Options{Cases: []string{"ticketing/single/none"}, Rules: []string{"no-overstay"}, Start: Library(referenceLibrary())})
	if r.Verdict != checker.Inconclusive || r.ExitCode != ExitInconclusive || r.Reason != "no rule was checked in any case" {
		t.Errorf("%s, exit code %d, %q", r.Verdict, r.ExitCode, r.Reason)
	}
}

// TestCutRecord: what a killed run leaves can be read, wherever it was killed.
func TestCutRecord(t *testing.T) {
	t.Parallel()
	dir := small(t)
	whole, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 397 {
		if err := os.WriteFile(filepath.Join(dir, resultsFile), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		rec, err := OpenRecord(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		r, err := rec.Check(t.Context(), CheckOptions{})
		if err != nil || !rec.Cut || len(rec.lines) != bytes.Count(whole[:n], []byte{'\n'}) {
			t.Fatalf("cut at %d: %d lines, cut %v, %v", n, len(rec.lines), rec.Cut, err)
		}
		if done := len(r.Results) == 1; !done && (r.ExitCode != ExitInconclusive || !r.Interrupted) {
			t.Errorf("cut at %d: exit code %d, interrupted %v", n, r.ExitCode, r.Interrupted)
		}
	}
	if err := os.Remove(filepath.Join(dir, resultsFile)); err != nil {
		t.Fatal(err)
	}
	if rec, err := OpenRecord(dir); err != nil || !rec.Cut {
		t.Errorf("only the manifest: %v", err)
	}
}

// TestDamagedRecord: one error, with the file and the line.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	dir := small(t)
	replace := func(from, to string) func(string) string {
		return func(s string) string { return strings.Replace(s, from, to, 1) }
	}
	line2 := func(to string) func(string) string {
		return func(s string) string {
			lines := strings.SplitAfterN(s, "\n", 3)
			return lines[0] + to + "\n" + lines[2]
		}
	}
	for _, c := range []struct {
		file   string
		change func(string) string
		want   string
	}{
		{manifestFile, func(string) string { return "" }, manifestFile + ":1: "},
		{manifestFile, func(string) string { return "[]" }, manifestFile + ":1: "},
		{manifestFile, func(string) string { return "{}" }, "it has no schema"},
		{manifestFile, replace(`"schema": 1`, `"schema": 2`), "the record has schema 2, and this tornwire reads up to 1; a newer one wrote it"},
		{manifestFile, replace(`"seed": 0`, `"seed": "x"`), manifestFile + ":7: "},
		{manifestFile, replace(`"Dialect": "ticketing"`, `"Dialect": "tickets"`), `there is no dialect "tickets"`},
		{manifestFile, replace(`"seed": 0`, `"seed": 0, "key_prefix": "`+strings.Repeat("k", 65)+`"`), "the prefix of its keys has 65 bytes, over 64"},
		{manifestFile, replace(`@25:split`, `@2500:split`), `has no case "ticketing/single/s2c.A.1@2500:split"`},
		{resultsFile, line2("xy"), resultsFile + ":2: invalid character"},
		{resultsFile, line2(strings.Repeat(" ", history.MaxLine)), resultsFile + ":2: more than"},
		{resultsFile, line2(`{"when":"noon","case":"ticketing/single/none","verdict":"safe"}`), `unknown kind of run "noon"`},
		{resultsFile, line2(`{"when":"case","case":"ticketing/single/none","verdict":"fine"}`), `unknown verdict "fine"`},
		{resultsFile, line2(`{"when":"case","case":"ticketing/double/none","verdict":"safe"}`), `no case "ticketing/double/none"`},
		{resultsFile, line2(`{"when":"case","case":"none","verdict":"safe"}`), resultsFile + `:2: case id "none"`},
		{resultsFile, line2(`{"when":"case","judged":true,"case":"ticketing/single/none","verdict":"safe"}`), "no history"},
		{resultsFile, line2(`{"end":{}}`), resultsFile + ":3: there is a line behind the end"},
		{resultsFile, replace(recordedCase, "../"+recordedCase), "escapes"},
		{resultsFile, replace(recordedCase, "nothing.jsonl"), "nothing.jsonl: no such file"},
		{resultsFile, line2(`{"when":"case","case":"ticketing/single/none","verdict":"skipped"}`), "case ticketing/single/none is not among those of the manifest"},
		{resultsFile, twice(`"when":"case"`), "case ticketing/single/s2c.A.1@25:split is there twice"},
		{resultsFile, line2(`{"when":"control","case":"ticketing/single/none","verdict":"safe"}`), "a case that was not judged is safe"},
		{resultsFile, replace(recordedCase, "histories/sanity/none.first.jsonl"), "none.first.jsonl is not the history of ticketing/single/s2c.A.1@25:split"},
		{recordedCase, line2("{"), recordedCase + ":2: unexpected end of JSON input"},
		{recordedCase, line2(`{"kind":"entered_early"}`), recordedCase + `:2: unknown kind of event "entered_early"`},
		{recordedCase, line2(`{"kind":"received"}`), recordedCase + `:2: an event "received" without its frame`},
		{recordedCase, replace(`{"seq":1,`, `{"seq":-1,`), recordedCase + ":1: "},
	} {
		before, err := os.ReadFile(filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		edit(t, dir, c.file, c.change)
		rec, err := OpenRecord(dir)
		if err == nil {
			_, err = rec.Check(t.Context(), CheckOptions{})
		}
		_, usage := err.(*UsageError)
		if !usage || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v", c.want, err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), before, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenRecord(t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no record") {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestRecordFails: a run whose record cannot be written ends at once, and says why.
func TestRecordFails(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(w *Record){
		"it would have over 20,000 bytes": func(w *Record) { w.max = 20_000 },
		"file already closed":             func(w *Record) { _ = w.root.Close() },
		"it would have over 10 bytes":     func(w *Record) { w.max = 10 },
	} {
		w, err := CreateRecord(filepath.Join(t.TempDir(), "r"))
		if err != nil {
			t.Fatal(err)
		}
		spoil(w)
		p := plan(t, Options{Workloads: []string{"single"}, Start: Library(referenceLibrary())})
		p.Record = w
		r := Run(t.Context(), p, nil)
		if r.ExitCode != ExitInternal || !strings.HasPrefix(r.Reason, "cannot record to ") || !strings.Contains(r.Reason, want) {
			t.Errorf("%s: exit code %d: %s", want, r.ExitCode, r.Reason)
		}
	}
}

// TestCreateRecord: only a new or empty directory is taken.
func TestCreateRecord(t *testing.T) {
	empty := t.TempDir()
	if w, err := CreateRecord(empty); err != nil || w.end(recordEnd{}) != nil {
		t.Error(err)
	}
	if _, err := CreateRecord(empty); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second record: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateRecord(file); err == nil || !strings.Contains(err.Error(), "is a file") {
		t.Errorf("a file: %v", err)
	}
	if _, err := CreateRecord(filepath.Join(file, "x")); err == nil {
		t.Error("a directory was made in a file")
	}
}

// TestRecordKeepsNoSecret: what a client made of the secret is not recorded.
func TestRecordKeepsNoSecret(t *testing.T) {
	t.Parallel()
	dir := small(t)
	seen := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".jsonl") || filepath.Base(name) == resultsFile {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		events, err := history.ReadJSON(f)
		for _, e := range events {
			if e.Kind == history.Received && e.Frame.Op == opAuth {
				seen++
				if s := strings.Trim(string(e.Data), "*\n"); s != "" || e.N != len(e.Data) {
					t.Errorf("%s: %q of %d bytes", name, e.Data, e.N)
				}
			}
		}
		return err
	})
	if err != nil || seen == 0 {
		t.Errorf("%d lines of the preface, %v", seen, err)
	}
}
