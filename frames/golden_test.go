package frames_test

import (
	"bytes"
	"testing"

	"tornwire/frames"
)

const (
	c2s = frames.ClientToServer
	s2c = frames.ServerToClient
)

// golden is one frame, its bytes written by hand from spec/ticketing.md §1.
type golden struct {
	dialect string
	dir     frames.Direction
	op      string
	name    string
	fixed   int // size without the tail, as the spec gives it
	fields  []string
	values  []uint64
	tail    string
	bytes   string
}

var (
	ownerToken = []string{"owner", "token"}
	owner      = []string{"owner"}
	token      = []string{"token"}
)

const newlines = 0x0A0A0A0A0A0A0A0A

// goldens has every row of §1.2 and §1.3, and 0x0A in every fixed byte of each
// layout that has any.
var goldens = []golden{
	{"ticketing", s2c, "greeting", "greeting", 1, nil, nil, "node-1 9f86d081", "node-1 9f86d081\n"},
	{"ticketing", c2s, "auth", "auth", 1, nil, nil, "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU", "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU\n"},
	{
		"ticketing", c2s, "A", "Acquire", 12,
		[]string{"wait", "lease", "owner"},
		[]uint64{5, 30, 0x0102030405060708},
		"order-42",
		"A\x05\x1e\x01\x02\x03\x04\x05\x06\x07\x08order-42\n",
	},
	{
		"ticketing", c2s, "A", "Acquire", 12,
		[]string{"wait", "lease", "owner"},
		[]uint64{10, 10, newlines},
		"k",
		"A\n\n\n\n\n\n\n\n\n\nk\n",
	},
	{
		"ticketing", c2s, "A", "Acquire", 12,
		[]string{"wait", "lease", "owner"},
		[]uint64{0, 255, 1<<64 - 1},
		"schlüssel",
		"A\x00\xff\xff\xff\xff\xff\xff\xff\xff\xffschl\xc3\xbcssel\n",
	},
	{"ticketing", c2s, "R", "Release", 10, token, []uint64{258}, "k", "R\x00\x00\x00\x00\x00\x00\x01\x02k\n"},
	{"ticketing", c2s, "R", "Release", 10, token, []uint64{newlines}, "k", "R\n\n\n\n\n\n\n\nk\n"},
	{
		"ticketing", s2c, "A", "Acquired", 18, ownerToken,
		[]uint64{0x1112131415161718, 0x2122232425262728},
		"k",
		"A\x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24\x25\x26\x27\x28k\n",
	},
	{"ticketing", s2c, "A", "Acquired", 18, ownerToken, []uint64{newlines, newlines}, "k", "A\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\nk\n"},
	{"ticketing", s2c, "T", "Timeout", 10, owner, []uint64{0x0102030405060708}, "key", "T\x01\x02\x03\x04\x05\x06\x07\x08key\n"},
	{"ticketing", s2c, "T", "Timeout", 10, owner, []uint64{newlines}, "k", "T\n\n\n\n\n\n\n\nk\n"},
	{"ticketing", s2c, "B", "Busy", 10, owner, []uint64{0x0102030405060708}, "key", "B\x01\x02\x03\x04\x05\x06\x07\x08key\n"},
	{"ticketing", s2c, "B", "Busy", 10, owner, []uint64{newlines}, "k", "B\n\n\n\n\n\n\n\nk\n"},
	{"ticketing", s2c, "R", "Released", 10, token, []uint64{0x8000000000000001}, "key", "R\x80\x00\x00\x00\x00\x00\x00\x01key\n"},
	{"ticketing", s2c, "R", "Released", 10, token, []uint64{newlines}, "k", "R\n\n\n\n\n\n\n\nk\n"},
	{"ticketing", s2c, "N", "Not held", 10, token, []uint64{7}, "key", "N\x00\x00\x00\x00\x00\x00\x00\x07key\n"},
	{"ticketing", s2c, "N", "Not held", 10, token, []uint64{newlines}, "k", "N\n\n\n\n\n\n\n\nk\n"},
	{"ticketing", s2c, "M", "Moved", 2, nil, nil, "10.0.0.1:7000", "M10.0.0.1:7000\n"},
	{"ticketing", s2c, "M", "Moved", 2, nil, nil, "", "M\n"},
	{"ticketing", s2c, "L", "Leader notice", 2, nil, nil, "10.0.0.1:7000", "L10.0.0.1:7000\n"},
	{"ticketing", s2c, "L", "Leader notice", 2, nil, nil, "", "L\n"},
	{"ticketing", s2c, "E", "Error", 2, nil, nil, "not a leader", "Enot a leader\n"},
	{"ticketing", s2c, "E", "Error", 2, nil, nil, "", "E\n"},
	{"ticketing", c2s, "keepalive", "Keep-alive", 1, nil, nil, "", "\n"},
	{"ticketing", s2c, "keepalive", "Keep-alive", 1, nil, nil, "", "\n"},

	{"ticketing-v0", s2c, "greeting", "greeting", 1, nil, nil, "node-1 9f86d081", "node-1 9f86d081\n"},
	{"ticketing-v0", c2s, "auth", "auth", 1, nil, nil, "47DEQpj8", "47DEQpj8\n"},
	{"ticketing-v0", c2s, "A", "Acquire", 6, []string{"wait", "lease"}, []uint64{0x0102, 0x0304}, "key", "A\x01\x02\x03\x04key\n"},
	{"ticketing-v0", c2s, "A", "Acquire", 6, []string{"wait", "lease"}, []uint64{0x0A0A, 0x0A0A}, "k", "A\n\n\n\nk\n"},
	{"ticketing-v0", c2s, "A", "Acquire", 6, []string{"wait", "lease"}, []uint64{0, 65535}, "k", "A\x00\x00\xff\xffk\n"},
	{"ticketing-v0", c2s, "R", "Release", 2, nil, nil, "key", "Rkey\n"},
	{"ticketing-v0", s2c, "A", "Acquired", 10, token, []uint64{0x0102030405060708}, "key", "A\x01\x02\x03\x04\x05\x06\x07\x08key\n"},
	{"ticketing-v0", s2c, "A", "Acquired", 10, token, []uint64{newlines}, "k", "A\n\n\n\n\n\n\n\nk\n"},
	{"ticketing-v0", s2c, "T", "Timeout", 2, nil, nil, "key", "Tkey\n"},
	{"ticketing-v0", s2c, "R", "Released", 2, nil, nil, "key", "Rkey\n"},
	{"ticketing-v0", s2c, "N", "Not held", 2, nil, nil, "key", "Nkey\n"},
	{"ticketing-v0", s2c, "M", "Moved", 2, nil, nil, "10.0.0.1:7000", "M10.0.0.1:7000\n"},
	{"ticketing-v0", s2c, "M", "Moved", 2, nil, nil, "", "M\n"},
	{"ticketing-v0", s2c, "E", "Error", 2, nil, nil, "bad_frame", "Ebad_frame\n"},
	{"ticketing-v0", s2c, "E", "Error", 2, nil, nil, "", "E\n"},
	{"ticketing-v0", c2s, "keepalive", "Keep-alive", 1, nil, nil, "", "\n"},
	{"ticketing-v0", s2c, "keepalive", "Keep-alive", 1, nil, nil, "", "\n"},
}

func (c golden) shape() *frames.Shape { return frames.MustBuiltin(c.dialect).MustShape(c.dir, c.op) }

func (c golden) String() string { return c.dialect + " " + c.dir.String() + "." + c.op }

func TestGoldenEncode(t *testing.T) {
	for _, c := range goldens {
		got, err := c.shape().Append([]byte("before"), []byte(c.tail), c.values...)
		if err != nil || string(got) != "before"+c.bytes {
			t.Errorf("%v: %q, %v, not %q", c, got, err, c.bytes)
		}
	}
}

// TestGoldenDecode parses every golden back, behind a preface and before
// another frame, cut at every byte.
func TestGoldenDecode(t *testing.T) {
	for _, c := range goldens {
		g, s := frames.MustBuiltin(c.dialect), c.shape()
		input, at := "preface\n"+c.bytes+"\n", 1
		if s.Kind == frames.Preface {
			input, at = c.bytes+"\n", 0
		}
		for cut := 1; cut <= len(input); cut++ {
			tr := decode(t, g, c.dir, []byte(input), cut, len(input))
			want := seen{uint64(at), s.Kind, c.op, c.bytes}
			if len(tr.frames) != at+2 || tr.frames[at] != want || tr.err != "" {
				t.Fatalf("%v cut at %d: %+v, not %+v", c, cut, tr, want)
			}
		}
	}
}

// TestGoldenFields reads the fields and the tail of every golden, also from a
// frame that has not come in full: a field is known with its last byte.
func TestGoldenFields(t *testing.T) {
	for _, c := range goldens {
		s, b := c.shape(), []byte(c.bytes)
		if err := s.Check(b); err != nil {
			t.Errorf("%v: %v", c, err)
		}
		if got := s.TailOf(b); string(got) != c.tail {
			t.Errorf("%v: tail %q, not %q", c, got, c.tail)
		}
		if got := s.Size(len(c.tail)); got != len(b) || got != c.fixed+len(c.tail) {
			t.Errorf("%v: size %d, not %d + %d", c, got, c.fixed, len(c.tail))
		}
		if len(s.Fields) != len(c.fields) || s.Name != c.name {
			t.Fatalf("%v: %s with fields %v, not %s with %v", c, s.Name, s.Fields, c.name, c.fields)
		}
		end := 1
		for i, f := range s.Fields {
			if f.Name != c.fields[i] || f.Offset != end {
				t.Errorf("%v: field %+v, not %s at %d", c, f, c.fields[i], end)
			}
			end += f.Size
			for n := range len(b) + 1 {
				v, ok := s.Uint(b[:n], f.Name)
				if ok != (n >= end) || ok && v != c.values[i] {
					t.Errorf("%v: %s of the first %d bytes is %d, %v", c, f.Name, n, v, ok)
				}
			}
		}
		if _, ok := s.Uint(b, "no such field"); ok {
			t.Errorf("%v: has a field that it does not have", c)
		}
	}
}

// TestGoldenRows holds the rows of the grammars against the goldens: none is
// missing, none is there that the spec does not have.
func TestGoldenRows(t *testing.T) {
	for _, name := range frames.Names() {
		var last frames.Kind
		rows := map[*frames.Shape]bool{}
		for _, s := range frames.MustBuiltin(name).Shapes() {
			if rows[s] = true; s.Kind < last {
				t.Errorf("%s: %s %s is listed out of order", name, s.Dir, s.Op)
			}
			last = s.Kind
		}
		for _, c := range goldens {
			if c.dialect == name {
				delete(rows, c.shape())
			}
		}
		for s := range rows {
			t.Errorf("%s: %s %s has no golden bytes", name, s.Dir, s.Op)
		}
	}
}

// TestOwnerIsKnownFromByteEleven is spec/rules.md P2.
func TestOwnerIsKnownFromByteEleven(t *testing.T) {
	s := frames.MustBuiltin("ticketing").MustShape(c2s, "A")
	if f, ok := s.Field("owner"); !ok || f.Offset+f.Size != 11 {
		t.Errorf("owner ends at %+v", f)
	}
}

func TestWholeAliasesAWholeRead(t *testing.T) {
	d := frames.MustBuiltin("ticketing").Decoder(s2c)
	in := []byte("n x\nEx\n")
	for range 2 {
		pc, rest := d.Next(in)
		if &pc.Whole[0] != &in[0] || !bytes.Equal(pc.Whole, pc.Data) {
			t.Errorf("frame %d was copied", pc.Seq)
		}
		in = rest
	}
}
