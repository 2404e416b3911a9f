package proxy_test

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

// TestUnreachedIsForgotten: nothing is left of sessions that never reached their
// server but the count of their frames.
func TestUnreachedIsForgotten(t *testing.T) {
	const sessions = 5
	for _, mode := range []proxy.Unreachable{proxy.Reset, proxy.Close, proxy.Hold} {
		t.Run(string(mode), func(t *testing.T) {
			var freed atomic.Int32
			synctest.Test(t, func(t *testing.T) {
				tr := unrecorded(inMemory(0))
				listen := tr.listen
				tr.listen = func() (net.Listener, error) {
					l, err := listen()
					return wrapping{l, func(c net.Conn) net.Conn {
						h := &hooked{Conn: c.(*memnet.Conn)}
						runtime.AddCleanup(h, func(n int32) { freed.Add(n) }, 1)
						return h
					}}, err
				}
				down := func(context.Context, int) error {
					time.Sleep(time.Second)
					return errDown
				}
				b, a := waitingBed(t, tr, proxy.Config{Unreachable: mode}, down)
				for range sessions {
					cl := b.dial(b.addr)
					cl.send(auth, acquire)
					time.Sleep(2 * time.Second)
					cl.reset()
					<-cl.ended
				}
				time.Sleep(time.Minute)
				for range 100 { // one may still be found on a stack
					if runtime.GC(); freed.Load() >= sessions-1 {
						break
					}
				}
				if n := freed.Load(); n < sessions-1 {
					t.Errorf("%d of %d sessions are forgotten", n, sessions)
				}
				a.set(func(context.Context, int) error { return nil })
				must(t, b.px.Arm(faults.Rule{ID: "next", Fault: fault(t, "drop"), Trigger: faults.Trigger{Dir: c2s, Op: "A", Nth: sessions + 1}}))
				cl, sv := b.connect()
				cl.send(auth, acquire, release)
				synctest.Wait()
				sv.wantGot("server", auth+release, "")
				b.stop()
			})
		})
	}
}

// TestUnsureBeforeItsServer: a frame that a rule held back before the server was
// reached passes when the rule has gone.
func TestUnsureBeforeItsServer(t *testing.T) {
	for _, gone := range []time.Duration{time.Second, 3 * time.Second, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := waitingBed(t, inMemory(0), proxy.Config{}, after(3*time.Second))
			must(t, b.px.Arm(faults.Rule{
				ID: "of another key", Fault: fault(t, "drop"), TTL: gone,
				Trigger: faults.Trigger{Dir: c2s, Op: "A", Where: map[string]string{"key": "x"}},
			}))
			cl := b.dial(b.addr)
			cl.send(auth, acquire[:14])
			c, err := b.up.Accept()
			must(t, err)
			sv := b.newPeer(c)
			time.Sleep(2 * time.Second)
			sv.wantGot("server", auth+acquire[:14], "")
			b.stop()
		})
	}
}
