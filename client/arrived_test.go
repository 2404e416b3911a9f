//go:build unix

package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"tornwire/frames"
)

// tcpPair returns both ends of a connection.
func tcpPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return a, b
}

// §3.6: a grant that lies unread when its session is given up is released; one
// that was told to a call is not.
func TestDrainRest(t *testing.T) {
	refused := errors.New("refused")
	c, err := New(Config{Addresses: []string{"10.0.0.1:700"}, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, refused
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, b := tcpPair(t)
	s := &session{c: c, p: c.acquires, addr: "10.0.0.1:700", conn: a, dec: c.wire.grammar.Decoder(frames.ServerToClient), ended: true, drain: true}
	c.matched.add(5)
	shape := c.wire.grammar.MustShape(frames.ServerToClient, "A")
	p := []byte("srv n\n#")
	for _, token := range []uint64{5, 6} {
		if p, err = shape.Append(p, []byte("k"), 1, token); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Write(p); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(a, p[:7]); err != nil { // so the rest is there
		t.Fatal(err)
	}
	s.feed(p[:6], time.Now())
	_ = a.SetDeadline(time.Unix(1, 0))
	s.drainRest(make([]byte, 512))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tasks) != 1 || c.tasks[6] == nil {
		t.Errorf("releases under way: %v", c.tasks)
	}
}

// What has arrived is read although the read deadline has passed, and what has
// not arrived is not waited for.
func TestArrived(t *testing.T) {
	a, b := tcpPair(t)
	buf := make([]byte, 8)
	if n := arrived(a, buf); n != 0 {
		t.Fatalf("%d bytes of nothing", n)
	}
	if _, err := b.Write([]byte("one two")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(buf[:4]); err != nil { // so the rest is there
		t.Fatal(err)
	}
	if err := a.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read past the deadline: %v", err)
	}
	if n := arrived(a, buf); string(buf[:n]) != "two" {
		t.Fatalf("arrived: %q", buf[:n])
	}
	if n := arrived(a, buf); n != 0 {
		t.Fatalf("%d bytes more", n)
	}
	if n := arrived(nil, buf); n != 0 {
		t.Fatalf("%d bytes of no TCP connection", n)
	}
}
