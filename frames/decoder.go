package frames

import (
	"bytes"
	"fmt"
)

// A Piece is a run of input bytes that belongs to one frame.
type Piece struct {
	Kind  Kind
	Shape *Shape // nil when Kind is Opaque
	Seq   uint64 // number of the frame on this link, from 0
	Off   int    // offset in the frame of the first byte of Data
	Data  []byte // aliases the input
	First bool   // Data starts the frame
	Last  bool   // Data ends the frame
	// Whole is the whole frame when Last is set. It aliases the input or the
	// decoder, and is valid until the next call of Next.
	Whole []byte
}

// maxFrame bounds one frame, and with it a decoder's memory.
const maxFrame = 1024

// Decoder splits one direction of a connection into frames. However the input
// is cut into reads, the same frames come out, and the bytes of all pieces in
// order are the input. A decoder never fails: input that cannot be decoded
// turns the rest of the link opaque, and Err says why.
//
// The zero value is not ready; use Grammar.Decoder.
type Decoder struct {
	g       *Grammar
	dir     Direction
	preface int    // preface lines still to come are lines[preface:]
	shape   *Shape // of the frame under way
	off     int    // bytes of it seen so far
	seq     uint64
	total   uint64 // bytes seen on the link
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

// Next takes the longest prefix of p that lies in one frame and returns it with
// what remains of p. p must not be empty; the piece never is.
func (d *Decoder) Next(p []byte) (Piece, []byte) {
	if d.err == nil && d.shape == nil {
		d.begin(p[0])
	}
	if d.err != nil {
		pc := Piece{Kind: Opaque, Seq: d.seq, Off: d.off, Data: p, First: d.off == 0}
		d.off += len(p)
		d.total += uint64(len(p))
		return pc, nil
	}
	s := d.shape
	n, last := d.span(p)
	if n == 0 {
		d.fail(fmt.Errorf("text of %s %s is over the limit of %d bytes", d.dir, s.Op, s.Limit))
		return d.Next(p)
	}
	pc := Piece{Kind: s.Kind, Shape: s, Seq: d.seq, Off: d.off, Data: p[:n], First: d.off == 0, Last: last}
	d.total += uint64(n)
	switch {
	case last && pc.First:
		pc.Whole = pc.Data
	case last:
		copy(d.buf[d.off:], p[:n])
		pc.Whole = d.buf[:d.off+n]
	default:
		copy(d.buf[d.off:], p[:n])
		d.off += n
		return pc, p[n:]
	}
	d.shape, d.off = nil, 0
	d.seq++
	return pc, p[n:]
}

// begin sets the shape of the frame that starts with b.
func (d *Decoder) begin(b byte) {
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

// fail turns the link opaque from the byte at hand on.
func (d *Decoder) fail(err error) {
	d.err = fmt.Errorf("%w: frame %d, byte %d of the link", err, d.seq, d.total)
	if d.off > 0 {
		d.seq++
	}
	d.shape, d.off = nil, 0
}
