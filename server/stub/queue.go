package stub

import "sync"

// maxQueue bounds the bytes that wait to be written; more ends the connection.
const maxQueue = 1 << 20

// queue is the bytes that wait to be written to one side.
type queue struct {
	wake  chan struct{} // holds one when there is something to do
	quiet chan struct{} // closed when nothing more is read from that side

	mu    sync.Mutex
	buf   []byte
	held  int  // writes that wait for their pause
	soft  bool // it ends when no write is held any more
	ended bool
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), quiet: make(chan struct{})} }

func (q *queue) put(b []byte) {
	q.mu.Lock()
	switch {
	case q.ended:
	case len(q.buf)+len(b) > maxQueue:
		q.ended = true
	default:
		q.buf = append(q.buf, b...)
	}
	q.mu.Unlock()
	q.rouse()
}

// last ends the queue behind what is in it.
func (q *queue) last() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.rouse()
}

// finish ends the queue when what is held has been written too.
func (q *queue) finish() {
	q.mu.Lock()
	q.soft = true
	q.mu.Unlock()
	q.rouse()
}

// hold counts a write that waits. It is false if there are too many.
func (q *queue) hold() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held == maxPending {
		return false
	}
	q.held++
	return true
}

func (q *queue) release() {
	q.mu.Lock()
	q.held--
	q.mu.Unlock()
	q.rouse()
}

// take returns what is to be written now, and whether nothing will follow.
func (q *queue) take() (b []byte, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, q.buf = q.buf, nil
	return b, q.ended || q.soft && q.held == 0
}

func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
