package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"tornwire/frames"
)

// DefaultDialect is the current dialect.
const DefaultDialect = "ticketing"

// Config says whom a client talks to. The zero value of every field but
// Addresses is usable.
type Config struct {
	// Addresses of the cluster's nodes, host:port. They are dialled in this
	// order while no leader is known, and they are the allowlist: an address in
	// an M or L frame counts only if it is here, letter for letter
	// (spec/ticketing.md §3.10, §3.11).
	Addresses []string
	// Dialect is "ticketing" (the default) or "ticketing-v0".
	Dialect string
	// Secret of the preface; it may be empty.
	Secret string
	// ResponseGrace keeps a session that much longer than the deadline of its
	// call; in that time T and B still count, and a grant is released. The wire
	// wait is rounded up, so a server's T for a wait > 0 comes just after the
	// deadline, and by default every such timeout is Indeterminate and costs its
	// session. A grace of some round trips + 1 s (the rounding) turns those into
	// TimedOut and saves the reconnect. It is not the default because it makes
	// Acquire return later than the application asked for
	// (spec/ticketing.md §3.2). At most 60 s.
	ResponseGrace time.Duration
	// Dial opens a connection; by default a net.Dialer does. It must end when
	// its context does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Seed, if not 0, makes the client draw the same owners and pauses each time. It is
	// for tests that must repeat: two clients with one seed have the same owners, which
	// spec/ticketing.md §3.3 forbids.
	Seed uint64
}

// Limits of a client.
const (
	maxSessions  = 64  // that acquires use
	maxPipelined = 16  // acquires on one session when there can be no other
	maxLaneUse   = 512 // releases on one lane session
	maxOrphans   = 1024
	maxGrace     = time.Minute
	maxAddresses = 256

	openLimit    = 5 * time.Second        // to dial and to get through the preface
	releaseLimit = 5 * time.Second        // for the answer to a release
	drainLimit   = time.Second            // for a connection that does not heed its deadline
	drainBytes   = 64 << 10               // that are read of what has arrived when a session is given up
	idleLimit    = 90 * time.Second       // after which an unused session is closed
	minOpenTime  = 250 * time.Millisecond // that an address gets even if others wait
)

// Client is a client of one cluster. Its methods may be called concurrently.
type Client struct {
	cfg    Config
	wire   wire
	draw   func() uint64   // an owner
	ctx    context.Context // done when the client is closed
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // calls, tasks and the goroutines of sessions

	mu       sync.Mutex // guards all below and the state of sessions; never held across I/O
	closed   bool
	acquires *pool
	lane     *pool
	open     map[*session]struct{} // whose goroutines run
	hint     string                // the leader, if one was named
	cursor   int                   // of the address to dial first without a hint
	changed  chan struct{}         // closed, and made anew, when waiting calls should look again
	matched  *ring                 // tokens matched to calls of this client
	tasks    map[uint64]*task      // releases under way, by token
	orphans  int                   // of them, those nobody waits for
	ranks    int                   // given to requests
}

// New checks the configuration. It dials nothing: sessions are opened when a
// call needs one. All problems are reported together, wrapped in ErrInvalid.
func New(cfg Config) (*Client, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...)))
	}
	if cfg.Dialect == "" {
		cfg.Dialect = DefaultDialect
	}
	g, ok := frames.Builtin(cfg.Dialect)
	if !ok {
		bad("dialect %q is none of %v", cfg.Dialect, frames.Names())
	}
	if n := len(cfg.Addresses); n == 0 || n > maxAddresses {
		bad("%d addresses, not 1 to %d", n, maxAddresses)
	}
	cfg.Addresses = slices.Clone(cfg.Addresses)
	for i, a := range cfg.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			bad("address %d: %v", i+1, err)
		} else if slices.Contains(cfg.Addresses[:i], a) {
			bad("address %d: %s is there twice", i+1, a)
		}
	}
	if cfg.ResponseGrace < 0 || cfg.ResponseGrace > maxGrace {
		bad("response grace is %v, not 0 to %v", cfg.ResponseGrace, maxGrace)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	c := &Client{
		cfg: cfg, wire: newWire(g),
		acquires: newPool(1, maxPipelined, maxSessions, maxSessions),
		lane:     newPool(maxLaneUse, maxLaneUse, max(maxSessions, len(cfg.Addresses)), 1),
		open:     map[*session]struct{}{}, changed: make(chan struct{}),
		matched: newRing(maxTokens), tasks: map[uint64]*task{}, draw: newOwner,
	}
	if cfg.Seed != 0 {
		c.draw = seededOwners(cfg.Seed)
		c.acquires.seed, c.lane.seed = cfg.Seed, cfg.Seed+1
		c.acquires.leader.random, c.lane.leader.random = seeded(c.acquires.seed, ""), seeded(c.lane.seed, "")
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

// Close ends all sessions and running calls, those that were sent as
// Indeterminate, and returns when every goroutine of the client has ended. Held
// tickets are not released. It returns nil, however often it is called.
func (c *Client) Close() error {
	c.mu.Lock()
	var all []*session
	if !c.closed {
		c.closed = true
		for s := range c.open {
			s.endLocked(ending{cause: ErrClosed})
			all = append(all, s)
		}
	}
	c.mu.Unlock()
	c.cancel(ErrClosed)
	for _, s := range all {
		s.hangUp()
	}
	c.wg.Wait()
	return nil
}

// begin counts something that Close waits for; false if the client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	return true
}

// wake makes waiting calls look for a session again.
func (c *Client) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// within returns ctx, ended when the client is closed as well.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

func (c *Client) setHint(address string) bool {
	if !slices.Contains(c.cfg.Addresses, address) {
		return false
	}
	c.hint = address
	return true
}

// skip makes the address after the given one the first to be dialled.
func (c *Client) skip(address string) {
	if i := slices.Index(c.cfg.Addresses, address); i >= 0 {
		c.cursor = (i + 1) % len(c.cfg.Addresses)
	}
}
