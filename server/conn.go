package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"tornwire/frames"
)

// Limits of the way a connection ends and is read.
const (
	// FlushTimeout bounds how long the last answers may take to be written.
	FlushTimeout = 5 * time.Second
	// DrainTimeout bounds how long the end of the client's input is waited for
	// after the last answer, so that no reset destroys it on the way.
	DrainTimeout = time.Second

	drainLimit = 1 << 20 // bytes read and dropped meanwhile
	readSize   = 4096
	keptSize   = 16 << 10 // largest buffer that is written from again
)

// conn is one connection. Three goroutines serve it: the reader, which also
// starts and ends the others, the writer and the watcher, which is the only one
// that interrupts them.
type conn struct {
	s   *Server
	nc  net.Conn
	me  party
	out *outbox

	hung    chan struct{} // closed when the table hangs up
	drained chan struct{} // closed after FIN when nothing is queued
	broken  chan struct{} // closed at a write error
	written chan struct{} // closed when the writer ended
	done    chan struct{} // closed when the watcher is to end

	hangOnce, idleOnce sync.Once

	nonce   string
	greeted atomic.Bool // the preface is over
}

// ending says why the reader stopped.
type ending int

const (
	failed  ending = iota // the connection is of no more use
	closing               // we end it, once the answers are written
	halved                // the client sent FIN
)

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		s: s, nc: nc, out: newOutbox(),
		hung: make(chan struct{}), drained: make(chan struct{}), broken: make(chan struct{}),
		written: make(chan struct{}), done: make(chan struct{}),
	}
	c.me = party{out: c, seat: s.seat}
	if a := nc.RemoteAddr(); a != nil {
		c.me.peer = a.String()
	}
	return c
}

// serve returns when the connection is closed and its goroutines ended.
func (c *conn) serve(ctx context.Context) {
	c.s.live.add(c)
	defer c.s.live.remove(c)
	var others sync.WaitGroup
	others.Go(c.write)
	others.Go(func() { c.watch(ctx) })
	how := c.read()
	if how == halved {
		how = c.linger(ctx)
	}
	c.s.table.leave(&c.me)
	c.out.end()
	if how == closing {
		c.part()
	}
	_ = c.nc.Close()
	close(c.done)
	others.Wait()
}

// linger keeps a connection whose client sent FIN while it has queued attempts:
// FIN alone is not a close (spec/ticketing.md §2). With a FIN of ours it is one.
func (c *conn) linger(ctx context.Context) ending {
	c.s.table.finish(&c.me)
	select {
	case <-c.drained:
		return closing
	case <-c.hung:
		return closing
	case <-c.written:
		return closing
	case <-c.broken:
	case <-c.out.overflow:
	case <-ctx.Done():
	}
	return failed
}

// part ends the connection so that the client can read every answer: write,
// half-close, and read on until the client ends too.
func (c *conn) part() {
	_ = c.nc.SetWriteDeadline(time.Now().Add(FlushTimeout))
	<-c.written
	if c.closeWrite() != nil { // a second FIN is none
		return
	}
	if c.nc.SetReadDeadline(time.Now().Add(DrainTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, c.nc, drainLimit)
	}
}

// halfCloser is a connection with a FIN.
type halfCloser interface{ CloseWrite() error }

func (c *conn) closeWrite() error {
	if half, ok := c.nc.(halfCloser); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// watch interrupts reads and writes when something else ends the connection.
func (c *conn) watch(ctx context.Context) {
	hung := c.hung
	for {
		select {
		case <-hung:
			_ = c.nc.SetReadDeadline(time.Unix(1, 0))
			hung = nil
		case <-c.out.overflow:
			if l, ok := c.nc.(interface{ SetLinger(sec int) error }); ok {
				_ = l.SetLinger(0)
			}
			_ = c.nc.Close()
			return
		case <-c.broken:
			_ = c.nc.Close()
			return
		case <-ctx.Done():
			_ = c.nc.Close()
			return
		case <-c.done:
			return
		}
	}
}

func (c *conn) write() {
	defer close(c.written)
	var spare []byte
	for {
		batch, last := c.out.take(spare)
		if len(batch) > 0 {
			if _, err := c.nc.Write(batch); err != nil {
				close(c.broken)
				return
			}
			if spare = batch; cap(spare) > keptSize {
				spare = nil // a burst must not cost memory for ever
			}
			continue
		}
		if last {
			if c.out.halfCloses() {
				_ = c.closeWrite() // fails only where the connection is gone already
			}
			return
		}
		spare = batch
		<-c.out.wake
	}
}

// read decodes what the client sends until the connection ends one way or the
// other.
func (c *conn) read() ending {
	if !c.greet() {
		return failed
	}
	dec := c.s.dialect.grammar.Decoder(frames.ClientToServer)
	_ = c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.PrefaceTimeout))
	buf := make([]byte, readSize)
	for {
		n, err := c.nc.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			var pc frames.Piece
			if pc, p = dec.Next(p); !c.take(pc) {
				return closing
			}
		}
		switch {
		case err == nil:
		case err == io.EOF:
			return halved
		case errors.Is(err, os.ErrDeadlineExceeded): // the preface is late, or the table hung up
			return closing
		default:
			return failed
		}
	}
}

// greet queues the first line. It is false if the nonce does not fit in one.
func (c *conn) greet() bool {
	c.nonce = c.s.cfg.Nonce()
	if !isWord(c.nonce) {
		return false
	}
	line := c.s.cfg.ServerID + " " + c.nonce
	return c.out.put(func(b []byte) ([]byte, bool) {
		b, err := c.s.dialect.greeting.Append(b, []byte(line))
		return b, err == nil
	})
}

// take handles one piece of input. It is false if the connection must end.
func (c *conn) take(pc frames.Piece) bool {
	switch {
	case pc.Kind == frames.Opaque:
		c.complain(reasonBadFrame)
		return false
	case !pc.Last || pc.Kind == frames.KeepAlive:
		return true
	case pc.Kind == frames.Preface:
		return c.authenticate(pc.Shape.TailOf(pc.Whole))
	case pc.Shape.Check(pc.Whole) != nil || !c.request(pc.Shape, pc.Whole):
		c.complain(reasonBadFrame)
		return false
	}
	select {
	case <-c.hung:
		return false
	default:
		return true
	}
}

func (c *conn) authenticate(line []byte) bool {
	sum := sha256.Sum256([]byte(c.s.cfg.Secret + c.nonce))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare(line, []byte(want)) != 1 {
		c.complain(reasonAuthFailed)
		return false
	}
	_ = c.nc.SetReadDeadline(time.Time{})
	c.greeted.Store(true)
	return true
}

// request hands a checked frame to the table. It is false if the frame says
// something that the protocol does not allow.
func (c *conn) request(s *frames.Shape, frame []byte) bool {
	d := c.s.dialect
	switch s {
	case d.acquire:
		a, ok := d.request(frame)
		if !ok {
			return false
		}
		a.from = &c.me
		c.s.table.acquire(a)
	case d.release:
		token, _ := s.Uint(frame, "token")
		c.s.table.release(&c.me, string(s.TailOf(frame)), token, d.exactToken)
	}
	return true
}

// answer implements sink.
func (c *conn) answer(o outcome, key string, owner, token uint64) bool {
	if c.s.dialect.answers[o] == nil {
		return false // an outbox that has ended would take it, and lose it
	}
	return c.out.put(func(b []byte) ([]byte, bool) {
		return c.s.dialect.answer(b, o, key, owner, token)
	})
}

// complain implements sink.
func (c *conn) complain(reason string) {
	c.out.put(func(b []byte) ([]byte, bool) {
		b, err := c.s.dialect.fault.Append(b, []byte(reason))
		return b, err == nil
	})
}

// hangUp implements sink.
func (c *conn) hangUp() { c.hangOnce.Do(func() { close(c.hung) }) }

// idle implements sink.
func (c *conn) idle() { c.idleOnce.Do(func() { close(c.drained) }) }
