package frames_test

import (
	"slices"
	"strings"
	"testing"

	"tornwire/frames"
)

func opsOf(tr transcript) string {
	var ops []string
	for _, f := range tr.frames {
		ops = append(ops, f.op)
	}
	return strings.Join(ops, " ")
}

func TestKeepAlivesBetweenFrames(t *testing.T) {
	in := []byte("id nonce\n\n\nA\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\nk\n\nEx\n\n")
	for _, sizes := range [][]int{nil, {1}, {2}, {3}, {10}} {
		tr := decode(t, frames.MustBuiltin("ticketing"), s2c, in, sizes...)
		if got, want := opsOf(tr), "greeting keepalive keepalive A keepalive E keepalive"; got != want || tr.err != "" {
			t.Errorf("reads of %v: %s, %s, not %s", sizes, got, tr.err, want)
		}
	}
}

// TestPreface: the first line is the preface whatever is in it, and requests may
// follow it in the same read.
func TestPreface(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	for in, want := range map[string]string{
		"\n\n":                                 "auth keepalive",
		"A\n\n":                                "auth keepalive",
		"\x00\xff\n":                           "auth",
		"digest\nR\n\n\n\n\n\n\n\nk\n":         "auth R",
		"digest\nRabcdefghkey\nRabcdefghkey\n": "auth R R",
	} {
		if tr := decode(t, g, c2s, []byte(in)); opsOf(tr) != want || tr.err != "" {
			t.Errorf("%q: %s, %s, not %s", in, opsOf(tr), tr.err, want)
		}
	}
}

// TestPending looks at every prefix of a frame.
func TestPending(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	frame := "A\n\n\n\n\n\n\n\n12345678key\n"
	for n := range len(frame) {
		d := g.Decoder(s2c)
		if s, b := d.Pending(); s != nil || b != nil {
			t.Fatalf("before the first byte %v is pending", s)
		}
		for rest := []byte("greeting\n" + frame[:n]); len(rest) > 0; {
			_, rest = d.Next(rest)
		}
		s, b := d.Pending()
		if n == 0 {
			if s != nil || b != nil {
				t.Errorf("at a boundary %s %q is pending", s.Op, b)
			}
			continue
		}
		if s == nil || s.Op != "A" || string(b) != frame[:n] {
			t.Errorf("after %d bytes %q is pending", n, b)
			continue
		}
		if _, ok := s.Uint(b, "token"); ok != (n >= 17) {
			t.Errorf("after %d bytes the token is known: %v", n, ok)
		}
	}
}

// TestNextOfNothing: an empty read changes nothing, wherever the decoder stands.
func TestNextOfNothing(t *testing.T) {
	d := frames.MustBuiltin("ticketing").Decoder(s2c)
	for _, in := range []string{"gree", "ting\n", "E", strings.Repeat("x", 192), "\n", "", "\n", "Z", "Z"} {
		if pc, rest := d.Next(nil); len(pc.Data) != 0 || pc.Kind != 0 || pc.First || pc.Last || rest != nil {
			t.Errorf("before %q: piece %+v of nothing", in, pc)
		}
		if opaque := strings.HasPrefix(in, "Z"); in != "" && !opaque {
			if d.Next([]byte(in)); d.Err() != nil {
				t.Errorf("after %q: %v", in, d.Err())
			}
		} else if opaque {
			d.Next([]byte(in))
		}
	}
}

// TestReset: nothing of the link before is left, wherever it stood.
func TestReset(t *testing.T) {
	v0, g := frames.MustBuiltin("ticketing-v0"), frames.MustBuiltin("ticketing")
	in := []byte("Release-me\nA\n\n\n\n\n\n\n\n\n\nkey\n\nZ") // a preface that looks like a frame
	want := decode(t, g, c2s, in)
	for name, before := range map[string]string{
		"fresh": "", "in the preface": "gre", "at a boundary": "greeting\n", "in a frame": "greeting\nRke",
		"opaque": "greeting\nZZ", "over the limit": "greeting\nR" + strings.Repeat("k", 200),
	} {
		tr := trace(t, g, c2s)
		tr.d = v0.Decoder(s2c)
		for rest := []byte(before); len(rest) > 0; {
			_, rest = tr.d.Next(rest)
		}
		tr.d.Reset(g, c2s)
		if s, _ := tr.d.Pending(); s != nil || tr.d.Err() != nil {
			t.Errorf("%s: %v pending, error %v after the reset", name, s, tr.d.Err())
		}
		tr.feed(in)
		if got := tr.end(); !got.equal(want) || opsOf(got) != "auth A keepalive" {
			t.Errorf("%s: %+v, not %+v", name, got, want)
		}
	}
}

func TestAllocations(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	for _, dir := range directions {
		list := benchFrames(t, dir)[:8]
		stream := append(slices.Concat(list...), '\n')
		d := frames.MustBuiltin("ticketing").Decoder(dir)
		d.Next([]byte("preface\n"))
		for cut := 1; cut <= len(stream); cut++ {
			got := 0
			allocs := testing.AllocsPerRun(10, func() {
				for _, rest := range [][]byte{stream[:cut], stream[cut:]} {
					for len(rest) > 0 {
						var pc frames.Piece
						if pc, rest = d.Next(rest); pc.Last {
							got++
						}
						d.Pending()
					}
				}
			})
			if allocs != 0 || got != 11*(len(list)+1) {
				t.Fatalf("%s cut at %d: %v allocations, %d frames", dir, cut, allocs, got)
			}
		}
	}
	for _, c := range goldens {
		s, tail, buf := c.shape(), []byte(c.tail), make([]byte, 0, 512)
		frame := []byte(c.bytes)
		if n := testing.AllocsPerRun(10, func() {
			buf, _ = s.Append(buf[:0], tail, c.values...)
			_ = s.Check(frame)
			for _, f := range c.fields {
				s.Uint(frame, f)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations to encode, check and read", c, n)
		}
	}
	g, frame := frames.MustBuiltin("ticketing"), make([]byte, 0, 64)
	s := g.MustShape(c2s, "A")
	if n := testing.AllocsPerRun(10, func() { frame, _ = s.Append(frame[:0], []byte("key"), 1, 2, 3) }); n != 0 {
		t.Errorf("%v allocations to encode with values in place", n)
	}
}
