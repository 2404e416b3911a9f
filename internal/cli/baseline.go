package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"tornwire/checker"
	"tornwire/verify"
)

const baselineUsage = "accepted findings, a TOML file: they are shown, but count neither for the verdict nor for the exit code"

// Limits of a baseline.
const (
	maxBaseline        = 1 << 20 // bytes
	maxBaselineEntries = 1000
)

// acceptKeys are the keys of an entry.
var acceptKeys = []string{"rule", "case", "side", "reason", "expires"}

// readBaseline reads a file of accepted findings. The error has a line for each
// thing that is wrong in it.
func readBaseline(file string) (*verify.Baseline, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, usagef("cannot read the baseline: %s", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBaseline+1))
	if err != nil {
		return nil, usagef("cannot read the baseline: %s", err)
	}
	if len(data) > maxBaseline {
		return nil, usagef("%s has over %d bytes", file, maxBaseline)
	}
	p := &baselineFile{file: file, lines: linesOf(string(data))}
	entries := p.parse(string(data))
	if len(p.problems) > 0 {
		return nil, usagef("%s", strings.Join(p.problems, "\n"))
	}
	return &verify.Baseline{File: file, Entries: entries}, nil
}

// baselineFile is a file being read.
type baselineFile struct {
	file     string
	lines    fileLines
	problems []string
}

func (p *baselineFile) wrong(line int, format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

func (p *baselineFile) parse(text string) []verify.Accept {
	var doc map[string]any
	if _, err := toml.Decode(text, &doc); err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			p.wrong(at.Position.Line, "%s", at.Message)
		} else {
			p.wrong(1, "%s", err)
		}
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if key != "accept" {
			p.wrong(p.lines.top[key], "unknown key %q%s; entries are [[accept]]", key, verify.DidYouMean(key, []string{"accept"}))
		}
	}
	if doc["accept"] == nil {
		return nil
	}
	list, ok := doc["accept"].([]map[string]any)
	if !ok {
		p.wrong(p.lines.top["accept"], "accept is not a list of tables; an entry begins with [[accept]]")
		return nil
	}
	if len(list) > maxBaselineEntries {
		p.wrong(p.lines.entry(maxBaselineEntries)[""], "more than %d entries", maxBaselineEntries)
		return nil
	}
	var out []verify.Accept
	for i, e := range list {
		out = append(out, p.entry(e, p.lines.entry(i)))
	}
	return out
}

// entry reads one entry; lines are those of its keys, "" is its head.
func (p *baselineFile) entry(e map[string]any, lines map[string]int) verify.Accept {
	at := func(key string) int {
		if n := lines[key]; n > 0 {
			return n
		}
		return lines[""]
	}
	for _, key := range slices.Sorted(maps.Keys(e)) {
		if !slices.Contains(acceptKeys, key) {
			p.wrong(at(key), "unknown key %q%s; an entry has %s", key, verify.DidYouMean(key, acceptKeys), strings.Join(acceptKeys, ", "))
		}
	}
	text := func(key string) string {
		s, ok := e[key].(string)
		if e[key] != nil && !ok {
			p.wrong(at(key), "%s is not text in quotes", key)
		}
		return strings.TrimSpace(s)
	}
	a := verify.Accept{Rule: text("rule"), Case: text("case"), Side: text("side"), Reason: text("reason"), Line: lines[""]}
	var ids []string
	for _, r := range checker.Rules() {
		ids = append(ids, r.ID)
	}
	_, isText := e["rule"].(string)
	switch {
	case a.Rule == "" && (isText || e["rule"] == nil):
		p.wrong(at("rule"), "the entry names no rule; tornwire list rules shows them")
	case a.Rule != "" && !slices.Contains(ids, a.Rule):
		p.wrong(at("rule"), "there is no rule %q%s; tornwire list rules shows them", a.Rule, verify.DidYouMean(a.Rule, ids))
	}
	if _, err := path.Match(a.Case, ""); err != nil {
		p.wrong(at("case"), "case %q is not a pattern such as ticketing/single/*", a.Case)
	} else if a.Case != "" && strings.Count(a.Case, "/") != 2 {
		p.wrong(at("case"), "case %q matches no case: a case id has two slashes, and * does not match one; ticketing/single/* is a pattern", a.Case)
	}
	if sides := []string{"client", "server"}; a.Side != "" && !slices.Contains(sides, a.Side) {
		p.wrong(at("side"), "side is %q, not client or server%s", a.Side, verify.DidYouMean(a.Side, sides))
	}
	if a.Reason == "" {
		p.wrong(at("reason"), "the entry has no reason: say why the finding is accepted")
	}
	a.Expires = p.date(e["expires"], at("expires"))
	return a
}

// date reads the last day of an entry.
func (p *baselineFile) date(v any, line int) time.Time {
	t, ok := v.(time.Time)
	switch {
	case v == nil:
		p.wrong(line, "the entry has no expires: name the last day on which it is accepted, such as expires = 2027-01-31")
	case !ok || t.Location().String() != "date-local":
		p.wrong(line, "expires is not a date such as 2027-01-31, without quotes and without a time")
	}
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

// fileLines says on which lines keys are: at the top, and in each entry, where ""
// is the line that begins it.
type fileLines struct {
	top     map[string]int
	entries []map[string]int
}

func (l fileLines) entry(i int) map[string]int {
	if i < len(l.entries) {
		return l.entries[i]
	}
	return map[string]int{"": max(l.top["accept"], 1)} // entries that are written in one line
}

var (
	tableLine = regexp.MustCompile(`^\s*\[\[?\s*["']?([^\]"']*?)["']?\s*\]`)
	keyLine   = regexp.MustCompile(`^\s*["']?([A-Za-z0-9_-]+)["']?\s*[.=]`)
)

// linesOf finds the keys of a file that is TOML; the parser does not tell where they
// are.
func linesOf(text string) fileLines {
	l := fileLines{top: map[string]int{}}
	current, inside := l.top, ""
	for i, line := range strings.Split(text, "\n") {
		wasInside := inside != ""
		for _, quotes := range []string{`"""`, "'''"} {
			if (inside == "" || inside == quotes) && strings.Count(line, quotes)%2 == 1 {
				if inside == "" {
					inside = quotes
				} else {
					inside = ""
				}
			}
		}
		if wasInside {
			continue
		}
		if m := tableLine.FindStringSubmatch(line); m != nil {
			name, _, _ := strings.Cut(m[1], ".")
			if l.top[name] == 0 {
				l.top[name] = i + 1
			}
			current = map[string]int{"": i + 1}
			if m[1] == "accept" {
				l.entries = append(l.entries, current)
			}
		} else if m := keyLine.FindStringSubmatch(line); m != nil && current[m[1]] == 0 {
			current[m[1]] = i + 1
		}
	}
	return l
}
