package frames_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tornwire/frames"
)

func TestBuiltins(t *testing.T) {
	files, err := filepath.Glob("grammars/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".toml"))
	}
	if !slices.IsSorted(frames.Names()) || !slices.Equal(slices.Sorted(slices.Values(names)), frames.Names()) {
		t.Errorf("tables %v, names %v", names, frames.Names())
	}
	for _, n := range frames.Names() {
		if g, ok := frames.Builtin(n); !ok || g.Name != n || g.Title == "" || g != frames.MustBuiltin(n) {
			t.Errorf("%s: %+v", n, g)
		}
	}
	if g, ok := frames.Builtin("ticketting"); ok || g != nil {
		t.Error("a grammar under a wrong name")
	}
	if _, ok := frames.MustBuiltin("ticketing-v0").Shape(s2c, "B"); ok {
		t.Error("version 0 has a B")
	}
	shapes := frames.MustBuiltin("ticketing").Shapes()
	shapes[0] = nil
	if frames.MustBuiltin("ticketing").Shapes()[0] == nil {
		t.Error("the list of rows can be changed from outside")
	}
}

func TestMustPanics(t *testing.T) {
	for what, f := range map[string]func(){
		"no grammar nonesuch":           func() { frames.MustBuiltin("nonesuch") },
		"ticketing has no c2s nonesuch": func() { frames.MustBuiltin("ticketing").MustShape(c2s, "nonesuch") },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), what) {
					t.Errorf("%v, not %q", r, what)
				}
			}()
			f()
		}()
	}
}

func TestDirectionAndKindWords(t *testing.T) {
	for _, dir := range directions {
		var back frames.Direction
		text, err := dir.MarshalText()
		if err == nil {
			err = back.UnmarshalText(text)
		}
		if err != nil || back != dir || string(text) != dir.String() || dir.Opposite() == dir || dir.Opposite().Opposite() != dir {
			t.Errorf("%v: %q, %v, %v", dir, text, back, err)
		}
	}
	d := s2c
	if err := d.UnmarshalText([]byte("down")); err == nil || err.Error() != `direction "down" is neither c2s nor s2c` || d != s2c {
		t.Errorf("%v, %v", d, err)
	}
	for k, want := range map[frames.Kind]string{0: "none", frames.Preface: "preface", frames.Message: "message", frames.KeepAlive: "keepalive", frames.Opaque: "opaque"} {
		if k.String() != want {
			t.Errorf("kind %d is %q, not %q", k, k, want)
		}
	}
	for size, want := range map[int]uint64{1: 255, 2: 65535, 4: 1<<32 - 1, 8: 1<<64 - 1} {
		if got := (frames.Field{Size: size}).Max(); got != want {
			t.Errorf("most in %d bytes: %d, not %d", size, got, want)
		}
	}
}

// ownTable is a grammar that nobody has: other field order and sizes, two
// preface lines one way and none the other, no keep-alive.
const ownTable = `
name = "own"
tail_limit = 3
[tails.word]
min = 1
max = 2
[[preface]]
dir = "s2c"
op = "hello"
limit = 4
[[preface]]
dir = "s2c"
op = "hello-again"
limit = 1
[[frame]]
dir = "c2s"
op = "x"
fields = ["a:u64", "b:u16", "c:u8", "d:u32"]
tail = "word"
[[frame]]
dir = "s2c"
op = "y"
tail = "word"
`

// TestOwnGrammar: a deployment whose layout differs needs a table, not a fork.
func TestOwnGrammar(t *testing.T) {
	g, err := frames.ParseGrammar("own.toml", []byte(strings.ReplaceAll(ownTable, "hello-again", "again")))
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.MustShape(c2s, "x").Append(nil, []byte("ab"), 1, 0x0203, 0x0A, 0x0B0C0D0E)
	if want := "x\x00\x00\x00\x00\x00\x00\x00\x01\x02\x03\n\x0b\x0c\x0d\x0eab\n"; err != nil || string(f) != want {
		t.Fatalf("%q, %v", f, err)
	}
	for _, sizes := range [][]int{nil, {1}, {5}} {
		if tr := decode(t, g, c2s, append(f, f...), sizes...); opsOf(tr) != "x x" || tr.err != "" {
			t.Errorf("reads of %v: %+v", sizes, tr)
		}
		if tr := decode(t, g, s2c, []byte("hi\ny\nyab\nyabc\n\n"), sizes...); opsOf(tr) != "hello again y y" || tr.opaqueAt != 14 {
			t.Errorf("without a keep-alive a lone newline is unknown; reads of %v: %+v", sizes, tr)
		}
	}
}

// TestGrammarProblems: all problems of a table come together, each with the file.
func TestGrammarProblems(t *testing.T) {
	table := `
title = "wrong in many ways"
tail_limit = 513
keepalive = true
[tails.long]
max = 514
[tails.odd]
min = 3
max = 2
without = "ü"
[tails.ok]
max = 8
[tails.c]
max = -1
[tails.a]
max = -1
[tails.b]
max = -1
[[preface]]
dir = "s2c"
op = "g"
limit = 10
[[preface]]
dir = "s2c"
op = "keepalive"
limit = 513
[[preface]]
op = "auth.2"
limit = 0
[[preface]]
dir = "s2c"
op = "twice"
limit = 512
[[preface]]
dir = "s2c"
op = "twice"
limit = 1
[[preface]]
dir = "c2s"
op = "open"
limit = 1
[[frame]]
dir = "down"
op = "AB"
tail = "none"
colour = "red"
[[frame]]
dir = "c2s"
op = " "
fields = ["a:u9", "b", ":u8", "c:u8", "c:u8", "d:u16:x"]
tail = "ok"
[[frame]]
dir = "c2s"
op = "A"
tail = "ok"
fields = ["a:u8", "b:u8", "c:u8", "d:u8", "e:u8", "f:u8", "g:u8", "h:u8", "i:u8", "j:u8", "k:u8", "l:u8", "m:u8", "n:u8", "o:u8", "p:u8", "q:u8"]
[[frame]]
dir = "c2s"
op = "A"
tail = "ok"
`
	want := []string{
		"unknown key keepalive",
		"unknown key frame.colour",
		"name is missing",
		"tail_limit is 513, not 1 to 512",
		"tails.a: min 0 and max -1 do not fit 0 ≤ min ≤ max ≤ tail_limit 513",
		"tails.b: min 0 and max -1 do not fit 0 ≤ min ≤ max ≤ tail_limit 513",
		"tails.c: min 0 and max -1 do not fit 0 ≤ min ≤ max ≤ tail_limit 513",
		"tails.long: min 0 and max 514 do not fit 0 ≤ min ≤ max ≤ tail_limit 513",
		"tails.odd: min 3 and max 2 do not fit 0 ≤ min ≤ max ≤ tail_limit 513",
		`tails.odd: without "ü" is not ASCII`,
		`preface 1: op "g" is not a word of lower-case letters, or is taken`,
		`preface 2: op "keepalive" is not a word of lower-case letters, or is taken`,
		"preface 2: limit is 513, not 1 to 512",
		`preface 3: op "auth.2" is not a word of lower-case letters, or is taken`,
		"preface 3: limit is 0, not 1 to 512",
		`preface 3: direction "" is neither c2s nor s2c`,
		"s2c twice is there twice",
		`preface 6: op "open" is not a word of lower-case letters, or is taken`,
		`frame 1: direction "down" is neither c2s nor s2c`,
		`frame 1: op "AB" is not one printable ASCII character`,
		"frame 1: there is no [tails.none]",
		`frame 2: op " " is not one printable ASCII character`,
		`frame 2: field "a:u9" is not name:u8, u16, u32 or u64`,
		`frame 2: field "b" is not name:u8, u16, u32 or u64`,
		`frame 2: field ":u8" is not name:u8, u16, u32 or u64`,
		"frame 2: field c is there twice",
		`frame 2: field "d:u16:x" is not name:u8, u16, u32 or u64`,
		"frame 3: more than 16 fields",
		"c2s A is there twice",
	}
	g, err := frames.ParseGrammar("dir/bad.toml", []byte(table))
	if g != nil || err == nil {
		t.Fatalf("%+v, %v", g, err)
	}
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("too many: %q", got[i])
		case i >= len(got):
			t.Errorf("missing: %q", want[i])
		case got[i] != "dir/bad.toml: "+want[i]:
			t.Errorf("problem %d: %q, not %q", i, got[i], want[i])
		}
	}
}

func TestGrammarThatIsNoTable(t *testing.T) {
	for in, want := range map[string]string{
		"name = ":                           "bad.toml: toml: line 1",
		"\n\ntail_limit = \"many\"":         "bad.toml: toml: ",
		"name = 3":                          "bad.toml: toml: ",
		"":                                  "bad.toml: name is missing",
		"#" + strings.Repeat("x", 16<<10-1): "bad.toml: name is missing",
		"#" + strings.Repeat("x", 16<<10):   "bad.toml: table has 16385 bytes, over 16384",
		"name = \"x\"\nname = \"y\"":        "bad.toml: toml: line 2",
		"name = \"\xff\"":                   "bad.toml: toml: line 1",
		strings.Repeat("[", 3000):           "bad.toml: toml: ",
		"x = " + strings.Repeat("[", 3000):  "bad.toml: toml: ",
		strings.Repeat("a.", 500) + "a = 1": "bad.toml: ",
	} {
		if g, err := frames.ParseGrammar("bad.toml", []byte(in)); g != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %.80v, not %q", in, err, want)
		}
	}
}

func FuzzParseGrammar(f *testing.F) {
	for _, n := range frames.Names() {
		data, err := os.ReadFile("grammars/" + n + ".toml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte("hello\nA\n\n\n\nkey\n"))
	}
	f.Add([]byte(ownTable), []byte("x\n"))
	f.Add([]byte("name = 'x'\ntail_limit = 512\n[tails.a]\nmin=512\nmax=512\n[[frame]]\ndir='c2s'\nop='~'\ntail='a'\n"), []byte("~"))
	f.Fuzz(func(t *testing.T, table, in []byte) {
		g, err := frames.ParseGrammar("fuzz.toml", table)
		if err != nil {
			if g != nil || !strings.HasPrefix(err.Error(), "fuzz.toml: ") {
				t.Fatalf("%+v, %v", g, err)
			}
			return
		}
		for _, dir := range directions {
			one, cut := decode(t, g, dir, in), decode(t, g, dir, in, 1)
			if !one.equal(cut) {
				t.Fatalf("%q: %+v in one read, %+v byte by byte", in, one, cut)
			}
			for _, fr := range one.frames {
				reencode(t, g, dir, fr)
			}
		}
		lines := map[frames.Direction]string{}
		for _, s := range g.Shapes() {
			switch s.Kind {
			case frames.Preface:
				lines[s.Dir] += "\n"
			case frames.Message:
				frame := frameOf(s, s.Limit)
				tr := decode(t, g, s.Dir, append([]byte(lines[s.Dir]), frame...), 7)
				if n := len(lines[s.Dir]); len(tr.frames) != n+1 || tr.frames[n].bytes != string(frame) {
					t.Fatalf("%s %s: %q is decoded as %+v", s.Dir, s.Op, frame, tr)
				}
			}
		}
	})
}
