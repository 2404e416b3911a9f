package wrongclient

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// how says what ended a session.
type how int

const (
	endEOF      how = iota + 1 // the peer's FIN
	endReset                   // the peer's RST, or another failure of the socket
	endDeadline                // a call's deadline, ours
	endCancel                  // a cancel or a close of the client, ours
	endFrame                   // M, E, a malformed frame, an answer nobody waits for
)

// end is how a session ended, and in words.
type end struct {
	how  how
	text string
}

// exchange is one request that waits for its answer on a session.
type exchange struct {
	ops    string // ops of the answers that fit
	id     uint64 // echoed identifier, 0 where the dialect has none
	key    string
	answer chan answer // gets exactly one once registered, and has room for it
}

// answer is what came of a registered exchange: the op and token of its answer,
// or the end of the session.
type answer struct {
	op    byte // 0 if the session ended
	token uint64
	end   end
}

func newExchange(ops string, id uint64, key string) *exchange {
	return &exchange{ops: ops, id: id, key: key, answer: make(chan answer, 1)}
}

// like tells whether an answer to y could be taken for one to x.
func (x *exchange) like(y *exchange) bool { return x.ops == y.ops && x.id == y.id && x.key == y.key }

// session is one TCP connection. Calls claim it and take turns to write, one
// goroutine reads.
type session struct {
	c        *client
	greeting chan string   // the nonce, once
	up       chan struct{} // closed when the preface is done
	done     chan struct{} // closed at the end
	turn     chan struct{} // full while somebody writes

	mu      sync.Mutex
	conn    net.Conn // nil until dialled; then fixed
	node    *node    // likewise
	isUp    bool
	over    bool
	claims  []*exchange
	pending []*exchange
	owners  uint64 // acquires that claimed it so far
}

func newSession(c *client) *session {
	return &session{
		c: c, greeting: make(chan string, 1), up: make(chan struct{}),
		done: make(chan struct{}), turn: make(chan struct{}, 1),
	}
}

// claim adds x to those that use the session, if it has room and no exchange that
// x could be mistaken for. Only an acquire waits for a preface: a release is not
// to depend on what becomes of another call's connection.
func (s *session) claim(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.claims) >= maxCalls || !s.isUp && x.ops != acquireAnswers {
		return false
	}
	if !s.c.defect.mixes() && slices.ContainsFunc(s.claims, x.like) {
		return false
	}
	s.add(x)
	return true
}

// use is claim for a session that nobody has yet.
func (s *session) use(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(x)
}

func (s *session) add(x *exchange) {
	s.claims = append(s.claims, x)
	if s.c.hasOwner && x.ops == acquireAnswers {
		s.owners++
		x.id = s.c.defect.ownerOn(s.owners, x.id)
	}
}

// leave ends a claim. It tells whether it was the last one.
func (s *session) leave(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = slices.DeleteFunc(s.claims, func(o *exchange) bool { return o == x })
	return len(s.claims) == 0
}

func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.claims) == 0
}

// ready waits until the session can be used. It is false if it ends or ctx is
// over first.
func (s *session) ready(ctx context.Context) bool {
	select {
	case <-s.up:
		return true
	case <-s.done:
	case <-ctx.Done():
	}
	return false
}

// takeTurn waits until nobody else writes, so that the wire wait can be computed
// just before the write. It is false if the session ends or ctx is over first.
func (s *session) takeTurn(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	case <-s.done:
	case <-ctx.Done():
	}
	return false
}

func (s *session) endTurn() { <-s.turn }

// register makes x known before its request is written. It is false if the
// session is over, and x then gets no answer.
func (s *session) register(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.pending = append(s.pending, x)
	}
	return !s.over
}

// unregister forgets x, whose request was not written.
func (s *session) unregister(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = slices.DeleteFunc(s.pending, func(p *exchange) bool { return p == x })
}

// waiting tells whether x is registered and not answered.
func (s *session) waiting(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.pending, x)
}

// take finds and removes the exchange that f answers, nil if there is none.
func (s *session) take(f frame) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.pending {
		if s.c.defect.matches(f, x) {
			s.pending = slices.Delete(s.pending, i, i+1)
			return x
		}
	}
	return nil
}

// answerAll answers every exchange that waits for one of these ops.
func (s *session) answerAll(ops string, op byte) {
	s.mu.Lock()
	var all []*exchange
	s.pending = slices.DeleteFunc(s.pending, func(x *exchange) bool {
		if x.ops == ops {
			all = append(all, x)
		}
		return x.ops == ops
	})
	s.mu.Unlock()
	for _, x := range all {
		x.answer <- answer{op: op}
	}
}

// close ends the session for the first reason given.
func (s *session) close(e end) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.over = true
	conn, n, pending := s.conn, s.node, s.pending
	s.pending = nil
	s.mu.Unlock()
	s.c.drop(s, n)
	if conn != nil {
		s.c.defect.beforeClose(conn)
		_ = conn.Close()
	}
	close(s.done)
	for _, x := range pending {
		x.answer <- answer{end: e}
	}
}

// write sends the frame of a registered exchange; the caller has the turn. The
// session ends if that fails or takes 2 s, or if ctx is over meanwhile. It tells whether
// all of the frame was taken.
func (s *session) write(ctx context.Context, b []byte) (whole bool) {
	stop := context.AfterFunc(ctx, func() { s.close(endOf(ctx)) })
	defer stop()
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeLimit)) // a failure shows in Write
	for len(b) > 0 {
		n, err := s.conn.Write(b[:s.c.defect.atOnce(len(b))])
		if b = b[n:]; err != nil {
			s.close(endOfError(err))
			return len(b) == 0
		}
	}
	return true
}

// await returns the answer to a registered exchange. If there is none when ctx
// is over, the session ends.
func (s *session) await(ctx context.Context, x *exchange) answer {
	select {
	case a := <-x.answer:
		return a
	case <-ctx.Done():
	}
	e := endOf(ctx)
	if a, ok := s.linger(x, e); ok {
		return a
	}
	if s.c.defect.forgets(x, e) {
		return s.forget(x, e)
	}
	if s.waiting(x) {
		if more := s.c.defect.looksAgain(e); more > 0 {
			select {
			case a := <-x.answer:
				return a
			case <-time.After(more):
			}
		}
		keep := s.c.defect.keeps(x, e)
		if keep > 0 && s.c.start(func() { s.closeAfter(keep, x, e) }) {
			return answer{end: e}
		}
		s.close(e)
		if s.c.defect.closesAll(e) {
			s.c.closeOthers(e)
		}
	}
	return <-x.answer
}

// closeAfter ends the session if x is not answered within d.
func (s *session) closeAfter(d time.Duration, x *exchange, e end) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.done:
	}
	if s.waiting(x) {
		s.close(e)
	}
}

func endOf(ctx context.Context) end {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return end{endDeadline, "deadline passed"}
	}
	return end{endCancel, "cancelled"}
}

func endOfError(err error) end {
	switch {
	case errors.Is(err, io.EOF):
		return end{endEOF, "connection ended"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return end{endDeadline, "deadline passed in a write"}
	}
	return end{endReset, err.Error()}
}
