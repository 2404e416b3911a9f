package proxy

import (
	"math"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// way is where the rest of the frame under way goes.
type way uint8

const (
	onward   way = iota // to the receiver
	nowhere             // it is dropped
	dripping            // to the receiver byte by byte
	pairing             // into the link's pair
)

// piece decides about a run of bytes of one frame.
func (l *link) piece(pc frames.Piece) {
	if pc.First {
		l.begin(pc)
	}
	l.recordReceived(pc.Off, pc.Data, pc.Last)
	if l.unsure != nil {
		if pc = l.know(pc); len(pc.Data) == 0 {
			return
		}
	}
	l.decided(pc)
}

// decided does to a run of bytes of a frame what the rule says that has taken it,
// if any has.
func (l *link) decided(pc frames.Piece) {
	l.count(len(pc.Data))
	if !l.fired && l.rule != nil && l.rule.dead.Load() {
		l.steps = nil // it was disarmed before it came to act
	}
	data, off := pc.Data, pc.Off
	for len(l.steps) > 0 {
		st := l.steps[0]
		if st.Kind == faults.Pass {
			upTo := st.N
			if upTo == faults.FrameEnd {
				upTo = off + len(data)
			}
			if n := min(upTo-off, len(data)); n > 0 {
				l.emit(data[:n], off)
				data, off = data[n:], off+n
			}
			if off < st.N || st.N == faults.FrameEnd && !pc.Last {
				break
			}
			l.steps = l.steps[1:]
			continue
		}
		if !l.due(st, pc, off, len(data)) {
			break
		}
		l.steps = l.steps[1:]
		l.act(st, pc, data, off)
	}
	l.pass(data, off)
	if pc.Last {
		if l.rule != nil && !l.fired {
			l.rule.taken.Add(-1) // it had no place for the fault: the rule has that time left
		}
		l.steps, l.way = nil, onward
		if l.pair != nil && l.pair.endFrame() {
			l.pair = nil
		}
	}
}

// begin names the frame that starts, and looks for a rule that matches it.
func (l *link) begin(pc frames.Piece) {
	l.release()
	l.rule, l.counting, l.steps, l.fired, l.exact, l.way = nil, l.counting[:0], nil, false, false, onward
	l.frame = history.FrameRef{Dir: l.dir, Seq: pc.Seq}
	if pc.Shape == nil { // the rest of the link is one opaque run
		l.parted()
		l.p.observe(history.Event{Kind: history.WentOpaque, Session: l.s.id, Dir: l.dir, Detail: l.dec.Err().Error()})
		return
	}
	f := l.number(pc.Shape)
	l.frame.Op, l.frame.Nth = f.Op, f.Nth
	if pc.Kind == frames.Preface {
		l.frame.Nth = f.SessionNth // every session has its preface: it is named within it
	}
	if l.pair != nil {
		if l.pair.takeNext() {
			l.way = pairing
			return
		}
		l.pair = nil
	}
	if len(l.book.all) > 0 {
		l.choose(f, l.tally(pc.Shape).rules, pc)
	}
}

// due tells whether a step can act now, with off bytes of the frame before it and
// left bytes of the piece behind it. A step that the frame has no place for is
// given up.
func (l *link) due(st faults.Step, pc frames.Piece, off, left int) bool {
	switch l.rule.Fault.Range {
	case faults.Inside, faults.Before:
		if left == 0 && pc.Last { // the frame is too short
			l.steps = nil
			return false
		}
		return left > 0 || st.Kind != faults.Flip
	case faults.Ends, faults.AtEnd:
		if off > 0 && (left > 0 || !pc.Last) { // it is too long
			l.steps = nil
			return false
		}
	}
	return true
}

// act does a step that is not a pass, with off bytes of the frame before it and
// data behind it.
func (l *link) act(st faults.Step, pc frames.Piece, data []byte, off int) {
	it := item{step: st, fire: firing{rule: l.rule, draw: l.draw, frame: l.frame, off: off, first: !l.fired}}
	l.fired = true
	switch st.Kind {
	case faults.Cut:
		it.data, it.marks = l.taken()
		l.soon(it)
		return
	case faults.Flip:
		data[0] ^= 1 // received and decoded, it is only to be written now
		l.soon(it)
		return
	}
	l.flush()
	switch st.Kind {
	case faults.Drop:
		l.way = nowhere
		l.soon(it)
	case faults.Inject:
		it.data, it.marks = l.make(opOf(l.rule.Inject), l.rule.Inject)
		l.soon(it)
	case faults.Repeat:
		it.data, it.marks = l.make(l.frame.Op, pc.Whole)
		l.soon(it)
	case faults.Drip:
		l.way, l.drip = dripping, st
		l.hold(it)
	case faults.Join, faults.Swap, faults.Splice:
		l.way, l.pair = pairing, newPair()
		it.pair = l.pair
		l.hold(it)
	default:
		l.hold(it)
	}
}

// pass sends bytes of the frame under way where they go.
func (l *link) pass(data []byte, off int) {
	switch {
	case len(data) == 0 || l.way == nowhere:
	case l.way == dripping:
		l.hold(item{step: l.drip, data: data, fire: firing{rule: l.rule, frame: l.frame, off: off}})
	case l.way == pairing && l.pair.add(l.frame, off, data):
	default:
		l.way = onward
		l.emit(data, off)
	}
}

// soon does a step that takes no time, behind what is withheld.
func (l *link) soon(it item) {
	if !l.queue.put(it, l.quiet) {
		l.do(it)
	}
}

// hold does a step that takes time, behind what is withheld.
func (l *link) hold(it item) {
	if l.queue.put(it, l.quiet) {
		return
	}
	if !it.firesLate() {
		if !l.fire(it.fire) {
			return
		}
		it.fire.first = false
	}
	l.queue.start(it)
	go l.drain()
}

// make names a frame that a fault makes.
func (l *link) make(op string, data []byte) ([]byte, []mark) {
	ref := history.FrameRef{Dir: l.dir, Op: op, Seq: math.MaxUint64 - l.made}
	l.made++
	if l.rec == nil {
		return data, nil
	}
	return data, []mark{{frame: ref, n: len(data), exact: true}}
}

// opOf is the op under which injected bytes are recorded.
func opOf(data []byte) string {
	if string(data) == "\n" {
		return frames.OpKeepAlive
	}
	return string(data[:1])
}
