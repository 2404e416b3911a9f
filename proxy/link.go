package proxy

import (
	"net"
	"slices"
	"sync/atomic"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// link carries one direction of a session. One goroutine reads, decodes and,
// as long as nothing is withheld, writes. Once a step waits, what follows goes
// to a queue that a second goroutine empties, and that then ends.
type link struct {
	// What every read touches comes first, close together: with many sessions a read
	// costs what its cold cache lines cost.
	p        *Proxy
	src      net.Conn
	dst      net.Conn
	rec      *history.Recorder
	dec      *frames.Decoder // nil without a grammar
	book     *rulebook
	unsure   *unsure // the frame under way, while rules have to see more of it
	pair     *pair   // that waits for it, or for the next
	out      []byte  // decided to pass, not yet written; a part of the read buffer, or else
	own      bool    // a buffer of its own
	waits    bool    // it reads while a frame is unsure; only its reader changes that, under the session's mutex
	dir      frames.Direction
	writes   atomic.Uint32        // writing, noWrites and awaited
	flow     atomic.Pointer[flow] // nil without byte stages; changed under the session's mutex
	accepted atomic.Int64         // bytes that our kernel took
	marks    []mark               // what out is made of, when a recorder wants to know
	shapes   int                  // how much of room is in use
	queue    queue
	room     [4]tally // those of the first shapes
	more     []*tally // those of further ones
	decoder  frames.Decoder

	s *session

	// Guarded by the session's mutex.
	silent bool // nothing more is delivered; both ends are still read
	past   bool // nothing more is sent
	roused bool // the read is to be broken off for the frame's sake

	quiet chan struct{} // closed when the link is silent

	frame history.FrameRef // the one under way
	rule  *armed
	draw  float64
	steps []faults.Step // still to do on it
	fired bool
	exact bool        // its bytes are recorded when they are written too
	way   way         // where the rest of it goes
	drip  faults.Step // how it drips

	counting []*armed // rules that only watch and have taken it
	made     uint64   // frames that faults have made
	raw      int      // bytes so far, without a grammar

	ending atomic.Bool // a FIN was sent behind what was accepted
}

const (
	writing  uint32 = 1 << iota // a write is under way
	noWrites                    // none begins any more: the link is silent, or the receiver can take no more bytes
	awaited                     // somebody waits for the end of the one under way
)

// mark names the bytes of one frame in a write.
type mark struct {
	frame  history.FrameRef
	off, n int
	exact  bool // they are recorded: they need not be those of the frame
}

func (l *link) init(s *session, dir frames.Direction) {
	l.s, l.p, l.dir, l.rec = s, s.p, dir, s.p.record
	l.src, l.dst = s.conns[dir.Opposite()], s.conns[dir]
	l.quiet = make(chan struct{})
	l.frame.Dir = dir
	if g := s.p.cfg.Grammar; g != nil {
		l.dec = &l.decoder
		l.dec.Reset(g, dir)
	}
	l.queue.init()
}

func (l *link) other() *link { return l.s.links[l.dir.Opposite()] }

// run reads until the sender ends or we end it, then passes the end on.
func (l *link) run() {
	buf := newReadBuffer(l.p.cfg.ReadSize)
	defer buf.free()
	for {
		n, err := l.src.Read(buf.b)
		if n > 0 {
			l.feed(buf.b[:n])
			buf.adapt(n)
		}
		if err != nil && !l.wasRoused(err) {
			l.release()
			l.setWaits(false)
			l.flush()
			l.parted()
			l.ended(err)
			break
		}
	}
	l.queue.wait()
	l.pastEnd("")
}

// ended passes the sender's end on, behind the bytes that came before it.
func (l *link) ended(err error) {
	how, detail := endOf(err)
	if how == "" {
		return
	}
	from := l.dir.Opposite()
	// The kernel tells a reset once, and may have told it to a write. It is asked
	// first, because both FINs together look like a reset too.
	if how == history.FIN && wasReset(l.src) && !l.s.endedByUs(from) {
		how = history.RST
	}
	if was := l.s.saw(from, how, detail); was == history.RST {
		how = was
	}
	l.passEnd(how)
}

// passEnd forwards an end behind what is withheld.
func (l *link) passEnd(how string) {
	if !l.queue.put(item{end: how}, l.quiet) {
		l.forwardEnd(how)
	}
}

func (l *link) forwardEnd(how string) {
	if !l.pastEnd(how) && !l.isSilent() {
		l.s.end(l.dir, how, history.CauseForwarded)
	}
}

// feed takes what was read. Rules that are armed meanwhile see the next read.
func (l *link) feed(p []byte) {
	l.book = l.p.book.Load()
	if l.dec == nil {
		l.recordReceived(l.raw, p, false)
		l.emit(p, l.raw)
		l.raw += len(p)
	}
	for l.dec != nil && len(p) > 0 {
		if n := l.glance(p); n > 0 {
			l.emit(p[:n], 0)
			p = p[n:]
			continue
		}
		var pc frames.Piece
		pc, p = l.dec.Next(p)
		l.piece(pc)
	}
	if l.unsure != nil || l.waits {
		l.await()
	}
	l.flush()
}

// emit adds bytes of the frame under way to the next write.
func (l *link) emit(data []byte, off int) {
	switch n := len(l.out); {
	case len(data) == 0:
		return
	case n == 0:
		l.out = data
	case !l.own && n < cap(l.out) && &l.out[:n+1][n] == &data[0]: // they lie behind each other in the read buffer
		l.out = l.out[:n+len(data)]
	default:
		if !l.own {
			l.out, l.own = slices.Clone(l.out), true
		}
		l.out = append(l.out, data...)
	}
	if l.rec != nil {
		l.marks = append(l.marks, mark{frame: l.frame, off: off, n: len(data), exact: l.exact})
	}
}

// taken returns what was emitted, and starts the next write. The marks are valid
// until the next emit.
func (l *link) taken() ([]byte, []mark) {
	out, marks := l.out, l.marks
	l.out, l.marks, l.own = nil, l.marks[:0], false
	return out, marks
}

// flush writes what was emitted, or queues it behind what is withheld.
func (l *link) flush() {
	out, marks := l.taken()
	if len(out) > 0 && !l.queue.put(item{data: out, marks: marks}, l.quiet) {
		l.write(out, marks)
	}
}

// write sends bytes on: to the receiver, or into the link's stages.
func (l *link) write(data []byte, marks []mark) {
	if len(data) > 0 && !l.through(data) {
		l.put(data, marks)
	}
}

// put hands bytes to the receiver's kernel and records how many it took. A silent
// link writes nothing. It is false if the link can write no more.
func (l *link) put(data []byte, marks []mark) bool {
	if !l.s.beginWrite(l) {
		return false
	}
	l.recordWrite(history.WriteBegun, data, marks)
	n, err := l.dst.Write(data)
	l.recordWrite(history.WriteAccepted, data[:n], marks)
	l.accepted.Add(int64(n)) // behind its events, so that no more is acknowledged than was accepted
	l.s.endWrite(l, err != nil)
	if err != nil {
		l.lost(err)
	}
	return err == nil
}

// lost notes that the receiver is gone. Its end is passed on by the link that
// reads from it, behind what it had sent, unless that has seen a FIN and gone.
func (l *link) lost(err error) {
	how, detail := endOf(err)
	if how == "" {
		return
	}
	if was := l.s.saw(l.dir, history.RST, detail); was == history.FIN {
		l.other().passEnd(history.RST)
	}
}

// recordWrite records the frames of which data holds bytes; marks may name more
// behind them.
func (l *link) recordWrite(kind history.Kind, data []byte, marks []mark) {
	for _, m := range marks {
		n := min(m.n, len(data))
		if n == 0 {
			return
		}
		ev := history.Event{Kind: kind, Session: l.s.id, Dir: l.dir, Frame: &m.frame, Off: m.off, N: n}
		if m.exact {
			ev.Data = slices.Clone(data[:n])
		}
		l.rec.Add(ev)
		data = data[n:]
	}
}

func (l *link) recordReceived(off int, data []byte, last bool) {
	if l.rec == nil {
		return
	}
	ref := l.frame // a copy made here costs nothing without a recorder
	l.rec.Add(history.Event{
		Kind: history.Received, Session: l.s.id, Dir: l.dir, Frame: &ref, Off: off,
		N: len(data), Data: append([]byte(nil), data...), Last: last,
	})
}

// recordAcked records how much of what was accepted the receiver's kernel has
// acknowledged.
func (l *link) recordAcked() {
	if l.rec == nil {
		return
	}
	total, ended := int(l.accepted.Load()), l.ending.Load()
	if n, ok := unacked(l.dst, ended); ok {
		l.rec.Add(history.Event{
			Kind: history.Acked, Session: l.s.id, Dir: l.dir, N: max(total-n, 0), Total: total,
		})
	}
}
