package toxics

import (
	"bytes"
	"slices"
	"sync"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"tornwire/faults"
	"tornwire/frames"
)

// pipe is a chain of queues, one before each node and one for the taker. Only
// what is under the mutex touches queues, and nothing waits under it.
type pipe struct {
	session int
	dir     frames.Direction

	mu      sync.Mutex
	nodes   []*node // as bytes go through them, those that are leaving included
	out     queue
	held    int           // what all queues and nodes cost
	room    chan struct{} // closed when held went down, if somebody waits
	closed  bool          // End was called
	cut     bool          // a stage ended the connection: what is sent is lost
	gone    bool          // abandoned
	outcome faults.End
}

func newPipe(session int, dir frames.Direction) *pipe {
	return &pipe{session: session, dir: dir, out: newQueue()}
}

// Send implements faults.Pipe. Once a stage has ended the connection, what is
// sent is lost and Send true, until that end is at the taker's.
func (p *pipe) Send(b []byte, quiet <-chan struct{}) bool {
	for chunk := range slices.Chunk(b, MaxChunk) {
		if !p.send(chunk, quiet) {
			return false
		}
	}
	return true
}

func (p *pipe) send(b []byte, quiet <-chan struct{}) bool {
	for {
		sent, room := p.trySend(b)
		if room == nil {
			return sent
		}
		select {
		case <-room:
		case <-quiet:
			return false
		}
	}
}

// trySend returns what to wait for if there is no room.
func (p *pipe) trySend(b []byte) (sent bool, room <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone || p.closed || p.out.ended:
		return false, nil
	case p.cut:
		return true, nil
	}
	more := len(b) + ChunkCost
	if p.held > 0 && p.held+more > MaxHeld {
		if p.room == nil {
			p.room = make(chan struct{})
		}
		return false, p.room
	}
	p.held += more
	p.first().push(&stream.StreamChunk{Data: bytes.Clone(b)})
	return true, nil
}

// End implements faults.Pipe.
func (p *pipe) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.cut || p.gone {
		return
	}
	p.closed = true
	p.finish(p.first(), faults.NoEnd)
}

// Next implements faults.Pipe.
func (p *pipe) Next() ([]byte, bool) {
	for {
		data, ok, over := p.tryNext()
		if ok || over {
			return data, ok
		}
		<-p.out.wake
	}
}

func (p *pipe) tryNext() (data []byte, ok, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, false, true
	}
	if len(p.out.chunks) == 0 {
		if p.out.ended {
			p.outcome = p.out.end
		}
		return nil, false, p.out.ended
	}
	c, room := p.out.pop()
	p.release(cost(c))
	if room && len(p.nodes) > 0 {
		p.nodes[len(p.nodes)-1].in.signal()
	}
	return c.Data, true, false
}

// Outcome implements faults.Pipe. It is NoEnd for an abandoned pipe.
func (p *pipe) Outcome() faults.End {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outcome
}

// Abandon implements faults.Pipe.
func (p *pipe) Abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.stop(len(p.nodes))
	p.release(p.out.clear())
	p.out.signal()
}

// Change implements faults.Pipe. Anything but a *List is as an empty one. Of
// stages that change places, some start anew. What was sent before does not go
// through a new stage unless it is still before the stage in front of that.
func (p *pipe) Change(s faults.Stages) {
	l, _ := s.(*List)
	acting := l.acting(p.session, p.dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.out.ended {
		return
	}
	var chain, fresh, going []*node
	old := p.nodes
	leave := func(nodes []*node) {
		for _, n := range nodes {
			if !n.leaving {
				n.leaving = true
				going = append(going, n)
			}
		}
		chain = append(chain, nodes...)
	}
	for _, st := range acting {
		i := slices.IndexFunc(old, func(n *node) bool { return !n.leaving && n.stage.same(st.stage) })
		switch {
		case i >= 0:
			leave(old[:i])
			chain = append(chain, old[i])
			old = old[i+1:]
		case !p.cut: // behind a cut there is nothing to come for a new one
			n := newNode(p, st)
			fresh = append(fresh, n)
			chain = append(chain, n)
		}
	}
	leave(old)
	p.nodes = chain
	for _, n := range fresh {
		n.inherit(going)
		go n.run()
	}
	for _, n := range chain {
		n.in.signal()
	}
}

// The mutex is held in all that follows.

// first is the queue that takes what is sent.
func (p *pipe) first() *queue { return p.at(0) }

// at is the queue before the node with an index, or the taker's.
func (p *pipe) at(i int) *queue {
	if i < len(p.nodes) {
		return &p.nodes[i].in
	}
	return &p.out
}

func (p *pipe) index(n *node) int { return slices.Index(p.nodes, n) }

// after is the queue behind a node.
func (p *pipe) after(n *node) *queue { return p.at(p.index(n) + 1) }

// before tells the node before another that it may have room.
func (p *pipe) before(i int) {
	if i > 0 {
		p.nodes[i-1].in.signal()
	}
}

// release takes back what went out of the pipe.
func (p *pipe) release(n int) {
	p.held -= n
	if p.room != nil {
		close(p.room)
		p.room = nil
	}
}

// finish puts an end behind what is in a queue. At the taker's queue it is the
// end of all stages.
func (p *pipe) finish(q *queue, end faults.End) {
	if q.ended {
		return
	}
	q.ended, q.end = true, end
	if q == &p.out {
		p.stop(len(p.nodes))
	}
	q.signal()
}

// stop ends the first n nodes; what is in them is lost.
func (p *pipe) stop(n int) {
	for _, first := range p.nodes[:n] {
		first.stopped = true
		p.release(first.inside + first.in.clear())
		first.in.signal()
	}
	p.nodes = slices.Delete(p.nodes, 0, n)
}

// drop takes a node out of the chain. What its toxic swallowed is gone.
func (p *pipe) drop(n *node) {
	i := p.index(n)
	p.release(n.inside + n.in.clear())
	n.stopped = true
	p.nodes = slices.Delete(p.nodes, i, i+1)
}

// stateful is what a toxic counts, and counts on when its arguments change.
func stateful(t toxics.Toxic) toxics.StatefulToxic {
	s, _ := t.(toxics.StatefulToxic)
	return s
}
