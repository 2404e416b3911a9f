package server

import (
	"sync"

	"tornwire/frames"
)

// OutboxLimit is the most bytes of answers that may wait to be written to one
// connection. A client that lets more pile up is reset.
const OutboxLimit = 256 << 10

// outbox is the queue between the table, which must never wait, and the one
// writer of a connection.
type outbox struct {
	wake     chan struct{} // there is something to take, or the end
	overflow chan struct{} // closed when the limit is passed

	mu    sync.Mutex
	buf   []byte
	ended bool // takes no more
	fin   bool // the writer half-closes when it has written all
}

func newOutbox() *outbox {
	return &outbox{wake: make(chan struct{}, 1), overflow: make(chan struct{})}
}

// put lets add append one frame. It is false if add is; an outbox that has ended
// loses the frame.
func (o *outbox) put(add func([]byte) ([]byte, bool)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return true
	}
	buf, ok := add(o.buf)
	if !ok {
		return false
	}
	if len(buf) > OutboxLimit {
		o.buf, o.ended = nil, true
		close(o.overflow)
		return true
	}
	o.buf = buf
	o.signal()
	return true
}

// end lets the writer finish what is there and stop.
func (o *outbox) end() { o.finish(false) }

// finish does so, with a half-close behind it if fin is true. It is false if the
// outbox had ended before.
func (o *outbox) finish(fin bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	o.ended, o.fin = true, fin
	o.signal()
	return true
}

// halfCloses tells whether the writer is to half-close.
func (o *outbox) halfCloses() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fin
}

// offer lets a frame that nobody asked for follow what waits. It is false, and the
// connection is left alone, if there is no room for it or the outbox has ended.
func (o *outbox) offer(s *frames.Shape, tail []byte) bool {
	taken := false
	o.put(func(b []byte) ([]byte, bool) {
		out, err := s.Append(b, tail)
		taken = err == nil && len(out) <= OutboxLimit
		return out, taken
	})
	return taken
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns what waits, leaving spare in its place, and whether nothing more
// will come.
func (o *outbox) take(spare []byte) (batch []byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch, o.buf = o.buf, spare[:0]
	return batch, o.ended
}
