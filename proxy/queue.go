package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tornwire/faults"
	"tornwire/history"
)

// item is what a link still has to do, in order: bytes to write, a step of a
// fault, or the sender's end. The bytes of a cut are the last that it lets pass.
type item struct {
	data  []byte
	marks []mark
	step  faults.Step
	fire  firing
	pair  *pair
	end   string
}

// cost is how much of QueueLimit an item takes.
func (it *item) cost() int {
	if it.step.Kind != 0 {
		return len(it.data) + stepCost
	}
	return len(it.data)
}

// firesLate tells whether a step may turn out to have nothing to act on.
func (it *item) firesLate() bool {
	return it.step.Kind == faults.Swap || it.step.Kind == faults.Splice
}

func (it *item) onlyData() bool { return it.step.Kind == 0 && it.end == "" }

// late tells whether a step would begin what a fault does although its rule has been
// disarmed while the step was queued. What the link's reader has done already, and
// what only waits, is not late.
func (it *item) late() bool {
	switch it.step.Kind {
	case 0, faults.Drop, faults.Flip, faults.Swap, faults.Splice:
		return false
	}
	return it.fire.first && it.fire.rule.dead.Load()
}

// firing says which rule acts where.
type firing struct {
	rule  *armed
	draw  float64
	frame history.FrameRef
	off   int
	first bool // the rule's first step here: record it
}

// queue holds the items behind a step that waits. It runs only while there is
// something to wait for: then one goroutine empties it, and puts succeed.
type queue struct {
	on    atomic.Bool // changed under mu; only the link's reader starts it
	mu    sync.Mutex
	items []item
	bytes int
	idle  chan struct{} // closed while the queue does not run
	room  chan struct{} // closed when bytes went down, if somebody waits
}

func (q *queue) init() {
	q.idle = closed
}

// closed is the channel of every queue that does not run.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// start begins with an item; the queue must not run. The caller has it emptied.
func (q *queue) start(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle = make(chan struct{})
	q.on.Store(true)
	q.add(it)
}

// put queues an item, with a copy of its bytes, if the queue runs. Over
// QueueLimit it waits for room; an item that still waits when quiet is closed is
// dropped.
func (q *queue) put(it item, quiet <-chan struct{}) bool {
	for q.on.Load() {
		q.mu.Lock()
		if !q.on.Load() {
			q.mu.Unlock()
			return false
		}
		if q.bytes+it.cost() <= QueueLimit {
			q.add(it)
			q.mu.Unlock()
			return true
		}
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-quiet:
			return true
		}
	}
	return false
}

// add appends an item. Bytes join those of the last item if they fit into one
// read, so that many small reads cost no more than a few large ones.
func (q *queue) add(it item) {
	q.bytes += it.cost()
	if n := len(q.items); n > 0 && it.onlyData() {
		if last := &q.items[n-1]; last.onlyData() && len(last.data)+len(it.data) <= ReadSize {
			last.data = append(last.data, it.data...)
			last.marks = append(last.marks, it.marks...)
			return
		}
	}
	it.data, it.marks = slices.Clone(it.data), slices.Clone(it.marks)
	q.items = append(q.items, it)
}

// take removes the first item. It is false when there is none: the queue then
// no longer runs.
func (q *queue) take() (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		q.items = nil
		q.on.Store(false)
		close(q.idle)
		return item{}, false
	}
	it := q.items[0]
	q.items[0] = item{}
	q.items = q.items[1:]
	q.bytes -= it.cost()
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
	return it, true
}

// held is how much is in the queue.
func (q *queue) held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// wait returns when the queue does not run.
func (q *queue) wait() {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	<-idle
}

// drain empties the queue, then ends.
func (l *link) drain() {
	for {
		it, ok := l.queue.take()
		if !ok {
			return
		}
		l.do(it)
	}
}

// do carries out one item.
func (l *link) do(it item) {
	if it.late() {
		switch it.step.Kind {
		case faults.Cut:
			l.write(it.data, it.marks)
		case faults.Join:
			l.unite(it)
		}
		return
	}
	switch it.step.Kind {
	case faults.Cut:
		l.cut(it)
	case faults.Swap, faults.Splice:
		l.unite(it)
	case 0:
		if it.end != "" {
			l.forwardEnd(it.end)
		}
		l.write(it.data, it.marks)
	default:
		if l.fire(it.fire) {
			l.doFired(it)
		}
	}
}

// doFired carries out a step that was recorded.
func (l *link) doFired(it item) {
	switch it.step.Kind {
	case faults.Wait:
		l.pause(it, nil)
	case faults.Gate:
		l.pause(it, l.p.gate(it.step.Name))
	case faults.Drip:
		l.trickle(it)
	case faults.Join:
		l.unite(it)
	case faults.Inject, faults.Repeat:
		l.write(it.data, it.marks)
	}
}

// trickle writes bytes one by one.
func (l *link) trickle(it item) {
	for i := range it.data {
		off := it.fire.off + i
		if off > 0 {
			l.pause(it, nil)
		}
		var marks []mark
		if l.rec != nil {
			marks = []mark{{frame: it.fire.frame, off: off, n: 1}}
		}
		l.write(it.data[i:i+1], marks)
	}
}

// pause waits for a step's time, or until early is closed, its rule is disarmed or
// there is nothing to wait for.
func (l *link) pause(it item, early <-chan struct{}) {
	t := time.NewTimer(it.step.For)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
	case <-it.fire.rule.gone:
	case <-l.quiet:
	}
}
