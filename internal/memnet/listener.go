package memnet

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// Listener accepts the connections dialled to its address.
type Listener struct {
	network *Network
	at      place

	mu       sync.Mutex
	queue    []*Conn
	reserved int // places in the queue promised to a Dial that is under way
	closed   bool
	acceptBy time.Time
	arrived  gate
	room     gate
}

var _ net.Listener = (*Listener)(nil)

// Accept returns the next connection, a *Conn, and blocks while there is none. Errors: net.ErrClosed, os.ErrDeadlineExceeded.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.accept()
	if err != nil {
		return nil, l.opError("accept", err)
	}
	return c, nil
}

func (l *Listener) accept() (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.closed:
			return nil, net.ErrClosed
		case passed(l.acceptBy):
			return nil, os.ErrDeadlineExceeded
		case len(l.queue) > 0:
			c := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			l.room.open()
			return c, nil
		}
		l.arrived.block(&l.mu, nil, l.acceptBy)
	}
}

// reserve waits for a place in the queue.
func (l *Listener) reserve(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.closed:
			return errRefused()
		case ctx.Err() != nil:
			return ctx.Err()
		case len(l.queue)+l.reserved < l.network.opts.Backlog:
			l.reserved++
			return nil
		}
		l.room.block(&l.mu, ctx.Done(), time.Time{})
	}
}

// enqueue puts a connection into the place that was reserved for it.
func (l *Listener) enqueue(c *Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
	if l.closed {
		return errRefused()
	}
	l.queue = append(l.queue, c)
	l.arrived.open()
	return nil
}

// Close ends Accept, resets the connections that were not accepted and frees the address. Accepted connections live on.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return l.opError("close", net.ErrClosed)
	}
	l.closed = true
	orphans := l.queue
	l.queue = nil
	l.arrived.open()
	l.room.open()
	l.mu.Unlock()

	l.network.remove(l)
	for _, c := range orphans {
		_ = c.Reset() // an error would say that it is closed already
	}
	return nil
}

// SetDeadline sets the deadline of Accept; a zero time is none.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.opError("set", net.ErrClosed)
	}
	l.acceptBy = monotonic(t)
	l.arrived.open()
	return nil
}

// Addr returns the address listened on, with the port that was allocated.
func (l *Listener) Addr() net.Addr { return l.at.addr() }

func (l *Listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: l.Addr(), Err: err}
}
