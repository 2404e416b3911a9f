package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"tornwire/frames"
)

// session is one connection that is through the preface. One goroutine reads
// it and one writes it. It ends once, for all: from then on it is in no pool,
// nothing is written to it, and all its requests are resolved.
type session struct {
	c      *Client
	p      *pool
	addr   string
	conn   net.Conn
	dec    *frames.Decoder
	out    chan *request // to the writing goroutine, without a buffer
	gone   chan struct{} // closed at the end
	closed chan struct{} // closed when the connection is

	// Guarded by Client.mu.
	load     int // requests that use the session, from choice to outcome
	acquires map[ident]*request
	releases map[ident]*request
	healthy  bool // a matched response came
	ended    bool
	drain    bool // ended, but what has arrived is still read
	abort    bool // ended with acquires unanswered
	cause    error
	lastUse  time.Time
	idle     *time.Timer
}

// ending says why a session ends and what follows from it.
type ending struct {
	cause error
	pause backoff
	drain bool // read what has arrived, to learn the tokens of grants
	abort bool // an acquire was unanswered that is pending no more
}

// openSession dials addr and goes through the preface. The session is returned
// taken. No byte of a request is sent by it.
func (c *Client) openSession(ctx context.Context, p *pool, addr string) (*session, error) {
	limit := openLimit
	if by, ok := ctx.Deadline(); ok && len(c.cfg.Addresses) > 1 {
		limit = min(limit, max(time.Until(by)/2, minOpenTime)) // leave the others a chance
	}
	octx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, rest, err := c.preface(octx, p, addr)
	if err == nil && !c.adopt(s, rest) {
		_ = s.conn.Close()
		err = ErrClosed
	}
	if err == nil {
		return s, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.opened(addr)
	if !spent(ctx) {
		p.pacer(addr).fail(time.Now(), peerEnded)
		if c.hint == addr {
			c.hint = ""
		}
		c.skip(addr)
	}
	c.wake()
	return nil, fmt.Errorf("opening a session to %s: %w", addr, err)
}

// adopt puts a session into its pool, taken, and starts its goroutines; false
// if the client was closed.
func (c *Client) adopt(s *session, rest []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	s.p.opened(s.addr)
	s.take()
	s.idle = time.AfterFunc(idleLimit, s.closeIdle)
	s.p.sessions = append(s.p.sessions, s)
	c.open[s] = struct{}{}
	c.wg.Add(2)
	go s.read(rest)
	go s.write()
	c.wake()
	return true
}

// preface returns the bytes that came after the greeting, too.
func (c *Client) preface(ctx context.Context, p *pool, addr string) (*session, []byte, error) {
	conn, err := c.cfg.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	s := &session{
		c: c, p: p, addr: addr, conn: conn, dec: c.wire.grammar.Decoder(frames.ServerToClient),
		out: make(chan *request), gone: make(chan struct{}), closed: make(chan struct{}),
		acquires: map[ident]*request{}, releases: map[ident]*request{},
	}
	rest, err := s.greet(c.cfg.Secret)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return nil, nil, err
	}
	return s, rest, nil
}

// greet reads the greeting and answers it (spec/ticketing.md §1.1).
func (s *session) greet(secret string) ([]byte, error) {
	buf := make([]byte, 512)
	for {
		n, err := s.conn.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			var pc frames.Piece
			pc, p = s.dec.Next(p)
			if pc.Kind == frames.Opaque {
				return nil, fmt.Errorf("%w: %w", ErrProtocol, s.dec.Err())
			}
			if pc.Last {
				line, err := answer(pc.Shape, pc.Whole, secret)
				if err != nil {
					return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
				}
				frame, err := s.c.wire.auth.Append(nil, line)
				if err == nil {
					_, err = s.conn.Write(frame)
				}
				return p, err
			}
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for the greeting: %w", err)
		}
	}
}

// answer is the line that answers a greeting.
func answer(shape *frames.Shape, greeting []byte, secret string) ([]byte, error) {
	if err := shape.Check(greeting); err != nil {
		return nil, err
	}
	id, nonce, ok := strings.Cut(string(shape.TailOf(greeting)), " ")
	if !ok || id == "" || nonce == "" || strings.Contains(nonce, " ") {
		return nil, errors.New("the greeting is not a server id, one space and a nonce")
	}
	sum := sha256.Sum256([]byte(secret + nonce))
	return base64.RawURLEncoding.AppendEncode(nil, sum[:]), nil
}

// take counts one more request in; Client.mu is held.
func (s *session) take() *session {
	s.load++
	return s
}

// takes tells whether r can be told apart from what the session carries. With
// an owner or a token it always can; by key alone only if it is the only one.
func (s *session) takes(r *request) bool {
	pending := s.acquires
	if r.release {
		pending = s.releases
	}
	return pending[r.ident] == nil
}

// end ends the session; further calls do nothing.
func (s *session) end(e ending) {
	s.c.mu.Lock()
	first := s.endLocked(e)
	s.c.mu.Unlock()
	if first {
		s.shut(e)
	}
}

// endLocked is end without the part that touches the connection: the caller
// must call shut after unlocking if it is true.
func (s *session) endLocked(e ending) bool {
	if s.ended {
		return false
	}
	c := s.c
	s.ended, s.drain, s.cause = true, e.drain, e.cause
	s.abort = e.abort || len(s.acquires) > 0
	for i, o := range s.p.sessions {
		if o == s {
			s.p.sessions = append(s.p.sessions[:i], s.p.sessions[i+1:]...)
			break
		}
	}
	for _, pending := range []map[ident]*request{s.acquires, s.releases} {
		for _, r := range pending {
			r.done <- reply{kind: lost, cause: e.cause}
		}
		clear(pending)
	}
	if !s.healthy || e.pause != peerEnded { // a worn-out session is no failure of its address
		s.p.pacer(s.addr).fail(time.Now(), e.pause)
	}
	s.idle.Stop()
	close(s.gone)
	c.wake()
	return true
}

// shut closes the connection. To drain it, reads and writes are stopped, the
// reading goroutine takes what has arrived and closes, and shut waits for that:
// when a call is over, so is its session.
func (s *session) shut(e ending) {
	if e.drain {
		_ = s.conn.SetDeadline(time.Unix(1, 0))
		limit := time.NewTimer(drainLimit)
		defer limit.Stop()
		select {
		case <-s.closed:
			return
		case <-limit.C: // a connection that knows no deadlines
		}
	}
	s.hangUp()
}

// hangUp closes the connection. If acquires were unanswered it resets it: a
// server may go on serving a client whose FIN it has seen, and would grant the
// lock to nobody when their turn came (spec/ticketing.md §2).
func (s *session) hangUp() {
	s.c.mu.Lock()
	abort := s.abort
	s.c.mu.Unlock()
	if l, ok := s.conn.(interface{ SetLinger(sec int) error }); ok && abort {
		_ = l.SetLinger(0)
	}
	_ = s.conn.Close()
}

func (s *session) closeIdle() {
	c := s.c
	c.mu.Lock()
	first := s.load == 0 && time.Since(s.lastUse) >= idleLimit && s.endLocked(ending{cause: errIdle})
	c.mu.Unlock()
	if first {
		s.hangUp()
	}
}

var errIdle = errors.New("the session was idle")
