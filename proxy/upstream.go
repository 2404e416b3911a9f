package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	// WatchAfter is how long a dial lasts before the client is watched in the meantime.
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
			s.waited()
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

// connect makes a connection to the server.
func (s *session) connect(ctx context.Context) (net.Conn, error) {
	a := s.attempt(ctx)
	c, err := s.p.reach(a, s.to, s.conns[frames.ServerToClient])
	cause := s.attempted(a)
	if err == nil {
		return c, nil
	}
	if cause == nil && timedOut(err) && !time.Now().Before(a.until) {
		cause = s.p.tooLate()
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return nil, err
}

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
