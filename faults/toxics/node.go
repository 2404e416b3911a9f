package toxics

import (
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"tornwire/faults"
)

// node hosts a toxic in a pipe. The toxic has a goroutine, and so has its host,
// which feeds it, takes what it emits and interrupts it.
type node struct {
	p     *pipe
	stage *stage
	toxic toxics.Toxic
	stub  *toxics.ToxicStub
	prior *node // whose state the toxic takes over, nil for none

	feed, emit chan *stream.StreamChunk
	exited     chan struct{} // closed when the toxic has returned

	// Guarded by the pipe's mutex.
	in      queue
	inside  int  // what the chunk in the toxic costs
	fedEnd  bool // the toxic has got the sender's end
	leaving bool // removed: lets what it holds pass
	stopped bool // no part of the pipe any more
}

func newNode(p *pipe, st drawn) *node {
	n := &node{
		p: p, stage: st.stage, toxic: st.kind.build(st.spec.Attributes, st.draws), in: newQueue(),
		feed: make(chan *stream.StreamChunk), emit: make(chan *stream.StreamChunk), exited: make(chan struct{}),
	}
	n.stub = toxics.NewToxicStub(n.feed, n.emit)
	return n
}

// inherit finds the node that this one stands in for, if its toxic counts
// something.
func (n *node) inherit(going []*node) {
	if stateful(n.toxic) == nil {
		return
	}
	for _, o := range going {
		if o.stage.kind == n.stage.kind && o.stage.spec.Name == n.stage.spec.Name {
			n.prior = o
		}
	}
}

// run hosts the toxic until it ends. It is called without the mutex, as are start,
// leave and kill.
func (n *node) run() {
	n.start()
	for {
		do := n.turn()
		if do.then != nil {
			do.then()
			return
		}
		select {
		case do.feed <- do.head:
			n.fed(do.head)
		case c, ok := <-do.emit:
			if !ok {
				n.closed()
				return
			}
			n.passed(c)
		case <-n.in.wake:
		}
	}
}

// start begins the toxic. Its draw was made already, so that toxiproxy's own is
// not asked.
func (n *node) start() {
	if s := stateful(n.toxic); s != nil {
		n.stub.State = s.NewState()
		if n.prior != nil {
			<-n.prior.exited // soon: it is leaving
			n.stub.State, n.prior = n.prior.stub.State, nil
		}
	}
	go func() {
		defer close(n.exited)
		n.toxic.Pipe(n.stub)
	}()
}

// turn is what a host can do next.
type turn struct {
	head *stream.StreamChunk // nil is the end
	feed chan<- *stream.StreamChunk
	emit <-chan *stream.StreamChunk
	then func() // do this, and no more
}

func (n *node) turn() turn {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	switch {
	case n.stopped:
		return turn{then: n.kill}
	case n.leaving:
		return turn{then: n.leave}
	}
	var t turn
	if len(n.in.chunks) > 0 {
		t.head, t.feed = n.in.chunks[0], n.feed
	} else if n.in.ended && !n.fedEnd {
		t.feed = n.feed
	}
	if !n.p.after(n).full() {
		t.emit = n.emit
	}
	return t
}

// fed notes that the toxic took a chunk, or the end: it is done with the one
// before.
func (n *node) fed(head *stream.StreamChunk) {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	if n.stopped {
		return
	}
	n.p.release(n.inside)
	n.inside = 0
	if head == nil {
		n.fedEnd = true
		return
	}
	_, room := n.in.pop()
	n.inside = cost(head)
	if room {
		n.p.before(n.p.index(n))
	}
}

// passed hands on what the toxic emits.
func (n *node) passed(c *stream.StreamChunk) {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	if n.stopped || len(c.Data) == 0 {
		return
	}
	had := min(n.inside, cost(c))
	n.inside -= had
	n.p.held += cost(c) - had
	n.p.after(n).push(c)
}

// closed hands on the end after which a toxic emits nothing more. If it is the
// toxic's own, all that is before it is lost.
func (n *node) closed() {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	if n.stopped {
		return
	}
	end, passes := faults.FIN, n.fedEnd
	if e, ok := n.toxic.(ender); ok {
		end = e.ended()
		passes = end == faults.NoEnd
	}
	if passes {
		end = n.in.end
	} else {
		n.p.cut = true
		n.p.stop(n.p.index(n))
	}
	n.out(end)
}

// left takes a node out whose toxic was interrupted.
func (n *node) left() {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	if n.stopped {
		return
	}
	next := n.p.after(n)
	for _, c := range n.in.chunks {
		next.push(c)
	}
	n.in.chunks = nil
	if n.in.ended {
		n.out(n.in.end)
		return
	}
	n.p.drop(n)
}

// out takes the node out of the pipe, with an end behind what it handed on. The
// mutex is held.
func (n *node) out(end faults.End) {
	q := n.p.after(n)
	n.p.drop(n)
	n.p.finish(q, end)
}

// leave interrupts the toxic and lets pass what the node holds.
func (n *node) leave() {
	interrupt := n.stub.Interrupt
	for {
		select {
		case interrupt <- struct{}{}:
			interrupt = nil
		case c, ok := <-n.emit:
			if !ok {
				n.closed()
				return
			}
			n.passed(c)
		case <-n.exited:
			if n.stub.Closed() {
				n.closed()
			} else {
				n.left()
			}
			return
		}
	}
}

// kill ends the toxic of a node that has been stopped.
func (n *node) kill() {
	interrupt, emit := n.stub.Interrupt, n.emit
	for {
		select {
		case interrupt <- struct{}{}:
			interrupt = nil
		case _, ok := <-emit:
			if !ok {
				emit = nil
			}
		case <-n.exited:
			return
		}
	}
}
