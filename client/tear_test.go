package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/client"
	"tornwire/frames"
	"tornwire/internal/memnet"
	"tornwire/server"
)

// torn is the server's end of a connection that is torn after so many bytes in
// one direction.
type torn struct {
	*memnet.Conn
	dir frames.Direction
	how string

	mu    sync.Mutex
	left  int // bytes until the tear
	fired bool
}

// pass takes up to n bytes of dir and says how many of them are let through;
// all, some, or none and the end.
func (c *torn) pass(dir frames.Direction, n int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dir != c.dir {
		return n, c.fired && c.how != "stall"
	}
	if c.fired {
		return 0, true
	}
	n = min(n, c.left)
	c.left -= n
	return n, false
}

// tear acts once the last byte has passed.
func (c *torn) tear() {
	c.mu.Lock()
	act := c.left == 0 && !c.fired
	c.fired = c.fired || act
	c.mu.Unlock()
	switch {
	case !act:
	case c.how == "fin":
		_ = c.CloseWrite()
	case c.how == "rst":
		_ = c.Reset()
	}
}

func (c *torn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p[:1])
		if err != nil {
			return 0, err
		}
		n, over := c.pass(frames.ClientToServer, n)
		c.tear()
		switch {
		case !over && n > 0:
			return n, nil
		case c.how == "fin":
			return 0, io.EOF
		}
	}
}

func (c *torn) Write(p []byte) (int, error) {
	n, over := c.pass(frames.ServerToClient, len(p))
	if !over {
		if _, err := c.Conn.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	c.tear()
	return len(p), nil // what is swallowed looks sent
}

// tornFirst is a listener that hands the first connection out as c.
type tornFirst struct {
	net.Listener
	c func() *torn
}

func (l tornFirst) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if c := l.c(); err == nil && conn == net.Conn(c.Conn) {
		return c, nil
	}
	return conn, err
}

// tornRun runs one acquire and release against the embedded server, with the
// first connection torn, and holds the client's words against the table.
func tornRun(t *testing.T, dialect string, dir frames.Direction, how string, k int) (fired bool) {
	srv, err := server.New(server.Config{Dialect: dialect, Nonce: func() string { return nonce }})
	if err != nil {
		t.Fatal(err)
	}
	var first *torn
	whole := how != "short" && how != "blocked" // the client's kernel takes whole writes
	n := memnet.New(memnet.Options{OnConn: func(_, accepted *memnet.Conn) {
		if first != nil {
			return
		}
		first = &torn{Conn: accepted, dir: dir, how: how, left: k}
		switch {
		case how == "short":
			accepted.ResetAfter(k)
		case how == "blocked":
			accepted.LimitReceive(k)
		case k == 0:
			first.tear()
		}
		if !whole {
			first.left = 1 << 20
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, a := range []string{node1, node2} {
		l, err := n.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = srv.Serve(ctx, tornFirst{l, func() *torn { return first }}) })
	}
	c, err := client.New(client.Config{Addresses: []string{node1, node2}, Dialect: dialect, Dial: n.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	judge(t, c, srv)
	first.mu.Lock()
	defer first.mu.Unlock()
	return first.fired
}

func judge(t *testing.T, c *client.Client, srv *server.Server) {
	start := time.Now()
	out, err := c.Acquire(t.Context(), "k", 4*time.Second, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	grants := srv.History("k")
	if len(grants) > 1 {
		t.Fatalf("%d grants for one call", len(grants))
	}
	switch o := out.(type) {
	case client.Acquired:
		g, ok := srv.Holder("k")
		if !ok || g.Token != o.Ticket.Token() {
			t.Fatalf("acquired token %d, but the table says %+v", o.Ticket.Token(), g)
		}
		rel := o.Ticket.Release(t.Context())
		_, held := srv.Holder("k")
		how := srv.History("k")[0].How
		switch rel.(type) {
		case client.Released:
			if held || how != server.Released {
				t.Fatalf("released, but the table says %q", how)
			}
		case client.NotHeld:
			t.Fatalf("not held, but the table says %q", how)
		}
		if d := time.Since(start); d > 12*time.Second {
			t.Fatalf("acquire and release took %v", d)
		}
	case client.Indeterminate:
		if d := time.Since(start); d > 4*time.Second {
			t.Fatalf("the acquire took %v", d)
		}
	default:
		t.Fatalf("outcome is %v", out)
	}
	time.Sleep(60 * time.Second)
	if got := srv.History("k"); len(got) > 1 {
		t.Fatalf("%d grants for one call", len(got))
	}
	if _, held := srv.Holder("k"); held {
		t.Fatal("still held a minute later")
	}
}

// Every byte of every frame of an acquire and its release, torn in both
// directions: what the client says is true in the server's table, whatever is lost.
func TestTornAtEveryByte(t *testing.T) {
	sizes := map[string]int{} // dialect and direction → bytes of the whole exchange
	for _, dialect := range frames.Names() {
		for _, dir := range []frames.Direction{frames.ClientToServer, frames.ServerToClient} {
			for _, how := range []string{"fin", "rst", "silence", "stall", "short", "blocked"} {
				if dir == frames.ServerToClient && (how == "short" || how == "blocked") {
					continue // the client's writes
				}
				t.Run(fmt.Sprint(dialect, " ", dir, " ", how), func(t *testing.T) {
					k := 0
					for fired := true; fired && !t.Failed() && k < 200; k++ {
						synctest.Test(t, func(t *testing.T) {
							t.Logf("after %d bytes", k)
							fired = tornRun(t, dialect, dir, how, k)
						})
						if how == "short" || how == "blocked" {
							fired = k < sizes[fmt.Sprint(dialect, dir)]
						}
					}
					sizes[fmt.Sprint(dialect, dir)] = k - 1
					t.Logf("%d offsets", k)
					if least := 40; k < least {
						t.Errorf("only %d offsets were torn", k)
					}
				})
			}
		}
	}
}
