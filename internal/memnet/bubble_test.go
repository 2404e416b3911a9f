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
	"testing/synctest"
	"time"
)

// written is what a Write returned.
type written struct {
	n   int
	err error
}

func startWrite(c *Conn, p []byte) <-chan written {
	done := make(chan written, 1)
	go func() {
		n, err := c.Write(p)
		done <- written{n, err}
	}()
	return done
}

func (w written) want(t *testing.T, n int, cause error) {
	t.Helper()
	if w.n != n || !errors.Is(w.err, cause) {
		t.Errorf("Write returned %d, %v; wanted %d, %v", w.n, w.err, n, cause)
	}
}

// TestShortWriteAtEveryByte is what memnet is for: the sender learns at which byte its frame was torn.
func TestShortWriteAtEveryByte(t *testing.T) {
	frame := []byte("A\x05\x1e\x00\x00\x00\x00\x00\x00\x00\x07order-42\n")
	ends := []struct {
		name   string
		arm    func(b *Conn, k int)
		end    func(b *Conn) error
		cause  error // of the Write that is cut
		unread bool  // what arrived was not read before the end
	}{
		{"limit, reset", (*Conn).LimitReceive, (*Conn).Reset, syscall.ECONNRESET, false},
		{"limit, reset unread", (*Conn).LimitReceive, (*Conn).Reset, syscall.ECONNRESET, true},
		{"limit, close", (*Conn).LimitReceive, (*Conn).Close, syscall.EPIPE, false},
		{"limit, close unread", (*Conn).LimitReceive, (*Conn).Close, syscall.ECONNRESET, true},
		{"reset after", (*Conn).ResetAfter, (*Conn).Close, syscall.ECONNRESET, true},
	}
	for _, end := range ends {
		for k := range len(frame) + 1 {
			synctest.Test(t, func(t *testing.T) {
				a, b := Pipe(Options{})
				defer a.Close()
				end.arm(b, k)
				result := startWrite(a, frame)
				synctest.Wait()
				if got := a.Unread(); got != k {
					t.Errorf("%s: %d bytes under way, wanted %d", end.name, got, k)
				}
				if !end.unread {
					mustRead(t, b, string(frame[:k]))
				}
				must(t, end.end(b))
				cause := end.cause
				if k == 0 && end.name == "limit, close unread" {
					cause = syscall.EPIPE // nothing was unread
				}
				if k == len(frame) {
					cause = nil
				}
				if k == 0 && end.name == "reset after" {
					cause = syscall.ECONNRESET
				}
				(<-result).want(t, k, cause)
				if got := a.Written(); got != int64(k) {
					t.Errorf("%s at %d: Written is %d", end.name, k, got)
				}
			})
		}
	}
}

func TestResetAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(Options{})
		defer a.Close()
		defer b.Close()
		mustWrite(t, b, "for a")
		b.ResetAfter(5)
		mustWrite(t, a, "abc")
		(<-startWrite(a, []byte("defg"))).want(t, 2, syscall.ECONNRESET)
		mustReadAll(t, b, "abcde", syscall.ECONNRESET)
		mustReadAll(t, a, "for a", syscall.ECONNRESET) // both ends are reset, and keep what had arrived
		(<-startWrite(b, []byte("x"))).want(t, 0, syscall.ECONNRESET)
		must(t, a.Close())
		mustReadAll(t, b, "", syscall.ECONNRESET) // a close after a reset sends nothing
	})
}

func TestResetAfterTakenBack(t *testing.T) {
	a, b := Pipe(Options{})
	b.ResetAfter(3)
	mustWrite(t, a, "ab")
	b.ResetAfter(-1)
	mustWrite(t, a, "cd")
	mustRead(t, b, "abcd")
}

func TestLimitReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(Options{})
		defer a.Close()
		defer b.Close()
		b.LimitReceive(2)
		result := startWrite(a, []byte("abcdef"))
		mustRead(t, b, "ab")
		synctest.Wait()
		if n := a.Unread(); n != 0 {
			t.Errorf("%d bytes came past the limit", n)
		}
		b.LimitReceive(1)
		mustRead(t, b, "c")
		b.LimitReceive(-7)
		mustRead(t, b, "def")
		(<-result).want(t, 6, nil)
	})
}

func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 16
		a, b := Pipe(Options{Buffer: size})
		defer a.Close()
		defer b.Close()
		sent := pattern(3 * size)
		result := startWrite(a, sent)
		synctest.Wait()
		if got := a.Unread(); got != size {
			t.Errorf("%d bytes buffered, the limit is %d", got, size)
		}
		mustRead(t, b, string(sent[:5]))
		synctest.Wait()
		if got := a.Unread(); got != size { // what was read makes room
			t.Errorf("%d bytes buffered after a read", got)
		}
		if got := a.Written(); got != size+5 {
			t.Errorf("%d bytes written", got)
		}
		select {
		case r := <-result:
			t.Fatalf("Write returned %v with bytes to go", r)
		default:
		}
		mustRead(t, b, string(sent[5:]))
		(<-result).want(t, len(sent), nil)
		if got := a.Unread(); got != 0 {
			t.Errorf("%d bytes unread at the end", got)
		}
	})
}

// TestBufferLimit: exactly at the limit nothing blocks, one byte past it does.
func TestBufferLimit(t *testing.T) {
	for _, c := range []struct{ option, size int }{{0, DefaultBuffer}, {1, 1}, {-3, 1}, {700, 700}, {MaxBuffer + 1, MaxBuffer}} {
		a, b := Pipe(Options{Buffer: c.option})
		if n, err := a.Write(make([]byte, c.size)); n != c.size || err != nil {
			t.Errorf("buffer %d: wrote %d, %v", c.option, n, err)
		}
		must(t, a.SetWriteDeadline(time.Now().Add(time.Millisecond)))
		if n, err := a.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("buffer %d: one past the limit: %d, %v", c.option, n, err)
		}
		must(t, b.Reset())
		must(t, a.Close())
	}
}

func TestDeadlineInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe(Options{Buffer: 4})
		defer a.Close()
		defer b.Close()
		began := time.Now()
		must(t, a.SetReadDeadline(began.Add(5*time.Hour)))
		_, err := a.Read(make([]byte, 1))
		wantTimeout(t, err, "read")
		if took := time.Since(began); took != 5*time.Hour {
			t.Errorf("the read took %v", took)
		}
		must(t, a.SetWriteDeadline(began.Add(30*time.Hour)))
		n, err := a.Write([]byte("123456"))
		wantTimeout(t, err, "write")
		if took := time.Since(began); n != 4 || took != 30*time.Hour {
			t.Errorf("the write took %d bytes and %v", n, took)
		}
	})
}

// TestDeadlineMoved: a deadline set while a call is blocked counts, earlier or later than the old one.
func TestDeadlineMoved(t *testing.T) {
	for _, moved := range []time.Duration{time.Minute, 3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			a, b := Pipe(Options{})
			defer a.Close()
			defer b.Close()
			began := time.Now()
			must(t, a.SetReadDeadline(began.Add(time.Hour)))
			read := start(func() error {
				_, err := a.Read(make([]byte, 1))
				return err
			})
			synctest.Wait()
			must(t, a.SetReadDeadline(began.Add(moved)))
			wantTimeout(t, <-read, "read")
			if took := time.Since(began); took != moved {
				t.Errorf("the read took %v, wanted %v", took, moved)
			}
		})
	}
}

// TestQueuedWriter: a Write that waits for another one still hears of a deadline, a close and a reset, and has written nothing.
func TestQueuedWriter(t *testing.T) {
	ends := map[error]func(a, b *Conn) error{
		os.ErrDeadlineExceeded: func(a, _ *Conn) error { return a.SetDeadline(time.Now().Add(time.Hour)) },
		net.ErrClosed:          func(a, _ *Conn) error { return a.Close() },
		syscall.ECONNRESET:     func(_, b *Conn) error { return b.Reset() },
		syscall.EPIPE:          func(a, _ *Conn) error { return a.CloseWrite() },
	}
	for cause, end := range ends {
		synctest.Test(t, func(t *testing.T) {
			a, b := Pipe(Options{Buffer: 3})
			defer a.Close()
			defer b.Close()
			first := startWrite(a, []byte("12345"))
			synctest.Wait()
			second := startWrite(a, []byte("678"))
			synctest.Wait()
			must(t, end(a, b))
			(<-first).want(t, 3, cause)
			(<-second).want(t, 0, cause)
		})
	}
}

// TestResetIsLasting: unlike the kernel's, a reset does not go to whoever looks first.
func TestResetIsLasting(t *testing.T) {
	a, b := Pipe(Options{})
	must(t, a.Reset())
	for range 2 {
		_, err := b.Read(make([]byte, 1))
		wantOpError(t, err, "read", syscall.ECONNRESET)
		_, err = b.Write([]byte("x"))
		wantOpError(t, err, "write", syscall.ECONNRESET)
	}
	wantOpError(t, a.Reset(), "close", net.ErrClosed)
	_, err := a.Read(make([]byte, 1))
	wantOpError(t, err, "read", net.ErrClosed)
}

// TestUnreadAfterTheEnd: what the peer left unread when it closed stays counted, and so does what it never saw.
func TestUnreadAfterTheEnd(t *testing.T) {
	a, b := Pipe(Options{Buffer: 4})
	mustWrite(t, a, "1234")
	mustRead(t, b, "1")
	must(t, b.Close())
	if n := a.Unread(); n != 3 {
		t.Errorf("%d bytes unread after the peer's reset, wanted 3", n)
	}
	a, b = Pipe(Options{Buffer: 4})
	must(t, b.Close())
	(<-startWrite(a, []byte("lost?"))).want(t, 4, syscall.EPIPE)
	if n, w := a.Unread(), a.Written(); n != 4 || w != 4 {
		t.Errorf("%d of %d bytes unread after a lost write, wanted 4 of 4", n, w)
	}
	a, b = Pipe(Options{})
	mustWrite(t, a, "12")
	must(t, a.Close())
	mustReadAll(t, b, "12", nil)
	if n := a.Unread(); n != 0 {
		t.Errorf("%d bytes unread although the peer read to the end", n)
	}
}

func TestServerInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Options{Buffer: 100})
		l, err := n.Listen("tcp", "node-a:7000")
		must(t, err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					time.Sleep(time.Hour) // virtual
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		sent := pattern(10_000)
		for range 3 {
			c, err := n.Dial(t.Context(), "tcp", "node-a:7000")
			must(t, err)
			go func() {
				_, _ = c.Write(sent)
				_ = c.(*Conn).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("echo: %d of %d bytes, %v", len(got), len(sent), err)
			}
			must(t, c.Close())
		}
		must(t, l.Close())
	})
}

func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Options{Backlog: 2})
		l, err := n.Listen("tcp", ":0")
		must(t, err)
		dial := func(ctx context.Context) <-chan error {
			return start(func() error {
				c, err := n.Dial(ctx, "tcp", l.Addr().String())
				if err == nil {
					_ = c.Close()
				}
				return err
			})
		}
		must(t, <-dial(t.Context()))
		must(t, <-dial(t.Context()))

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		wantOpError(t, <-dial(ctx), "dial", context.DeadlineExceeded)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("a dial to a full backlog took %v", took)
		}
		wantOpError(t, <-dial(ctx), "dial", context.DeadlineExceeded) // over before it begins

		waiting := dial(t.Context())
		synctest.Wait()
		accepted, err := l.Accept() // makes room for one
		must(t, err)
		must(t, accepted.Close())
		must(t, <-waiting)

		waiting = dial(t.Context())
		synctest.Wait()
		must(t, l.Close())
		wantOpError(t, <-waiting, "dial", syscall.ECONNREFUSED)
	})
}

// TestBacklogPromised: a dial that is still being set up has its place in the backlog.
func TestBacklogPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		n := New(Options{Backlog: 1, OnConn: func(_, _ *Conn) { <-held }})
		l, err := n.Listen("tcp", ":0")
		must(t, err)
		dial := func(ctx context.Context) <-chan error {
			return start(func() error {
				_, err := n.Dial(ctx, "tcp", l.Addr().String())
				return err
			})
		}
		first := dial(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		wantOpError(t, <-dial(ctx), "dial", context.DeadlineExceeded)
		must(t, l.Close())
		close(held)
		wantOpError(t, <-first, "dial", syscall.ECONNREFUSED) // the listener went meanwhile
	})
}
