package proxy

import (
	"sync"
	"time"

	"tornwire/faults"
	"tornwire/history"
)

// item is what a link still has to do, in order: bytes to write, a step of a
// fault, or the sender's end.
type item struct {
	data  []byte
	marks []mark
	step  faults.Step
	fire  firing
	end   string
}

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

// start queues an item and, unless it runs already, starts the goroutine.
func (q *queue) start(it item, done <-chan struct{}, drain func()) {
	if q.put(it, done) {
		return
	}
	q.mu.Lock()
	q.on, q.idle = true, make(chan struct{})
	q.items = append(q.items, it)
	q.mu.Unlock()
	go drain()
}

func (q *queue) running() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.on
}

// put queues an item if the queue runs. Over QueueLimit it waits for room, or
// for done.
func (q *queue) put(it item, done <-chan struct{}) bool {
	for {
		q.mu.Lock()
		if !q.on {
			q.mu.Unlock()
			return false
		}
		if q.bytes == 0 || q.bytes+len(it.data) <= QueueLimit {
			q.items = append(q.items, it)
			q.bytes += len(it.data)
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
		case <-done:
			return true
		}
	}
}

// putData queues a copy of bytes if the queue runs.
func (q *queue) putData(data []byte, marks []mark, done <-chan struct{}) bool {
	if !q.running() {
		return false
	}
	it := item{data: append([]byte(nil), data...), marks: append([]mark(nil), marks...)}
	return q.put(it, done)
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
		l.cut(it, func() {})
	case it.step.Kind == faults.Wait, it.step.Kind == faults.Gate:
		l.recordFired(it.fire)
		l.pause(it.step)
	case !l.silent.Load() && !l.gone.Load():
		l.write(it.data, it.marks)
	}
}

// pause waits for a step's time or gate, or until the session ends.
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
	case <-l.s.done:
	}
}

// cut ends the flow of bytes. The other direction is silenced before last writes
// what is left to deliver in this one, so that no reply to it slips through.
func (l *link) cut(it item, last func()) {
	st := it.step
	other := l.s.links[l.dir.Opposite()]
	if st.Other {
		other.silent.Store(true)
	}
	last()
	if st.This {
		l.silent.Store(true)
	}
	l.recordFired(it.fire)
	l.recordAcked()
	other.recordAcked()
	for _, e := range []struct {
		link *link
		how  faults.End
	}{{l.s.links[1], st.Client}, {l.s.links[0], st.Server}} {
		if e.how != faults.NoEnd {
			l.s.end(e.link.dir, string(e.how), history.CauseFault)
		}
	}
}

func (l *link) recordFired(f firing) {
	if !f.first {
		return
	}
	l.rec.Add(history.Event{
		Kind: history.Fired, Session: l.s.id, Dir: l.dir, Frame: &f.frame, Off: f.off,
		Rule: f.rule.ID, Fault: f.rule.Fault.ID,
	})
}
