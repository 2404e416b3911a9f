package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

// TestHeldClient: a client is held, and its server tried again after growing pauses. What
// it sends is read all the time.
func TestHeldClient(t *testing.T) {
	inBubbles(t, func(t *testing.T, tr transport) {
		const failures = 10
		b, a := waitingBed(t, tr, proxy.Config{Unreachable: proxy.Hold}, func(_ context.Context, n int) error {
			if n <= failures {
				return errDown
			}
			return nil
		})
		b.wantTalk(b.addr)
		want := []time.Duration{0}
		for pause := proxy.RetryFirst; len(want) <= failures; pause = min(2*pause, proxy.RetryMost) {
			want = append(want, want[len(want)-1]+pause)
		}
		at, _ := a.now()
		if !slices.Equal(at, want) || want[failures]-want[failures-1] != proxy.RetryMost {
			t.Errorf("tried at %v, wanted %v", at, want)
		}
		if d := details(b.stop()); len(d) != failures+1 || d[failures-1] != errDown.Error() || d[failures] != "" {
			t.Errorf("dialled: %q", d)
		}
	})
}

// TestHeldClientLeaves: a client that leaves in a pause is not tried for again, and the end of
// the proxy does not wait.
func TestHeldClientLeaves(t *testing.T) {
	for way, want := range map[string][]string{
		"rst":   {"client rst seen"},
		"fin":   {"client fin seen", "client rst sent by dial"},
		"serve": {"client rst sent by teardown"},
	} {
		inBubbles(t, func(t *testing.T, tr transport) {
			b, a := waitingBed(t, tr, proxy.Config{Unreachable: proxy.Hold}, func(context.Context, int) error { return errDown })
			cl := b.dial(b.addr)
			sent := ""
			if !tr.secure() && way != "fin" {
				sent = auth
				cl.send(sent)
			}
			time.Sleep(time.Minute)
			before, _ := a.now()
			switch way {
			case "rst":
				cl.reset()
			case "fin":
				if tr.secure() {
					must(t, cl.Conn.(*tlsPeer).truncate())
				} else {
					cl.closeWrite()
				}
			case "serve":
				b.end()
			}
			synctest.Wait()
			began := time.Now()
			ev := b.stop()
			wantEnds(t, ev, want...)
			if at, _ := a.now(); len(at) != len(before) || time.Since(began) > 0 {
				t.Errorf("%s: tried %d times more, ended %v later", way, len(at)-len(before), time.Since(began))
			}
			if w := checkRecord(t, ev)[wireKey{1, c2s}]; !w.is(sent, "") {
				t.Errorf("%s: recorded: %+v", way, w)
			}
		})
	}
}

// TestHeldHalfClosed: a held client that has sent bytes and a FIN, in a pause or while the
// server is dialled, is tried for like others until HalfClosedHold. What it sent is
// delivered before the FIN, and it hears the answer.
func TestHeldHalfClosed(t *testing.T) {
	for _, slow := range []bool{false, true} {
		for _, back := range []time.Duration{proxy.HalfClosedHold - 4*proxy.RetryMost, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				const fin = time.Hour
				up := time.Now().Add(fin + back)
				b, a := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Hold}, func(ctx context.Context, _ int) error {
					if !slow && time.Now().Before(up) {
						return errDown
					}
					return after(time.Until(up))(ctx, 1)
				})
				cl := b.dial(b.addr)
				cl.send(auth)
				time.Sleep(fin)
				cl.send(acquire)
				cl.closeWrite()
				before, _ := a.now()
				if back > proxy.HalfClosedHold {
					cl.wantAll("client", "", history.RST)
					if took := time.Since(b.began); took != fin+proxy.HalfClosedHold {
						t.Errorf("let go after %v", took)
					}
					if at, _ := a.now(); len(at)-len(before) < 3 {
						t.Errorf("tried %d times more", len(at)-len(before))
					}
					wantEnds(t, b.stop(), "client fin seen", "client rst sent by dial")
					return
				}
				c, err := b.up.Accept()
				must(t, err)
				sv := b.newPeer(c)
				sv.wantAll("server", auth+acquire, history.FIN)
				sv.send(greeting, acquired)
				sv.closeWrite()
				cl.wantAll("client", greeting+acquired, history.FIN)
				wantEnds(t, b.stop(), "client fin seen", "server fin sent by forwarded", "server fin seen", "client fin sent by forwarded")
			})
		}
	}
}

// TestHeldHalfClosedResets: such a client is let go when it resets, in a pause or while the
// server is dialled.
func TestHeldHalfClosedResets(t *testing.T) {
	for _, slow := range []bool{false, true} {
		onEach(t, func(t *testing.T, tr transport) {
			if tr.secure() {
				return // it is let go at its FIN
			}
			b, a := waitingBed(t, tr, proxy.Config{Unreachable: proxy.Hold}, func(ctx context.Context, n int) error {
				if slow {
					return never(ctx, n)
				}
				return errDown
			})
			cl := b.dial(b.addr)
			cl.send(auth)
			cl.closeWrite()
			b.waitEndSeen(history.ClientSide, history.FIN)
			if tr.virtual {
				time.Sleep(10*time.Second + proxy.RetryFirst/2)
			}
			began := time.Now()
			cl.reset()
			b.waitEndSeen(history.ClientSide, history.RST)
			if took := time.Since(began); tr.virtual && took > proxy.LookAgain {
				t.Errorf("seen after %v", took)
			}
			if tr.virtual {
				synctest.Wait()
				before, ended := a.now()
				time.Sleep(time.Minute)
				if at, _ := a.now(); len(at) > len(before) || len(ended) < len(before) {
					t.Errorf("tried %d times more", len(at)-len(before))
				}
			}
			ev := b.stop()
			wantEnds(t, ev, "client fin seen", "client rst seen")
			if w := checkRecord(t, ev)[wireKey{1, c2s}]; !w.is(auth, "") {
				t.Errorf("recorded: %+v", w)
			}
		})
	}
}

// TestClose: a client gets a FIN and is read until it ends too.
func TestClose(t *testing.T) {
	for _, dialled := range []time.Duration{0, time.Second} { // watched meanwhile or not
		inBubbles(t, func(t *testing.T, tr transport) {
			b, _ := waitingBed(t, tr, proxy.Config{Unreachable: proxy.Close}, func(context.Context, int) error {
				time.Sleep(dialled)
				return errDown
			})
			c, err := tr.dial(context.Background(), "tcp", b.addr)
			must(t, err)
			cl := b.newPeer(c)
			if tr.secure() {
				go func() { _ = b.tr.client(c).(*tlsPeer).Handshake() }()
				time.Sleep(dialled + 1)
			} else {
				cl.send(auth)
				cl.wantAll("client", "", history.FIN)
				time.Sleep(time.Second)
				cl.send(acquire)
			}
			must(t, c.(*memnet.Conn).CloseWrite())
			synctest.Wait()
			ev := b.stop()
			wantEnds(t, ev, "client fin sent by dial", "client fin seen")
			if w := checkRecord(t, ev)[wireKey{1, c2s}]; !tr.secure() && !w.is(auth+acquire, "") {
				t.Errorf("recorded: %+v", w)
			}
		})
	}
}

// TestCloseLimit: a client that got a FIN and does not go is reset, when its time is
// over or the proxy's.
func TestCloseLimit(t *testing.T) {
	for _, end := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Close}, func(context.Context, int) error { return errDown })
			cl := b.dial(b.addr)
			want, how := proxy.TurnAwayLimit, "client rst sent by dial"
			if end > 0 {
				time.AfterFunc(end, b.end)
				want, how = end, "client rst sent by teardown"
			}
			for err := error(nil); err == nil; _, err = cl.Write([]byte("\n")) {
				time.Sleep(ms)
			}
			if took := time.Since(b.began); took < want || took > want+2*ms {
				t.Errorf("reset after %v, not %v", took, want)
			}
			wantEnds(t, b.stop(), "client fin sent by dial", how)
		})
	}
}

// TestCloseOverTCP: the FIN is not overtaken by a reset, although the client had
// sent something.
func TestCloseOverTCP(t *testing.T) {
	gone, err := tcp.listen()
	must(t, err)
	must(t, gone.Close())
	b := newBed(t, tcp, proxy.Config{Unreachable: proxy.Close, Upstream: gone.Addr().String()})
	for range 20 {
		cl := b.dial(b.addr)
		_, _ = cl.Write([]byte(auth))
		cl.wantAll("client", "", history.FIN)
		_ = cl.Close()
	}
	b.stop()
}

// TestWaitLimit: no more than WaitLimit clients wait. The newest is turned away, at
// once, until one has left.
func TestWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Close}, never)
		var conns []net.Conn
		for range proxy.WaitLimit {
			c, err := b.tr.dial(context.Background(), "tcp", b.addr)
			must(t, err)
			conns = append(conns, c)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ev, _ := b.rec.Events(0); len(ofKind(ev, history.SessionOpened)) != proxy.WaitLimit || len(ofKind(ev, history.ServerDialed)) > 0 {
			t.Error("one was turned away early")
		}
		b.dial(b.addr).wantAll("client", "", history.RST)
		if d := details(b.events(history.ServerDialed)); len(d) != 1 || d[0] != fmt.Sprintf("%d clients wait for the server, no more may", proxy.WaitLimit) {
			t.Errorf("told %q", d)
		}
		must(t, conns[0].(*memnet.Conn).Reset())
		synctest.Wait()
		cl := b.dial(b.addr)
		time.Sleep(time.Second)
		cl.wantGot("client", "", "")
		b.stop() // all end at once
		if took := time.Since(b.began); took != 2*time.Second {
			t.Errorf("the end came at %v", took)
		}
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

// TestNobodyIsHeldUp: while clients wait for a server that hangs, others are served.
func TestNobodyIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, a := waitingBed(t, inMemory(0), proxy.Config{}, after(0))
		cl, sv := b.connect()
		a.set(never)
		for range 1000 {
			b.wantOpen(b.addr)
		}
		synctest.Wait()
		play(cl, sv, exchange)
		cl.wantGot("client", greeting+acquired+released, "")
		a.set(after(0))
		b.wantTalk(b.addr)
		if took := time.Since(b.began); took != 0 {
			t.Errorf("it took %v", took)
		}
		b.stop()
	})
}

// closeWaiting closes the connections that wait to be accepted by the server.
func (b *bed) closeWaiting() {
	l := b.up.(*memnet.Listener)
	for {
		_ = l.SetDeadline(time.Now().Add(1))
		c, err := l.Accept()
		if err != nil {
			break
		}
		_ = c.Close()
	}
	_ = l.SetDeadline(time.Time{})
}

// TestFlapping: a server that comes and goes leaves nobody behind and nothing stuck.
func TestFlapping(t *testing.T) {
	for _, mode := range []proxy.Unreachable{proxy.Reset, proxy.Refuse, proxy.Close, proxy.Hold} {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Bool
			b, _ := waitingBed(t, inMemory(0), proxy.Config{Unreachable: mode}, func(ctx context.Context, n int) error {
				switch {
				case !down.Load():
					return nil
				case n%3 == 0:
					return never(ctx, n)
				}
				return errDown
			})
			for range 50 {
				down.Store(true)
				for range 5 {
					if c, err := b.tr.dial(context.Background(), "tcp", b.addr); err == nil {
						b.newPeer(c)
					} else if mode != proxy.Refuse || !errors.Is(err, syscall.ECONNREFUSED) {
						t.Error(err)
					}
					time.Sleep(10 * ms)
				}
				down.Store(false)
				time.Sleep(5 * time.Minute)
				b.closeWaiting()
				cl := b.dial(b.addr)
				c, err := b.up.Accept()
				must(t, err)
				sv := b.newPeer(c)
				sv.send(greeting)
				cl.wait(len(greeting))
				cl.wantGot("client", greeting, "")
			}
			b.stop()
		})
	}
}
