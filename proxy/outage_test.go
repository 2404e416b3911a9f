package proxy_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// refused tells whether nobody listens.
func (b *bed) refused(addr string) bool {
	c, err := b.tr.dial(context.Background(), "tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// downUntil answers dials with an error until a time has come.
func downUntil(b *bed, end time.Duration) func(context.Context, int) error {
	return func(context.Context, int) error {
		if time.Since(b.began) < end {
			return errDown
		}
		return nil
	}
}

// TestOutage: a client whose server cannot be reached is reset, and from then on nobody
// listens, at any door, until a probe reaches the server; live sessions go on. The probe
// is ended in order.
func TestOutage(t *testing.T) {
	inBubbles(t, func(t *testing.T, tr transport) {
		b, a := waitingBed(t, tr, proxy.Config{Unreachable: proxy.Refuse}, after(0))
		other := b.listen()
		endOther := b.serve(other, "c2")
		cl, sv := b.connect()
		a.set(downUntil(b, time.Second))
		b.dial(other.Addr().String()).wantAll("client", "", history.RST)
		synctest.Wait()
		want := time.Duration(0)
		for pause := proxy.RetryFirst; want < time.Second; pause *= 2 {
			want += pause
		}
		time.Sleep(want - 1)
		synctest.Wait()
		b.wantRefused(b.addr)
		b.wantRefused(other.Addr().String())
		play(cl, sv, exchange)
		cl.wantGot("client", greeting+acquired+released, "")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		probe, err := b.up.Accept()
		must(t, err)
		pr := b.newPeer(probe)
		if tr.secure() {
			must(t, probe.(*tlsPeer).Handshake())
			time.Sleep(time.Nanosecond)
		}
		pr.send(greeting)
		parted := time.Now()
		pr.wantAll("server", "", history.FIN)
		if took := time.Since(parted); took > 0 {
			t.Errorf("the probe ended after %v", took)
		}
		must(t, probe.Close())
		b.dialed++ // it has failed once
		b.wantTalk(b.addr)
		b.wantTalk(other.Addr().String())
		endOther()
		must(t, <-b.served)
		ev := b.stop()
		if lost, back := ofKind(ev, history.ServerLost), ofKind(ev, history.ServerBack); len(lost) != 1 || len(back) != 1 || lost[0].Detail != errDown.Error() {
			t.Errorf("told %+v, %+v", lost, back)
		}
		if d := details(ev); !slices.Equal(d, []string{"", errDown.Error(), "", ""}) {
			t.Errorf("dialled: %q", d)
		}
	})
}

// TestOutageEnds: Serve ends at once, without an error, while nobody listens. Another
// door then looks for the server; a proxy that has none left forgets the outage.
func TestOutageEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, a := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Refuse}, nil)
		a.set(downUntil(b, time.Hour))
		other := b.listen()
		endOther := b.serve(other, "c2")
		b.dial(b.addr).wantAll("client", "", history.RST)
		time.Sleep(time.Minute)
		for _, end := range []func(){endOther, b.end} {
			before, _ := a.now()
			time.Sleep(time.Minute)
			if at, _ := a.now(); len(at) == len(before) {
				t.Error("nobody looks for the server")
			}
			began := time.Now()
			end()
			must(t, <-b.served)
			if took := time.Since(began); took > 0 {
				t.Errorf("the end took %v", took)
			}
		}
		before, _ := a.now()
		time.Sleep(time.Hour)
		if at, _ := a.now(); len(at) > len(before) {
			t.Error("somebody still looks for the server")
		}
		l := b.listen()
		b.end = b.serve(l, "c3")
		synctest.Wait()
		b.wantTalkBehind(l.Addr().String(), 1)
		b.stop()
	})
}

// wantTalkBehind is wantTalk behind a number of dials that have failed.
func (b *bed) wantTalkBehind(addr string, failed int) {
	b.t.Helper()
	b.dialed += failed
	b.wantTalk(addr)
}

// TestOutageProbeHangs: the end of Serve breaks off a probe.
func TestOutageProbeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, a := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Refuse}, func(context.Context, int) error { return errDown })
		b.dial(b.addr).wantAll("client", "", history.RST)
		a.set(never)
		time.Sleep(time.Second)
		began := time.Now()
		b.stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestOutagePartingLimit: a probe whose server does not end it is closed all the same,
// and holds nobody up.
func TestOutagePartingLimit(t *testing.T) {
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, a := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Refuse}, func(context.Context, int) error { return errDown })
			b.dial(b.addr).wantAll("client", "", history.RST)
			a.set(after(0))
			c, err := b.up.Accept()
			must(t, err)
			synctest.Wait()
			began := time.Now()
			b.wantTalkBehind(b.addr, 1)
			if took := time.Since(began); took > 0 {
				t.Errorf("listened %v later", took)
			}
			open := func() bool {
				_, err := c.Write([]byte("x"))
				return err == nil
			}
			time.Sleep(proxy.PartingLimit - 1)
			if !open() {
				t.Error("the probe was closed early")
			}
			if !stop {
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				_ = open() // a closed connection takes one more
				if open() {
					t.Error("the probe is still open")
				}
			}
			began = time.Now()
			b.stop()
			if took := time.Since(began); took > 0 {
				t.Errorf("the end took %v", took)
			}
			_ = c.Close()
		})
	}
}

// TestOutageAndRefusal: a door that a rule has shut stays shut when the rule's time is
// over, until the server is back.
func TestOutageAndRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, a := waitingBed(t, inMemory(0), proxy.Config{
			Unreachable: proxy.Refuse, Rules: rules(t, onOpen(t, "refuse", faults.Trigger{Client: "c2", ClientNth: 1})),
		}, nil)
		a.set(downUntil(b, time.Minute))
		other := b.listen()
		endOther := b.serve(other, "c2")
		synctest.Wait()
		b.dial(b.addr).wantAll("client", "", history.RST)
		for time.Since(b.began) < time.Minute {
			time.Sleep(99 * ms)
			if !b.refused(b.addr) || !b.refused(other.Addr().String()) {
				t.Fatalf("somebody listens after %v", time.Since(b.began))
			}
		}
		time.Sleep(proxy.RetryMost)
		synctest.Wait()
		b.closeWaiting()
		b.wantTalkBehind(b.addr, 1)
		b.wantTalk(other.Addr().String())
		endOther()
		must(t, <-b.served)
		if ev := b.stop(); opens(ev) != "0:c2s.open.1 c2" || len(ofKind(ev, history.ServerLost)) != 1 {
			t.Errorf("fired %s, lost %d times", opens(ev), len(ofKind(ev, history.ServerLost)))
		}
	})
}

// TestOutageIsOfItsTime: a dial that was begun before an outage, and fails after it,
// begins no other; a door that is served during one is shut; a want of descriptors
// begins none.
func TestOutageIsOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, a := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Refuse}, never)
		cl := b.dial(b.addr)
		synctest.Wait()
		a.set(downUntil(b, time.Second))
		b.dial(b.addr).wantAll("client", "", history.RST)
		synctest.Wait()
		l := b.listen()
		endOther := b.serve(l, "c2")
		synctest.Wait()
		b.wantRefused(l.Addr().String())
		time.Sleep(proxy.RetryMost)
		synctest.Wait()
		b.closeWaiting()
		b.wantTalkBehind(l.Addr().String(), 1)
		cl.wantAll("client", "", history.RST) // of the dial that hung
		synctest.Wait()
		b.wantTalkBehind(b.addr, 1)
		a.set(func(context.Context, int) error { return &net.OpError{Op: "dial", Err: syscall.EMFILE} })
		b.dial(b.addr).wantAll("client", "", history.RST)
		a.set(after(0))
		b.wantTalkBehind(b.addr, 1)
		endOther()
		must(t, <-b.served)
		if ev := b.stop(); len(ofKind(ev, history.ServerLost)) != 1 {
			t.Errorf("lost: %+v", ofKind(ev, history.ServerLost))
		}
	})
}

// TestOutageOfMany: clients whose dials fail together begin one outage, and all doors
// are open behind it.
func TestOutageOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, a := waitingBed(t, inMemory(0), proxy.Config{Unreachable: proxy.Refuse}, func(context.Context, int) error {
			time.Sleep(time.Second)
			return errDown
		})
		other := b.listen()
		endOther := b.serve(other, "c2")
		for i := range 10 {
			b.dial([]string{b.addr, other.Addr().String()}[i%2])
		}
		time.Sleep(2 * time.Second)
		a.set(after(0))
		time.Sleep(proxy.RetryMost)
		synctest.Wait()
		b.closeWaiting()
		b.wantTalkBehind(b.addr, 10)
		b.wantTalk(other.Addr().String())
		endOther()
		must(t, <-b.served)
		if ev := b.stop(); len(ofKind(ev, history.ServerLost)) != 1 || len(ofKind(ev, history.ServerBack)) != 1 {
			t.Errorf("lost %d times, back %d times", len(ofKind(ev, history.ServerLost)), len(ofKind(ev, history.ServerBack)))
		}
	})
}

// TestOutageOverTCP: the same over real sockets, with a server that comes back.
func TestOutageOverTCP(t *testing.T) {
	up, err := tcp.listen()
	must(t, err)
	upstream := up.Addr().String()
	must(t, up.Close())
	l, err := tcp.listen()
	must(t, err)
	var lost, back atomic.Int32
	shut := make(chan struct{}, 10)
	p := proxy.New(proxy.Config{Upstream: upstream, Unreachable: proxy.Refuse, Observe: func(e history.Event) {
		switch e.Kind {
		case history.ServerLost:
			lost.Add(1)
			shut <- struct{}{}
		case history.ServerBack:
			back.Add(1)
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l, "") }()
	addr := l.Addr().String()
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the first client: %v", err)
		}
		_ = c.Close()
	}
	<-shut
	for began := time.Now(); ; {
		c, err := net.Dial("tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			_ = c.Close()
		}
		if time.Since(began) > patience {
			t.Fatalf("nobody is refused: %v", err)
		}
	}
	up, err = net.Listen("tcp", upstream)
	must(t, err)
	probe, err := up.Accept()
	must(t, err)
	_ = probe.SetDeadline(time.Now().Add(patience))
	if n, err := probe.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the probe: %d bytes, %v", n, err)
	}
	_ = probe.Close()
	for began := time.Now(); ; {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			break
		}
		if time.Since(began) > patience {
			t.Fatal("nobody listens again")
		}
	}
	cancel()
	must(t, <-served)
	_ = up.Close()
	if lost.Load() != 1 || back.Load() != 1 {
		t.Errorf("lost %d times, back %d times", lost.Load(), back.Load())
	}
}
