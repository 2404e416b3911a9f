package toxics

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"

	"tornwire/faults"
)

// queue is what waits before a stage, or for the taker. The pipe's mutex guards
// it; wake is signalled when something comes.
type queue struct {
	chunks []*stream.StreamChunk
	ended  bool // behind the chunks comes an end
	end    faults.End
	wake   chan struct{} // holds one signal
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) full() bool { return len(q.chunks) >= MaxQueue }

// push adds a chunk that comes now.
func (q *queue) push(c *stream.StreamChunk) {
	c.Timestamp = time.Now()
	q.chunks = append(q.chunks, c)
	q.signal()
}

// pop removes the first chunk. The room it makes is worth telling when it is the
// first.
func (q *queue) pop() (c *stream.StreamChunk, room bool) {
	room = len(q.chunks) == MaxQueue
	c, q.chunks[0] = q.chunks[0], nil
	q.chunks = q.chunks[1:]
	if len(q.chunks) == 0 {
		q.chunks = nil
	}
	return c, room
}

// clear loses all chunks and returns what they cost.
func (q *queue) clear() int {
	lost := 0
	for _, c := range q.chunks {
		lost += cost(c)
	}
	q.chunks = nil
	return lost
}

// cost is how much of MaxHeld a chunk takes.
func cost(c *stream.StreamChunk) int { return len(c.Data) + ChunkCost }
