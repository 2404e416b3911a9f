package proxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
)

// TestReset: a reset of either side reaches the other as one, behind the bytes
// that came before.
func TestReset(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		cl.send(auth, acquire[:5])
		sv.wait(len(auth) + 5)
		cl.reset()
		sv.wantAll("server", auth+acquire[:5], tr.rst())
		wantEnds(t, b.stop(), tr.ends("client rst seen", "server rst sent by forwarded")...)

		b = newBed(t, tr, decoded())
		cl, sv = b.connect()
		sv.send(greeting, acquired[:9])
		cl.wait(len(greeting) + 9)
		sv.reset()
		cl.wantAll("client", greeting+acquired[:9], tr.rst())
		wantEnds(t, b.stop(), tr.ends("server rst seen", "client rst sent by forwarded")...)
	})
}

// TestResetAfterFIN: a peer that resets after its FIN is found out by the next
// write to it.
func TestResetAfterFIN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), decoded())
		cl, sv := b.connect()
		cl.closeWrite()
		synctest.Wait()
		cl.reset()
		sv.send(greeting)
		sv.wantAll("server", "", history.FIN) // memnet tells a FIN before a reset
		synctest.Wait()
		if _, err := sv.Write([]byte("\n")); err == nil {
			t.Error("the server can still write")
		}
		wantEnds(t, b.stop(), "client fin seen", "server fin sent by forwarded", "client rst seen", "server rst sent by forwarded")
	})
}

// TestDataBeforeReset: what a server says before it resets reaches the client,
// although a write to that server fails first. To that write a kernel tells the
// reset, and to the read an end.
func TestDataBeforeReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan struct{})
		tr := inMemory(0)
		tr.hook = func(dir frames.Direction, c net.Conn) net.Conn {
			h := &hooked{Conn: c.(*memnet.Conn)}
			if dir == c2s {
				h.beforeRead = func() { <-failed }
				h.readError = func(err error) error {
					if errors.Is(err, syscall.ECONNRESET) {
						err = io.EOF
					}
					return err
				}
			}
			return h
		}
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		sv.send(greeting, acquired)
		sv.reset()
		cl.send(auth)
		synctest.Wait()
		cl.send(acquire) // nothing is written to who is gone
		synctest.Wait()
		cl.wantGot("client", "", "")
		close(failed)
		cl.wantAll("client", greeting+acquired, history.RST)
		ev := b.stop()
		wantEnds(t, ev, "server rst seen", "client rst sent by forwarded")
		var begun []string
		for _, e := range ofKind(ev, history.WriteBegun) {
			begun = append(begun, e.Frame.String())
		}
		if got := strings.Join(begun, " "); got != "c2s.auth.1 s2c.greeting.1 s2c.A.1" {
			t.Errorf("written: %s", got)
		}
	})
}

// TestResetWhileWriting: the kernel tells a reset once. Told to a write of the
// proxy, and read as an end before that write has returned, it is still a reset.
func TestResetWhileWriting(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux is asked")
	}
	t.Run("tcp", func(t *testing.T) { resetWhileWriting(t, tcp) })
	t.Run("tls", func(t *testing.T) { resetWhileWriting(t, overTLS(tcp)) })
}

func resetWhileWriting(t *testing.T, tr transport) {
	failed, release := make(chan struct{}), make(chan struct{})
	tr.hook = func(dir frames.Direction, c net.Conn) net.Conn {
		if dir == s2c {
			return &lateConn{c.(*net.TCPConn), !tr.secure(), failed, release}
		}
		return c
	}
	b := newBed(t, tr, decoded())
	cl, sv := b.connect()
	sv.send(greeting)
	cl.wait(len(greeting))
	cl.reset()
	for wrote := true; wrote; {
		select {
		case <-failed:
			wrote = false
		default:
			sv.send("\n")
		}
	}
	b.waitKind(history.EndSeen)
	close(release)
	<-sv.ended
	wantEnds(t, b.stop(), "client rst seen", "server rst sent by forwarded")
}

// lateConn reads nothing, once the client has shaken hands, before a write has
// failed, and returns from that write when it is released.
type lateConn struct {
	*net.TCPConn
	shaken          bool
	failed, release chan struct{}
}

// changeOfCipher is the record with which a client's last flight begins.
var changeOfCipher = []byte{20, 3, 3, 0, 1, 1}

func (c *lateConn) Read(p []byte) (int, error) {
	if c.shaken {
		<-c.failed
	}
	n, err := c.TCPConn.Read(p)
	c.shaken = c.shaken || bytes.HasPrefix(p[:n], changeOfCipher)
	return n, err
}

func (c *lateConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	if err != nil {
		close(c.failed)
		<-c.release
	}
	return n, err
}

// TestResetUnderLoad: the same with nothing held up.
func TestResetUnderLoad(t *testing.T) {
	for i := range 6 {
		tr := tcp
		if i%2 == 1 {
			tr = overTLS(tcp)
		}
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		go func() {
			for {
				if _, err := sv.Write([]byte(greeting)); err != nil {
					return
				}
			}
		}()
		cl.wait(20 * len(greeting))
		cl.reset()
		<-sv.ended
		wantEnds(t, b.stop(), "client rst seen", "server rst sent by forwarded")
	}
}
