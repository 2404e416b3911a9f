package memnet

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func TestNetworkAddresses(t *testing.T) {
	n := New(Options{})
	tests := []struct {
		listen, addr  string // addr as the listener tells it, * for an allocated port
		reach, refuse []string
	}{
		{"10.0.0.1:7000", "10.0.0.1:7000", []string{"10.0.0.1:7000", "[::ffff:10.0.0.1]:7000"}, []string{"10.0.0.2:7000", "10.0.0.1:7001", "node-b:7000"}},
		{"10.0.0.1:0", "10.0.0.1:*", []string{"10.0.0.1:*"}, []string{"127.0.0.1:*"}},
		{"node-b:7000", "node-b:7000", []string{"node-b:7000"}, []string{"node-c:7000"}},
		{"node-b:0", "node-b:*", []string{"node-b:*"}, []string{"node-b:0"}},
		{"localhost:0", "127.0.0.1:*", []string{"127.0.0.1:*", "localhost:*"}, []string{"127.0.0.2:*"}},
		{"[::1]:0", "[::1]:*", []string{"[::1]:*"}, []string{"127.0.0.1:*"}},
		{":0", "[::]:*", []string{"[::]:*", "127.0.0.1:*", "10.9.8.7:*", "anything:*"}, nil},
		{"0.0.0.0:0", "[::]:*", []string{"0.0.0.0:*", "localhost:*"}, nil},
	}
	for _, test := range tests {
		l, err := n.Listen("tcp", test.listen)
		must(t, err)
		_, port, err := net.SplitHostPort(l.Addr().String())
		must(t, err)
		if want := strings.ReplaceAll(test.addr, "*", port); l.Addr().String() != want || port == "0" {
			t.Errorf("listening on %s, wanted %s", l.Addr(), want)
		}
		for _, addr := range test.reach {
			addr = strings.ReplaceAll(addr, "*", port)
			c, err := n.Dial(context.Background(), "tcp4", addr)
			if err != nil {
				t.Errorf("%s from %s: %v", addr, test.listen, err)
				continue
			}
			must(t, c.Close())
		}
		for _, addr := range test.refuse {
			_, err := n.Dial(context.Background(), "tcp", strings.ReplaceAll(addr, "*", port))
			wantOpError(t, err, "dial", syscall.ECONNREFUSED)
		}
		must(t, l.Close())
	}
}

func TestNamedAddress(t *testing.T) {
	n := New(Options{})
	l, err := n.Listen("tcp", "node-b:7000")
	must(t, err)
	c, err := n.Dial(context.Background(), "tcp", "node-b:7000")
	must(t, err)
	if got := c.RemoteAddr(); got != (Addr{"node-b", 7000}) || got.Network() != "tcp" {
		t.Errorf("remote address %#v", got)
	}
	must(t, c.Close())
	must(t, l.Close())
}

func TestUnknownNetwork(t *testing.T) {
	n := New(Options{})
	var unknown net.UnknownNetworkError
	if _, err := n.Listen("udp", ":0"); !errors.As(err, &unknown) {
		t.Errorf("listen: %v", err)
	}
	if _, err := n.Dial(context.Background(), "unix", ":1"); !errors.As(err, &unknown) {
		t.Errorf("dial: %v", err)
	}
}

// TestPorts: every ephemeral port is found, and not one more.
func TestPorts(t *testing.T) {
	n := New(Options{})
	seen := map[string]bool{}
	for range lastPort - firstPort + 1 {
		l, err := n.Listen("tcp", "h:0")
		must(t, err)
		seen[l.Addr().String()] = true
	}
	if len(seen) != lastPort-firstPort+1 || !seen[Addr{"h", firstPort}.String()] || !seen[Addr{"h", lastPort}.String()] {
		t.Errorf("%d different ports", len(seen))
	}
	_, err := n.Listen("tcp", "h:0")
	wantOpError(t, err, "listen", syscall.EADDRINUSE)
	l, err := n.Listen("tcp", "other:0")
	must(t, err)
	must(t, l.Close())
}

func TestOnConn(t *testing.T) {
	var dialed, accepted *Conn
	n := New(Options{OnConn: func(d, a *Conn) {
		dialed, accepted = d, a
		a.ResetAfter(3)
	}})
	l, err := n.Listen("tcp", ":0")
	must(t, err)
	c, err := n.Dial(context.Background(), "tcp", l.Addr().String())
	must(t, err)
	(<-startWrite(c.(*Conn), []byte("abcdef"))).want(t, 3, syscall.ECONNRESET)
	got, err := l.Accept()
	must(t, err)
	mustReadAll(t, got, "abc", syscall.ECONNRESET)
	if c != dialed || got != accepted {
		t.Error("OnConn was told of other connections")
	}
	must(t, l.Close())
}

// TestBufferModel compares the ring with a slice.
func TestBufferModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buffer{limit: rapid.IntRange(1, 2000).Draw(t, "limit")}
		var model []byte
		next := byte(0)
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				p := make([]byte, rapid.IntRange(0, b.room()).Draw(t, "bytes"))
				for i := range p {
					p[i] = next
					next++
				}
				b.write(p)
				model = append(model, p...)
			},
			"read": func(t *rapid.T) {
				p := make([]byte, rapid.IntRange(0, 2100).Draw(t, "bytes"))
				n := b.read(p)
				if want := min(len(p), len(model)); n != want || !slices.Equal(p[:n], model[:n]) {
					t.Fatalf("read %d bytes, wanted %d, or they differ", n, want)
				}
				model = model[n:]
			},
			"": func(t *rapid.T) {
				if b.used != len(model) || b.room() != b.limit-len(model) || len(b.ring) > b.limit {
					t.Fatalf("used %d of a ring of %d, limit %d; wanted %d", b.used, len(b.ring), b.limit, len(model))
				}
			},
		})
	})
}

// TestStreamModel: bytes come in order and are counted, with writes, reads and limits of any size.
func TestStreamModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := Pipe(Options{Buffer: rapid.IntRange(1, 50).Draw(t, "buffer")})
		sent := pattern(rapid.IntRange(0, 500).Draw(t, "sent"))
		cut := rapid.IntRange(1, 600).Draw(t, "cut")
		b.ResetAfter(cut)
		size := rapid.IntRange(1, 80).Draw(t, "write size")
		total := make(chan int)
		go func() {
			n := 0
			for part := range slices.Chunk(sent, size) {
				taken, err := a.Write(part)
				n += taken
				if err != nil {
					break
				}
			}
			_ = a.Close()
			total <- n
		}()
		var got []byte
		p := make([]byte, rapid.IntRange(1, 80).Draw(t, "read size"))
		for {
			n, err := b.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				break
			}
		}
		want := min(cut, len(sent))
		if n := <-total; n != want || a.Written() != int64(want) || a.Unread() != 0 || !slices.Equal(got, sent[:want]) {
			t.Fatalf("wrote %d (%d counted, %d unread), read %d, wanted %d, or they differ", n, a.Written(), a.Unread(), len(got), want)
		}
		_ = b.Close()
	})
}
