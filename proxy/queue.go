package proxy

import (
	"slices"
	"sync"
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
	end   string
}

func (it *item) onlyData() bool { return it.step.Kind == 0 && it.end == "" }

// firing says which rule acts where.
type firing struct {
	rule  *faults.Rule
	frame history.FrameRef
	off   int
	first bool // the rule's first step here: record it
}

// queue holds the items behind a step that waits. It runs only while there is
// something to wait for: then one goroutine empties it, and puts succeed.
type queue struct {
	mu    sync.Mutex
	items []item
	bytes int
	on    bool
	idle  chan struct{} // closed while the queue does not run
	room  chan struct{} // closed when bytes went down, if somebody waits
}

func (q *queue) init() {
	q.idle = make(chan struct{})
	close(q.idle)
}

// start begins with an item; the queue must not run. The caller has it emptied.
func (q *queue) start(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.on, q.idle = true, make(chan struct{})
	q.items = append(q.items, it)
}

// put queues an item, with a copy of its bytes, if the queue runs. Over
// QueueLimit it waits for room; an item that still waits when quiet is closed is
// dropped.
func (q *queue) put(it item, quiet <-chan struct{}) bool {
	for {
		q.mu.Lock()
		if !q.on {
			q.mu.Unlock()
			return false
		}
		if q.bytes+len(it.data) <= QueueLimit {
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
}

// add appends an item. Bytes join those of the last item if they fit into one
// read, so that many small reads cost no more than a few large ones.
func (q *queue) add(it item) {
	q.bytes += len(it.data)
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
		q.items, q.on = nil, false
		close(q.idle)
		return item{}, false
	}
	it := q.items[0]
	q.items[0] = item{}
	q.items = q.items[1:]
	q.bytes -= len(it.data)
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
	return it, true
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

// do carries out one queued item.
func (l *link) do(it item) {
	switch {
	case it.end != "":
		l.forwardEnd(it.end)
	case it.step.Kind == faults.Cut:
		l.cut(it)
	case it.step.Kind == faults.Wait, it.step.Kind == faults.Gate:
		if l.fire(it.fire) {
			l.pause(it.step)
		}
	default:
		l.write(it.data, it.marks)
	}
}

// pause waits for a step's time or gate, or until there is nothing to wait for.
func (l *link) pause(st faults.Step) {
	t := time.NewTimer(st.For)
	defer t.Stop()
	var gate chan struct{}
	if st.Kind == faults.Gate {
		gate = l.s.p.gate(st.Name)
	}
	select {
	case <-t.C:
	case <-gate:
	case <-l.quiet:
	}
}
