// Package proof writes a failing case as a test that needs no tornwire: a client that
// makes the calls, and a server that follows a script of bytes, in one short file for the
// tracker of the library. The script is taken from the record of a run of the case, up to
// where the rule was broken; what follows is what the client must not do.
//
// A proof is pure text: this package runs nothing.
package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"tornwire/checker"
	"tornwire/frames"
	"tornwire/history"
)

// MaxLines is the most lines that a proof has. MaxBinding is the most bytes of a binding.
const (
	MaxLines   = 60
	MaxBinding = 16 << 10
)

// Case is a failing case, as it was run.
type Case struct {
	ID      string
	Replay  string // the command line that runs it
	Client  string // as its adapter names it
	Dialect string
	Finding checker.Finding
	Events  []history.Event
	// Command is the adapter's; the proof starts it where there is no binding.
	Command []string
	// Binding is the part of the proof that knows the library, in the proof's language,
	// in the adapter's place; docs/proofs.md says what it has to define.
	Binding string
}

// Languages lists the languages that proofs are written in.
func Languages() []string { return []string{"go", "node", "python"} }

// language renders a script.
type language interface {
	// comment begins a comment to the end of the line.
	comment() string
	// binding drives an adapter.
	binding(c Case) string
	// text joins the imports of the binding, itself and the script.
	text(head, binding string, w *writer, c Case) string
}

// Write writes the proof of a case. It fails where the rule or the record is one that a
// script cannot tell, and where the proof would have over MaxLines lines.
func Write(lang string, c Case) (string, error) {
	var l language
	switch lang {
	case "go":
		l = golang{}
	case "node":
		l = node{}
	case "python":
		l = python{}
	default:
		return "", fmt.Errorf("there is no proof in %q; languages are %s", lang, strings.Join(Languages(), ", "))
	}
	g, ok := frames.Builtin(c.Dialect)
	if !ok {
		return "", fmt.Errorf("there is no dialect %q", c.Dialect)
	}
	if len(c.Binding) > MaxBinding {
		return "", fmt.Errorf("the binding has %d bytes, over %d", len(c.Binding), MaxBinding)
	}
	w, err := scriptOf(g, c.Finding, c.Events)
	if err != nil {
		return "", err
	}
	binding := strings.TrimSpace(c.Binding)
	if binding == "" {
		if len(c.Command) == 0 {
			return "", errors.New("a client inside tornwire needs a binding, since there is no adapter that the proof could start")
		}
		binding = l.binding(c)
	}
	text := l.text(header(l.comment(), c), binding, w, c)
	if n := strings.Count(text, "\n"); n > MaxLines {
		return "", fmt.Errorf("the proof has %d lines, over %d: shrink the case first, or shorten the binding", n, MaxLines)
	}
	return text, nil
}

// header says what the proof is about.
func header(mark string, c Case) string {
	lines := []string{
		fmt.Sprintf("%s: %s", c.Client, sentence(c)),
		fmt.Sprintf("Rule %s; case %s", c.Finding.Rule, c.ID),
		"Seen: " + c.Finding.Message,
	}
	for i, l := range lines {
		lines[i] = mark + " " + strings.Map(inLine, l)
	}
	return strings.Join(lines, "\n") + "\n"
}

// inLine replaces what ends a line in any of the languages.
func inLine(r rune) rune {
	if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
		return ' '
	}
	return r
}

func sentence(c Case) string {
	r, _ := checker.RuleByID(c.Finding.Rule)
	return r.Sentence
}

// has tells whether a script has a line of one of these kinds.
func (w *writer) has(kinds ...lineKind) bool {
	return slices.ContainsFunc(w.lines, func(l line) bool { return slices.Contains(kinds, l.kind) })
}

// render writes the lines of a script; what waits for the request of a call is on the line of
// the call.
func (w *writer) render(b *strings.Builder, joined string, text func(line) string) {
	for i, l := range w.lines {
		switch {
		case i > 0 && l.kind == doWant && w.lines[i-1].kind == doCall:
			b.WriteString(joined)
		case i > 0:
			b.WriteByte('\n')
		}
		b.WriteString(text(l))
	}
	b.WriteByte('\n')
}

// absent is what a proof says where a request does not come. Without the first nothing can
// be told; a client that does not send a later one is not brought to where it could be wrong.
func (l line) absent() string {
	if l.req == 1 {
		return fmt.Sprintf("no %s came: the script does not fit this client", l.op)
	}
	return fmt.Sprintf("ok: no %s came, so that the defect cannot show", l.op)
}

// longest is how many seconds the script can take, and a minute more: what lasts longer hangs.
func (w *writer) longest() int {
	sum := time.Minute
	for _, l := range w.lines {
		sum += l.limit
	}
	return int(sum / time.Second)
}

// fixed is the size of the fixed fields of a request.
func (w *writer) fixed(op string) int { return w.g.MustShape(frames.ClientToServer, op).Header - 1 }

// owned tells whether requests name an owner.
func (w *writer) owned() bool {
	_, ok := w.g.MustShape(frames.ClientToServer, "A").Field("owner")
	return ok
}

// quoted is a string in the form that JSON, JavaScript and Python share.
func quoted(s any) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// hoisted splits what is imported from the rest of a binding.
func hoisted(binding string, isImport func(string) bool) (imports, rest string) {
	for _, l := range strings.Split(binding, "\n") {
		if isImport(l) {
			imports += l + "\n"
		} else {
			rest += l + "\n"
		}
	}
	return imports, strings.Trim(rest, "\n") + "\n"
}
