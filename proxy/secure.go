package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Limits of TLS.
const (
	// HandshakeLimit is how long a client may take to say hello, and then again to
	// end its handshake once the server was reached.
	HandshakeLimit = 10 * time.Second
	// AlertLimit is how long a client whose handshake failed is given to read why.
	AlertLimit = 2 * time.Second
	// CloseLimit is how long a receiver that does not read holds up an end that a
	// fault sends, or the close of a session. Then the end is a FIN without
	// close_notify.
	CloseLimit = 5 * time.Second
	// maxRecord is how much plaintext a record holds (RFC 8446 §5.1).
	maxRecord = 16 << 10
)

// secured is a connection under TLS. Reads and writes are plaintext. Its ends are
// told apart as those of TCP are: FIN is a close_notify and a FIN behind it; a FIN
// alone is a truncation, which a reader gets as errTruncated; an RST is the
// transport's. Before the handshake it is a connection that says nothing and hears
// nothing, but has ends.
type secured struct {
	net.Conn // what is under TLS
	wire     *wire
	tls      *tls.Conn // once up
	up       atomic.Bool
	ledger   *ledger // nil if nobody will ask

	offered []string // protocols that the client speaks (ALPN)
	failure string   // of the handshake

	finished  atomic.Bool // its FIN was sent, or is not to be
	truncated atomic.Bool // its peer's FIN came without close_notify
}

// errTruncated is the end of a peer that sent a FIN without close_notify.
var errTruncated = fmt.Errorf("%s: %w", noNotify, io.EOF)

func newSecured(c net.Conn, counts bool) *secured {
	s := &secured{Conn: c, wire: &wire{Conn: c}}
	if counts {
		s.ledger = new(ledger)
	}
	return s
}

// Read reads plaintext. Before the handshake it drops what comes and returns at
// the end.
func (c *secured) Read(p []byte) (int, error) {
	if !c.up.Load() {
		for {
			if _, err := c.Conn.Read(p); err != nil {
				return 0, err
			}
		}
	}
	n, err := c.tls.Read(p)
	if err != nil && c.wire.ended.Load() && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		c.truncated.Store(true)
		err = errTruncated
	}
	return n, err
}

// Write writes plaintext in whole records, and counts the bytes of those that the
// kernel took whole.
func (c *secured) Write(p []byte) (n int, err error) {
	if !c.up.Load() {
		return 0, net.ErrClosed
	}
	for len(p) > 0 {
		m, err := c.tls.Write(p[:min(len(p), maxRecord)])
		if m > 0 && c.ledger != nil {
			c.ledger.add(m, int(c.wire.sent.Load()))
		}
		n, p = n+m, p[m:]
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// CloseWrite sends close_notify and a FIN. Where a record was broken off, the
// receiver could not read a close_notify: it gets the FIN alone.
func (c *secured) CloseWrite() error {
	c.notify()
	closeWrite(c.Conn)
	return nil
}

// truncate sends a FIN without close_notify.
func (c *secured) truncate() {
	c.finished.Store(true)
	closeWrite(c.Conn)
}

// notify sends close_notify, once.
func (c *secured) notify() {
	if c.up.Load() && !c.finished.Swap(true) {
		_ = c.tls.CloseWrite() // if it fails, the FIN behind it tells the receiver enough
	}
}

// Close closes the connection, with close_notify if its end was not yet sent.
func (c *secured) Close() error {
	if !c.finished.Load() {
		_ = c.SetWriteDeadline(time.Now().Add(CloseLimit)) // fails only where it is closed
		c.notify()
	}
	return c.Conn.Close()
}

// SetLinger with 0 has Close send an RST, where the transport has one.
func (c *secured) SetLinger(sec int) error {
	c.finished.Store(sec == 0 || c.finished.Load())
	if l, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		return l.SetLinger(sec)
	}
	return nil
}

// unacked is unacked for plaintext, in whole records.
func (c *secured) unacked(ended bool) (int, bool) {
	sent := int(c.wire.sent.Load()) // first: later it could count what is not asked for
	n, ok := unacked(c.Conn, ended)
	if c.ledger == nil || !ok {
		return 0, false
	}
	return c.ledger.unacked(sent - n), true
}

// peek reads a client's hello, which the handshake then reads again, for what it
// offers. Nothing is answered.
func (c *secured) peek(ctx context.Context) error {
	seen := errors.New("seen")
	probe := tls.Server(&listening{c.Conn, &c.wire.again}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c.offered = h.SupportedProtos
			return nil, seen
		},
	})
	err := c.within(ctx, probe.Handshake)
	if errors.Is(err, seen) {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		c.wire.ended.Store(true)
	}
	return err
}

// shake does the handshake.
func (c *secured) shake(ctx context.Context, side func(net.Conn, *tls.Config) *tls.Conn, cfg *tls.Config) error {
	c.tls = side(c.wire, cfg)
	if err := c.within(ctx, c.tls.Handshake); err != nil {
		return err
	}
	c.up.Store(true)
	return nil
}

// within does something on the connection until ctx is done.
func (c *secured) within(ctx context.Context, do func() error) error {
	defer interruptible(ctx, c.Conn)()
	return do()
}

// interruptible has reads and writes on c fail once ctx is done, until the function
// returned is called.
func interruptible(ctx context.Context, c net.Conn) (stop func()) {
	off := onDone(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() {
		off()
		_ = c.SetDeadline(time.Time{}) // fails only where it is closed
	}
}

// wire is what a tls.Conn reads from and writes to. It counts what the kernel took,
// and knows the transport's end from that of TLS. Deadlines are the business of
// secured: those that crypto/tls would set for a close_notify break off what a slow
// receiver only holds up.
type wire struct {
	net.Conn
	again bytes.Buffer // to be read first
	sent  atomic.Int64
	torn  atomic.Bool // a write was broken off: nothing behind it makes sense
	ended atomic.Bool // a FIN was read
}

func (w *wire) Read(p []byte) (int, error) {
	if w.again.Len() > 0 {
		n, err := w.again.Read(p)
		if w.again.Len() == 0 {
			w.again = bytes.Buffer{}
		}
		return n, err
	}
	n, err := w.Conn.Read(p)
	if err == io.EOF {
		w.ended.Store(true)
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if w.torn.Load() {
		return 0, net.ErrClosed
	}
	n, err := w.Conn.Write(p)
	w.sent.Add(int64(n))
	if err != nil {
		w.torn.Store(true)
	}
	return n, err
}

func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// listening is a connection of which a copy is kept of what is read, and to which
// nothing is written.
type listening struct {
	net.Conn
	kept *bytes.Buffer
}

func (l *listening) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.kept.Write(p[:n])
	return n, err
}

func (l *listening) Write(p []byte) (int, error) { return len(p), nil }

// writeCut writes the last bytes before a cut. Over TLS those of the frame that is
// cut are records of their own, so that what came before it does not hang on them.
func (l *link) writeCut(it item) {
	n := len(it.data) - it.fire.off // of frames before it
	if _, ok := l.dst.(*secured); !ok || n <= 0 {
		l.write(it.data, it.marks)
		return
	}
	i, sum := 0, 0
	for i < len(it.marks) && sum < n {
		sum += it.marks[i].n
		i++
	}
	l.write(it.data[:n], it.marks[:i])
	l.write(it.data[n:], it.marks[i:])
}
