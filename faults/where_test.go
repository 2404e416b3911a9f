package faults_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tornwire/faults"
	"tornwire/frames"
)

var grammar = frames.MustBuiltin("ticketing")

// cond prepares a rule with conditions on frames of an op.
func cond(t testing.TB, g *frames.Grammar, dir frames.Direction, op string, where map[string]string) *faults.Rule {
	t.Helper()
	r, err := faults.Rule{ID: "r", Trigger: faults.Trigger{Dir: dir, Op: op, Where: where}}.Prepare(g)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func acquire(t testing.TB, key string, wait, lease, owner uint64) []byte {
	t.Helper()
	f, err := grammar.MustShape(c2s, "A").Append(nil, []byte(key), wait, lease, owner)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestWhere: what is answered when the first k bytes of a frame are there, for every k.
// A field is known with its last byte, text with the newline, and one No is enough.
func TestWhere(t *testing.T) {
	frame := acquire(t, "order-42", 5, 30, 0x0A00_0000_0000_000A) // 1 op, 1 wait, 1 lease, 8 owner, text
	n := len(frame)
	for _, c := range []struct {
		where map[string]string
		knows int // bytes that have to be there
		want  faults.Answer
	}{
		{nil, 0, faults.Yes},
		{map[string]string{"wait": "5"}, 2, faults.Yes},
		{map[string]string{"wait": "0x5"}, 2, faults.Yes},
		{map[string]string{"wait": "005"}, 2, faults.Yes},
		{map[string]string{"wait": "4"}, 2, faults.No},
		{map[string]string{"lease": "030"}, 3, faults.Yes}, // not octal
		{map[string]string{"wait": "5..5"}, 2, faults.Yes},
		{map[string]string{"wait": "0..5"}, 2, faults.Yes},
		{map[string]string{"wait": "5..0xff"}, 2, faults.Yes},
		{map[string]string{"wait": "6..9"}, 2, faults.No},
		{map[string]string{"wait": "0..4"}, 2, faults.No},
		{map[string]string{"lease": "30"}, 3, faults.Yes},
		{map[string]string{"owner": "0x0A0000000000000A"}, 11, faults.Yes},
		{map[string]string{"owner": "720575940379279370"}, 11, faults.Yes},
		{map[string]string{"owner": "0..18446744073709551615"}, 11, faults.Yes},
		{map[string]string{"owner": "10"}, 11, faults.No},
		{map[string]string{"key": "order-42"}, n, faults.Yes},
		{map[string]string{"key": "order-*"}, n, faults.Yes},
		{map[string]string{"key": "*"}, n, faults.Yes},
		{map[string]string{"key": "order-4"}, n, faults.No},
		{map[string]string{"key": "rder-42"}, n, faults.No},
		{map[string]string{"key": "ORDER-42"}, n, faults.No},
		{map[string]string{"key": "order-42\n"}, n, faults.No}, // the newline is no text
		{map[string]string{"key": ""}, n, faults.No},
		{map[string]string{"wait": "5", "key": "order-??"}, n, faults.Yes},
		{map[string]string{"wait": "4", "key": "order-??"}, 2, faults.No},
		{map[string]string{"lease": "1", "wait": "5", "key": "*"}, 3, faults.No},
		{map[string]string{"owner": "10", "wait": "5"}, 11, faults.No},
		{map[string]string{"wait": "5", "owner": "0x0A0000000000000A"}, 11, faults.Yes},
	} {
		for _, g := range []*frames.Grammar{grammar, nil} { // with fields found before, or only then
			r := cond(t, g, c2s, "A", c.where)
			for k := range n + 1 {
				want := faults.Unknown
				if k >= c.knows {
					want = c.want
				}
				if got := r.Where(grammar.MustShape(c2s, "A"), frame[:k], k == n); got != want {
					t.Errorf("%v with %d of %d bytes: %d, wanted %d", c.where, k, n, got, want)
				}
			}
		}
	}
}

// TestWhereOthers: conditions that a shape has no place for are not met, and a field
// that does not become whole is not either.
func TestWhereOthers(t *testing.T) {
	for _, c := range []struct {
		dir   frames.Direction
		op    string
		frame string
		where map[string]string
	}{
		{c2s, "A", "A\x05\x1e\x00\x00\x00\x00\x00\x00\x00\x07k\n", map[string]string{"nothing": "*"}},
		{c2s, "A", "A\x05\x1e\x00\x00\x00\x00\x00\x00\x00\x07k\n", map[string]string{"": "*"}},
		{c2s, "A", "A\x05\x1e\x00\x00\x00\x00\x00\x00\x00\x07k\n", map[string]string{"wait": "*"}},
		{c2s, "A", "A\x05", map[string]string{"owner": "0..18446744073709551615"}},
		{c2s, "keepalive", "\n", map[string]string{"key": "*"}},
		{c2s, "keepalive", "\n", map[string]string{"": "x"}},
	} {
		if got := cond(t, nil, c.dir, c.op, c.where).Where(grammar.MustShape(c.dir, c.op), []byte(c.frame), true); got != faults.No {
			t.Errorf("%v of %q: %d", c.where, c.frame, got)
		}
	}
}

// TestWhereText: * is any run of bytes, ? any one byte, everything else itself.
func TestWhereText(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "x", false},
		{"*", "", true},
		{"**", "", true},
		{"?", "", false},
		{"?", "x", true},
		{"?", "xy", false},
		{"a*c", "ac", true},
		{"a*c", "abcbc", true},
		{"a*c", "abcb", false},
		{"a*b*c", "a-b-b-c-c", true},
		{"*a?", "aaab", true},
		{"*ab", "aab", true},
		{"*ab*ab", "ab", false},
		{"a.c", "abc", false},
		{"a[b]c", "abc", false},
		{`a\*`, "a*", false},
		{`a\*`, `a\x`, true},
		{"(?i)A", "a", false},
		{"é", "é", true},
		{"?", "é", false}, // two bytes
		{"??", "é", true},
		{"\xff", "\xff", true},
		{"\xff", "\xc3\xbf", false},
		{"\xc3*", "\xc3\xbf", true},
		{"?x", "\xffx", true},
		{"*x", "\xff\xfe\x00\tx", true},
		{"a\x00b", "a\x00b", true},
		{"a?b", "a\x00b", true},
		{strings.Repeat("*a", 500), strings.Repeat("a", 499), false},
		{strings.Repeat("*a", 500), strings.Repeat("a", 500), true},
		{strings.Repeat("?", faults.MaxPattern), strings.Repeat("\x80", faults.MaxPattern), true},
	} {
		r := cond(t, nil, s2c, "M", map[string]string{"text": c.pattern})
		got := r.Where(grammar.MustShape(s2c, "M"), []byte("M"+c.text+"\n"), true)
		if (got == faults.Yes) != c.want || got == faults.Unknown {
			t.Errorf("%q of %q: %d", clip(c.pattern), clip(c.text), got)
		}
	}
}

func clip(s string) string { return s[:min(len(s), 40)] }

// fits is the plain meaning of a pattern.
func fits(p, text string) bool {
	// can[i] tells whether the pattern so far fits the first i bytes.
	can := make([]bool, len(text)+1)
	can[0] = true
	for i := range len(p) {
		next := make([]bool, len(can))
		for j := range can {
			switch {
			case p[i] == '*':
				next[j] = can[j] || j > 0 && next[j-1]
			case j > 0:
				next[j] = can[j-1] && (p[i] == '?' || p[i] == text[j-1])
			}
		}
		can = next
	}
	return can[len(text)]
}

// FuzzWhere: whatever a condition and a frame are, nothing panics, the pattern means
// what it plainly means, and an answer once known does not change as bytes come.
func FuzzWhere(f *testing.F) {
	f.Add("order-*", "order-42", uint64(5))
	f.Add("*a*?b", "aab\xff\xc3\xbfb", uint64(0x0A))
	f.Add("1..0x10", "", uint64(16))
	f.Add("\xff?", "\xff\x00", uint64(1<<63))
	shape := grammar.MustShape(c2s, "R")
	f.Fuzz(func(t *testing.T, pattern, text string, token uint64) {
		frame := []byte{'R'}
		for i := range 8 {
			frame = append(frame, byte(token>>(56-8*i)))
		}
		frame = append(append(frame, text...), '\n')
		for _, name := range []string{"key", "token"} {
			r, err := faults.Rule{Trigger: faults.Trigger{Dir: c2s, Op: "R", Where: map[string]string{name: pattern}}}.Prepare(nil)
			if err != nil {
				if len(pattern) <= faults.MaxPattern {
					t.Fatal(err)
				}
				return
			}
			last := r.Where(shape, frame, true)
			if last == faults.Unknown || name == "key" && (last == faults.Yes) != fits(pattern, text) {
				t.Errorf("%s %q of %q: %d", name, pattern, frame, last)
			}
			for k := range len(frame) {
				if a := r.Where(shape, frame[:k], false); a != faults.Unknown && a != last {
					t.Errorf("%s %q: %d after %d bytes of %q, %d after all", name, pattern, a, k, frame, last)
				}
			}
		}
	})
}

// TestWhereCostsNothing: asking allocates nothing.
func TestWhereCostsNothing(t *testing.T) {
	frame, shape := acquire(t, "order-42", 5, 30, 7), grammar.MustShape(c2s, "A")
	r := cond(t, grammar, c2s, "A", map[string]string{"key": "*-4?", "wait": "5", "owner": "0..100"})
	if n := testing.AllocsPerRun(100, func() {
		if r.Where(shape, frame, true) != faults.Yes {
			t.Fatal("not met")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWhereIsCopied: a prepared rule does not change with the map that it was made of.
func TestWhereIsCopied(t *testing.T) {
	where := map[string]string{"key": "a"}
	r := cond(t, grammar, c2s, "A", where)
	where["key"] = "b"
	if r.Trigger.Where["key"] != "a" || r.Where(grammar.MustShape(c2s, "A"), acquire(t, "a", 0, 0, 0), true) != faults.Yes {
		t.Error("it did")
	}
}

// TestGates: a rule names the gates that it waits for and its signal.
func TestGates(t *testing.T) {
	for _, c := range []struct {
		rule faults.Rule
		want []string
	}{
		{faults.Rule{}, nil},
		{faults.Rule{Signal: "s", Trigger: faults.Trigger{After: "a"}}, []string{"a", "s"}},
		{faults.Rule{Fault: byID(t, "hold")}, []string{faults.GateHold}},
		{faults.Rule{Fault: byID(t, "hold"), Until: "u", Signal: "s"}, []string{"s", "u"}},
		{faults.Rule{Fault: byID(t, "drop"), Trigger: faults.Trigger{After: "a"}}, []string{"a"}},
	} {
		c.rule.Trigger.Op = "A"
		r, err := c.rule.Prepare(grammar)
		if err != nil {
			t.Fatal(err)
		}
		got := r.Gates()
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, wanted %q", fmt.Sprintf("%+v", c.rule.Trigger), got, c.want)
		}
	}
}
