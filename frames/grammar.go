package frames

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed grammars/*.toml
var builtin embed.FS

// Grammar is a wire dialect: its preface lines, its frames and their limits.
// It is immutable and safe for concurrent use.
type Grammar struct {
	Name     string
	Title    string
	shapes   []*Shape
	prefaces [2][]*Shape
	ops      [2][256]*Shape
}

// Names lists the built-in grammars, in alphabetical order.
func Names() []string { return []string{"ticketing", "ticketing-v0"} }

var grammars = func() map[string]*Grammar {
	m := map[string]*Grammar{}
	for _, n := range Names() {
		file := "grammars/" + n + ".toml"
		data, err := builtin.ReadFile(file)
		if err != nil {
			panic(err) // the table is compiled in
		}
		g, err := ParseGrammar(file, data)
		if err != nil {
			panic(err)
		}
		m[n] = g
	}
	return m
}()

// Builtin returns a built-in grammar by name.
func Builtin(name string) (*Grammar, bool) {
	g, ok := grammars[name]
	return g, ok
}

// MustBuiltin is Builtin for names known to exist; it panics otherwise.
func MustBuiltin(name string) *Grammar {
	g, ok := grammars[name]
	if !ok {
		panic("frames: no grammar " + name)
	}
	return g
}

// Shapes lists all rows: preface lines first, then frames in table order, then
// the keep-alive of each direction if there is one.
func (g *Grammar) Shapes() []*Shape { return slices.Clone(g.shapes) }

// Shape finds a row by direction and op ("A", "greeting", "auth", "keepalive").
func (g *Grammar) Shape(dir Direction, op string) (*Shape, bool) {
	for _, s := range g.shapes {
		if s.Dir == dir && s.Op == op {
			return s, true
		}
	}
	return nil, false
}

// MustShape is Shape for rows known to exist; it panics otherwise.
func (g *Grammar) MustShape(dir Direction, op string) *Shape {
	s, ok := g.Shape(dir, op)
	if !ok {
		panic(fmt.Sprintf("frames: %s has no %s %s", g.Name, dir, op))
	}
	return s
}

type grammarFile struct {
	Name      string              `toml:"name"`
	Title     string              `toml:"title"`
	KeepAlive bool                `toml:"keep_alive"`
	TailLimit int                 `toml:"tail_limit"`
	Tails     map[string]tailFile `toml:"tails"`
	Preface   []struct {
		Dir   string `toml:"dir"`
		Op    string `toml:"op"`
		Limit int    `toml:"limit"`
	} `toml:"preface"`
	Frame []struct {
		Dir    string   `toml:"dir"`
		Op     string   `toml:"op"`
		Name   string   `toml:"name"`
		Fields []string `toml:"fields"`
		Tail   string   `toml:"tail"`
	} `toml:"frame"`
}

type tailFile struct {
	Min     int    `toml:"min"`
	Max     int    `toml:"max"`
	Without string `toml:"without"`
}

// Limits of a grammar table.
const (
	maxTable  = 16 << 10 // bytes of the file; the TOML reader is quadratic in nested keys
	maxTail   = 512      // bytes of a tail or a preface line
	maxFields = 16       // fixed fields of a frame
)

// ParseGrammar reads a grammar table of at most 16 KiB; tails and preface lines
// are at most 512 bytes, a frame has at most 16 fixed fields. A file that is not
// TOML, or has a value of the wrong type, is one error with the place that the
// TOML reader gives; all other problems are reported together, each with the
// file name. Unknown keys are errors.
func ParseGrammar(file string, data []byte) (*Grammar, error) {
	if len(data) > maxTable {
		return nil, fmt.Errorf("%s: table has %d bytes, over %d", file, len(data), maxTable)
	}
	var f grammarFile
	md, err := toml.Decode(string(data), &f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	b := builder{file: file, f: &f, g: &Grammar{Name: f.Name, Title: f.Title}}
	for _, k := range md.Undecoded() {
		b.bad("unknown key %s", k)
	}
	b.head()
	b.lines()
	b.frames()
	b.keepAlives()
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b.g, nil
}

// builder collects the rows of a grammar and every problem on the way.
type builder struct {
	file string
	f    *grammarFile
	g    *Grammar
	errs []error
}

func (b *builder) bad(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf("%s: %s", b.file, fmt.Sprintf(format, args...)))
}

func (b *builder) head() {
	if b.f.Name == "" {
		b.bad("name is missing")
	}
	if b.f.TailLimit < 1 || b.f.TailLimit > maxTail {
		b.bad("tail_limit is %d, not 1 to %d", b.f.TailLimit, maxTail)
	}
	for _, name := range slices.Sorted(maps.Keys(b.f.Tails)) {
		t := b.f.Tails[name]
		if t.Min < 0 || t.Max < t.Min || t.Max > b.f.TailLimit {
			b.bad("tails.%s: min %d and max %d do not fit 0 ≤ min ≤ max ≤ tail_limit %d", name, t.Min, t.Max, b.f.TailLimit)
		}
		if strings.ContainsFunc(t.Without, func(r rune) bool { return r > '~' }) {
			b.bad("tails.%s: without %q is not ASCII", name, t.Without)
		}
	}
}

// dir reads the direction of a row, which is called what in an error.
func (b *builder) dir(what, dir string) (Direction, bool) {
	d, err := ParseDirection(dir)
	if err != nil {
		b.bad("%s: %v", what, err)
	}
	return d, err == nil
}

func (b *builder) add(s *Shape) {
	if _, ok := b.g.Shape(s.Dir, s.Op); ok {
		b.bad("%s %s is there twice", s.Dir, s.Op)
		return
	}
	b.g.shapes = append(b.g.shapes, s)
}

func (b *builder) lines() {
	for i, p := range b.f.Preface {
		if len(p.Op) < 2 || strings.Trim(p.Op, "abcdefghijklmnopqrstuvwxyz") != "" || p.Op == OpKeepAlive || p.Op == OpOpen {
			b.bad("preface %d: op %q is not a word of lower-case letters, or is taken", i+1, p.Op)
		}
		if p.Limit < 1 || p.Limit > maxTail {
			b.bad("preface %d: limit is %d, not 1 to %d", i+1, p.Limit, maxTail)
		}
		dir, ok := b.dir(fmt.Sprintf("preface %d", i+1), p.Dir)
		if !ok {
			continue
		}
		s := &Shape{Kind: Preface, Dir: dir, Op: p.Op, Name: p.Op, Limit: p.Limit, Tail: Tail{Name: "line", Max: p.Limit}}
		b.add(s)
		b.g.prefaces[dir] = append(b.g.prefaces[dir], s)
	}
}

func (b *builder) frames() {
	for i, r := range b.f.Frame {
		dir, ok := b.dir(fmt.Sprintf("frame %d", i+1), r.Dir)
		if len(r.Op) != 1 || r.Op[0] <= ' ' || r.Op[0] > '~' {
			b.bad("frame %d: op %q is not one printable ASCII character", i+1, r.Op)
			ok = false
		}
		t, known := b.f.Tails[r.Tail]
		if !known {
			b.bad("frame %d: there is no [tails.%s]", i+1, r.Tail)
		}
		s := &Shape{
			Kind: Message, Dir: dir, Op: r.Op, Name: r.Name, Header: 1, Limit: b.f.TailLimit,
			Tail: Tail{Name: r.Tail, Min: t.Min, Max: t.Max, Without: t.Without},
		}
		for _, spec := range r.Fields {
			b.field(i, s, spec)
		}
		if ok {
			b.add(s)
			b.g.ops[dir][r.Op[0]] = s
		}
	}
}

func (b *builder) field(row int, s *Shape, spec string) {
	sizes := map[string]int{"u8": 1, "u16": 2, "u32": 4, "u64": 8}
	name, typ, _ := strings.Cut(spec, ":")
	size, ok := sizes[typ]
	if !ok || name == "" {
		b.bad("frame %d: field %q is not name:u8, u16, u32 or u64", row+1, spec)
		return
	}
	if _, dup := s.Field(name); dup {
		b.bad("frame %d: field %s is there twice", row+1, name)
		return
	}
	if len(s.Fields) == maxFields {
		b.bad("frame %d: more than %d fields", row+1, maxFields)
		return
	}
	s.Fields = append(s.Fields, Field{Name: name, Offset: s.Header, Size: size})
	s.Header += size
}

func (b *builder) keepAlives() {
	if !b.f.KeepAlive {
		return
	}
	for _, dir := range []Direction{ClientToServer, ServerToClient} {
		s := &Shape{Kind: KeepAlive, Dir: dir, Op: OpKeepAlive, Name: "Keep-alive"}
		b.add(s)
		b.g.ops[dir]['\n'] = s
	}
}
