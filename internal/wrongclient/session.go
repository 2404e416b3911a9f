package wrongclient

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"tornwire/frames"
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
// session ends if that fails or takes 2 s, or if ctx is over meanwhile.
func (s *session) write(ctx context.Context, b []byte) {
	stop := context.AfterFunc(ctx, func() { s.close(endOf(ctx)) })
	defer stop()
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeLimit)) // a failure shows in Write
	if _, err := s.conn.Write(b); err != nil {
		s.close(endOfError(err))
	}
}

// await returns the answer to a registered exchange. If there is none when ctx
// is over, the session ends.
func (s *session) await(ctx context.Context, x *exchange) answer {
	select {
	case a := <-x.answer:
		return a
	case <-ctx.Done():
	}
	if s.waiting(x) {
		e := endOf(ctx)
		keep := s.c.defect.keeps(x, e)
		if keep > 0 && s.c.start(func() { s.closeAfter(keep, x, e) }) {
			return answer{end: e}
		}
		s.close(e)
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

// read is the session's goroutine: it takes frames until the session is over.
func (s *session) read() {
	r := reader{s: s, split: s.c.defect.splitter(s.c.grammar)}
	buf := make([]byte, 4096)
	for {
		n, err := s.conn.Read(buf)
		if n > 0 {
			if e, fatal := r.feed(buf[:n]); fatal {
				s.close(e)
				return
			}
		}
		if err != nil {
			s.close(endOfError(err))
			return
		}
	}
}

// reader takes the frames of one session.
type reader struct {
	s     *session
	split splitter
	acted bool // on the frame under way, before its end
}

// feed takes all frames in p. It tells whether the session has to end, and why.
func (r *reader) feed(p []byte) (end, bool) {
	for len(p) > 0 {
		f, rest, ok, err := r.split.next(p)
		if err != nil {
			return end{endFrame, err.Error()}, true
		}
		if !ok {
			break
		}
		p = rest
		if r.acted {
			r.acted = false
			continue
		}
		if e, fatal := r.take(f); fatal {
			return e, true
		}
	}
	if f := r.split.begun(); f.shape != nil && r.s.c.defect.early(f.shape, f.got) {
		r.acted = r.acted || r.deliver(f)
	}
	return end{}, false
}

func (r *reader) take(f frame) (end, bool) {
	c := r.s.c
	switch f.shape.Op {
	case frames.OpKeepAlive:
		return end{}, false
	case "greeting":
		id, nonce, ok := strings.Cut(f.tail(), " ")
		if !ok || id == "" || nonce == "" || strings.Contains(nonce, " ") {
			return end{endFrame, "malformed greeting"}, true
		}
		r.s.greeting <- nonce // has room for the one greeting of a session
		return end{}, false
	case "L":
		c.setHint(f.tail())
		return end{}, false
	case "M":
		c.setHint(f.tail())
		return end{endFrame, "moved"}, true
	case "E":
		c.refused(r.s.node, f.tail())
		return end{endFrame, "server said " + f.tail()}, true
	}
	return r.reply(f)
}

// reply gives an answer to the exchange that waits for it. If there is none the
// session has to end.
func (r *reader) reply(f frame) (end, bool) {
	if r.deliver(f) {
		return end{}, false
	}
	if f.shape.Op == "A" && !f.cut {
		r.s.c.orphan(r.s, f)
	}
	return end{endFrame, "answer " + f.shape.Op + " that nobody waits for"}, true
}

func (r *reader) deliver(f frame) bool {
	c := r.s.c
	grants := f.shape.Op == "A"
	if grants && !c.hasOwner && c.matched.has(f.token()) {
		return false // without an owner, only the token tells a duplicate from a grant
	}
	x := r.s.take(f)
	if x == nil {
		return false
	}
	if grants {
		c.matched.add(f.token())
	}
	c.answered(r.s.node)
	x.answer <- answer{op: c.defect.opFor(x, f.shape.Op[0]), token: f.token()}
	return true
}

// digest is the client's preface line (spec/ticketing.md §1.1).
func digest(secret, nonce string) string {
	sum := sha256.Sum256([]byte(secret + nonce))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// connect makes the connection of a fresh session. It is up then, or over.
func (s *session) connect(ctx context.Context) {
	if e, ok := s.dial(ctx); !ok {
		s.close(e)
		return
	}
	s.greet(ctx)
}

func (s *session) dial(ctx context.Context) (end, bool) {
	n, at := s.c.nextNode()
	if !sleep(ctx, at) {
		return endOf(ctx), false
	}
	limited, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := s.c.dialer(limited, "tcp", n.addr)
	if err != nil {
		s.c.backOff(n, firstPause)
		return endOfError(err), false
	}
	s.mu.Lock()
	over := s.over
	if !over {
		s.conn, s.node = conn, n
	}
	s.mu.Unlock()
	if over {
		_ = conn.Close()
	}
	return end{endCancel, errClosed.Error()}, !over && s.c.start(s.read)
}

// greet waits for the greeting and answers it. The session ends if ctx is over
// first.
func (s *session) greet(ctx context.Context) {
	select {
	case nonce := <-s.greeting:
		line, err := encode(s.c.auth, digest(s.c.secret, nonce), nil)
		if err != nil {
			s.close(end{endFrame, err.Error()})
			return
		}
		s.write(ctx, line)
	case <-s.done:
	case <-ctx.Done():
		s.close(endOf(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.isUp = true
		close(s.up)
	}
}

// encode makes a frame from its fields by name.
func encode(s *frames.Shape, tail string, fields map[string]uint64) ([]byte, error) {
	values := make([]uint64, len(s.Fields))
	for i, f := range s.Fields {
		values[i] = fields[f.Name]
	}
	return s.Append(nil, []byte(tail), values...)
}

// sleep waits until t; it is false if ctx is over first.
func sleep(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
