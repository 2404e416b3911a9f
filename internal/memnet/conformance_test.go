package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tcpConn is what a connection of either transport can do.
type tcpConn interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
}

// transport makes connections, real or in memory.
type transport struct {
	listen func() (net.Listener, error)
	dial   func(addr string) (net.Conn, error)
}

func transports() map[string]transport {
	memory := New(Options{})
	return map[string]transport{
		"tcp": {
			func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
			func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) },
		},
		"memnet": {
			func() (net.Listener, error) { return memory.Listen("tcp", "127.0.0.1:0") },
			func(addr string) (net.Conn, error) { return memory.Dial(context.Background(), "tcp", addr) },
		},
	}
}

func (tr transport) listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := tr.listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// pair returns a dialled connection and the accepted one.
func (tr transport) pair(t *testing.T) (a, b tcpConn) {
	t.Helper()
	l := tr.listener(t)
	dialed, err := tr.dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dialed, accepted} {
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return dialed.(tcpConn), accepted.(tcpConn)
}

// TestConformance holds memnet against the kernel: every statement is made of both.
func TestConformance(t *testing.T) {
	tests := map[string]func(*testing.T, transport){
		"bytes both ways":                testBothWays,
		"half-close":                     testHalfClose,
		"eof only after the data":        testEOFAfterData,
		"linger 0 resets":                testLingerZero,
		"data before a reset":            testDataBeforeReset,
		"close with unread input":        testCloseUnread,
		"first write to a closed peer":   testFirstWriteLost,
		"reset after a fin":              testResetAfterFIN,
		"shut down after a reset":        testShutAfterReset,
		"write after CloseWrite":         testWriteAfterCloseWrite,
		"CloseRead":                      testCloseRead,
		"after Close":                    testAfterClose,
		"close unblocks":                 testCloseUnblocks,
		"past deadline":                  testPastDeadline,
		"deadline passes":                testDeadlinePasses,
		"deadline ends a blocked read":   testDeadlineEndsRead,
		"deadline taken back":            testDeadlineTakenBack,
		"write deadline on full buffers": testWriteDeadline,
		"close of a blocked writer":      testCloseBlockedWriter,
		"reset of a blocked writer":      testResetBlockedWriter,
		"empty reads and writes":         testEmpty,
		"writes do not interleave":       testWritesDoNotInterleave,
		"refused":                        testRefused,
		"address in use":                 testAddressInUse,
		"listener closed":                testListenerClosed,
		"accept deadline":                testAcceptDeadline,
		"close before accept":            testCloseBeforeAccept,
		"addresses":                      testAddresses,
		"dial errors":                    testBadAddresses,
	}
	for name, test := range tests {
		for transportName, tr := range transports() {
			t.Run(name+"/"+transportName, func(t *testing.T) { test(t, tr) })
		}
	}
}

func testBothWays(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	for range 3 {
		mustWrite(t, a, "to b")
		mustRead(t, b, "to b")
		mustWrite(t, b, "to a")
		mustRead(t, a, "to a")
	}
}

func testHalfClose(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	mustWrite(t, a, "request")
	must(t, a.CloseWrite())
	mustReadAll(t, b, "request", nil)
	mustWrite(t, b, "reply")
	must(t, b.CloseWrite())
	mustReadAll(t, a, "reply", nil)
}

func testEOFAfterData(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	mustWrite(t, a, "last words")
	must(t, a.Close())
	mustReadAll(t, b, "last words", nil)
	if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("second read at the end: %d, %v", n, err)
	}
}

func testLingerZero(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	must(t, a.SetLinger(0))
	must(t, a.Close())
	_, err := b.Read(make([]byte, 1))
	wantOpError(t, err, "read", syscall.ECONNRESET)
	_, err = b.Write([]byte("x"))
	wantOpError(t, err, "write", syscall.EPIPE, syscall.ECONNRESET)
}

func testDataBeforeReset(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	mustWrite(t, a, "delivered")
	mustRead(t, b, "d") // all of it has arrived
	must(t, a.SetLinger(0))
	must(t, a.Close())
	mustReadAll(t, b, "elivered", syscall.ECONNRESET)
}

func testCloseUnread(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	mustWrite(t, b, "xy")
	mustRead(t, a, "x")
	must(t, a.Close())
	_, err := b.Read(make([]byte, 1))
	wantOpError(t, err, "read", syscall.ECONNRESET)
}

func testFirstWriteLost(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	must(t, a.Close())
	mustReadAll(t, b, "", nil)
	mustWrite(t, b, "lost")
	for range 1000 { // the kernel's reset may be a moment late
		if _, err := b.Write([]byte("x")); err != nil {
			wantOpError(t, err, "write", syscall.EPIPE)
			return
		}
	}
	t.Error("writes to a closed peer go on succeeding")
}

func testResetAfterFIN(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	mustWrite(t, b, "12") // unread at a, so that its close resets
	mustRead(t, a, "1")
	must(t, a.CloseWrite())
	mustReadAll(t, b, "", nil)
	must(t, a.Close())
	for range 1000 {
		if _, err := b.Write([]byte("x")); err != nil {
			wantOpError(t, err, "write", syscall.EPIPE)
			mustReadAll(t, b, "", nil)
			return
		}
	}
	t.Error("writes after a reset go on succeeding")
}

func testShutAfterReset(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	must(t, a.SetLinger(0))
	must(t, a.Close())
	_, err := b.Read(make([]byte, 1))
	wantOpError(t, err, "read", syscall.ECONNRESET)
	wantOpError(t, b.CloseWrite(), "close", syscall.ENOTCONN)
	wantOpError(t, b.CloseRead(), "close", syscall.ENOTCONN)
	must(t, b.Close())
}

func testWriteAfterCloseWrite(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	must(t, a.CloseWrite())
	n, err := a.Write([]byte("x"))
	wantOpError(t, err, "write", syscall.EPIPE)
	if n != 0 {
		t.Errorf("%d bytes written after CloseWrite", n)
	}
	must(t, a.CloseWrite()) // twice is no error
	mustWrite(t, b, "still read")
	mustRead(t, a, "still read")
}

func testCloseRead(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	mustWrite(t, b, "early")
	mustRead(t, a, "e")
	must(t, a.CloseRead())
	mustReadAll(t, a, "arly", nil)
	mustWrite(t, b, "the peer is not told")
	mustWrite(t, a, "and we may write")
	mustRead(t, b, "and we may write")
}

func testAfterClose(t *testing.T, tr transport) {
	a, _ := tr.pair(t)
	must(t, a.Close())
	_, err := a.Read(make([]byte, 1))
	wantOpError(t, err, "read", net.ErrClosed)
	_, err = a.Read(nil)
	wantOpError(t, err, "read", net.ErrClosed)
	_, err = a.Write([]byte("x"))
	wantOpError(t, err, "write", net.ErrClosed)
	wantOpError(t, a.Close(), "close", net.ErrClosed)
	wantOpError(t, a.CloseRead(), "close", net.ErrClosed)
	wantOpError(t, a.CloseWrite(), "close", net.ErrClosed)
	wantOpError(t, a.SetDeadline(time.Time{}), "set", net.ErrClosed)
	wantOpError(t, a.SetReadDeadline(time.Time{}), "set", net.ErrClosed)
	wantOpError(t, a.SetWriteDeadline(time.Time{}), "set", net.ErrClosed)
	wantOpError(t, a.SetLinger(0), "set", net.ErrClosed)
}

func testCloseUnblocks(t *testing.T, tr transport) {
	a, _ := tr.pair(t)
	read := start(func() error {
		_, err := a.Read(make([]byte, 1))
		return err
	})
	must(t, a.Close())
	wantOpError(t, <-read, "read", net.ErrClosed)
}

func testPastDeadline(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	mustWrite(t, b, "xy")
	mustRead(t, a, "x")
	must(t, a.SetDeadline(time.Unix(1, 0)))
	n, err := a.Read(make([]byte, 1)) // although there is something to read
	wantTimeout(t, err, "read")
	if n != 0 {
		t.Errorf("read %d bytes past the deadline", n)
	}
	_, err = a.Write([]byte("x"))
	wantTimeout(t, err, "write")
	must(t, a.SetDeadline(time.Time{}))
	mustRead(t, a, "y")
	mustWrite(t, a, "z")
	mustRead(t, b, "z")
}

func testDeadlinePasses(t *testing.T, tr transport) {
	a, _ := tr.pair(t)
	const wait = 20 * time.Millisecond
	began := time.Now()
	must(t, a.SetReadDeadline(began.Add(wait)))
	_, err := a.Read(make([]byte, 1))
	wantTimeout(t, err, "read")
	if took := time.Since(began); took < wait {
		t.Errorf("timed out after %v, wanted %v", took, wait)
	}
}

func testDeadlineEndsRead(t *testing.T, tr transport) {
	a, _ := tr.pair(t)
	read := start(func() error {
		_, err := a.Read(make([]byte, 1))
		return err
	})
	must(t, a.SetReadDeadline(time.Unix(1, 0)))
	wantTimeout(t, <-read, "read")
}

func testDeadlineTakenBack(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	must(t, a.SetReadDeadline(time.Now().Add(time.Hour)))
	read := start(func() error {
		_, err := io.ReadFull(a, make([]byte, 2))
		return err
	})
	mustWrite(t, b, "1")
	must(t, a.SetReadDeadline(time.Time{}))
	mustWrite(t, b, "2")
	must(t, <-read)
}

func testWriteDeadline(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	sent := pattern(32 << 20) // more than a kernel takes
	must(t, a.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := a.Write(sent)
	wantTimeout(t, err, "write")
	if n == 0 || n == len(sent) {
		t.Fatalf("%d of %d bytes written", n, len(sent))
	}
	must(t, a.CloseWrite())
	got, err := io.ReadAll(b)
	must(t, err)
	if !bytes.Equal(got, sent[:n]) {
		t.Errorf("Write counted %d bytes, %d came or they differ", n, len(got))
	}
}

// testCloseBlockedWriter: the peer closes with unread input under a Write that cannot end.
func testCloseBlockedWriter(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	write := start(func() error {
		n, err := a.Write(make([]byte, 32<<20))
		if n == 32<<20 {
			return errors.New("everything was written")
		}
		return err
	})
	mustRead(t, b, "\x00")
	must(t, b.Close())
	wantOpError(t, <-write, "write", syscall.ECONNRESET, syscall.EPIPE)
}

func testResetBlockedWriter(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	write := start(func() error {
		_, err := a.Write(make([]byte, 32<<20))
		return err
	})
	mustRead(t, b, "\x00")
	must(t, b.SetLinger(0))
	must(t, b.Close())
	wantOpError(t, <-write, "write", syscall.ECONNRESET, syscall.EPIPE)
}

func testEmpty(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	if n, err := a.Read(nil); n != 0 || err != nil {
		t.Errorf("empty read: %d, %v", n, err)
	}
	if n, err := a.Write(nil); n != 0 || err != nil {
		t.Errorf("empty write: %d, %v", n, err)
	}
	must(t, b.Close())
	mustReadAll(t, a, "", nil)
	if n, err := a.Read(nil); n != 0 || err != nil {
		t.Errorf("empty read at the end: %d, %v", n, err)
	}
}

func testWritesDoNotInterleave(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	const writers, size = 4, 300_000
	var writes []<-chan error
	for i := range writers {
		writes = append(writes, start(func() error {
			_, err := a.Write(bytes.Repeat([]byte{'a' + byte(i)}, size))
			return err
		}))
	}
	got := make([]byte, writers*size)
	_, err := io.ReadFull(b, got)
	must(t, err)
	for _, w := range writes {
		must(t, <-w)
	}
	changes := 0
	for i := 1; i < len(got); i++ {
		if got[i] != got[i-1] {
			changes++
		}
	}
	if changes != writers-1 {
		t.Errorf("the writer changes %d times in %d writes", changes, writers)
	}
}

func testRefused(t *testing.T, tr transport) {
	l := tr.listener(t)
	must(t, l.Close())
	_, err := tr.dial(l.Addr().String())
	wantOpError(t, err, "dial", syscall.ECONNREFUSED)
}

func testAddressInUse(t *testing.T, tr transport) {
	l := tr.listener(t)
	listen := net.Listen
	if memory, ok := l.(*Listener); ok {
		listen = memory.network.Listen
	}
	_, err := listen("tcp", l.Addr().String())
	wantOpError(t, err, "listen", syscall.EADDRINUSE)
	must(t, l.Close())
	again, err := listen("tcp", l.Addr().String())
	must(t, err)
	must(t, again.Close())
}

func testListenerClosed(t *testing.T, tr transport) {
	l := tr.listener(t)
	accept := start(func() error {
		_, err := l.Accept()
		return err
	})
	must(t, l.Close())
	wantOpError(t, <-accept, "accept", net.ErrClosed)
	_, err := l.Accept()
	wantOpError(t, err, "accept", net.ErrClosed)
	wantOpError(t, l.Close(), "close", net.ErrClosed)
}

func testAcceptDeadline(t *testing.T, tr transport) {
	l := tr.listener(t)
	deadline := l.(interface{ SetDeadline(time.Time) error }).SetDeadline
	must(t, deadline(time.Now().Add(20*time.Millisecond)))
	_, err := l.Accept()
	wantTimeout(t, err, "accept")
	must(t, deadline(time.Time{}))
	c, err := tr.dial(l.Addr().String())
	must(t, err)
	defer c.Close()
	accepted, err := l.Accept()
	must(t, err)
	must(t, accepted.Close())
}

// testCloseBeforeAccept: connections that nobody accepted are reset with their listener.
func testCloseBeforeAccept(t *testing.T, tr transport) {
	l := tr.listener(t)
	c, err := tr.dial(l.Addr().String())
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	must(t, l.Close())
	_, err = c.Read(make([]byte, 1))
	wantOpError(t, err, "read", syscall.ECONNRESET)
}

func testAddresses(t *testing.T, tr transport) {
	a, b := tr.pair(t)
	for _, addr := range []net.Addr{a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr()} {
		tcp, ok := addr.(*net.TCPAddr)
		if !ok || tcp.Network() != "tcp" || tcp.Port == 0 || tcp.IP.String() != "127.0.0.1" {
			t.Errorf("address %#v", addr)
		}
	}
	if a.LocalAddr().String() != b.RemoteAddr().String() || a.RemoteAddr().String() != b.LocalAddr().String() {
		t.Errorf("the ends disagree: %v %v, %v %v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
	}
}

func testBadAddresses(t *testing.T, tr transport) {
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "1:2:3"} {
		c, err := tr.dial(addr)
		if err == nil {
			_ = c.Close()
		}
		if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Op != "dial" {
			t.Errorf("dial %q: %v", addr, err)
		}
	}
}

// start runs f at the side; its result comes on the channel.
func start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if n, err := io.WriteString(w, s); n != len(s) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(s), err)
	}
}

func mustRead(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; wanted %q", got[:n], err, want)
	}
}

// mustReadAll reads to the end, which is EOF if wantErr is nil.
func mustReadAll(t *testing.T, r io.Reader, want string, wantErr error) {
	t.Helper()
	got, err := io.ReadAll(r)
	if string(got) != want || !errors.Is(err, wantErr) {
		t.Fatalf("read %q, %v; wanted %q, %v", got, err, want, wantErr)
	}
}

// wantOpError checks the form that package net gives its errors, around one of some causes.
func wantOpError(t *testing.T, err error, op string, causes ...error) {
	t.Helper()
	if got := (*net.OpError)(nil); !errors.As(err, &got) || got.Op != op {
		t.Fatalf("error %v (%T), wanted a *net.OpError of %s", err, err, op)
	}
	for _, cause := range causes {
		if errors.Is(err, cause) {
			return
		}
	}
	t.Fatalf("error %q, wanted one of %v", err, causes)
}

func wantTimeout(t *testing.T, err error, op string) {
	t.Helper()
	wantOpError(t, err, op, os.ErrDeadlineExceeded)
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v is no timeout", err)
	}
}

// pattern returns n bytes in which every misplaced one shows.
func pattern(n int) []byte {
	p := make([]byte, n)
	const period = 251 // shares no factor with any buffer size
	for i := range min(n, period) {
		p[i] = byte(i)
	}
	for done := period; done < n; done *= 2 {
		copy(p[done:], p[:done])
	}
	return p
}
