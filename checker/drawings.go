package checker

import (
	_ "embed"
	"fmt"
	"strings"
	"unicode/utf8"
)

//go:embed drawings.txt
var drawingsFile string

// step is a line of an exchange: a mark and its text.
type step struct{ mark, text string }

var exchanges = readExchanges(drawingsFile)

// readExchanges reads the file; its head says how.
func readExchanges(file string) map[string][]step {
	out := map[string][]step{}
	id := ""
	for _, line := range strings.Split(file, "\n") {
		if name, ok := strings.CutPrefix(line, "== "); ok {
			id = name
			continue
		}
		if mark, text, ok := strings.Cut(line, " "); ok && mark != "#" && id != "" {
			out[id] = append(out[id], step{mark, strings.TrimSpace(text)})
		}
	}
	return out
}

// gap is how far apart the lines of life are drawn.
const gap = 40

// Drawing is an exchange in which the rule is broken, as a sequence diagram of plain
// text: the client on the left, tornwire in the middle, the server on the right, and
// !! where it is broken. It is empty for a rule that is not in spec/rules.md.
func Drawing(rule string) string {
	steps := exchanges[rule]
	if len(steps) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(left, middle, right string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %s%s%s", padded(left), padded(middle), right), " ") + "\n")
	}
	line("client", "tornwire", "server")
	for _, s := range steps {
		switch s.mark {
		case ">":
			line("|"+right(s.text), "|"+right(s.text), "|")
		case "<":
			line("|"+left(s.text), "|"+left(s.text), "|")
		case "c>":
			line("|"+right(s.text), "|", "|")
		case "p>":
			line("|", "|"+right(s.text), "|")
		case "s>":
			line("|", "|"+left(s.text), "|")
		case "<p":
			line("|"+left(s.text), "|", "|")
		case "c":
			line("| "+s.text, "|", "|")
		case "p":
			line("|", "| "+s.text, "|")
		case "s":
			line("|", "|", "| "+s.text)
		case "!":
			line("!! "+s.text, "|", "|")
		case "!s":
			line("|", "|", "!! "+s.text)
		}
	}
	return b.String()
}

func padded(s string) string {
	return s + strings.Repeat(" ", max(gap-utf8.RuneCountInString(s), 0))
}

// right and left are arrows with a text.
func right(text string) string { return "--" + " " + text + " " + dashes(text) + ">" }

func left(text string) string { return "<" + dashes(text) + " " + text + " --" }

func dashes(text string) string {
	return strings.Repeat("-", max(gap-6-utf8.RuneCountInString(text), 1))
}
