package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// Limits of reaching the server.
const (
	// WaitLimit is how many clients of a proxy may wait for the server at a time, or be
	// turned away slowly. One more is turned away as Config.Unreachable says, but is
	// never held, and reset where it would be closed.
	WaitLimit = 4096
	// QuickDial is how long a dial may take that cannot be called off, because that would
	// cost every session a goroutine. A server that takes longer is dialled again, so
	// that the dial can, and from then on at once in that way.
	QuickDial = 100 * time.Millisecond
	// WatchAfter is how long a dial lasts before the client is read in the meantime.
	WatchAfter = 5 * time.Millisecond
	// LeaveLimit is how much longer a dial lasts when the client has ended its sending
	// side with nothing sent: it may want to hear the server, but most likely has left.
	LeaveLimit = time.Second
)

// Why there is no connection to the server.
var (
	errTooMany = fmt.Errorf("%d clients wait for the server, no more may", WaitLimit)
	errLeft    = errors.New("the client left before the server was reached")
)

// dialer reaches a server whose address needs no resolver.
var dialer net.Dialer

// nearby is the server's address if it can be dialled quickly, or else invalid: a
// name has to be resolved, and TLS takes its time.
func nearby(cfg Config) netip.AddrPort {
	if cfg.Dial != nil || cfg.UpstreamTLS != nil || cfg.ProxyHeader {
		return netip.AddrPort{}
	}
	at, _ := netip.ParseAddrPort(cfg.Upstream)
	return at
}

// dialTimeout is how long the server is dialled.
func (p *Proxy) dialTimeout() time.Duration {
	if d := p.cfg.DialTimeout; d > 0 && d < DialLimit {
		return d
	}
	return DialLimit
}

func (p *Proxy) tooLate() error { return fmt.Errorf("no connection within %s", p.dialTimeout()) }

// dial reaches the server. It is false if that failed: the client was then dealt
// with as the configuration says.
func (s *session) dial(ctx context.Context) bool {
	defer s.p.dialing.Add(-1)
	if s.p.dialing.Add(1) > WaitLimit {
		s.p.observe(history.Event{Kind: history.ServerDialed, Session: s.id, Detail: errTooMany.Error()})
		s.unreached(ctx, errTooMany)
		return false
	}
	for pause := RetryFirst; ; pause = min(2*pause, RetryMost) {
		err := s.try(ctx)
		if err == nil || !s.holds(ctx, pause) {
			s.wait.end()
			if err != nil {
				s.unreached(ctx, err)
			}
			return err == nil
		}
	}
}

// try dials the server once.
func (s *session) try(ctx context.Context) error {
	c, err := s.connect(ctx)
	ev := history.Event{Kind: history.ServerDialed, Session: s.id}
	if err != nil {
		ev.Detail = err.Error()
		s.p.observe(ev)
		return err
	}
	if s.p.observed() {
		ev.Peer = c.LocalAddr().String()
		s.p.observe(ev)
	}
	s.reached(c)
	return nil
}

// reached gives the session its server.
func (s *session) reached(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[frames.ClientToServer] = c
	if s.linked() {
		s.links[frames.ClientToServer].dst = c
		s.links[frames.ServerToClient].src = c
	}
}

// connect makes a connection to the server, quickly if it can.
func (s *session) connect(ctx context.Context) (net.Conn, error) {
	p, began := s.p, time.Now()
	limit := p.dialTimeout()
	if p.near.IsValid() && !p.far.Load() {
		c, err := dialer.DialTCP(deadline{context.Background(), began.Add(min(QuickDial, limit))}, "tcp", netip.AddrPort{}, p.near)
		switch {
		case err == nil:
			return c, nil
		case !timedOut(err):
			return nil, err
		}
		p.far.Store(true)
	}
	a := s.attempt(ctx, began.Add(limit))
	c, err := p.reach(a, s.conns[frames.ServerToClient])
	cause := s.attempted(a)
	switch {
	case err == nil:
		if time.Since(began) < QuickDial/2 {
			p.far.Store(false)
		}
		return c, nil
	case cause == nil && timedOut(err):
		cause = p.tooLate()
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return nil, err
}

// deadline gives a context a deadline, which whoever gets it has to keep by itself.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// exhausted tells whether an error is a want of our own system, not the server's
// doing.
func exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// attempt is a dial under way that can be called off, as a context with a deadline.
// One timer first has the client watched, then ends the dial.
type attempt struct {
	deadline
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// attempt begins a dial.
func (s *session) attempt(ctx context.Context, until time.Time) *attempt {
	a := new(attempt)
	a.at = until
	a.Context, a.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialled = a
	first := time.Until(until)
	if s.wait == nil {
		first = min(first, WatchAfter)
	}
	a.timer = time.AfterFunc(first, func() { s.overdue(a) })
	if s.wait != nil {
		s.hurry()
	}
	return a
}

// overdue is called when an attempt's timer has run off.
func (s *session) overdue(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := time.Until(a.at)
	switch {
	case s.dialled != a: // it is over
	case s.wait == nil && rest > 0:
		a.timer.Reset(rest)
		s.watch()
	case rest > 0:
		a.cancel(errLeft)
	default:
		a.cancel(s.p.tooLate())
	}
}

// attempted ends an attempt, and tells why it was called off, if it was.
func (s *session) attempted(a *attempt) error {
	s.mu.Lock()
	s.dialled = nil
	s.mu.Unlock()
	a.timer.Stop()
	cause := context.Cause(a)
	a.cancel(nil)
	return cause
}
