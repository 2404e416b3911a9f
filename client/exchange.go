package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// request is one A or R frame with what becomes of it. Done gets exactly one
// reply, unless the request was dropped.
type request struct {
	ident
	release bool
	budget  budget        // of an acquire
	lease   time.Duration // of an acquire, whole seconds
	by      time.Time     // the write must have ended by then
	done    chan reply    // room for one

	// Guarded by Client.mu.
	rank    int       // among those of its client that look for a session, from 1
	sent    time.Time // stamped just before the write; zero: no byte was handed over
	dropped bool      // given up before it was sent
}

type kind uint8

const (
	unsent   kind = iota + 1 // no byte was handed to the connection
	lost                     // it may have been sent, and the session ended
	granted                  // A
	timedOut                 // T
	busy                     // B
	released                 // R
	notHeld                  // N
)

type reply struct {
	kind  kind
	cause error
	token uint64    // of granted
	read  time.Time // when the frame was read
}

var (
	errAmbiguous = errors.New("the session carries a request for this key already")
	errGivenUp   = errors.New("given up before it was sent")
)

// hand gives r to the session's writing goroutine; false if nothing was sent
// because ctx or the session ended first.
func (s *session) hand(ctx context.Context, r *request) bool {
	select {
	case s.out <- r:
		return true
	case <-s.gone:
	case <-ctx.Done():
	}
	return false
}

// write is the writing goroutine.
func (s *session) write() {
	defer s.c.wg.Done()
	for {
		select {
		case <-s.gone:
			return
		case r := <-s.out:
			s.send(r)
		}
	}
}

// send registers r and writes it. From the moment that Write is called, r may
// have been sent, whatever Write says (spec/ticketing.md §3.1).
func (s *session) send(r *request) {
	s.c.queue(r) // behind what the reading goroutine hears in this moment
	s.c.mu.Lock()
	frame, err := s.register(r)
	if err != nil && !r.dropped {
		r.done <- reply{kind: unsent, cause: err}
	}
	s.c.mu.Unlock()
	if err != nil {
		return
	}
	_ = s.conn.SetWriteDeadline(r.by)
	n, err := s.conn.Write(frame)
	if err == nil && n < len(frame) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.end(ending{cause: fmt.Errorf("writing to %s: %w", s.addr, err), pause: peerEnded})
	}
}

// register makes r pending, before it is written (spec/ticketing.md §3.9), and
// returns its frame with the wait that remains now (§3.4, §3.5).
func (s *session) register(r *request) ([]byte, error) {
	switch {
	case r.dropped:
		return nil, errGivenUp
	case s.ended:
		return nil, s.cause
	case !s.takes(r):
		return nil, errAmbiguous
	}
	now := time.Now()
	var wait uint64
	if !r.release {
		var ok bool
		if wait, ok = r.budget.wire(now); !ok {
			return nil, ErrDeadline
		}
	} else if !now.Before(r.by) {
		return nil, ErrDeadline
	}
	frame, err := s.c.wire.frame(r, wait)
	if err != nil {
		return nil, err
	}
	r.sent = now
	if r.release {
		s.releases[r.ident] = r
	} else {
		s.acquires[r.ident] = r
	}
	return frame, nil
}

// giveUp ends the wait for a reply: one that has come still counts; a request
// that was not sent is dropped; otherwise exactly its session is ended, as that
// alone keeps a late grant from being orphaned (spec/ticketing.md §3.5, §3.15).
func (s *session) giveUp(r *request, cause error) reply {
	s.c.mu.Lock()
	select {
	case rep := <-r.done:
		s.c.mu.Unlock()
		return rep
	default:
	}
	if r.sent.IsZero() {
		r.dropped = true
		s.c.mu.Unlock()
		return reply{kind: unsent, cause: cause}
	}
	s.forget(r)
	e := ending{cause: fmt.Errorf("another request ended the session: %w", cause), drain: true, abort: !r.release}
	first := s.endLocked(e)
	s.c.mu.Unlock()
	if first {
		s.shut(e)
	}
	return reply{kind: lost, cause: cause}
}

// forget takes r out of the pending requests, before its session is ended.
func (s *session) forget(r *request) {
	if r.release {
		delete(s.releases, r.ident)
	} else {
		delete(s.acquires, r.ident)
	}
}
