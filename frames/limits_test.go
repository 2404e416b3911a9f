package frames_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tornwire/frames"
)

// eachShape runs f for every row of both dialects.
func eachShape(t *testing.T, f func(t *testing.T, g *frames.Grammar, s *frames.Shape)) {
	for _, name := range frames.Names() {
		g := frames.MustBuiltin(name)
		for _, s := range g.Shapes() {
			t.Run(name+"/"+s.Dir.String()+"."+s.Op, func(t *testing.T) { f(t, g, s) })
		}
	}
}

// frameOf builds a frame with n tail bytes without looking at its limits; every
// fixed byte is a newline.
func frameOf(s *frames.Shape, n int) []byte {
	op := ""
	if s.Kind == frames.Message {
		op = s.Op
	}
	return []byte(op + strings.Repeat("\n", s.Header-len(op)) + strings.Repeat("k", n) + "\n")
}

// prefix is what stands before a frame with shape s, and how many frames it is.
func prefix(s *frames.Shape) (string, int) {
	if s.Kind == frames.Preface {
		return "", 0
	}
	return "preface\n", 1
}

// TestDecodeLimit decodes a tail at the limit and one past it, in every shape
// and cut at every byte: the link goes opaque at the same byte.
func TestDecodeLimit(t *testing.T) {
	eachShape(t, func(t *testing.T, g *frames.Grammar, s *frames.Shape) {
		limit := map[frames.Kind]int{frames.Preface: 256, frames.Message: 192}[s.Kind]
		if s.Limit != limit {
			t.Fatalf("limit %d, not %d", s.Limit, limit)
		}
		if s.Kind == frames.KeepAlive {
			return
		}
		before, n := prefix(s)
		at := before + string(frameOf(s, limit)) + "\n"
		over := before + string(frameOf(s, limit+1)) + "\n"
		opaqueAt := len(before) + s.Header + limit
		want := fmt.Sprintf("text of %s %s is over the limit of %d bytes: frame %d, byte %d of the link", s.Dir, s.Op, limit, n, opaqueAt)
		for cut := 1; cut <= len(over); cut++ {
			tr := decode(t, g, s.Dir, []byte(at), cut, len(at))
			if len(tr.frames) != n+2 || len(tr.frames[n].bytes) != s.Size(limit) || tr.err != "" {
				t.Fatalf("at the limit, cut at %d: %+v", cut, tr)
			}
			tr = decode(t, g, s.Dir, []byte(over), cut, len(over))
			open := seen{uint64(n), s.Kind, s.Op, over[len(before):opaqueAt]}
			if len(tr.frames) != n || tr.open != open || tr.opaqueAt != opaqueAt || tr.seq != uint64(n+1) || tr.err != want {
				t.Fatalf("over the limit, cut at %d: %+v, not %q", cut, tr, want)
			}
		}
	})
}

func TestEncodeAndCheckLimits(t *testing.T) {
	eachShape(t, func(t *testing.T, _ *frames.Grammar, s *frames.Shape) {
		least, most := 0, map[frames.Kind]int{frames.Preface: 256, frames.Message: 192}[s.Kind]
		if s.Tail.Name == "key" {
			least, most = 1, 128
		}
		for n := 0; n <= most+1; n++ {
			tail, ok := []byte(strings.Repeat("k", n)), n >= least && n <= most
			_, err := s.Append(nil, tail, make([]uint64, len(s.Fields))...)
			refused(t, err, ok, n, least, most)
			refused(t, s.Check(frameOf(s, n)), ok, n, least, most)
		}
	})
}

// refused wants an error with both numbers unless ok.
func refused(t *testing.T, err error, ok bool, n, least, most int) {
	t.Helper()
	bound := fmt.Sprintf("over %d", most)
	if n < least {
		bound = fmt.Sprintf("under %d", least)
	}
	switch {
	case ok && err != nil:
		t.Errorf("%d bytes: %v", n, err)
	case !ok && (!errors.Is(err, frames.ErrBadFrame) || most > 0 && !strings.Contains(err.Error(), fmt.Sprintf("%d bytes, %s", n, bound))):
		t.Errorf("%d bytes: error %v, not %q", n, err, bound)
	}
}

func TestAppendRefuses(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	v0 := frames.MustBuiltin("ticketing-v0")
	for _, c := range []struct {
		s      *frames.Shape
		tail   string
		values []uint64
		want   string
	}{
		{g.MustShape(c2s, "A"), "k", []uint64{1, 2}, "c2s A has 3 fields, not 2"},
		{g.MustShape(c2s, "A"), "k", []uint64{1, 2, 3, 4}, "c2s A has 3 fields, not 4"},
		{g.MustShape(s2c, "M"), "k", []uint64{1}, "s2c M has 0 fields, not 1"},
		{g.MustShape(c2s, "A"), "k", []uint64{256, 2, 3}, "wait of c2s A is 256, over 255"},
		{g.MustShape(c2s, "A"), "k", []uint64{1, 256, 3}, "lease of c2s A is 256, over 255"},
		{v0.MustShape(c2s, "A"), "k", []uint64{65536, 1}, "wait of c2s A is 65536, over 65535"},
		{g.MustShape(c2s, "R"), "a b", []uint64{1}, `key of c2s R has a byte of " \r"`},
		{g.MustShape(c2s, "R"), "a\rb", []uint64{1}, `key of c2s R has a byte of " \r"`},
		{g.MustShape(c2s, "R"), "a\nb", []uint64{1}, "key of c2s R has a newline"},
		{g.MustShape(s2c, "E"), "a\nb", nil, "text of s2c E has a newline"},
		{g.MustShape(c2s, "R"), "a\xffb", []uint64{1}, "key of c2s R is not UTF-8"},
		{g.MustShape(c2s, "R"), "\xc3", []uint64{1}, "key of c2s R is not UTF-8"},
		{g.MustShape(c2s, "R"), "\xed\xa0\x80", []uint64{1}, "key of c2s R is not UTF-8"},
		{g.MustShape(s2c, "E"), "\xc0\x80", nil, "text of s2c E is not UTF-8"},
		{g.MustShape(s2c, "greeting"), "id\tx", nil, "greeting line is not printable ASCII"},
		{g.MustShape(s2c, "greeting"), "id \x7f", nil, "greeting line is not printable ASCII"},
		{g.MustShape(c2s, "auth"), "schl\u00fcssel", nil, "auth line is not printable ASCII"},
		{g.MustShape(c2s, "keepalive"), "x", nil, "has 1 bytes, over 0"},
	} {
		dst := []byte("before")
		got, err := c.s.Append(dst, []byte(c.tail), c.values...)
		if !errors.Is(err, frames.ErrBadFrame) || !strings.HasPrefix(err.Error(), "bad frame: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %q %v: %v, not %q", c.s.Dir, c.s.Op, c.tail, c.values, err, c.want)
		}
		if string(got) != "before" {
			t.Errorf("%s %s %q %v: buffer is %q", c.s.Dir, c.s.Op, c.tail, c.values, got)
		}
	}
}

// TestAppendAllows has what looks odd and is right.
func TestAppendAllows(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	for _, c := range []struct {
		s    *frames.Shape
		tail string
	}{
		{g.MustShape(s2c, "E"), "two words\r"},
		{g.MustShape(s2c, "T"), "tab\tand\x00nul"},
		{g.MustShape(s2c, "T"), "\uFFFD\u00a0"},
		{g.MustShape(s2c, "greeting"), " ~"},
	} {
		f, err := c.s.Append(nil, []byte(c.tail), make([]uint64, len(c.s.Fields))...)
		if err == nil {
			err = c.s.Check(f)
		}
		if err != nil {
			t.Errorf("%s %q: %v", c.s.Op, c.tail, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	for _, c := range []struct {
		s     *frames.Shape
		frame string
		want  string
	}{
		{g.MustShape(s2c, "A"), "", "s2c A of 0 bytes is cut short"},
		{g.MustShape(s2c, "T"), "T12345678", "s2c T of 9 bytes is cut short"},
		{g.MustShape(s2c, "T"), "T12345678key", "s2c T of 12 bytes is cut short"},
		{g.MustShape(s2c, "T"), "T1234567\n", "s2c T of 9 bytes is cut short"},
		{g.MustShape(s2c, "T"), "T12345678k k\n", "has a byte of"},
		{g.MustShape(s2c, "T"), "T12345678k\nk\n", "has a newline"},
		{g.MustShape(s2c, "T"), "T12345678\xff\n", "is not UTF-8"},
		{g.MustShape(s2c, "keepalive"), "\n\n", "keep-alive of 2 bytes, not 1"},
		{g.MustShape(s2c, "greeting"), "\x00\n", "is not printable ASCII"},
	} {
		if err := c.s.Check([]byte(c.frame)); !errors.Is(err, frames.ErrBadFrame) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, not %q", c.frame, err, c.want)
		}
	}
	if tail := g.MustShape(s2c, "A").TailOf([]byte("A123456789")); tail != nil {
		t.Errorf("a frame without a tail has the tail %q", tail)
	}
}

// TestUnknownOpIsOpaque: every op that is not in the table, in the place of a
// frame, makes the rest opaque, with its place in the error.
func TestUnknownOpIsOpaque(t *testing.T) {
	for _, name := range frames.Names() {
		g := frames.MustBuiltin(name)
		for _, dir := range []frames.Direction{c2s, s2c} {
			for op := range 256 {
				if _, ok := g.Shape(dir, string([]byte{byte(op)})); ok || op == '\n' {
					continue
				}
				in := append([]byte("preface\n\n"), byte(op))
				in = append(in, "xyz\nRkey\n"...)
				want := fmt.Sprintf("unknown op 0x%02x in %s: frame 2, byte 9 of the link", op, dir)
				for _, sizes := range [][]int{nil, {1}, {4}} {
					tr := decode(t, g, dir, in, sizes...)
					if len(tr.frames) != 2 || tr.opaqueAt != 9 || tr.seq != 2 || tr.err != want {
						t.Fatalf("%s op %#x: %+v, not %q", name, op, tr, want)
					}
				}
			}
		}
	}
}

// TestErrStays: the first problem is the one told, whatever comes after.
func TestErrStays(t *testing.T) {
	d := frames.MustBuiltin("ticketing").Decoder(s2c)
	d.Next([]byte("x\n"))
	d.Next([]byte("Z"))
	first := d.Err()
	d.Next([]byte("Y\nEx\n\n"))
	if first == nil || d.Err() != first {
		t.Errorf("%v, then %v", first, d.Err())
	}
}
