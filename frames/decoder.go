package frames

import (
	"bytes"
	"fmt"
)

// A Piece is a run of input bytes that belongs to one frame.
type Piece struct {
	Kind  Kind
	First bool   // Data starts the frame, or the opaque run
	Last  bool   // Data ends the frame; never set when Kind is Opaque
	Shape *Shape // nil when Kind is Opaque
	Seq   uint64 // number of the frame on this link, from 0
	Off   int    // offset in the frame, or in the opaque run, of the first byte of Data
	Data  []byte // aliases the input
	// Whole is the whole frame when Last is set. It aliases the input or the
	// decoder, and is valid until the next call of Next.
	Whole []byte
}

// maxFrame bounds one frame, and with it a decoder's memory: op, fields, tail
// and newline at the limits of ParseGrammar.
const maxFrame = 1 + 8*maxFields + maxTail + 1

// Decoder splits one direction of a connection into frames. However the input
// is cut into reads, the same frames come out, and the bytes of all pieces in
// order are the input. A decoder never fails: input that cannot be decoded
// turns the rest of the link opaque, and Err says why. Nothing is allocated
// while frames are decoded.
//
// The zero value is not ready; use Grammar.Decoder.
type Decoder struct {
	ready   bool // at a frame boundary behind the preface
	dir     Direction
	g       *Grammar
	shape   *Shape // of the frame under way
	off     int    // bytes of it seen so far; of the opaque run once err is set
	seq     uint64
	total   uint64 // bytes seen on the link
	preface int    // preface lines still to come are lines[preface:]
	err     error
	buf     [maxFrame]byte
}

// Decoder returns a decoder for one direction, standing before the preface.
func (g *Grammar) Decoder(dir Direction) *Decoder {
	d := &Decoder{}
	d.Reset(g, dir)
	return d
}

// Reset makes the decoder ready for a new link.
func (d *Decoder) Reset(g *Grammar, dir Direction) {
	d.g, d.dir, d.preface, d.shape, d.off = g, dir, 0, nil, 0
	d.seq, d.total, d.err = 0, 0, nil
	d.ready = len(g.prefaces[dir]) == 0
}

// Err says why the link went opaque, with op, frame number and byte offset on
// the link; it is nil while frames are decoded.
func (d *Decoder) Err() error { return d.err }

// Pending returns the shape and the bytes so far of a frame that has begun but
// not ended; the shape is nil at a frame boundary. The bytes alias the decoder.
func (d *Decoder) Pending() (*Shape, []byte) {
	if d.shape == nil || d.err != nil {
		return nil, nil
	}
	return d.shape, d.buf[:d.off]
}

// Peek returns the shape and length of the message at the start of p, if p holds all
// of it and the decoder stands at a frame boundary behind the preface; else 0. A
// caller that does nothing with it may pass over it with Skip.
func (d *Decoder) Peek(p []byte) (*Shape, int) {
	if !d.ready || len(p) == 0 {
		return nil, 0
	}
	s := d.g.ops[d.dir][p[0]]
	if s == nil || len(p) <= s.Header {
		return nil, 0
	}
	i := bytes.IndexByte(p[s.Header:min(len(p), s.Header+s.Limit+1)], '\n')
	if i < 0 {
		return nil, 0
	}
	return s, s.Header + i + 1
}

// Run returns the length and the number of the whole messages of this shape that p
// starts with.
func (s *Shape) Run(p []byte) (n, messages int) {
	for n+s.Header < len(p) && p[n] == p[0] {
		tail := p[n+s.Header:]
		if len(tail) > s.Limit {
			tail = tail[:s.Limit+1]
		}
		i := bytes.IndexByte(tail, '\n')
		if i < 0 {
			break
		}
		n += s.Header + i + 1
		messages++
	}
	return n, messages
}

// Skip passes over messages of n bytes together, of which Peek has found the first
// and Shape.Run those of its shape that follow.
func (d *Decoder) Skip(n, messages int) {
	d.seq += uint64(messages)
	d.total += uint64(n)
}

// Next takes the longest prefix of p that lies in one frame and returns it with
// what remains of p. The piece is empty only if p is.
func (d *Decoder) Next(p []byte) (pc Piece, rest []byte) {
	// A whole message in one read is nearly every call, so it has its own short
	// way; begin and resume decide the same, step by step.
	if s, n := d.Peek(p); n > 0 {
		pc.Kind, pc.First, pc.Last = s.Kind, true, true
		pc.Shape, pc.Seq = s, d.seq
		pc.Data, pc.Whole = p[:n], p[:n]
		d.Skip(n, 1)
		return pc, p[n:]
	}
	return d.resume(p)
}

// resume is Next wherever the decoder stands.
func (d *Decoder) resume(p []byte) (Piece, []byte) {
	if len(p) == 0 {
		return Piece{}, nil
	}
	if d.err == nil && d.shape == nil {
		d.begin(p[0])
	}
	if d.err != nil {
		return d.opaque(p), nil
	}
	s := d.shape
	n, last := d.span(p)
	if n == 0 {
		d.fail(fmt.Errorf("text of %s %s is over the limit of %d bytes", d.dir, s.Op, s.Limit))
		return d.opaque(p), nil
	}
	pc := Piece{Kind: s.Kind, First: d.off == 0, Last: last, Shape: s, Seq: d.seq, Off: d.off, Data: p[:n]}
	d.total += uint64(n)
	if last && pc.First {
		pc.Whole = pc.Data
	} else {
		copy(d.buf[d.off:], p[:n])
		d.off += n
	}
	if !last {
		return pc, p[n:]
	}
	if !pc.First {
		pc.Whole = d.buf[:d.off]
	}
	d.shape, d.off = nil, 0
	d.seq++
	d.ready = d.preface == len(d.g.prefaces[d.dir])
	return pc, p[n:]
}

// opaque takes all of p.
func (d *Decoder) opaque(p []byte) Piece {
	pc := Piece{Kind: Opaque, First: d.off == 0, Seq: d.seq, Off: d.off, Data: p}
	d.off += len(p)
	d.total += uint64(len(p))
	return pc
}

// begin sets the shape of the frame that starts with b.
func (d *Decoder) begin(b byte) {
	d.ready = false
	if lines := d.g.prefaces[d.dir]; d.preface < len(lines) {
		d.shape = lines[d.preface]
		d.preface++
		return
	}
	if d.shape = d.g.ops[d.dir][b]; d.shape == nil {
		d.fail(fmt.Errorf("unknown op 0x%02x in %s", b, d.dir))
	}
}

// span counts the bytes at the start of p that lie in the frame under way, and
// tells whether the last of them ends it. It is 0 if the frame is over its limit.
func (d *Decoder) span(p []byte) (n int, last bool) {
	s := d.shape
	if s.Kind == KeepAlive {
		return 1, true
	}
	h := max(s.Header-d.off, 0) // fixed bytes still to come
	if len(p) <= h {
		return len(p), false
	}
	room := s.Header + s.Limit + 1 - d.off // up to and with a newline at the limit
	w := p[h:min(len(p), room)]
	if i := bytes.IndexByte(w, '\n'); i >= 0 {
		return h + i + 1, true
	}
	if len(p) >= room {
		return room - 1, false
	}
	return len(p), false
}

// fail turns the link opaque from the byte at hand on. A frame that began but
// went over its limit keeps its number; the opaque run has the next.
func (d *Decoder) fail(err error) {
	d.err = fmt.Errorf("%w: frame %d, byte %d of the link", err, d.seq, d.total)
	if d.off > 0 {
		d.seq++
	}
	d.shape, d.off = nil, 0
}
