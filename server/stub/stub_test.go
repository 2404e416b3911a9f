package stub_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tornwire/frames"
	"tornwire/internal/memnet"
	"tornwire/server"
	"tornwire/server/stub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var grammar = frames.MustBuiltin("ticketing")

func digest(nonce string) string {
	sum := sha256.Sum256([]byte(nonce))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func frame(t *testing.T, dir frames.Direction, op, key string, values ...uint64) string {
	t.Helper()
	b, err := grammar.MustShape(dir, op).Append(nil, []byte(key), values...)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// bed runs a stub on a network and gives connections to it.
func bed(t *testing.T, cfg stub.Config, right bool, play func(dial func() net.Conn)) {
	t.Helper()
	network := memnet.New(memnet.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if right {
		srv, err := server.New(server.Config{})
		if err != nil {
			t.Fatal(err)
		}
		l := listen(t, network, "right:1")
		wg.Go(func() { _ = srv.Serve(ctx, l) })
		cfg.Behind = func(ctx context.Context) (net.Conn, error) { return network.Dial(ctx, "tcp", "right:1") }
	}
	s, err := stub.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, network, "stub:1")
	wg.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	var conns []net.Conn
	play(func() net.Conn {
		c, err := network.Dial(ctx, "tcp", "stub:1")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		return c
	})
	for _, c := range conns {
		_ = c.Close()
	}
}

func listen(t *testing.T, n *memnet.Network, addr string) net.Listener {
	l, err := n.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got[:n], err, want)
	}
}

func hello(t *testing.T, c net.Conn) {
	t.Helper()
	expect(t, c, "tornwire 0000000000000000\n")
	send(t, c, digest("0000000000000000")+"\n")
}

func c2s(t *testing.T, op, key string, values ...uint64) string {
	return frame(t, frames.ClientToServer, op, key, values...)
}

func s2c(t *testing.T, op, key string, values ...uint64) string {
	return frame(t, frames.ServerToClient, op, key, values...)
}

// TestEarly answers once byte 11 is in, and not before.
func TestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []stub.Step{{Op: "A", At: 11, Write: func(f stub.Frame) []byte { return f.Answer("A", "k1", 5) }}}
		bed(t, stub.Config{Steps: steps}, false, func(dial func() net.Conn) {
			c := dial()
			hello(t, c)
			a := c2s(t, "A", "k1", 1, 5, 77)
			send(t, c, a[:10])
			synctest.Wait()
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := c.Read(make([]byte, 1)); n > 0 {
				t.Errorf("an answer came after 10 bytes, %v", err)
			}
			send(t, c, a[10:11])
			expect(t, c, s2c(t, "A", "k1", 77, 5))
			send(t, c, a[11:]+a) // it is answered once
			expect(t, c, s2c(t, "A", "k1", 77, 5))
		})
	})
}

// TestPause answers the second of two after a pause, and the first not at all.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []stub.Step{{Op: "A", Key: "k1", Nth: 2, Pause: 3 * time.Second, Write: func(f stub.Frame) []byte { return f.Answer("T", f.Key(), 0) }, End: true}}
		bed(t, stub.Config{Steps: steps}, false, func(dial func() net.Conn) {
			c, other := dial(), dial()
			hello(t, c)
			hello(t, other)
			send(t, c, c2s(t, "A", "k1", 1, 5, 1)+c2s(t, "A", "k2", 1, 5, 2))
			synctest.Wait()
			began := time.Now()
			send(t, other, c2s(t, "A", "k1", 1, 5, 3))
			expect(t, other, s2c(t, "T", "k1", 3))
			if d := time.Since(began); d != 3*time.Second {
				t.Errorf("answered after %v", d)
			}
			if n, err := other.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the connection did not end: %d, %v", n, err)
			}
		})
	})
}

// TestBehind alters what the script names and passes on the rest, in both directions.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []stub.Step{
			{Op: "A", Key: "k2", Pass: func(f stub.Frame) []byte { return f.With("lease", 60) }},
			{Dir: frames.ServerToClient, Op: "A", Key: "k1", Pass: func(f stub.Frame) []byte { return append(f.Bytes, f.Bytes...) }},
			{Dir: frames.ServerToClient, Op: "T"},
			{Op: "R", Key: "k1", Write: func(f stub.Frame) []byte { return f.Answer("N", f.Key(), f.Uint("token")) }},
		}
		bed(t, stub.Config{Steps: steps}, true, func(dial func() net.Conn) {
			c := dial()
			greeting := make([]byte, len("tornwire 0123456789abcdef\n"))
			if _, err := io.ReadFull(c, greeting); err != nil || !strings.HasPrefix(string(greeting), "tornwire ") {
				t.Fatalf("%q, %v", greeting, err)
			}
			send(t, c, digest(strings.Fields(string(greeting))[1])+"\n")
			send(t, c, c2s(t, "A", "k1", 1, 5, 1))
			expect(t, c, strings.Repeat(s2c(t, "A", "k1", 1, 1), 2))
			send(t, c, c2s(t, "A", "k2", 1, 1, 2))
			expect(t, c, s2c(t, "A", "k2", 2, 2))
			time.Sleep(2 * time.Second)
			send(t, c, c2s(t, "A", "k2", 0, 1, 3)+c2s(t, "R", "k1", 1)+c2s(t, "R", "k2", 2)) // its T is dropped, the lease goes on
			got := make([]byte, 24)
			if _, err := io.ReadFull(c, got); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{s2c(t, "N", "k1", 1), s2c(t, "R", "k2", 2)} {
				if !strings.Contains(string(got), want) {
					t.Errorf("%q has no %q", got, want)
				}
			}
		})
	})
}

func TestWrongDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed(t, stub.Config{Secret: "x"}, false, func(dial func() net.Conn) {
			c := dial()
			hello(t, c)
			expect(t, c, "Eauth_failed\n")
			if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the connection did not end: %d, %v", n, err)
			}
		})
	})
}

// TestLimits: what is too much ends a connection and nothing else.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []stub.Step{{Op: "A", Pause: time.Hour, Write: func(f stub.Frame) []byte { return f.Answer("T", f.Key(), 0) }}}
		bed(t, stub.Config{Steps: steps}, false, func(dial func() net.Conn) {
			c := dial()
			hello(t, c)
			for range 256 {
				send(t, c, c2s(t, "A", "k1", 1, 5, 1))
			}
			synctest.Wait()
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
				t.Errorf("256 answers cannot wait: %v", err)
			}
			send(t, c, c2s(t, "A", "k1", 1, 5, 1))
			synctest.Wait()
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "deadline") {
				t.Errorf("257 answers wait: %v", err)
			}
			hello(t, dial())
		})
	})
}

func TestScriptsThatCannotBe(t *testing.T) {
	pass := func(stub.Frame) []byte { return nil }
	for want, s := range map[string]stub.Step{
		"no server is behind":                {Dir: frames.ServerToClient},
		"there is no direction 7":            {Dir: 7},
		"cannot be passed on":                {At: 3, Pass: pass},
		"a pause of 2h0m0s is not 0 to 1h0m": {Pause: 2 * time.Hour},
		"byte -1 and number 0":               {At: -1},
	} {
		if _, err := stub.New(stub.Config{Steps: []stub.Step{{}, s}}); err == nil || !strings.Contains(err.Error(), "step 2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := stub.New(stub.Config{Steps: make([]stub.Step, stub.MaxSteps+1), Dialect: "x"}); err == nil || !strings.Contains(fmt.Sprint(err), "257 steps") {
		t.Error(err)
	}
}

// TestTCP is a stub on a real socket, whose Serve leaves nothing behind.
func TestTCP(t *testing.T) {
	s, err := stub.New(stub.Config{Steps: []stub.Step{{Op: "A", Write: func(f stub.Frame) []byte { return f.Answer("B", f.Key(), 0) }}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello(t, c)
	send(t, c, c2s(t, "A", "k1", 1, 5, 9))
	expect(t, c, s2c(t, "B", "k1", 9))
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
