package wrongclient

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tornwire/frames"
)

// Limits of one client.
const (
	maxNodes   = 64
	maxCalls   = 16   // that use a session at a time
	maxIdle    = 8    // unused sessions kept for later calls
	maxLanes   = 64   // releases under way in the background
	maxMatched = 1024 // tokens remembered against duplicates

	connectLimit = 2 * time.Second
	writeLimit   = 2 * time.Second        // for one frame
	firstPause   = 50 * time.Millisecond  // before the connection after a lost one
	maxPause     = 500 * time.Millisecond // the longest of these
	refusedPause = 200 * time.Millisecond // after an error frame
)

// client is one open client.
type client struct {
	defect   defect
	dialer   func(ctx context.Context, network, addr string) (net.Conn, error)
	secret   string
	grammar  *frames.Grammar
	auth     *frames.Shape
	acquire  *frames.Shape
	release  *frames.Shape
	hasOwner bool   // an acquire names an owner
	exact    bool   // a release names a token
	owner    uint64 // for the defect that has only one
	matched  tokens
	written  atomic.Uint64 // acquires

	root    context.Context // over when the client is closed
	cancel  context.CancelFunc
	running sync.WaitGroup // what start started

	mu     sync.Mutex
	closed bool
	nodes  []*node
	hint   *node
	last   *node      // connected to last
	open   []*session // from the claim that made it to its end, oldest first
	lanes  int
}

// node is one address of the cluster. Its fields are the client's mutex's.
type node struct {
	addr  string
	pause time.Duration // of the latest back-off
	next  time.Time     // no connection before it
}

var errClosed = errors.New("client is closed")

// Close implements adapter.Client. It waits until every goroutine of the client
// has ended; running calls end indeterminate or unsent.
func (c *client) Close() error {
	c.mu.Lock()
	c.closed = true
	open := slices.Clone(c.open)
	c.mu.Unlock()
	c.cancel()
	for _, s := range open {
		s.close(end{endCancel, errClosed.Error()})
	}
	c.running.Wait()
	return nil
}

// start runs f in a goroutine that Close waits for. It is false, and f does not
// run, if the client is closed.
func (c *client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Go(f)
	return true
}

// scope derives a context that a close of the client cancels as well.
func (c *client) scope(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(c.root, cancel)
	return ctx, func() { stop(); cancel() }
}

// claim finds a session for the exchange: prefer if it takes it, else the oldest
// other than avoid that does, else a fresh one, which the caller has to connect.
// It is nil if the client is closed. A claim ends with leave.
func (c *client) claim(x *exchange, prefer, avoid *session) (s *session, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	if !c.defect.sessionPerCall() {
		if prefer != nil && prefer.claim(x) {
			return prefer, false
		}
		for _, s := range c.open {
			if s != avoid && !(c.defect.exclusive() && !s.idle()) && s.claim(x) {
				return s, false
			}
		}
	}
	s = newSession(c)
	s.use(x)
	c.open = append(c.open, s)
	return s, true
}

// leave ends a claim. It closes the session if there are enough unused ones.
func (c *client) leave(s *session, x *exchange) {
	unused := s.leave(x)
	c.mu.Lock()
	idle := 0
	for _, o := range c.open {
		if o.idle() {
			idle++
		}
	}
	c.mu.Unlock()
	if unused && (idle > maxIdle || c.defect.sessionPerCall() || c.defect.closesUnused()) {
		s.close(end{endCancel, "not needed"})
	}
}

// nextNode chooses the address that may be dialled first, the hinted leader
// before the others, and says when.
func (c *client) nextNode() (*node, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	order := c.nodes
	if c.hint != nil {
		order = append([]*node{c.hint}, c.nodes...)
	}
	if c.last != nil && c.defect.returns() {
		order = append([]*node{c.last}, order...)
	}
	best := order[0]
	for _, n := range order {
		if !best.next.After(now) {
			break
		}
		if n.next.Before(best.next) {
			best = n
		}
	}
	return best, best.next
}

// backOff holds further connections to n back, longer each time until an answer
// comes.
func (c *client) backOff(n *node, least time.Duration) {
	if !c.defect.pauses() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n.pause = min(max(2*n.pause, least), maxPause)
	n.next = time.Now().Add(n.pause)
}

// answered ends the back-off of n.
func (c *client) answered(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.pause, n.next = 0, time.Time{}
}

// drop forgets a session that is over. n is nil if it had no connection.
func (c *client) drop(s *session, n *node) {
	c.mu.Lock()
	c.open = slices.DeleteFunc(c.open, func(o *session) bool { return o == s })
	c.mu.Unlock()
	if n != nil {
		c.backOff(n, firstPause)
	}
}

// setHint keeps a leader's address if it is one of ours.
func (c *client) setHint(op, addr string) {
	if c.defect.ignoresHints() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.addr == addr {
			c.hint = n
			return
		}
	}
	if c.defect.takesAny(op) {
		c.hint = &node{addr: addr}
	}
}

// refused takes an error frame from n.
func (c *client) refused(n *node, reason string) {
	c.mu.Lock()
	if c.defect.dropsHint(reason) {
		c.hint = nil
	}
	c.mu.Unlock()
	c.backOff(n, refusedPause)
}

// tokens is a bounded set of tokens; the oldest are forgotten first.
type tokens struct {
	mu   sync.Mutex
	set  map[uint64]bool
	ring []uint64
}

func (t *tokens) has(token uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.set[token]
}

func (t *tokens) add(token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set[token] {
		return
	}
	if t.set == nil {
		t.set = map[uint64]bool{}
	}
	if len(t.ring) == maxMatched {
		delete(t.set, t.ring[0])
		t.ring = t.ring[1:]
	}
	t.set[token] = true
	t.ring = append(t.ring, token)
}
