package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/internal/memnet"
)

func TestGreeting(t *testing.T) {
	n := 0
	inBubble(t, Config{ServerID: "node-7", Nonce: func() string { n++; return strings.Repeat("x", n) }}, func(h *harness) {
		h.dialRaw().want("node-7 x")
		h.dialRaw().want("node-7 xx")
	})
	inBubble(t, Config{}, func(h *harness) {
		a, b := h.dialRaw().next(), h.dialRaw().next()
		if len(a) != len("tornwire ")+16 || a == b {
			t.Errorf("greetings %q and %q", a, b)
		}
	})
}

func TestPreface(t *testing.T) {
	for name, c := range map[string]struct {
		send func(nonce string) string
		want []string
	}{
		"right":           {func(n string) string { return digest("s3", n) + "\n" }, nil},
		"with a request":  {func(n string) string { return digest("s3", n) + "\nR\x00\x00\x00\x00\x00\x00\x00\x01k\n" }, []string{"N token=1 k"}},
		"wrong secret":    {func(n string) string { return digest("s4", n) + "\n" }, []string{"E auth_failed", "FIN"}},
		"padded":          {func(n string) string { return digest("s3", n) + "=\n" }, []string{"E auth_failed", "FIN"}},
		"empty":           {func(string) string { return "\n" }, []string{"E auth_failed", "FIN"}},
		"binary":          {func(string) string { return "\x00\xff\n" }, []string{"E auth_failed", "FIN"}},
		"longest line":    {func(string) string { return strings.Repeat("a", 256) + "\n" }, []string{"E auth_failed", "FIN"}},
		"over the limit":  {func(string) string { return strings.Repeat("a", 257) + "\n" }, []string{"E bad_frame", "FIN"}},
		"end in the line": {nil, []string{"FIN"}},
	} {
		inBubble(t, Config{Secret: "s3"}, func(h *harness) {
			p := h.dialRaw()
			_, nonce, _ := strings.Cut(p.next(), " ")
			if c.send == nil {
				p.send("abc")
				p.fin()
			} else {
				p.send(c.send(nonce))
			}
			for _, w := range c.want {
				if got := p.next(); got != w {
					t.Errorf("%s: got %q, want %q", name, got, w)
				}
			}
			if c.want == nil {
				p.quiet(time.Hour) // a right one is answered by nothing
			}
		})
	}
}

func TestPrefaceTimeout(t *testing.T) {
	inBubble(t, Config{PrefaceTimeout: 3 * time.Second}, func(h *harness) {
		p := h.dialRaw()
		p.next()
		start := time.Now()
		time.Sleep(2 * time.Second)
		p.send("abc") // starts no new limit
		p.want("FIN")
		if ms := since(start); ms != 3000 {
			t.Errorf("closed after %d ms, want 3000", ms)
		}
		h.dial().quiet(time.Hour) // none after the preface
	})
}

func TestBadFrames(t *testing.T) {
	long := strings.Repeat("k", 129)
	for _, dialect := range []string{current, v0} {
		head := "A\x00\x09\x00\x00\x00\x00\x00\x00\x00\x07"
		noLease := "A\x05\x00\x00\x00\x00\x00\x00\x00\x00\x07k\n"
		if dialect == v0 {
			head, noLease = "A\x00\x00\x00\x09", "A\x00\x05\x00\x00k\n"
		}
		for name, raw := range map[string]string{
			"unknown op": "Z\n", "server's op": "T" + head[1:] + "k\n", "zero": "\x00",
			"invalid UTF-8": head + "\xff\n", "space": head + "a b\n", "CR": head + "k\r\n",
			"no key": head + "\n", "key of 129": head + long + "\n", "tail over 192": head + strings.Repeat("k", 193),
			"lease 0": noLease,
		} {
			inBubble(t, Config{Dialect: dialect}, func(h *harness) {
				p := h.dial()
				p.send("\n\n" + p.frame("R", strings.Repeat("k", 128), make([]uint64, 1)[:boolInt(dialect == current)]...) + raw + strings.Repeat("trailing", 2000))
				if got := p.next(); !strings.HasPrefix(got, "N ") {
					t.Fatalf("%s: a good frame before it was answered %q", name, got)
				}
				for _, w := range []string{"E bad_frame", "FIN"} {
					if got := p.next(); got != w {
						t.Errorf("%s %s: got %q, want %q", dialect, name, got, w)
					}
				}
				synctest.Wait()
				if _, err := p.nc.Write([]byte("x")); err != nil {
					t.Errorf("%s %s: not left open for the client to read its answer: %v", dialect, name, err)
				}
				h.wantTold()
			})
		}
	}
}

func TestABadFrameDropsWhatWasQueued(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.Acquire("k", time.Hour)
		p := h.dial()
		p.acquire("k", 60, 9, 1)
		p.acquire("free", 0, 9, 2)
		p.send("Z\n")
		p.want("A owner=2 token=2 free", "E bad_frame", "FIN")
		h.wantTold("granted k token=1", "queued k owner=1", "granted free token=2 owner=2", "attempt_ended k dropped owner=1")
		h.wantHolder("free", 2) // a closed socket is no proof of release
	})
}

func TestNothingIsReadAfterTheServerHasHungUp(t *testing.T) {
	inBubble(t, Config{Dialect: v0, Capacity: 1}, func(h *harness) {
		h.Acquire("k", time.Hour)
		p := h.dial()
		p.send(p.frame("A", "k", 9, 9) + p.frame("R", "k") + "Z\n")
		p.want("FIN")
		h.wantHolder("k", 1)
	})
}

func TestHalfCloseKeepsWhatIsQueued(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.Acquire("a", 3*time.Second)
		h.Acquire("b", time.Hour)
		p := h.dial()
		p.acquire("b", 7, 20, 1)
		p.acquire("a", 60, 20, 2)
		p.send("A\x00") // cut short by the end
		p.fin()
		start := time.Now()
		p.want("A owner=2 token=3 a", "T owner=1 b", "FIN")
		if ms := since(start); ms != 7000 {
			t.Errorf("closed after %d ms, want 7000", ms)
		}
		h.wantHolder("a", 3)
	})
}

func TestHalfCloseWithNothingQueuedCloses(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p := h.dial()
		p.acquire("k", 60, 20, 1)
		p.fin()
		p.want("A owner=1 token=1 k", "FIN")
		h.wantHolder("k", 1)
	})
}

func TestACloseLeavesTheQueueAndKeepsTheGrant(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q, r := h.dial(), h.dial(), h.dial()
		p.acquire("k", 0, 30, 1)
		p.want("A owner=1 token=1 k")
		q.acquire("k", 60, 9, 2)
		h.told()
		r.acquire("k", 60, 9, 3)
		h.told()
		_ = p.nc.(*memnet.Conn).Reset()
		_ = q.nc.(*memnet.Conn).Reset()
		h.wantTold("attempt_ended k dropped owner=2")
		r.want("A owner=3 token=2 k") // when p's lease ended
		h.wantTold("grant_ended k expired token=1 owner=1", "granted k token=2 owner=3")
	})
}

// Only a write can tell that a client which sent FIN has gone altogether.
func TestAWriteErrorDropsWhatIsStillQueued(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.Acquire("k", time.Hour)
		p := h.dial()
		p.acquire("k", 1, 9, 1)
		p.acquire("k", 2, 9, 2)
		p.acquire("k", 60, 9, 3)
		h.told()
		_ = p.nc.Close()
		time.Sleep(2 * time.Second)
		h.wantTold("attempt_ended k timed_out owner=1", "attempt_ended k timed_out owner=2", "attempt_ended k dropped owner=3")
	})
}

func TestAClientThatDoesNotReadIsReset(t *testing.T) {
	inBubbleWith(t, Config{}, memnet.Options{Buffer: 1024}, func(h *harness) {
		h.Acquire("held", time.Hour)
		p, q := h.dial(), h.dial()
		q.acquire("held", 200, 9, 1)
		q.fin() // a queued attempt of another connection is not touched
		flood := strings.Repeat(p.frame("R", strings.Repeat("k", 128), 7), 64)
		var sent int
		for {
			n, err := p.nc.Write([]byte(flood))
			sent += n
			if err != nil {
				break
			}
			if sent > 4*OutboxLimit {
				t.Fatalf("not reset after %d bytes of requests", sent)
			}
		}
		if sent < OutboxLimit {
			t.Errorf("reset after %d bytes of requests already", sent)
		}
		r := h.dial()
		r.acquire("free", 0, 9, 1)
		r.want("A owner=1 token=2 free")
		h.wantTold("granted held token=1", "queued held owner=1", "granted free token=2 owner=1")
	})
}

// Answers that nobody asked for just now pass the limit too.
func TestAnswersThatPileUpResetTheConnection(t *testing.T) {
	inBubbleWith(t, Config{QueueLimit: 4096}, memnet.Options{Buffer: 1024}, func(h *harness) {
		key := strings.Repeat("k", 128)
		h.Acquire(key, time.Hour)
		p := h.dial()
		const n = 2*OutboxLimit/(10+128) + 20 // the writer may have taken some already
		for owner := range uint64(n) {
			p.acquire(key, 5, 9, owner)
		}
		p.acquire(key, 200, 9, n)
		h.told()
		time.Sleep(5 * time.Second)
		told := h.told()
		if len(told) != n+1 || told[n-1] != fmt.Sprintf("attempt_ended %s timed_out owner=%d", key, n-1) ||
			told[n] != fmt.Sprintf("attempt_ended %s dropped owner=%d", key, n) {
			t.Errorf("%d events, the last %q", len(told), told[len(told)-1])
		}
		w := p.next()
		for strings.HasPrefix(w, "T ") {
			w = p.next()
		}
		if w != "RST" {
			t.Errorf("ended with %q", w)
		}
	})
}

// mute is a connection that can no longer be written to.
type mute struct{ net.Conn }

func (mute) Write([]byte) (int, error) { return 0, errors.New("mute") }

func TestAWriteErrorEndsAConnectionThatIsBeingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		here, there := memnet.Pipe(memnet.Options{})
		start := time.Now()
		go func() { s.ServeConn(context.Background(), mute{there}) }()
		newPeer(t, here, current).want("FIN")
		if ms := since(start); ms != 0 {
			t.Errorf("after %d ms", ms)
		}
	})
}

func TestAClientThatDoesNotReadCannotHoldUpTheEnd(t *testing.T) {
	inBubbleWith(t, Config{}, memnet.Options{Buffer: 256}, func(h *harness) {
		p := h.dial()
		p.send(strings.Repeat(p.frame("R", strings.Repeat("k", 100), 7), 8) + "Z\n")
		synctest.Wait()
		start := time.Now()
		for h.conns.Load() > 0 && since(start) < 60_000 {
			time.Sleep(100 * time.Millisecond)
		}
		if ms := since(start); ms > (FlushTimeout + DrainTimeout).Milliseconds() {
			t.Errorf("still there after %d ms", ms)
		}
	})
}

func TestConnectionLimit(t *testing.T) {
	inBubble(t, Config{ConnLimit: 2}, func(h *harness) {
		p := h.dial()
		h.dial()
		h.dialRaw().want("FIN")
		p.fin()
		p.want("FIN")
		_ = p.nc.Close()
		synctest.Wait()
		h.dial().quiet(time.Second)
	})
}

func TestServeEndsWithEveryConnection(t *testing.T) {
	var held *harness
	inBubble(t, Config{}, func(h *harness) {
		held = h
		h.Acquire("k", time.Hour)
		h.dialRaw()
		p := h.dial()
		p.acquire("k", 60, 9, 1)
		q := h.dial()
		q.acquire("k", 60, 9, 2)
		q.fin()
		h.told()
	})
	if n := len(held.events); n != 2 {
		t.Errorf("%d attempts dropped at the end, want 2", n)
	}
}

func TestServeConnOverAPipe(t *testing.T) {
	s, err := New(Config{Dialect: v0})
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe() // no half-close: the end is a close
	done := make(chan struct{})
	go func() { defer close(done); s.ServeConn(context.Background(), there) }()
	p := newPeer(t, here, v0)
	p.login("")
	p.acquire("k", 0, 9, 0)
	p.want("A token=1 k")
	p.send("Z")
	p.want("E bad_frame", "FIN")
	<-done
}
