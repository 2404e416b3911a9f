package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tornwire/client"
	"tornwire/frames"
	"tornwire/internal/memnet"
	"tornwire/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Over real sockets: wait 0 on a held key, a queued grant, and a wrong secret.
func TestAgainstServer(t *testing.T) {
	for _, dialect := range frames.Names() {
		ctx, cancel := context.WithCancel(context.Background())
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv, err := server.New(server.Config{Dialect: dialect, Secret: secret})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = srv.Serve(ctx, l) })
		open := func(secret string) *client.Client {
			c, err := client.New(client.Config{
				Addresses: []string{l.Addr().String()}, Dialect: dialect, Secret: secret, ResponseGrace: 2 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		rightSecret(ctx, t, open(secret), dialect)
		wrongSecret(ctx, t, open("wrong"))
		cancel()
		wg.Wait()
	}
}

func rightSecret(ctx context.Context, t *testing.T, c *client.Client, dialect string) {
	defer c.Close()
	first, err := c.Acquire(ctx, "k", time.Second, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	tk := first.(client.Acquired).Ticket
	second := make(chan client.Outcome, 1)
	go func() {
		out, _ := c.Acquire(ctx, "k", 20*time.Second, 30*time.Second)
		second <- out
	}()
	if dialect == client.DefaultDialect {
		out, err := c.Acquire(ctx, "k", 0, 30*time.Second)
		if out != (client.TimedOut{}) || err != nil {
			t.Fatalf("wait 0 on a held key: %v, %v", out, err)
		}
	}
	same[client.ReleaseOutcome](t, "release", tk.Release(ctx), client.Released{})
	tk2 := (<-second).(client.Acquired).Ticket
	if tk2.Token() <= tk.Token() {
		t.Fatalf("token %d after %d", tk2.Token(), tk.Token())
	}
	same[client.ReleaseOutcome](t, "release", tk2.Release(ctx), client.Released{})
}

func wrongSecret(ctx context.Context, t *testing.T, c *client.Client) {
	defer c.Close()
	out, err := c.Acquire(ctx, "k", time.Second, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var cause error
	switch o := out.(type) { // the server may have closed before the request was written
	case client.Indeterminate:
		cause = o.Cause
	case client.Unsent:
		cause = o.Cause
	default:
		t.Fatalf("with a wrong secret: %v", out)
	}
	var se *client.ServerError
	if errors.As(cause, &se) && se.Reason != "auth_failed" {
		t.Fatalf("with a wrong secret: %v", out)
	}
}

// A call that is given up leaves the server's queue, so that the lock is not
// granted to nobody when its turn comes.
func TestGivenUpLeavesQueue(t *testing.T) {
	for _, how := range []string{"cancel", "deadline", "close"} {
		synctest.Test(t, func(t *testing.T) {
			srv, err := server.New(server.Config{})
			if err != nil {
				t.Fatal(err)
			}
			n := memnet.New(memnet.Options{})
			l, err := n.Listen("tcp", node1)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = srv.Serve(ctx, l) })
			defer wg.Wait()
			defer cancel()
			c, err := client.New(client.Config{Addresses: []string{node1}, Dial: n.Dial})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			token, _ := srv.Acquire("k", time.Minute)
			wait, cctx := 30*time.Second, ctx
			if how == "deadline" {
				wait = 1500 * ms // the server's own T would come at 2 s
			} else {
				var stop context.CancelFunc
				cctx, stop = context.WithCancel(ctx)
				time.AfterFunc(1500*ms, func() {
					if how == "close" {
						_ = c.Close()
					}
					stop()
				})
			}
			out, err := c.Acquire(cctx, "k", wait, time.Minute)
			if _, ok := out.(client.Indeterminate); !ok || err != nil {
				t.Fatalf("%s: %v, %v", how, out, err)
			}
			synctest.Wait()
			srv.Release("k", token)
			if tab := srv.Table(); len(tab) > 0 {
				t.Errorf("%s: left in the table: %+v", how, tab)
			}
		})
	}
}

// Many calls, cancels, releases and torn connections at once: whoever is told
// that it holds the lock is the holder in the table while its lease lasts for
// certain, and at the end nothing is left.
func TestCrowd(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) { crowd(t, frames.Names()[seed%2], seed) })
	}
}

// dice is a source of random numbers for many goroutines.
type dice struct {
	mu   sync.Mutex
	from *rand.Rand
}

func (d *dice) random(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.from.IntN(n)
}

// once acquires a key, holds it and perhaps releases it; true if it held it.
func once(ctx context.Context, t *testing.T, c *client.Client, srv *server.Server, random func(int) int) bool {
	key := string(rune('a' + random(4)))
	cctx, cancel := context.WithTimeout(ctx, time.Duration(1+random(8000))*ms)
	out, err := c.Acquire(cctx, key, time.Duration(1+random(5000))*ms, time.Duration(1+random(3))*time.Second)
	cancel()
	if err != nil {
		t.Error(err)
	}
	a, ok := out.(client.Acquired)
	if !ok {
		return false
	}
	by, sure := a.Ticket.Expires()
	time.Sleep(time.Duration(random(1000)) * ms)
	if g, ok := srv.Holder(key); sure && time.Now().Before(by) && (!ok || g.Token != a.Ticket.Token()) {
		t.Errorf("token %d is not the holder's: %+v", a.Ticket.Token(), g)
	}
	if random(3) > 0 {
		a.Ticket.Release(ctx)
	}
	return true
}

func crowd(t *testing.T, dialect string, seed uint64) {
	random := (&dice{from: rand.New(rand.NewPCG(seed, 1))}).random
	n := memnet.New(memnet.Options{OnConn: func(_, accepted *memnet.Conn) {
		switch random(8) {
		case 0:
			accepted.ResetAfter(random(120))
		case 1:
			accepted.LimitReceive(random(120))
		}
	}})
	srv, err := server.New(server.Config{Dialect: dialect})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var servers, callers sync.WaitGroup
	defer servers.Wait()
	defer cancel()
	for _, a := range []string{node1, node2} {
		l, err := n.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		servers.Go(func() { _ = srv.Serve(ctx, l) })
	}
	c, err := client.New(client.Config{Addresses: []string{node1, node2}, Dialect: dialect, Dial: n.Dial})
	if err != nil {
		t.Fatal(err)
	}
	var held atomic.Int32
	for range 30 {
		callers.Go(func() {
			for range 10 {
				if once(ctx, t, c, srv, random) {
					held.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := held.Load(); n < 5 {
		t.Errorf("seed %d: only %d calls held the lock", seed, n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	time.Sleep(10 * time.Second)
	if tab := srv.Table(); len(tab) > 0 {
		t.Errorf("left in the table: %+v", tab)
	}
	var grants []server.Grant
	for _, k := range []string{"a", "b", "c", "d"} {
		grants = append(grants, srv.History(k)...)
	}
	for _, g := range grants {
		if dialect == "ticketing-v0" && g.How == server.Released && g.EndedAt.Sub(g.At) > g.Lease {
			t.Errorf("grant %+v was ended after its lease", g)
		}
	}
}
