package wrongclient

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"tornwire/frames"
)

// Limits of one client.
const (
	maxNodes   = 64
	maxIdle    = 8    // sessions kept for later calls
	maxLanes   = 64   // releases under way in the background
	maxMatched = 1024 // tokens remembered against duplicates

	connectLimit = 2 * time.Second
	firstPause   = 50 * time.Millisecond // before the connection after a lost one
	maxPause     = 500 * time.Millisecond
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
	hasOwner bool // an acquire names an owner
	exact    bool // a release names a token
	matched  tokens

	root    context.Context // over when the client is closed
	cancel  context.CancelFunc
	running sync.WaitGroup // readers and lanes

	mu     sync.Mutex
	closed bool
	nodes  []*node
	hint   *node
	open   map[*session]bool
	idle   []*session
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
	var open []*session
	for s := range c.open {
		open = append(open, s)
	}
	c.mu.Unlock()
	c.cancel()
	for _, s := range open {
		s.close(end{endCancel, errClosed.Error()})
	}
	c.running.Wait()
	return nil
}

// scope derives a context that a close of the client cancels as well.
func (c *client) scope(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(c.root, cancel)
	return ctx, func() { stop(); cancel() }
}

// session returns a session that no other call uses: prefer if it is idle, else
// another idle one, else a fresh one. It tries until ctx is over. Nothing of the
// caller's request is sent.
func (c *client) session(ctx context.Context, prefer *session) (*session, error) {
	for {
		if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
			return nil, context.DeadlineExceeded
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s := c.takeIdle(prefer); s != nil {
			return s, nil
		}
		if s := c.connect(ctx); s != nil {
			return s, nil
		}
	}
}

func (c *client) takeIdle(prefer *session) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.idle, prefer)
	if i < 0 {
		i = len(c.idle) - 1
	}
	if i < 0 {
		return nil
	}
	s := c.idle[i]
	c.idle = slices.Delete(c.idle, i, i+1)
	return s
}

// park keeps a session whose call is over for later ones.
func (c *client) park(s *session) {
	c.mu.Lock()
	keep := !c.closed && c.open[s] && len(c.idle) < maxIdle
	if keep {
		c.idle = append(c.idle, s)
	}
	c.mu.Unlock()
	if !keep {
		s.close(end{endCancel, "not needed"})
	}
}

// connect tries one connection, up to its greeting; nil if it failed.
func (c *client) connect(ctx context.Context) *session {
	n, at := c.nextNode()
	if !sleep(ctx, at) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := c.dialer(limited, "tcp", n.addr)
	if err != nil {
		c.backOff(n, firstPause)
		return nil
	}
	s := &session{c: c, conn: conn, node: n, greeting: make(chan string, 1), done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		_ = conn.Close()
		return nil
	}
	c.open[s] = true
	c.running.Add(1)
	c.mu.Unlock()
	go s.read()
	if !s.greet(ctx) {
		return nil
	}
	return s
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

// drop forgets a session that is over.
func (c *client) drop(s *session) {
	c.mu.Lock()
	delete(c.open, s)
	c.idle = slices.DeleteFunc(c.idle, func(i *session) bool { return i == s })
	c.mu.Unlock()
	c.backOff(s.node, firstPause)
}

// setHint keeps a leader's address if it is one of ours.
func (c *client) setHint(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.addr == addr {
			c.hint = n
		}
	}
}

// refused takes an error frame from n.
func (c *client) refused(n *node, reason string) {
	c.mu.Lock()
	if reason == "no_leader" {
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
