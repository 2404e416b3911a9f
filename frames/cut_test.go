package frames_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"tornwire/frames"
)

// naive decodes a whole input in one pass, in the plainest words that
// spec/ticketing.md §1 allows. It shares no code with the decoder.
func naive(g *frames.Grammar, dir frames.Direction, in []byte) transcript {
	tr := transcript{opaqueAt: -1}
	preface := true
	for at := 0; at < len(in); preface = false {
		op, kind, head, limit := "greeting", frames.Preface, 0, 256
		if dir == c2s {
			op = "auth"
		}
		if !preface {
			op, kind, head, limit = string(in[at:at+1]), frames.Message, 1, 192
			if op == "\n" {
				op, kind, head, limit = "keepalive", frames.KeepAlive, 0, 0
			}
			s, ok := g.Shape(dir, op)
			if !ok {
				tr.opaqueAt, tr.seq, tr.err = at, uint64(len(tr.frames)), "unknown"
				return tr
			}
			for _, f := range s.Fields {
				head += f.Size
			}
		}
		rest := in[at:]
		size := len(rest) + 1
		if len(rest) > head {
			if i := bytes.IndexByte(rest[head:], '\n'); i >= 0 {
				size = head + i + 1
			}
		}
		switch {
		case size > head+limit+1 && len(rest) > head+limit:
			tr.open = seen{uint64(len(tr.frames)), kind, op, string(rest[:head+limit])}
			tr.opaqueAt, tr.seq, tr.err = at+head+limit, uint64(len(tr.frames)+1), "over"
			return tr
		case size > len(rest):
			tr.open = seen{uint64(len(tr.frames)), kind, op, string(rest)}
			return tr
		}
		tr.frames = append(tr.frames, seen{uint64(len(tr.frames)), kind, op, string(rest[:size])})
		at += size
	}
	return tr
}

// checkCuts holds the decoder, fed in one read, byte by byte and in the given
// sizes, against itself and against the naive decoder.
func checkCuts(t failer, g *frames.Grammar, dir frames.Direction, in []byte, sizes []int) transcript {
	t.Helper()
	one := decode(t, g, dir, in)
	for _, s := range [][]int{{1}, sizes} {
		if cut := decode(t, g, dir, in, s...); !cut.equal(one) {
			t.Fatalf("%q in reads of %v:\n%+v\nin one read:\n%+v", in, s, cut, one)
		}
	}
	want := naive(g, dir, in)
	if !strings.Contains(one.err, want.err) || (want.err == "") != (one.err == "") {
		t.Fatalf("%q: error %q, not %q", in, one.err, want.err)
	}
	if want.err = one.err; !one.equal(want) {
		t.Fatalf("%q:\n%+v\nnot\n%+v", in, one, want)
	}
	return one
}

func FuzzDecoder(f *testing.F) {
	for _, c := range goldens {
		f.Add([]byte(c.bytes), []byte{1, 7}, c.dialect == "ticketing-v0", c.dir == s2c, c.shape().Kind != frames.Preface)
	}
	for _, op := range []string{"E", "R12345678", "Z"} {
		for n := 191; n <= 193; n++ {
			f.Add([]byte(op+strings.Repeat("x", n)+"\n\n"), []byte{200}, false, true, true)
		}
	}
	f.Add([]byte(strings.Repeat("n", 256)+"\nEx\n"), []byte{255}, false, true, false)
	f.Add([]byte(strings.Repeat("n", 257)+"\nEx\n"), []byte{255}, true, false, false)
	f.Fuzz(func(t *testing.T, in, cuts []byte, v0, down, prefaced bool) {
		g, dir := frames.MustBuiltin("ticketing"), c2s
		if v0 {
			g = frames.MustBuiltin("ticketing-v0")
		}
		if down {
			dir = s2c
		}
		if prefaced {
			in = append([]byte("p\n"), in...)
		}
		sizes := []int{2}
		for _, c := range cuts {
			sizes = append(sizes, int(c)+1)
		}
		tr := checkCuts(t, g, dir, in, sizes)
		for _, fr := range tr.frames {
			reencode(t, g, dir, fr)
		}
	})
}

// reencode wants the same bytes back from a frame's values and tail, or an error
// from both Check and Append.
func reencode(t failer, g *frames.Grammar, dir frames.Direction, fr seen) {
	t.Helper()
	s, b := g.MustShape(dir, fr.op), []byte(fr.bytes)
	var values []uint64
	for _, f := range s.Fields {
		v, ok := s.Uint(b, f.Name)
		if !ok {
			t.Fatalf("%s of the whole frame %q cannot be read", f.Name, b)
		}
		values = append(values, v)
	}
	again, err := s.Append(nil, s.TailOf(b), values...)
	if checked := s.Check(b); (checked == nil) != (err == nil) {
		t.Fatalf("%q: Check says %v, Append %v", b, checked, err)
	}
	if err == nil && !bytes.Equal(again, b) {
		t.Fatalf("%q is encoded as %q", b, again)
	}
}

// genFrame draws a frame that keeps its limits, with the numbers and the text
// that went into it.
func genFrame(t *rapid.T, s *frames.Shape) (frame, tail []byte, values []uint64) {
	for _, f := range s.Fields {
		v := rapid.OneOf(rapid.Uint64Max(f.Max()), rapid.Just(newlines&f.Max()), rapid.Just(f.Max())).Draw(t, f.Name)
		values = append(values, v)
	}
	tail = genTail(t, s)
	frame, err := s.Append(nil, tail, values...)
	if err != nil {
		t.Fatalf("%s %s: %v", s.Dir, s.Op, err)
	}
	return frame, tail, values
}

// genTail draws a tail of any length that the row allows, its limits more often.
func genTail(t *rapid.T, s *frames.Shape) []byte {
	n := rapid.OneOf(rapid.IntRange(s.Tail.Min, s.Tail.Max), rapid.SampledFrom([]int{s.Tail.Min, s.Tail.Max})).Draw(t, "tail size")
	tail := make([]byte, 0, n)
	for len(tail) < n {
		r := rapid.OneOf(rapid.RuneFrom([]rune("abc/-_7A")), rapid.Rune()).Draw(t, "rune")
		bad := r == '\n' || r < utf8.RuneSelf && strings.ContainsRune(s.Tail.Without, r) ||
			s.Kind == frames.Preface && (r < ' ' || r > '~') || len(tail)+utf8.RuneLen(r) > n
		if bad {
			r = 'x'
		}
		tail = utf8.AppendRune(tail, r)
	}
	return tail
}

// TestParseBack encodes streams of right frames and wants them back, however
// they are cut.
func TestParseBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := frames.MustBuiltin(rapid.SampledFrom(frames.Names()).Draw(t, "dialect"))
		dir := rapid.SampledFrom(directions).Draw(t, "direction")
		var shapes []*frames.Shape
		for _, s := range g.Shapes() {
			if s.Dir == dir {
				shapes = append(shapes, s)
			}
		}
		row := rapid.SampledFrom(shapes[1:])
		var stream []byte
		var want []seen
		for i := range rapid.IntRange(1, 12).Draw(t, "frames") {
			s := shapes[0] // the preface line
			if i > 0 {
				s = row.Draw(t, "row")
			}
			frame, tail, values := genFrame(t, s)
			for j, f := range s.Fields {
				if v, ok := s.Uint(frame, f.Name); !ok || v != values[j] {
					t.Fatalf("%s of %q is %d, not %d", f.Name, frame, v, values[j])
				}
			}
			if !bytes.Equal(s.TailOf(frame), tail) || len(frame) != s.Size(len(tail)) || s.Check(frame) != nil {
				t.Fatalf("%q has the tail %q, not %q, or is refused", frame, s.TailOf(frame), tail)
			}
			want = append(want, seen{uint64(i), s.Kind, s.Op, string(frame)})
			stream = append(stream, frame...)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 80), 1, 8).Draw(t, "cuts")
		got := checkCuts(t, g, dir, stream, sizes)
		if !got.equal(transcript{frames: want, opaqueAt: -1}) {
			t.Fatalf("%+v, not %+v", got, want)
		}
	})
}

// TestHandSplitterAgrees holds the splitter of the benchmark to the decoder's
// frames, so that the two are compared at the same work.
func TestHandSplitterAgrees(t *testing.T) {
	for _, dir := range directions {
		list := benchFrames(t, dir)
		for name, reads := range benchReads(t, dir) {
			h, i := handSplitter{dir: dir}, 0
			for _, rest := range reads {
				for len(rest) > 0 {
					var f []byte
					var err error
					if f, rest, err = h.next(rest); err != nil {
						t.Fatal(err)
					}
					if f == nil {
						continue
					}
					if !bytes.Equal(f, list[i]) {
						t.Fatalf("%s %s: frame %d is %q, not %q", dir, name, i, f, list[i])
					}
					i++
				}
			}
			if i != len(list) {
				t.Errorf("%s %s: %d frames, not %d", dir, name, i, len(list))
			}
		}
	}
}
