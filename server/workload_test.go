package server

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/internal/memnet"
)

func TestWaitTakesItsTurn(t *testing.T) {
	for _, dialect := range []string{current, v0} {
		inBubble(t, Config{Dialect: dialect}, func(h *harness) {
			own := map[string]string{current: " owner=", v0: ""}[dialect]
			of := func(n string) string {
				if own == "" {
					return ""
				}
				return own + n
			}
			p, q := h.dial(), h.dial()
			p.acquire("k", 1, 2, 1)
			h.told()
			h.Wait("k", time.Hour, 3*time.Second)
			q.acquire("k", 100, 9, 2)
			h.told()
			w := h.Table()[0].Queue
			if len(w) != 2 || w[0].Peer != "" || w[0].HasOwner || w[0].Wait != time.Hour || w[0].Lease != 3*time.Second || w[1].Peer == "" {
				t.Errorf("queue %+v", w)
			}
			time.Sleep(2 * time.Second)
			h.wantTold("grant_ended k expired token=1"+of("1"), "granted k token=2")
			g, ok := h.Holder("k")
			if !ok || g.Peer != "" || g.HasOwner || g.Wait != time.Hour || g.Lease != 3*time.Second || g.Token != 2 {
				t.Errorf("holder %+v", g)
			}
			if !h.Release("k", 2) {
				t.Error("it cannot be released")
			}
			h.wantTold("grant_ended k released token=2", "granted k token=3"+of("2"))
		})
	}
}

func TestWaitEndsByItself(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.Acquire("k", 4*time.Second)
		h.Wait("k", 3*time.Second-1, time.Second)
		h.Wait("k", 4*time.Second, time.Second) // its deadline is the very end of the lease
		h.wantTold("granted k token=1", "queued k", "queued k")
		time.Sleep(3*time.Second - 1)
		h.wantTold("attempt_ended k timed_out")
		time.Sleep(time.Second + 1)
		h.wantTold("attempt_ended k timed_out", "grant_ended k expired token=1")
		h.Wait("k", time.Second, time.Second) // free
		h.wantTold("granted k token=2")
		time.Sleep(time.Second)
		h.wantTold("grant_ended k expired token=2")
		if h.table.used != 0 || len(h.Table()) != 0 {
			t.Errorf("%d attempts left", h.table.used)
		}
	})
}

func TestWaitIsCancelled(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p := h.dial()
		h.Acquire("k", 9*time.Second)
		first := h.Wait("k", time.Hour, time.Second)
		p.acquire("k", 5, 60, 1)
		h.told()
		second := h.Wait("k", time.Hour, time.Second)
		h.told()
		first()
		first()
		h.wantTold("attempt_ended k dropped")
		h.Release("k", 1)
		p.want("A owner=1 token=2 k")
		p.release("k", 2)
		p.want("R token=2 k")
		h.wantTold("grant_ended k released token=1", "granted k token=2 owner=1", "grant_ended k released token=2 owner=1", "granted k token=3")
		second() // too late
		h.wantTold()
		h.wantHolder("k", 3)
		time.Sleep(time.Second)
		second()
		h.Wait("k", time.Second, time.Second)
		second() // nobody else's either
		h.wantTold("grant_ended k expired token=3", "granted k token=4")
	})
	inBubble(t, Config{}, func(h *harness) { // at its own deadline it has timed out
		h.Acquire("k", time.Hour)
		cancel := h.Wait("k", time.Second, time.Second)
		h.told()
		h.table.timer.Stop() // the timer is late
		time.Sleep(time.Second)
		cancel()
		h.wantTold("attempt_ended k timed_out")
	})
}

func TestWaitFillsAQueue(t *testing.T) {
	for dialect, want := range map[string]string{current: "B owner=1 k", v0: "FIN"} {
		inBubble(t, Config{Dialect: dialect, QueueLimit: 1}, func(h *harness) {
			h.Acquire("k", time.Hour)
			cancel := h.Wait("k", time.Hour, time.Second)
			p := h.dial()
			p.acquire("k", 5, 9, 1)
			p.want(want)
			h.told()
			h.Wait("k", time.Hour, time.Second)() // full for the program as well
			h.wantTold("attempt_ended k refused")
			cancel()
			q := h.dial()
			q.acquire("k", 5, 9, 2)
			h.told()
			if n := len(h.Table()[0].Queue); n != 1 {
				t.Errorf("%d in the queue", n)
			}
		})
	}
	inBubble(t, Config{Capacity: 2}, func(h *harness) {
		h.Acquire("k", time.Hour)
		cancel := h.Wait("k", time.Hour, time.Second)
		h.Wait("free", time.Hour, time.Second)
		h.wantTold("granted k token=1", "queued k", "attempt_ended free refused")
		cancel()
		h.Wait("free", time.Hour, time.Second)
		h.wantTold("attempt_ended k dropped", "granted free token=2")
	})
}

func TestWaitLimits(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		for _, c := range []struct {
			key         string
			wait, lease time.Duration
		}{
			{"k", 0, 1},
			{"k", -1, 1},
			{"k", MaxWait + 1, 1},
			{"k", 1, 0},
			{"k", 1, -1},
			{"k", 1, MaxLease + 1},
			{"", 1, 1},
			{"a b", 1, 1},
			{strings.Repeat("k", 129), 1, 1},
		} {
			h.Wait(c.key, c.wait, c.lease)()
			h.wantTold()
		}
		h.Wait(strings.Repeat("k", 128), 1, MaxLease)
		h.Wait("k", MaxWait, 1)
		if n := len(h.told()); n != 2 {
			t.Errorf("%d events at the limits", n)
		}
	})
	inBubble(t, Config{FirstToken: 1<<64 - 1}, func(h *harness) { // no token is left for it
		h.Acquire("k", time.Second)
		h.Wait("k", time.Hour, time.Second)
		h.told()
		time.Sleep(time.Second)
		h.wantTold("grant_ended k expired token=18446744073709551615", "attempt_ended k refused")
		if h.table.used != 0 {
			t.Errorf("%d attempts left", h.table.used)
		}
	})
}

func TestKeepAlive(t *testing.T) {
	for _, dialect := range []string{current, v0} {
		inBubble(t, Config{Dialect: dialect}, func(h *harness) {
			if n := h.KeepAlive(); n != 0 {
				t.Errorf("sent to %d of none", n)
			}
			raw := h.dialRaw()
			raw.next()
			p, q := h.dial(), h.dial()
			synctest.Wait()
			if n := h.KeepAlive(); n != 2 {
				t.Errorf("sent to %d, want 2", n)
			}
			p.want("keepalive ")
			q.want("keepalive ")
			raw.quiet(time.Second)
			_ = q.nc.Close()
			synctest.Wait()
			if n := h.KeepAlive(); n != 1 {
				t.Errorf("sent to %d, want 1", n)
			}
			p.acquire("k", 5, 9, 1)
			p.want("keepalive ", map[string]string{current: "A owner=1 token=1 k", v0: "A token=1 k"}[dialect])
		})
	}
}

// Whatever is being written, a keep-alive stands between two frames.
func TestKeepAliveIsNeverInsideAFrame(t *testing.T) {
	inBubbleWith(t, Config{}, memnet.Options{Buffer: 7}, func(h *harness) {
		p := h.dial()
		const rounds = 20
		synctest.Wait()
		request := p.frame("R", "key", 0x0a0a0a0a0a0a0a0a)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for range rounds {
				_, _ = p.nc.Write([]byte(request))
			}
		})
		wg.Go(func() {
			for range rounds {
				if n := h.KeepAlive(); n != 1 {
					t.Errorf("sent to %d", n)
				}
				time.Sleep(time.Millisecond)
			}
		})
		got := map[string]int{}
		for range 2 * rounds {
			time.Sleep(300 * time.Microsecond)
			got[p.next()]++
		}
		if got["keepalive "] != rounds || got["N token=723401728380766730 key"] != rounds {
			t.Errorf("%v", got)
		}
	})
}

func TestKeepAliveHasNoRoom(t *testing.T) {
	inBubbleWith(t, Config{}, memnet.Options{Buffer: 256}, func(h *harness) {
		p := h.dial()
		key := strings.Repeat("k", 128)
		request, answer := p.frame("R", key, 7), "N token=7 "+key
		const size, first = 10 + 128, 3
		p.send(strings.Repeat(request, first))
		synctest.Wait() // the writer is stuck with what it has taken
		const n = OutboxLimit/size - first
		p.send(strings.Repeat(request, n))
		synctest.Wait()
		sent := 0
		for h.KeepAlive() == 1 {
			if sent++; sent > OutboxLimit {
				t.Fatal("there is no end to it")
			}
		}
		if sent > OutboxLimit-n*size || sent < OutboxLimit-(n+first)*size {
			t.Errorf("no room after %d", sent)
		}
		for range n + first {
			p.want(answer)
		}
		for range sent {
			p.want("keepalive ")
		}
		p.acquire("k", 5, 9, 1)
		p.want("A owner=1 token=1 k") // it was not reset
	})
}

func TestHalfCloseComesBehindWhatIsQueued(t *testing.T) {
	inBubbleWith(t, Config{}, memnet.Options{Buffer: 40}, func(h *harness) {
		p := h.dial()
		for range 8 {
			p.release("k", 7)
			synctest.Wait()
		}
		if n := h.HalfClose(); n != 1 {
			t.Errorf("%d half-closed, want 1", n)
		}
		if n := h.HalfClose() + h.KeepAlive(); n != 0 {
			t.Errorf("%d are still being written to", n)
		}
		for range 8 {
			p.want("N token=7 k")
		}
		p.want("FIN")
	})
}

func TestHalfCloseGoesOnServing(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q, raw := h.dial(), h.dial(), h.dialRaw()
		raw.next()
		p.acquire("k", 5, 30, 1)
		p.want("A owner=1 token=1 k")
		q.acquire("k", 60, 30, 2)
		h.told()
		if n := h.HalfClose(); n != 3 {
			t.Errorf("%d half-closed, want 3", n)
		}
		p.want("FIN")
		q.want("FIN")
		raw.want("FIN")
		time.Sleep(time.Second)
		r := h.dial() // a later connection is whole
		p.acquire("m", 5, 30, 3)
		p.release("k", 1)
		h.wantTold("granted m token=2 owner=3", "grant_ended k released token=1 owner=1", "granted k token=3 owner=2")
		p.acquire("k", 60, 30, 4)
		p.acquire("k", 2, 30, 5)
		h.wantTold("queued k owner=4", "queued k owner=5")
		time.Sleep(2 * time.Second)
		h.wantTold("attempt_ended k timed_out owner=5")
		if n := h.conns.Load(); n != 4 {
			t.Errorf("%d connections, want 4", n)
		}
		p.fin() // now both have
		h.wantTold("attempt_ended k dropped owner=4")
		_ = q.nc.(*memnet.Conn).Reset()
		raw.fin()
		synctest.Wait()
		if n := h.conns.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		r.release("m", 2)
		r.want("R token=2 m")
		h.wantHolder("k", 3) // a closed socket is no proof of release
	})
}

func TestHalfCloseOfWhatOnlyWaits(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) { // the client had sent FIN already
		h.Acquire("k", time.Hour)
		p := h.dial()
		p.acquire("k", 60, 9, 1)
		p.fin()
		h.told()
		start := time.Now()
		if n := h.HalfClose(); n != 1 {
			t.Errorf("%d half-closed", n)
		}
		p.want("FIN")
		h.wantTold("attempt_ended k dropped owner=1")
		if n := h.conns.Load(); n != 0 || since(start) != 0 {
			t.Errorf("%d connections after %d ms", n, since(start))
		}
	})
	inBubble(t, Config{}, func(h *harness) { // it breaks the protocol later
		p := h.dial()
		synctest.Wait()
		h.HalfClose()
		p.want("FIN")
		p.send("Z\n")
		time.Sleep(DrainTimeout)
		synctest.Wait()
		if n := h.conns.Load(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
	inBubble(t, Config{Dialect: v0, QueueLimit: 1}, func(h *harness) { // a full queue still closes
		h.Acquire("k", time.Hour)
		h.Wait("k", time.Hour, time.Second)
		p := h.dial()
		synctest.Wait()
		h.HalfClose()
		p.want("FIN")
		p.acquire("k", 60, 9, 0)
		time.Sleep(DrainTimeout)
		synctest.Wait()
		if n := h.conns.Load(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
	inBubbleWith(t, Config{}, memnet.Options{Buffer: 8}, func(h *harness) { // it never reads, and goes
		raw := h.dialRaw()
		synctest.Wait() // the greeting is stuck
		if n := h.HalfClose(); n != 1 {
			t.Errorf("%d half-closed", n)
		}
		raw.fin()
		time.Sleep(FlushTimeout + DrainTimeout)
		synctest.Wait()
		if n := h.conns.Load(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
}

func TestHalfCloseNeedsATransportThatHasOne(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); s.ServeConn(context.Background(), there) }()
	p := newPeer(t, here, current)
	p.login("")
	p.release("k", 1)
	p.want("N token=1 k")
	if n := s.HalfClose(); n != 0 {
		t.Errorf("%d half-closed", n)
	}
	p.release("k", 2)
	p.want("N token=2 k")
	_ = here.Close()
	<-done
}

// Everything at once, on sockets, leaves nothing behind.
func TestDirectUseAmongClients(t *testing.T) {
	s, err := New(Config{QueueLimit: 3})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var wg, busy sync.WaitGroup
	over := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for range 20 {
				nc, err := net.Dial("tcp4", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				p := newPeer(t, nc, current)
				if _, nonce, ok := strings.Cut(p.next(), " "); ok { // else the half-close came first
					_, _ = nc.Write([]byte(digest("", nonce) + "\n" + p.frame("A", "k", 9, 1, 1)))
				}
				for w := ""; w != "FIN" && w != "RST" && !strings.HasPrefix(w, "A"); w = p.next() {
					s.KeepAlive()
					if w == "keepalive " {
						s.HalfClose()
					}
				}
				_ = nc.Close()
			}
		})
	}
	for range 2 { // they go on until the clients are done, so that nobody waits for a lease to end
		busy.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				give := s.Wait("k", time.Minute, time.Minute)
				s.Table()
				give()
				if g, ok := s.Holder("k"); ok {
					s.Release("k", g.Token)
				}
			}
		})
	}
	wg.Wait()
	close(over)
	busy.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for g, ok := s.Holder("k"); ok; g, ok = s.Holder("k") {
		s.Release("k", g.Token)
	}
	if s.table.used != 0 || len(s.live.all) != 0 || len(s.table.agenda) != 0 {
		t.Errorf("%d attempts, %d connections, %d times left", s.table.used, len(s.live.all), len(s.table.agenda))
	}
}
