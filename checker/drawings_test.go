package checker

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDrawings: there is a drawing for every rule of the list and for no other, with
// one point at which the rule is broken at least, and straight lines.
func TestDrawings(t *testing.T) {
	marks := strings.Fields("> < c> s> p> <p c p s ! !s")
	for _, id := range order {
		if len(exchanges[id]) == 0 {
			t.Errorf("%s has no drawing", id)
			continue
		}
		broken := false
		for _, s := range exchanges[id] {
			broken = broken || s.mark[0] == '!'
			if !slices.Contains(marks, s.mark) || s.text == "" {
				t.Errorf("%s: a line %q %q", id, s.mark, s.text)
			}
		}
		if !broken {
			t.Errorf("%s: nothing is broken in it", id)
		}
		lines := strings.Split(strings.TrimSuffix(Drawing(id), "\n"), "\n")
		if len(lines) != len(exchanges[id])+1 {
			t.Errorf("%s: %d lines for %d steps", id, len(lines), len(exchanges[id]))
		}
		for _, l := range lines[1:] {
			runes := []rune(l)
			for n, at := range []int{2, 2 + gap, 2 + 2*gap} {
				bar := at < len(runes) && (runes[at] == '|' || runes[at] == '!')
				if !bar {
					t.Errorf("%s: line of life %d is broken in %q", id, n, l)
				}
			}
			if utf8.RuneCountInString(l) > 2+3*gap {
				t.Errorf("%s: a long line %q", id, l)
			}
		}
	}
	for id := range exchanges {
		if !slices.Contains(order, id) {
			t.Errorf("a drawing of %s, which is no rule", id)
		}
	}
	if Drawing("nothing") != "" {
		t.Error("a drawing of nothing")
	}
}

func TestDrawing(t *testing.T) {
	want := strings.Join([]string{
		"  client                                  tornwire                                server",
		"  |-- A owner 1, key k, wait 5 ---------->|-- A owner 1, key k, wait 5 ---------->|",
		"  |                                       |<--------- A owner 1, token 9, key k --|",
	}, "\n") + "\n"
	if got := Drawing("no-partial-frame"); !strings.HasPrefix(got, want) {
		t.Errorf("drawn is\n%s", got)
	}
}
