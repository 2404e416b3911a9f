package proxy_test

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// TestListenAgain: after an outage it is tried to listen again, after growing pauses, for as
// long as it takes, or until Serve is to end. That is told once.
func TestListenAgain(t *testing.T) {
	for _, good := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tr := inMemory(0)
			cfg := proxy.Config{Unreachable: proxy.Refuse}
			var tried []time.Time
			cfg.Listen = func(network, addr string) (net.Listener, error) {
				tried = append(tried, time.Now())
				if !good || time.Since(tried[0]) < 24*time.Hour {
					return nil, syscall.EADDRINUSE
				}
				return tr.again(network, addr)
			}
			b, a := waitingBed(t, tr, cfg, func(context.Context, int) error { return errDown })
			b.dial(b.addr).wantAll("client", "", history.RST)
			a.set(after(0))
			time.Sleep(25 * time.Hour)
			b.closeWaiting()
			if good {
				b.wantTalkBehind(b.addr, 1)
			}
			began := time.Now()
			ev := b.stop()
			if took := time.Since(began); took > 0 {
				t.Errorf("the end took %v", took)
			}
			b.wantTaken(ev)
			pause := proxy.ListenFirst
			for i := 1; i < len(tried); i++ {
				if got := tried[i].Sub(tried[i-1]); got != pause {
					t.Fatalf("pause %d: %v, wanted %v", i, got, pause)
				}
				pause = min(2*pause, proxy.ListenMost)
			}
			if least := int(24 * time.Hour / proxy.ListenMost); len(tried) < least {
				t.Errorf("tried %d times, wanted %d", len(tried), least)
			}
		})
	}
}

// wantTaken finds one event that tells that the first client's port is taken.
func (b *bed) wantTaken(ev []history.Event) {
	b.t.Helper()
	f := ofKind(ev, history.AcceptFailed)
	if len(f) != 1 || f[0].Client != "c1" || !strings.HasPrefix(f[0].Detail, "listen again on "+b.addr+": ") {
		b.t.Errorf("told %+v", f)
	}
}

// thief takes a port when the proxy would listen there again.
type thief struct {
	tr    transport
	l     net.Listener
	again chan struct{} // the proxy listens
}

func newThief(tr transport) *thief { return &thief{tr: tr, again: make(chan struct{}, 10)} }

func (th *thief) listen(network, addr string) (net.Listener, error) {
	if th.l == nil {
		l, err := th.tr.again(network, addr)
		if err != nil {
			return nil, err
		}
		th.l = l
	}
	l, err := th.tr.again(network, addr)
	if err == nil {
		th.again <- struct{}{}
	}
	return l, err
}

// TestTakenPort: somebody has taken the port when a refusal is over. Sessions go on, and
// when the port is free the proxy listens again.
func TestTakenPort(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		th := newThief(tr)
		rule := onOpen(t, "refuse", faults.Trigger{Nth: 2})
		rule.Args = faults.Args{"most": ms}
		b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, rule), Listen: th.listen})
		cl, sv := b.connect()
		b.waitKind(history.AcceptFailed)
		play(cl, sv, exchange)
		cl.wantGot("client", greeting+acquired+released, "")
		must(t, th.l.Close())
		<-th.again
		b.wantTalk(b.addr)
		b.wantTaken(b.stop())
	})
}

// TestTakenPortAfterOutage: the same behind an outage.
func TestTakenPortAfterOutage(t *testing.T) {
	test := func(t *testing.T, tr transport) {
		th := newThief(tr)
		b, a := waitingBed(t, tr, proxy.Config{Unreachable: proxy.Refuse, Listen: th.listen}, func(context.Context, int) error { return errDown })
		if c, err := b.tryDial(b.addr); err == nil { // it may have been reset already
			b.newPeer(c)
		}
		b.waitKind(history.ServerLost)
		a.set(after(0))
		probe, err := b.up.Accept()
		must(t, err)
		must(t, probe.Close())
		b.waitKind(history.AcceptFailed)
		must(t, th.l.Close())
		<-th.again
		b.wantTalkBehind(b.addr, 1)
		b.wantTaken(b.stop())
	}
	t.Run("tcp", func(t *testing.T) { test(t, tcp) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, inMemory(0)) })
	})
}

// TestListenAgainExhausted: a refusal's end waits for descriptors.
func TestListenAgainExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := inMemory(0)
		cfg := proxy.Config{Rules: rules(t, onOpen(t, "refuse", faults.Trigger{Nth: 1}))}
		tries := 0
		cfg.Listen = func(network, addr string) (net.Listener, error) {
			if tries++; tries < 5 {
				return nil, &net.OpError{Op: "listen", Err: syscall.EMFILE}
			}
			return tr.again(network, addr)
		}
		b, _ := waitingBed(t, tr, cfg, after(0))
		time.Sleep(time.Minute)
		b.wantTalk(b.addr)
		b.stop()
	})
}
