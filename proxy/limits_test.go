package proxy_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

// TestQueueLimit: what is held is read up to the limit, and no byte more than
// one read past it; then the sender is not read, and nothing is lost.
func TestQueueLimit(t *testing.T) {
	const small = 1 << 10 // bytes that the network itself holds
	for _, over := range []int{0, 1, 5 * proxy.ReadSize} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, inMemory(small), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
				ID: "hold", Fault: fault(t, "hold"), Trigger: faults.Trigger{Dir: s2c, Op: "greeting"},
			})})
			cl, sv := b.connect()
			down := greeting + strings.Repeat("?", proxy.QueueLimit-len(greeting)+over) // opaque: few events
			done := make(chan struct{})
			go func() {
				defer close(done)
				sv.send(down)
			}()
			time.Sleep(time.Second)
			received := 0
			for _, e := range b.events(history.Received) {
				received += e.N
			}
			if most := min(len(down), proxy.QueueLimit+small); received < min(len(down), proxy.QueueLimit) || received > most {
				t.Errorf("%d bytes over: %d were read, the limit is %d", over, received, proxy.QueueLimit)
			}
			select {
			case <-done:
				if over > 2*small {
					t.Error("the sender got rid of everything")
				}
			default:
				if over <= 1 {
					t.Errorf("%d bytes over: the sender was not read", over)
				}
			}
			cl.wantGot("client", "", "")
			cl.wait(len(down))
			if time.Since(b.began) != 3500*ms {
				t.Errorf("delivered after %v", time.Since(b.began))
			}
			got, _, _ := cl.now()
			if got != down {
				t.Errorf("%d bytes over: %d bytes delivered, not %d", over, len(got), len(down))
			}
			b.end()
			<-b.served
		})
	}
}

// TestCutFreesTheQueue: a sender that waits because of the limit is read again
// once its bytes have nowhere to go.
func TestCutFreesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "hold", Fault: fault(t, "hold"), Trigger: faults.Trigger{Dir: s2c, Op: "greeting"}},
			faults.Rule{ID: "cut", Fault: fault(t, "truncate-silence"), Trigger: faults.Trigger{Dir: c2s, Op: "auth"}},
		)})
		cl, sv := b.connect()
		sent := false
		go func() {
			sv.send(greeting + "?" + strings.Repeat("x", 2*proxy.QueueLimit))
			sv.closeWrite()
			sent = true
		}()
		time.Sleep(time.Second)
		if sent {
			t.Fatal("nothing held the sender up")
		}
		cl.send(auth)
		synctest.Wait()
		if !sent || time.Since(b.began) != time.Second {
			t.Error("the sender still waits")
		}
		b.waitEndSeen(history.ServerSide, history.FIN)
		cl.wantGot("client", "", "")
		b.stop()
	})
}

// TestSilentLimit: a silenced session whose peers have both ended is given up.
func TestSilentLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
			ID: "cut", Fault: fault(t, "truncate-silence"), Trigger: faults.Trigger{Dir: c2s, Op: "auth"},
		})})
		cl, sv := b.connect()
		cl.send(auth)
		cl.closeWrite()
		time.Sleep(time.Hour) // one peer is still there
		cl.wantGot("client", "", "")
		sv.closeWrite()
		time.Sleep(proxy.SilentLimit - 1)
		synctest.Wait()
		cl.wantGot("client", "", "")
		sv.wantGot("server", "", "")
		time.Sleep(time.Nanosecond)
		cl.wantAll("client", "", history.FIN)
		sv.wantAll("server", "", history.FIN)
		b.stop()
	})
}

// TestBackPressure: without a rule a receiver that does not read holds its
// sender up, and nothing is kept.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100
		b := newBed(t, inMemory(size), decoded())
		c, err := b.tr.dial(t.Context(), "tcp", b.addr)
		must(t, err)
		s, err := b.up.Accept()
		must(t, err)
		sv := b.newPeer(s)
		down := greeting + strings.Repeat(acquired, 100)
		go sv.send(down)
		synctest.Wait()
		if n := sv.Conn.(*memnet.Conn).Written(); n > 4*size {
			t.Errorf("%d bytes went nowhere", n)
		}
		cl := b.newPeer(c)
		cl.wait(len(down))
		cl.wantGot("client", down, "")
		b.stop()
	})
}

// TestAcked: over memory a byte counts as acknowledged when its receiver has
// read it; every session is asked, at any time, before its connections close,
// and at a cut.
func TestAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
			ID: "cut", Fault: fault(t, "truncate-fin"), At: 4, Trigger: faults.Trigger{Dir: s2c, Op: "A", Nth: 2},
		})})
		c, err := b.tr.dial(t.Context(), "tcp", b.addr)
		must(t, err)
		s, err := b.up.Accept()
		must(t, err)
		sv := b.newPeer(s)
		cl2, sv2 := b.connect()
		sv.send(greeting + acquired)
		_, err = c.Write([]byte(auth))
		must(t, err)
		play(cl2, sv2, exchange[:1])
		synctest.Wait()
		b.px.RecordAcked()
		type acked struct {
			session int
			dir     frames.Direction
			n, of   int
		}
		seen := 0
		news := func() (out []acked) {
			all := b.events(history.Acked)
			for _, e := range all[seen:] {
				out = append(out, acked{e.Session, e.Dir, e.N, e.Total})
			}
			seen = len(all)
			return out
		}
		n, g := len(greeting+acquired), len(greeting)
		if got, want := news(), []acked{{1, c2s, len(auth), len(auth)}, {1, s2c, 0, n}, {2, c2s, 0, 0}, {2, s2c, g, g}}; !slices.Equal(got, want) {
			t.Errorf("before: %+v, wanted %+v", got, want)
		}
		sv2.send(acquired)
		cl2.wait(g + 4)
		synctest.Wait()
		got := news()
		if len(got) != 2 || got[0].session != 2 || got[0].of != g+4 || got[1] != (acked{2, c2s, 0, 0}) {
			t.Errorf("at the cut: %+v", got)
		}
		cl := b.newPeer(c)
		cl.wait(n)
		sv.reset()
		<-cl.ended
		synctest.Wait()
		if got, want := news(), []acked{{1, s2c, n, n}, {1, c2s, len(auth), len(auth)}, {1, s2c, n, n}}; !slices.Equal(got, want) {
			t.Errorf("at the end: %+v, wanted %+v", got, want)
		}
		b.stop()
	})
}

// TestAckedOverTCP: the kernel is asked. What the server sends last carries the
// acknowledgement of all that it got.
func TestAckedOverTCP(t *testing.T) {
	b := newBed(t, tcp, decoded())
	cl, sv := b.connect()
	play(cl, sv, exchange)
	b.waitFor(1, "accepted release", func(e history.Event) bool {
		return e.Kind == history.WriteAccepted && e.Dir == c2s && e.Frame.Op == "R"
	})
	b.acknowledged(len(auth + acquire + release))
	b.stop()
}

// TestKeep: clients that are still connected at the end are kept, usable, if
// that is asked for; others are not.
func TestKeep(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		kept := make(chan net.Conn, 3)
		cfg := decoded()
		cfg.Keep = func(c net.Conn) { kept <- c }
		b := newBed(t, tr, cfg)
		cl, sv := b.connect()
		cl2, _ := b.connect()
		cl2.closeWrite()
		b.waitEndSeen(history.ClientSide, history.FIN)
		cl3, _ := b.connect()
		cl3.reset()
		b.waitFor(2, "the end of two clients", func(e history.Event) bool {
			return e.Kind == history.EndSeen && e.Side == history.ClientSide
		})
		sv.send(greeting)
		cl.wait(len(greeting))
		ev := b.stop()
		sv.wantAll("server", "", tr.rst())
		cl2.wantAll("client 2", "", tr.rst())
		cl.wantGot("client", greeting, "")
		if len(kept) != 1 {
			t.Fatalf("%d connections were kept", len(kept))
		}
		c := <-kept
		cl.send("x")
		buf := make([]byte, 2)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "x" {
			t.Errorf("the connection kept reads %q, %v", buf[:n], err)
		}
		must(t, c.Close())
		cl.wantAll("client", greeting, history.FIN)
		for _, e := range ofKind(ev, history.EndSent) {
			if e.Session == 1 && e.Side == history.ClientSide {
				t.Errorf("ended: %+v", e)
			}
		}
	})
}

// TestKeepHeld: the connection kept gets nothing of what was held for it.
func TestKeepHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept net.Conn
		cfg := proxy.Config{Grammar: grammar, Keep: func(c net.Conn) { kept = c }, Rules: rules(t, faults.Rule{
			ID: "hold", Fault: fault(t, "hold"), Trigger: faults.Trigger{Dir: s2c, Op: "A"},
		})}
		b := newBed(t, inMemory(0), cfg)
		cl, sv := b.connect()
		sv.send(greeting + acquired)
		synctest.Wait()
		b.stop()
		synctest.Wait()
		cl.wantGot("client", greeting, "")
		if took := time.Since(b.began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		must(t, kept.Close())
	})
}
