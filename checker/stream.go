package checker

import (
	"bytes"
	"math"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// maxFrame bounds the bytes of one frame that are believed; a decoded frame is
// never as long.
const maxFrame = 1024

// never is an order number after all events.
const never = math.MaxInt

// moment is the place of an event in the history: its order number, from 1, and
// its time. The zero value means that it did not happen.
type moment struct {
	ord int
	at  time.Duration
}

func (m moment) happened() bool { return m.ord > 0 }

// before tells whether m happened before n did, or n never did.
func (m moment) before(n moment) bool { return m.ord > 0 && (n.ord == 0 || m.ord < n.ord) }

// cell is one byte of a stream.
type cell struct {
	ref      history.FrameRef
	off      int
	b        byte
	known    bool
	when     moment // received, or first begun to be written
	accepted moment
	pos      int // place among the accepted bytes of the stream
}

// wireFrame is a frame as it crossed at one of the four places of
// spec/rules.md, whole or in part.
type wireFrame struct {
	session int
	shape   *frames.Shape
	ref     history.FrameRef
	data    []byte
	cells   []cell
	whole   bool // data ends with the frame's newline
	unknown bool // the bytes were not recorded
}

func (f *wireFrame) isOp(op string) bool {
	return f.shape != nil && f.shape.Kind == frames.Message && f.shape.Op == op
}

func (f *wireFrame) first() moment { return f.cells[0].when }

// end is when the last byte of a whole frame crossed.
func (f *wireFrame) end() moment {
	if !f.whole {
		return moment{}
	}
	return f.cells[len(f.cells)-1].when
}

// field returns the value of a fixed field and when its last byte crossed.
func (f *wireFrame) field(name string) (uint64, moment, bool) {
	if f.shape == nil || f.unknown {
		return 0, moment{}, false
	}
	v, ok := f.shape.Uint(f.data, name)
	if !ok {
		return 0, moment{}, false
	}
	fd, _ := f.shape.Field(name)
	return v, f.cells[fd.Offset+fd.Size-1].when, true
}

// tail returns the text as far as it crossed, and whether that is all of it.
func (f *wireFrame) tail() (string, bool) {
	switch {
	case f.shape == nil || f.unknown || len(f.data) < f.shape.Header:
		return "", false
	case f.whole:
		return string(f.shape.TailOf(f.data)), true
	}
	return string(f.data[f.shape.Header:]), false
}

// crossed counts the bytes that had crossed before an order number.
func (f *wireFrame) crossed(ord int) int {
	n := 0
	for i := range f.cells {
		if f.cells[i].when.ord < ord {
			n++
		}
	}
	return n
}

// innerNewline finds the first 0x0A inside the token of a frame, the field that
// the server chooses. The owner is the client's own, mostly random choice: judging
// it would make the verdict of a case a matter of chance.
func (f *wireFrame) innerNewline() (int, bool) {
	if f.shape == nil || f.unknown || f.shape.Kind != frames.Message {
		return 0, false
	}
	t, ok := f.shape.Field(fieldToken)
	if !ok {
		return 0, false
	}
	lo := min(t.Offset, len(f.data))
	i := bytes.IndexByte(f.data[lo:min(t.Offset+t.Size, len(f.data))], '\n')
	return lo + i, i >= 0
}

// newlines tells whether a fixed field of a message, the owner too, has a newline in it:
// what a decoder makes of that is for header-by-count.
func (f *wireFrame) newlines() bool {
	return f.shape != nil && f.shape.Kind == frames.Message && bytes.IndexByte(f.data[:min(f.shape.Header, len(f.data))], '\n') >= 0
}

// stream is the bytes of one session in one direction at one place: as received
// from the sender, or as written to the receiver.
type stream struct {
	cells  []cell
	frames []*wireFrame
	acked  int    // of the accepted bytes
	known  bool   // how many were acknowledged was recorded
	dark   moment // from here on there are bytes that could not be read
}

func (s *stream) darken(m moment) {
	if s.dark.ord == 0 || m.ord < s.dark.ord {
		s.dark = m
	}
}

// cellKey names a byte of a frame that was written but not accepted yet.
type cellKey struct {
	ref history.FrameRef
	off int
}

// link is one direction of a session at both of its ends.
type link struct {
	in, out  stream
	data     map[uint64][]byte // received bytes of each frame by its Seq
	altered  map[uint64]bool   // a fault changed the bytes of this frame on the way
	open     map[cellKey]int   // begun, not accepted: index in out.cells
	position int               // accepted bytes so far
	unended  bool              // the frame received last has not ended
}

func newLink() *link {
	return &link{data: map[uint64][]byte{}, altered: map[uint64]bool{}, open: map[cellKey]int{}}
}

// plausible tells whether an event about bytes can be believed, and whether its
// bytes belong to a decoded frame.
func plausible(e *history.Event) bool {
	return e.Frame != nil && e.Frame.Op != "" && e.Off >= 0 && e.N > 0 && e.N <= maxFrame && e.Off <= maxFrame-e.N
}

func (l *link) received(e *history.Event, m moment) {
	if l.in.dark.happened() {
		return
	}
	if !plausible(e) {
		l.in.darken(m)
		return
	}
	last := len(l.in.cells) - 1
	follows := last < 0 || l.in.cells[last].ref != *e.Frame
	if follows && l.unended {
		l.in.darken(m) // the end of the frame before is missing in the record
		return
	}
	l.unended = !e.Last
	if (follows && e.Off != 0) || (!follows && e.Off != l.in.cells[last].off+1) {
		l.in.darken(m)
		return
	}
	known := len(e.Data) == e.N
	for i := range e.N {
		c := cell{ref: *e.Frame, off: e.Off + i, known: known, when: m}
		if known {
			c.b = e.Data[i]
		}
		l.in.cells = append(l.in.cells, c)
	}
	if known && len(l.data[e.Frame.Seq]) == e.Off {
		l.data[e.Frame.Seq] = append(l.data[e.Frame.Seq], e.Data...)
	}
}

// begun notes a write. A byte that was begun before and not accepted is begun
// again after a short write: its first time stands (P9).
func (l *link) begun(e *history.Event, m moment) {
	if l.out.dark.happened() {
		return
	}
	if !plausible(e) {
		l.out.darken(m)
		return
	}
	was := l.data[e.Frame.Seq]
	for i := range e.N {
		k := cellKey{*e.Frame, e.Off + i}
		if _, again := l.open[k]; again {
			continue
		}
		c := cell{ref: *e.Frame, off: k.off, when: m}
		switch {
		case len(e.Data) == e.N:
			c.b, c.known = e.Data[i], true
		case k.off < len(was) && !l.altered[e.Frame.Seq]:
			c.b, c.known = was[k.off], true
		}
		l.open[k] = len(l.out.cells)
		l.out.cells = append(l.out.cells, c)
	}
}

func (l *link) accepted(e *history.Event, m moment) {
	if !plausible(e) {
		l.position += max(e.N, 0)
		return
	}
	for i := range e.N {
		k := cellKey{*e.Frame, e.Off + i}
		if n, ok := l.open[k]; ok {
			l.out.cells[n].accepted = m
			l.out.cells[n].pos = l.position
			delete(l.open, k)
		}
		l.position++
	}
}

// splitter makes frames out of the cells of a stream with the grammar's own
// decoder, so that faults which splice or repeat bytes are seen as the receiver
// sees them.
type splitter struct {
	g        *frames.Grammar
	session  int
	dir      frames.Direction
	dec      *frames.Decoder
	prefaces int // preface lines still to come
	cur      *wireFrame
	start    int // place of its first cell in the stream
	at       int // place of the cell that is added
	one      [1]byte
	out      *stream
}

func (s *stream) split(g *frames.Grammar, session int, dir frames.Direction) {
	sp := splitter{g: g, session: session, dir: dir, dec: g.Decoder(dir), out: s}
	for _, sh := range g.Shapes() {
		if sh.Kind == frames.Preface && sh.Dir == dir {
			sp.prefaces++
		}
	}
	for i := range s.cells {
		sp.at = i
		if c := &s.cells[i]; !sp.add(c) {
			s.darken(c.when)
			return
		}
	}
}

// add takes the next byte. It is false if the stream cannot be read any more.
func (sp *splitter) add(c *cell) bool {
	if sp.cur != nil && sp.cur.unknown && (c.known || c.ref != sp.cur.ref || c.off == 0) {
		sp.cur = nil
	}
	if sp.cur == nil {
		sp.skipPrefaces(c)
	}
	if !c.known {
		return sp.addUnknown(c)
	}
	sp.one[0] = c.b
	pc, _ := sp.dec.Next(sp.one[:])
	if pc.Kind == frames.Opaque {
		return false
	}
	if pc.First {
		sp.begin(c, pc.Shape)
	}
	sp.cur.data = append(sp.cur.data, c.b)
	sp.keep()
	if pc.Last {
		sp.cur.whole = true
		if pc.Kind == frames.Preface {
			sp.prefaces--
		}
		sp.cur = nil
	}
	return true
}

func (sp *splitter) begin(c *cell, shape *frames.Shape) {
	sp.start = sp.at
	sp.cur = &wireFrame{session: sp.session, shape: shape, ref: c.ref}
	sp.out.frames = append(sp.out.frames, sp.cur)
}

// addUnknown keeps a frame whose bytes were not recorded apart. It may only
// stand between two frames.
func (sp *splitter) addUnknown(c *cell) bool {
	if sp.cur != nil && !sp.cur.unknown {
		return false
	}
	shape, _ := sp.g.Shape(sp.dir, c.ref.Op)
	if sp.cur == nil {
		sp.begin(c, shape)
		sp.cur.unknown = true
		if shape != nil && shape.Kind == frames.Preface && sp.prefaces > 0 {
			sp.dec.Next([]byte{'\n'})
			sp.prefaces--
		}
	}
	sp.keep()
	return true
}

// keep adds the cell at hand to the frame: a frame is a part of its stream.
func (sp *splitter) keep() { sp.cur.cells = sp.out.cells[sp.start : sp.at+1 : sp.at+1] }

// skipPrefaces lets a history that begins after the preface be read.
func (sp *splitter) skipPrefaces(c *cell) {
	if sp.prefaces == 0 {
		return
	}
	shape, ok := sp.g.Shape(sp.dir, c.ref.Op)
	if !ok || shape.Kind == frames.Preface {
		return
	}
	for ; sp.prefaces > 0; sp.prefaces-- {
		sp.dec.Next([]byte{'\n'})
	}
}
