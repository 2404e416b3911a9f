package client

import (
	"fmt"
	"time"

	"tornwire/frames"
)

// read is the reading goroutine; rest came along with the greeting.
func (s *session) read(rest []byte) {
	c := s.c
	defer c.wg.Done()
	s.end(s.readAll(rest))
	s.hangUp()
	close(s.closed)
	c.mu.Lock()
	delete(c.open, s)
	c.mu.Unlock()
}

// readAll reads until the connection or the session ends, and says why.
func (s *session) readAll(rest []byte) ending {
	buf := make([]byte, 4096)
	p, err := rest, error(nil)
	for {
		if e, stop := s.feed(p, time.Now()); stop {
			return e
		}
		if err != nil {
			s.drainRest(buf)
			return ending{cause: fmt.Errorf("reading from %s: %w", s.addr, err), pause: peerEnded}
		}
		var n int
		n, err = s.conn.Read(buf)
		p = buf[:n]
	}
}

// drainRest takes what has arrived on a session that was given up: a grant among
// it is released, not left to its lease.
func (s *session) drainRest(buf []byte) {
	s.c.mu.Lock()
	drain := s.drain
	s.c.mu.Unlock()
	for left := drainBytes; drain && left > 0; {
		n := arrived(s.conn, buf)
		if n == 0 {
			return
		}
		if _, stop := s.feed(buf[:n], time.Now()); stop {
			return
		}
		left -= n
	}
}

// feed handles bytes that were read at the given time; true if they ended the
// session.
func (s *session) feed(p []byte, at time.Time) (ending, bool) {
	for len(p) > 0 {
		var pc frames.Piece
		pc, p = s.dec.Next(p)
		if pc.Kind == frames.Opaque {
			return s.broken(s.dec.Err()), true
		}
		if pc.Last && s.frame(pc, at) {
			return ending{cause: s.cause}, true
		}
	}
	return ending{}, false
}

func (s *session) broken(err error) ending {
	return ending{cause: fmt.Errorf("%w from %s: %w", ErrProtocol, s.addr, err), pause: peerEnded}
}

// frame handles a whole frame; true if it ended the session. The session is
// then ended under the same lock, so that no request can follow.
func (s *session) frame(pc frames.Piece, at time.Time) bool {
	if pc.Kind == frames.KeepAlive {
		return false
	}
	text := string(pc.Shape.TailOf(pc.Whole))
	owner, _ := pc.Shape.Uint(pc.Whole, "owner")
	token, _ := pc.Shape.Uint(pc.Whole, "token")
	err := pc.Shape.Check(pc.Whole)
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ended && !s.drain {
		return true
	}
	var e ending
	switch {
	case err != nil:
		e = s.broken(err)
	case pc.Shape.Op == "A":
		e = s.granted(ident{owner, text}, token, at)
	case pc.Shape.Op == "T":
		e = s.resolve(s.acquires, ident{owner, text}, reply{kind: timedOut, read: at})
	case pc.Shape.Op == "B":
		e = s.resolve(s.acquires, ident{owner, text}, reply{kind: busy, read: at})
	case pc.Shape.Op == "R":
		e = s.resolve(s.releases, ident{token, text}, reply{kind: released, read: at})
	case pc.Shape.Op == "N":
		e = s.resolve(s.releases, ident{token, text}, reply{kind: notHeld, read: at})
	case pc.Shape.Op == "L":
		c.setHint(text)
	case pc.Shape.Op == "M":
		e = s.moved(text)
	case pc.Shape.Op == "E":
		e = s.failed(text)
	default:
		e = s.broken(fmt.Errorf("op %s is unknown to the client", pc.Shape.Op))
	}
	if e.cause == nil {
		return false
	}
	if s.ended { // draining: the requests are over, only grants still matter
		return err != nil
	}
	s.endLocked(e)
	return true
}

// resolve answers the one request that a response names (spec/ticketing.md
// §3.9); if there is none, the session has lost its step (§3.14).
func (s *session) resolve(pending map[ident]*request, id ident, rep reply) ending {
	r := pending[id]
	if r == nil {
		return ending{cause: ErrMismatch, pause: peerEnded}
	}
	delete(pending, id)
	s.healthy = true
	s.p.ok(s.addr)
	r.done <- rep
	return ending{}
}

// granted handles an A. A token that was matched to a call before is a
// duplicated frame: it is no second grant, and releasing it would give away
// the lock that the application may hold (spec/ticketing.md §3.14).
func (s *session) granted(id ident, token uint64, at time.Time) ending {
	c := s.c
	switch known := c.matched.has(token); {
	case known:
		return ending{cause: fmt.Errorf("%w: token %d was granted before", ErrMismatch, token), pause: peerEnded}
	case s.acquires[id] == nil:
		if c.wire.tokens {
			c.orphan(&task{key: id.key, token: token, addr: s.addr, until: at.Add(c.wire.mostLease)})
		}
		return ending{cause: fmt.Errorf("%w: a grant of token %d", ErrMismatch, token), pause: peerEnded}
	}
	c.matched.add(token)
	return s.resolve(s.acquires, id, reply{kind: granted, token: token, read: at})
}

// moved handles an M (spec/ticketing.md §3.10).
func (s *session) moved(address string) ending {
	if !s.c.setHint(address) {
		if s.c.hint == s.addr {
			s.c.hint = ""
		}
		s.c.skip(s.addr)
	}
	return ending{cause: fmt.Errorf("%w to %q", ErrMoved, address), pause: movedAway}
}

// failed handles an E (spec/ticketing.md §3.12, §3.13).
func (s *session) failed(reason string) ending {
	c := s.c
	e := ending{cause: fmt.Errorf("%s: %w", s.addr, &ServerError{reason}), pause: peerEnded}
	switch reason {
	case "no_leader": // anywhere: all addresses pause
		e.pause = noBackoff
		s.p.leader.fail(time.Now(), noLeader)
		c.skip(s.addr)
		if c.hint != "" { // it named a leader that is none: ask the others first
			c.skip(c.hint)
			c.hint = ""
		}
	case "not_active":
		e.pause = notActive
	case "auth_failed":
		e.pause = authFailed
	}
	if reason == "not_active" || reason == "auth_failed" {
		c.skip(s.addr)
		if c.hint == s.addr {
			c.hint = ""
		}
	}
	return e
}
