package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/internal/memnet"
)

func TestNewReportsEveryProblem(t *testing.T) {
	_, err := New(Config{
		Dialect: "tiketing", Secret: strings.Repeat("s", maxSecret+1), ServerID: "two words",
		QueueLimit: -1, Capacity: MaxCapacity + 1, ConnLimit: -3, PrefaceTimeout: -time.Second,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`"tiketing"`, "4097 bytes", `"two words"`, "queue limit is -1", "capacity is 1048577",
		"connection limit is -3", "preface timeout is -1s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 7 {
		t.Errorf("%d lines, want 7:\n%v", n, err)
	}
}

func TestDirectUse(t *testing.T) {
	inBubble(t, Config{Dialect: v0, Capacity: 2}, func(h *harness) {
		for key, lease := range map[string]time.Duration{
			"": time.Second, "a b": time.Second, "\xff": time.Second, strings.Repeat("k", 129): time.Second,
			"no lease": 0, "k": -1, "l": MaxLease + 1,
		} {
			if _, ok := h.Acquire(key, lease); ok {
				t.Errorf("granted %q for %v", key, lease)
			}
		}
		h.wantTold()
		token, ok := h.Acquire("k", 1500*time.Millisecond)
		if !ok || token != 1 {
			t.Fatalf("acquire: %d %v", token, ok)
		}
		if _, ok := h.Acquire("k", time.Second); ok {
			t.Error("granted a held key")
		}
		if h.Release("k", 2) || h.Release("other", 1) {
			t.Error("released without the token")
		}
		if !h.Release("k", 1) || h.Release("k", 1) {
			t.Error("release by token is not what it should be")
		}
		h.Acquire("k", 1500*time.Millisecond)
		h.wantTold("granted k token=1", "attempt_ended k refused", "grant_ended k released token=1", "granted k token=2")
		time.Sleep(1500 * time.Millisecond)
		h.wantTold("grant_ended k expired token=2")
		h.Acquire("a", time.Second)
		h.Acquire("b", time.Second)
		if _, ok := h.Acquire("c", time.Second); ok {
			t.Error("granted over the capacity")
		}
	})
}

func TestTableShowsHoldersAndQueues(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q := h.dial(), h.dial()
		start := time.Now()
		p.acquire("z", 0, 9, 1)
		p.acquire("a", 5, 8, 2)
		p.want("A owner=1 token=1 z", "A owner=2 token=2 a")
		q.acquire("a", 4, 7, 3)
		h.told()
		p.acquire("a", 3, 6, 4)
		h.told()
		s := h.Table()
		if len(s) != 2 || s[0].Key != "a" || s[1].Key != "z" || len(s[0].Queue) != 2 || len(s[1].Queue) != 0 {
			t.Fatalf("table %+v", s)
		}
		me, other := p.nc.LocalAddr().String(), q.nc.LocalAddr().String()
		if want := (Grant{
			Key: "a", Token: 2, Owner: 2, HasOwner: true, Wait: 5 * time.Second, Lease: 8 * time.Second,
			Peer: me, At: start, Until: start.Add(8 * time.Second),
		}); s[0].Holder != want {
			t.Errorf("holder %+v, want %+v", s[0].Holder, want)
		}
		if want := (Waiter{
			Owner: 3, HasOwner: true, Peer: other, Wait: 4 * time.Second, Lease: 7 * time.Second, Deadline: start.Add(4 * time.Second),
		}); s[0].Queue[0] != want || s[0].Queue[1].Owner != 4 {
			t.Errorf("queue %+v, want %+v first", s[0].Queue, want)
		}
	})
}

func TestEventsNameWhoDidIt(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q := h.dial(), h.dial()
		p.acquire("k", 5, 9, 1)
		p.want("A owner=1 token=1 k")
		q.release("k", 1) // another session than the grant's
		q.want("R token=1 k")
		if len(h.events) != 2 {
			t.Fatalf("events %+v", h.events)
		}
		g, e := h.events[0], h.events[1]
		if g.Peer != p.nc.LocalAddr().String() || e.Peer != q.nc.LocalAddr().String() {
			t.Errorf("granted to %s, ended by %s", g.Peer, e.Peer)
		}
		if e.Owner != 1 || !e.HasOwner || e.Lease != 9*time.Second || e.Wait != 5*time.Second {
			t.Errorf("the end of the grant does not describe it: %+v", e)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range HistoryLimit + 2 {
		token, _ := s.Acquire("k", time.Hour)
		s.Release("k", token)
	}
	h := s.History("k")
	if len(h) != HistoryLimit || h[0].Token != 3 || h[0].How != Released || h[0].EndedAt.IsZero() {
		t.Errorf("%d grants, first %+v", len(h), h[0])
	}
	token, _ := s.Acquire("live", time.Hour)
	if h := s.History("live"); len(h) != 1 || h[0].How != "" || !h[0].EndedAt.IsZero() {
		t.Errorf("live grant %+v", h)
	}
	for i := range HistoryTotal + 100 {
		s.table.past.add(&Grant{Key: fmt.Sprint("k", i/200)})
	}
	if n := s.table.past.all.Len(); n != HistoryTotal {
		t.Errorf("%d grants remembered, want %d", n, HistoryTotal)
	}
	if n := len(s.table.past.byKey["k"]) + len(s.History("k0")); n != 100 {
		t.Errorf("%d grants of the oldest keys are remembered, want 100", n)
	}
	if !s.Release("live", token) {
		t.Error("a live grant that is forgotten cannot be released")
	}
}

// acceptErrors is a listener that fails as told before it accepts.
type acceptErrors struct {
	net.Listener
	errs []error
}

func (l *acceptErrors) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	return l.Listener.Accept()
}

func TestServeOutlivesPassingAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		n := memnet.New(memnet.Options{})
		l, _ := n.Listen("tcp", address)
		gone := errors.New("gone")
		ended := make(chan error, 1)
		go func() {
			ended <- s.Serve(context.Background(), &acceptErrors{l, []error{syscall.EMFILE, syscall.EMFILE, syscall.ECONNABORTED}})
		}()
		nc, err := n.Dial(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		p := newPeer(t, nc, current)
		p.login("")
		synctest.Wait()
		_ = l.Close() // a listener that is gone ends Serve, and with it its connections
		p.want("FIN")
		if err := <-ended; err == nil || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
		l, _ = n.Listen("tcp", address)
		if err := s.Serve(context.Background(), &acceptErrors{l, []error{gone}}); !errors.Is(err, gone) {
			t.Errorf("Serve: %v, want %v", err, gone)
		}
	})
}

// The same over real sockets: the preface, an answer before the end, a reset.
func TestOverTCP(t *testing.T) {
	ended := make(chan Event, 16)
	s, err := New(Config{Secret: "x", FirstToken: math.MaxUint64 - 1, OnEvent: func(e Event) { ended <- e }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	dial := func() *peer {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		p := newPeer(t, nc, current)
		p.login("x")
		return p
	}
	p, q := dial(), dial()
	p.acquire("k", 0, 200, 1)
	p.want("A owner=1 token=18446744073709551614 k")
	q.acquire("k", 200, 200, 2)
	for e := range ended {
		if e.Kind == Queued {
			break
		}
	}
	_ = q.nc.(*net.TCPConn).SetLinger(0)
	_ = q.nc.Close()
	if e := <-ended; e.Kind != AttemptEnded || e.How != Dropped || e.Peer != q.nc.LocalAddr().String() {
		t.Errorf("after a reset: %+v", e)
	}
	p.send("Z" + strings.Repeat("unread", 10_000))
	p.want("E bad_frame", "FIN")
	_ = p.nc.Close()
	dial()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// FuzzServeConn: whatever a client sends, the server answers in well-formed
// frames and ends the connection soon after the client does.
func FuzzServeConn(f *testing.F) {
	auth := digest("", "n")
	f.Add(auth+"\nA\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01key\n", false, byte(7))
	f.Add(auth+"\nA\x05\x05\n\n\n\n\n\n\n\nk\nR\x00\x00\x00\x00\x00\x00\x00\x01k\n", false, byte(1))
	f.Add(auth+"\nA\x00\x00\x00\x05key\nA\x00\x00\x00\x05key\nRkey\n\n", true, byte(3))
	f.Add("\xff", true, byte(0))
	f.Fuzz(func(t *testing.T, raw string, old bool, cut byte) {
		if len(raw) > 32<<10 {
			return // the client below reads only when it has written
		}
		dialect := current
		if old {
			dialect = v0
		}
		synctest.Test(t, func(t *testing.T) {
			s, err := New(Config{Dialect: dialect, Nonce: func() string { return "n" }, QueueLimit: 2, Capacity: 6})
			if err != nil {
				t.Fatal(err)
			}
			here, there := memnet.Pipe(memnet.Options{Buffer: 1 << 20})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan struct{})
			go func() { defer close(done); s.ServeConn(ctx, there) }()
			half := min(int(cut), len(raw))
			_, _ = here.Write([]byte(raw[:half]))
			time.Sleep(time.Second)
			_, _ = here.Write([]byte(raw[half:]))
			_ = here.CloseWrite()
			// Longer than any wait but that of v0, which may be for ever.
			_ = here.SetReadDeadline(time.Now().Add(24 * time.Hour))
			p := newPeer(t, here, dialect)
			w := p.next()
			for w != "FIN" && w != "RST" && w != "nothing" {
				w = p.next()
			}
			if w == "nothing" && !old {
				t.Error("still open a day after the client's end")
			}
			_ = here.Close()
			cancel()
			<-done
			if n := len(s.Table()); s.table.used != n {
				t.Errorf("%d attempts used by %d grants and no queue", s.table.used, n)
			}
		})
	})
}
