package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// unlimited is the value of a byte budget that is not in force.
const unlimited = -1

// Conn is one end of a connection; all its methods may be called by several goroutines at once. Writes do not interleave.
type Conn struct {
	local, remote net.Addr
	peer          *Conn

	// mu is shared by both ends and never held while blocked. All below is guarded by it.
	mu *sync.Mutex

	in        buffer // what the peer wrote and we have not read
	allowance int    // bytes that the peer may still place, or unlimited
	cut       int    // bytes that the peer may still place before the connection is reset, or unlimited
	written   int64  // bytes that the peer's side took from us
	taken     int64  // of these, the bytes that the peer has read

	closed    bool          // Close or Reset was called
	abortive  bool          // Close shall reset
	readShut  bool          // CloseRead was called
	writeShut bool          // CloseWrite was called
	fin       bool          // the peer's FIN came
	reset     syscall.Errno // a reset came: what it does to writes

	lag     time.Duration // from the call of a Write to its first byte; 0: none
	trickle time.Duration // from one byte that we write to the next; 0: none
	next    time.Time     // when the next byte may be written

	writing            bool // a Write is under way
	readable, writable gate // our readers, our writers
	readBy, writeBy    time.Time
}

var _ net.Conn = (*Conn)(nil)

// Pipe returns the two ends of a connection that belongs to no network. OnConn is not called, Backlog not used.
func Pipe(opts Options) (a, b *Conn) {
	opts = opts.withDefaults()
	return newPair(opts, &net.TCPAddr{IP: loopback, Port: 1}, &net.TCPAddr{IP: loopback, Port: 2})
}

func newPair(opts Options, aAddr, bAddr net.Addr) (a, b *Conn) {
	mu := new(sync.Mutex)
	end := func(local, remote net.Addr) *Conn {
		return &Conn{
			local: local, remote: remote, mu: mu,
			in: buffer{limit: opts.Buffer}, allowance: unlimited, cut: unlimited,
		}
	}
	a, b = end(aAddr, bAddr), end(bAddr, aAddr)
	a.peer, b.peer = b, a
	return a, b
}

// Read takes what has arrived, up to len(p) bytes, and blocks while there is nothing. Errors: io.EOF after the peer's FIN or CloseRead,
// ECONNRESET after a reset (each only when all that arrived before has been read), os.ErrDeadlineExceeded, net.ErrClosed.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil && err != io.EOF {
		err = c.opError("read", err)
	}
	return n, err
}

func (c *Conn) read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case len(p) == 0:
			return 0, nil
		case passed(c.readBy):
			return 0, os.ErrDeadlineExceeded
		case c.in.used > 0:
			n := c.in.read(p)
			c.peer.taken += int64(n)
			c.peer.writable.open()
			return n, nil
		case c.fin: // also when a reset followed it
			return 0, io.EOF
		case c.reset != 0:
			return 0, os.NewSyscallError("read", syscall.ECONNRESET)
		case c.readShut:
			return 0, io.EOF
		}
		c.readable.block(c.mu, nil, c.readBy)
	}
}

// Write places p in the peer's buffer and blocks while that is full or at its limit. With an error n tells exactly how many bytes
// the peer's side took. Errors: ECONNRESET or EPIPE after a reset, EPIPE after CloseWrite, os.ErrDeadlineExceeded, net.ErrClosed.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.write(p)
	if err != nil {
		err = c.opError("write", err)
	}
	return n, err
}

func (c *Conn) write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing {
		if err := c.writeError(); err != nil {
			return 0, err
		}
		c.writable.block(c.mu, nil, c.writeBy)
	}
	c.writing = true
	defer func() {
		c.writing = false
		c.writable.open()
	}()
	if by := time.Now().Add(c.lag); c.lag > 0 && by.After(c.next) {
		c.next = by
	}
	for {
		if err := c.writeError(); err != nil {
			return n, err
		}
		if n < len(p) && time.Now().Before(c.next) {
			c.writable.block(c.mu, nil, earlier(c.next, c.writeBy))
			continue
		}
		placed := c.place(p[n:c.most(p, n)])
		n += placed
		if n == len(p) {
			return n, nil
		}
		if placed == 0 {
			c.writable.block(c.mu, nil, c.writeBy)
		}
	}
}

// most is how far a Write of p may come now, when n bytes of it are placed.
func (c *Conn) most(p []byte, n int) int {
	if c.trickle == 0 || n == len(p) {
		return len(p)
	}
	c.next = time.Now().Add(c.trickle)
	return n + 1
}

// writeError is why nothing can be written now, or nil.
func (c *Conn) writeError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case passed(c.writeBy):
		return os.ErrDeadlineExceeded
	case c.reset != 0:
		return os.NewSyscallError("write", c.reset)
	case c.writeShut:
		return os.NewSyscallError("write", syscall.EPIPE)
	}
	return nil
}

// place hands the peer's side as much of p as it has room for.
func (c *Conn) place(p []byte) int {
	to := c.peer
	if to.closed {
		// A kernel takes the bytes and only then hears that nobody is there.
		n := min(len(p), to.in.limit)
		c.written += int64(n)
		if n > 0 {
			c.abort()
		}
		return n
	}
	n := min(len(p), to.in.room())
	if to.allowance != unlimited {
		n = min(n, to.allowance)
		to.allowance -= n
	}
	if to.cut != unlimited {
		n = min(n, to.cut)
		to.cut -= n
	}
	if n > 0 {
		to.in.write(p[:n])
		c.written += int64(n)
		to.readable.open()
	}
	if to.cut == 0 {
		to.cutNow()
	}
	return n
}

// Close ends the connection. The peer reads what was written and then io.EOF; it is reset instead if input is unread here or SetLinger(0) was called.
// A second Close returns net.ErrClosed.
func (c *Conn) Close() error { return c.close(false) }

// Reset ends the connection as Close does after SetLinger(0): the peer gets a reset.
func (c *Conn) Reset() error { return c.close(true) }

func (c *Conn) close(abortive bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	switch {
	case c.reset != 0: // the peer has gone, or has been reset too
	case abortive || c.abortive || c.in.used > 0:
		c.peer.abort()
	default:
		c.peer.finish()
		if c.peer.writing {
			c.peer.abort() // its next byte would meet a closed socket
		}
	}
	c.in.drop()
	c.readable.open()
	c.writable.open()
	return nil
}

// CloseWrite sends the FIN: the peer reads io.EOF after what was written. Reading goes on.
func (c *Conn) CloseWrite() error {
	return c.shut(func() {
		c.writeShut = true
		c.writable.open()
		c.peer.finish()
	})
}

// CloseRead makes Read return io.EOF once what has arrived is read. As on Linux the peer is not told, and what it writes is still taken.
func (c *Conn) CloseRead() error {
	return c.shut(func() {
		c.readShut = true
		c.readable.open()
	})
}

func (c *Conn) shut(do func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.opError("close", net.ErrClosed)
	case c.reset != 0:
		return c.opError("close", os.NewSyscallError("shutdown", syscall.ENOTCONN))
	}
	do()
	return nil
}

// finish is the arrival of the peer's FIN.
func (c *Conn) finish() {
	c.fin = true
	c.readable.open()
}

// abort is the arrival of a reset.
func (c *Conn) abort() {
	if c.closed {
		return
	}
	c.reset = syscall.ECONNRESET
	if c.fin {
		c.reset = syscall.EPIPE
	}
	c.readable.open()
	c.writable.open()
}

// cutNow resets both ends, as a middlebox does.
func (c *Conn) cutNow() {
	c.cut = unlimited
	c.abort()
	c.peer.abort()
}

// SetLinger with 0 makes Close send a reset; any other number of seconds leaves it at a FIN, for which Close never waits.
func (c *Conn) SetLinger(sec int) error {
	return c.set(func() { c.abortive = sec == 0 })
}

// LimitReceive lets the peer place n more bytes, read or not; its Write then blocks, until the limit is set anew, or this end is closed or reset
// and Write returns how many bytes it got rid of. A negative n takes the limit away.
func (c *Conn) LimitReceive(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowance = max(n, unlimited)
	c.peer.writable.open()
}

// Trickle makes Write place a byte at a time, so long after the one before, from whichever Write that was; 0 or less is at once. What the
// peer does on a byte then comes before the next: a Write that is cut short says how many bytes got out, the same number each time in virtual time.
func (c *Conn) Trickle(every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trickle = max(every, 0)
	c.writable.open()
}

// Lag makes every Write wait so long before it places anything, as a way there would; 0 or less is not at all.
func (c *Conn) Lag(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lag = max(d, 0)
}

// ResetAfter resets both ends once the peer has placed n more bytes, at once if n is 0. These can still be read here; the Write that would
// have gone on returns how many of its bytes were taken and ECONNRESET. A negative n takes the order back.
func (c *Conn) ResetAfter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = max(n, unlimited)
	if c.cut == 0 {
		c.cutNow()
	}
}

// Written is the number of bytes that the peer's side took from this end, those lost to a closed peer included.
func (c *Conn) Written() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written
}

// Unread is how many of the bytes written here the peer has not read. Once the peer is closed it never falls again.
func (c *Conn) Unread() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.written - c.taken)
}

// LocalAddr returns this end's address, a *net.TCPAddr unless the host is a name (then an Addr).
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's address, of the same kinds as LocalAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines. As with package net a deadline also ends a call that is blocked already, a zero time is none,
// and while it is past every Read and Write fails with os.ErrDeadlineExceeded, whatever could be read.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.set(func() { c.setReadBy(t); c.setWriteBy(t) })
}

// SetReadDeadline sets the deadline of Read; see SetDeadline.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.set(func() { c.setReadBy(t) }) }

// SetWriteDeadline sets the deadline of Write; see SetDeadline.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.set(func() { c.setWriteBy(t) }) }

func (c *Conn) setReadBy(t time.Time) {
	c.readBy = monotonic(t)
	c.readable.open()
}

func (c *Conn) setWriteBy(t time.Time) {
	c.writeBy = monotonic(t)
	c.writable.open()
}

// set changes an option of an open connection.
func (c *Conn) set(do func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	do()
	return nil
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}
