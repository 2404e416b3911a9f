package frames

import (
	"embed"
	"errors"
	"fmt"
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
		Dir   Direction `toml:"dir"`
		Op    string    `toml:"op"`
		Limit int       `toml:"limit"`
	} `toml:"preface"`
	Frame []struct {
		Dir    Direction `toml:"dir"`
		Op     string    `toml:"op"`
		Name   string    `toml:"name"`
		Fields []string  `toml:"fields"`
		Tail   string    `toml:"tail"`
	} `toml:"frame"`
}

type tailFile struct {
	Min     int    `toml:"min"`
	Max     int    `toml:"max"`
	Without string `toml:"without"`
}

// ParseGrammar reads a grammar table. All problems are reported together, each
// with the file name; unknown keys are errors.
func ParseGrammar(file string, data []byte) (*Grammar, error) {
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
	if b.f.TailLimit < 1 || b.f.TailLimit > 512 {
		b.bad("tail_limit is %d, not 1 to 512", b.f.TailLimit)
	}
	for name, t := range b.f.Tails {
		if t.Min < 0 || t.Max < t.Min || t.Max > b.f.TailLimit {
			b.bad("tails.%s: min %d and max %d do not fit 0 ≤ min ≤ max ≤ tail_limit %d", name, t.Min, t.Max, b.f.TailLimit)
		}
	}
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
		if len(p.Op) < 2 || p.Op == OpKeepAlive {
			b.bad("preface %d: op %q must be a word", i+1, p.Op)
			continue
		}
		if p.Limit < 1 || p.Limit > maxFrame/2 {
			b.bad("preface %s: limit is %d, not 1 to %d", p.Op, p.Limit, maxFrame/2)
			continue
		}
		s := &Shape{Kind: Preface, Dir: p.Dir, Op: p.Op, Name: p.Op, Limit: p.Limit, Tail: Tail{Name: "line", Max: p.Limit}}
		b.add(s)
		b.g.prefaces[p.Dir] = append(b.g.prefaces[p.Dir], s)
	}
}

func (b *builder) frames() {
	for i, r := range b.f.Frame {
		if len(r.Op) != 1 || r.Op[0] <= ' ' || r.Op[0] > '~' {
			b.bad("frame %d: op %q is not one printable ASCII character", i+1, r.Op)
			continue
		}
		t, ok := b.f.Tails[r.Tail]
		if !ok {
			b.bad("frame %s %s: there is no [tails.%s]", r.Dir, r.Op, r.Tail)
			continue
		}
		s := &Shape{
			Kind: Message, Dir: r.Dir, Op: r.Op, Name: r.Name, Header: 1, Limit: b.f.TailLimit,
			Tail: Tail{Name: r.Tail, Min: t.Min, Max: t.Max, Without: t.Without},
		}
		for _, spec := range r.Fields {
			b.field(s, spec)
		}
		b.add(s)
		b.g.ops[r.Dir][r.Op[0]] = s
	}
}

func (b *builder) field(s *Shape, spec string) {
	sizes := map[string]int{"u8": 1, "u16": 2, "u32": 4, "u64": 8}
	name, typ, _ := strings.Cut(spec, ":")
	size, ok := sizes[typ]
	if !ok || name == "" {
		b.bad("frame %s %s: field %q is not name:u8, u16, u32 or u64", s.Dir, s.Op, spec)
		return
	}
	if _, dup := s.Field(name); dup {
		b.bad("frame %s %s: field %s is there twice", s.Dir, s.Op, name)
		return
	}
	if len(s.Fields) == 16 {
		b.bad("frame %s %s: more than 16 fields", s.Dir, s.Op)
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
