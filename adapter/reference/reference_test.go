package reference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tornwire/adapter"
	"tornwire/client"
	"tornwire/internal/memnet"
	"tornwire/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open runs a server in memory and opens a client of it. Call it in a bubble.
func open(t *testing.T, cfg server.Config) (*server.Server, adapter.Client) {
	t.Helper()
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	network := memnet.New(memnet.Options{})
	l, err := network.Listen("tcp", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l) }()
	c, err := WithDial(network.Dial, 0).Open(cfg.Dialect, []string{"127.0.0.1:1"}, cfg.Secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return srv, c
}

func want(t *testing.T, what string, r adapter.Result, outcome, raw string) {
	t.Helper()
	if r.Outcome != outcome || !strings.Contains(r.Raw, raw) || (r.Ticket != nil) != (outcome == "acquired") {
		t.Errorf("%s: %+v, want %s with %q", what, r, outcome, raw)
	}
}

func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		srv, c := open(t, server.Config{Dialect: "ticketing", Secret: "s", FirstToken: 1 << 63, QueueLimit: 1})
		a := c.Acquire(ctx, "k", time.Second, 30*time.Second)
		want(t, "free key", a, "acquired", "")
		g, _ := srv.Holder("k")
		if !a.HasToken || a.Token != 1<<63 || !a.HasOwner || a.Owner != g.Owner {
			t.Errorf("%+v, the server says %+v", a, g)
		}
		want(t, "wait 0 on a held key", c.Acquire(ctx, "k", 0, time.Second), "timeout", "")

		queued, cancel := context.WithCancel(ctx)
		got := make(chan adapter.Result, 1)
		go func() { got <- c.Acquire(queued, "k", time.Minute, time.Second) }()
		synctest.Wait()
		want(t, "queue of one is full", c.Acquire(ctx, "k", time.Minute, time.Second), "busy", "")
		cancel()
		want(t, "cancelled", <-got, "indeterminate", "context canceled")

		want(t, "release", a.Ticket.Release(ctx), "released", "")
		want(t, "second release", a.Ticket.Release(ctx), "released", "")
		b := c.Acquire(ctx, "k", 0, time.Second)
		want(t, "free again", b, "acquired", "")
		time.Sleep(2 * time.Second)
		want(t, "release after the lease", b.Ticket.Release(ctx), "not_held", "")
		want(t, "bad key", c.Acquire(ctx, "a b", time.Second, time.Second), "error", "invalid argument")

		held := c.Acquire(ctx, "k", 0, time.Minute)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, still := srv.Holder("k"); !still {
			t.Error("close released the ticket")
		}
		want(t, "acquire after close", c.Acquire(ctx, "k", 0, time.Second), "error", "client is closed")
		want(t, "release after close", held.Ticket.Release(ctx), "indeterminate", "client is closed")
	})
}

func TestV0HasNoOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := open(t, server.Config{Dialect: "ticketing-v0"})
		a := c.Acquire(t.Context(), "k", time.Second, 30*time.Second)
		want(t, "free key", a, "acquired", "")
		if a.HasOwner || !a.HasToken {
			t.Errorf("%+v", a)
		}
		want(t, "release", a.Ticket.Release(t.Context()), "released", "")
	})
}

func TestUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := WithDial(memnet.New(memnet.Options{}).Dial, 0).Open("ticketing", []string{"127.0.0.1:1"}, "")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "nobody listens", c.Acquire(t.Context(), "k", time.Second, time.Second), "unsent", "dial: connection refused")
		_ = c.Close()
	})
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Library().Open("klingon", []string{"h:1"}, ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("err = %v", err)
	}
}

func TestInfo(t *testing.T) {
	info := Library().Info()
	name, version, _ := strings.Cut(info.Client, " ")
	if name != "tornwire-reference" || version == "" {
		t.Errorf("client %q", info.Client)
	}
	for _, dialect := range info.Dialects {
		if c, err := Library().Open(dialect, []string{"h:1"}, ""); err != nil {
			t.Error(err)
		} else {
			_ = c.Close()
		}
	}
}

// Ports and sessions must not make one error look like many.
func TestClass(t *testing.T) {
	refused := func(port int) error {
		return &net.OpError{Op: "dial", Addr: &net.TCPAddr{Port: port}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.Join(client.ErrDeadline, refused(1)), "the call's deadline has passed; dial: connection refused"},
		{fmt.Errorf("session 7: %w", io.EOF), "EOF"},
		{fmt.Errorf("session 7: %w", &client.ServerError{Reason: "no_leader"}), `the server said error "no_leader"`},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "dial: timeout"},
		{errors.New("something else"), "something else"},
	} {
		if got := class(c.err); got != c.want {
			t.Errorf("class(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}
