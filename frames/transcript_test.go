package frames_test

import (
	"bytes"

	"tornwire/frames"
)

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// seen is a frame as a decoder gave it.
type seen struct {
	seq   uint64
	kind  frames.Kind
	op    string
	bytes string
}

// transcript is all that a decoder tells of an input, apart from the cuts.
type transcript struct {
	frames   []seen // that ended
	open     seen   // begun, not ended; its op is "" if there is none
	opaqueAt int    // first byte that belongs to no frame, -1 if all do
	seq      uint64 // number of the opaque run
	err      string
}

// equal tells whether two decoders said the same.
func (a transcript) equal(b transcript) bool {
	if len(a.frames) != len(b.frames) {
		return false
	}
	for i := range a.frames {
		if a.frames[i] != b.frames[i] {
			return false
		}
	}
	return a.open == b.open && a.opaqueAt == b.opaqueAt && a.seq == b.seq && a.err == b.err
}

// tracer feeds a decoder and holds every piece against what went before.
type tracer struct {
	tb  failer
	d   *frames.Decoder
	dir frames.Direction
	tr  transcript
	sum int    // bytes seen
	acc []byte // of the frame under way
	op  int    // bytes of the opaque run
}

func trace(tb failer, g *frames.Grammar, dir frames.Direction) *tracer {
	return &tracer{tb: tb, d: g.Decoder(dir), dir: dir, tr: transcript{opaqueAt: -1}}
}

// decode gives the transcript of input, read in the given sizes, round and
// round; without sizes it is one read.
func decode(tb failer, g *frames.Grammar, dir frames.Direction, input []byte, sizes ...int) transcript {
	tb.Helper()
	t := trace(tb, g, dir)
	for i := 0; len(input) > 0; i++ {
		n := len(input)
		if len(sizes) > 0 {
			n = min(n, sizes[i%len(sizes)])
		}
		t.feed(input[:n])
		input = input[n:]
	}
	return t.end()
}

// feed is one read. The buffer is spoilt afterwards, as a link does that reads
// into it again.
func (t *tracer) feed(read []byte) {
	t.tb.Helper()
	buf := bytes.Clone(read)
	for rest := buf; len(rest) > 0; {
		pc, left := t.d.Next(rest)
		if len(pc.Data) == 0 || len(pc.Data)+len(left) != len(rest) || &pc.Data[0] != &rest[0] {
			t.tb.Fatalf("byte %d: piece of %d and rest of %d bytes from %d", t.sum, len(pc.Data), len(left), len(rest))
		}
		if len(left) > 0 && &left[0] != &rest[len(pc.Data)] {
			t.tb.Fatalf("byte %d: the rest does not follow the piece", t.sum)
		}
		t.piece(pc)
		t.sum += len(pc.Data)
		rest = left
	}
	for i := range buf {
		buf[i] = 0xEE
	}
}

func (t *tracer) piece(pc frames.Piece) {
	t.tb.Helper()
	if pc.Kind == frames.Opaque {
		t.opaque(pc)
		return
	}
	switch {
	case t.d.Err() != nil || t.tr.opaqueAt >= 0:
		t.tb.Fatalf("byte %d: frame bytes on an opaque link", t.sum)
	case pc.Shape == nil || pc.Shape.Kind != pc.Kind || pc.Shape.Dir != t.dir:
		t.tb.Fatalf("byte %d: shape %+v of a %v", t.sum, pc.Shape, pc.Kind)
	case pc.Off != len(t.acc) || pc.First != (len(t.acc) == 0):
		t.tb.Fatalf("byte %d: offset %d, first %v after %d bytes of the frame", t.sum, pc.Off, pc.First, len(t.acc))
	case pc.Seq != uint64(len(t.tr.frames)):
		t.tb.Fatalf("byte %d: frame %d, not %d", t.sum, pc.Seq, len(t.tr.frames))
	}
	t.acc = append(t.acc, pc.Data...)
	s, pending := t.d.Pending()
	if !pc.Last {
		if pc.Whole != nil || s != pc.Shape || !bytes.Equal(pending, t.acc) {
			t.tb.Fatalf("byte %d: partial frame %q is pending as %q, whole %q", t.sum, t.acc, pending, pc.Whole)
		}
		t.tr.open = seen{pc.Seq, pc.Kind, pc.Shape.Op, string(t.acc)}
		return
	}
	if s != nil || pending != nil || !bytes.Equal(pc.Whole, t.acc) {
		t.tb.Fatalf("byte %d: frame %q is whole as %q, pending %q", t.sum, t.acc, pc.Whole, pending)
	}
	t.tr.frames = append(t.tr.frames, seen{pc.Seq, pc.Kind, pc.Shape.Op, string(t.acc)})
	t.tr.open, t.acc = seen{}, nil
}

func (t *tracer) opaque(pc frames.Piece) {
	t.tb.Helper()
	if t.tr.opaqueAt < 0 {
		t.tr.opaqueAt, t.tr.seq = t.sum, pc.Seq
	}
	if s, b := t.d.Pending(); s != nil || b != nil {
		t.tb.Fatalf("byte %d: an opaque link has a pending frame", t.sum)
	}
	if t.d.Err() == nil || pc.Shape != nil || pc.Whole != nil || pc.Last || pc.Off != t.op || pc.First != (t.op == 0) || pc.Seq != t.tr.seq {
		t.tb.Fatalf("byte %d: opaque piece %+v after %d opaque bytes, error %v", t.sum, pc, t.op, t.d.Err())
	}
	t.op += len(pc.Data)
}

// end holds the transcript against the input once more: no byte is lost.
func (t *tracer) end() transcript {
	t.tb.Helper()
	n := len(t.tr.open.bytes) + t.op
	for _, f := range t.tr.frames {
		n += len(f.bytes)
	}
	if n != t.sum {
		t.tb.Fatalf("%d bytes came out of %d", n, t.sum)
	}
	if err := t.d.Err(); err != nil {
		t.tr.err = err.Error()
	}
	if (t.tr.opaqueAt >= 0) != (t.tr.err != "") {
		t.tb.Fatalf("opaque from %d on, error %q", t.tr.opaqueAt, t.tr.err)
	}
	return t.tr
}
