package proxy_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tornwire/history"
	"tornwire/proxy"
)

// hanging is a server whose backlog is full, so that a connection to it neither comes
// about nor is refused. room makes it one that answers.
func hanging(t *testing.T) (addr string, room func() net.Listener) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), "listener")
	t.Cleanup(func() { _ = f.Close() })
	must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, syscall.Listen(fd, 0))
	sa, err := syscall.Getsockname(fd)
	must(t, err)
	addr = fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
	c, err := net.Dial("tcp", addr) // the one that a backlog of 0 holds
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return addr, func() net.Listener {
		must(t, syscall.Listen(fd, 100))
		l, err := net.FileListener(f)
		must(t, err)
		c, err := l.Accept()
		must(t, err)
		_ = c.Close()
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
}

// plain serves with net's own dialer.
func plain(t *testing.T, cfg proxy.Config) (b *bed) {
	l, err := tcp.listen()
	must(t, err)
	b = &bed{t: t, tr: tcp, began: time.Now(), rec: history.NewRecorder(), served: make(chan error, 1), addr: l.Addr().String()}
	cfg.Recorder = b.rec
	b.px = proxy.New(cfg)
	b.end = b.serve(l, "c1")
	return b
}

// TestHangingOverTCP: while a server hangs, every client is accepted; one that resets
// ends its dial, the others' end in time.
func TestHangingOverTCP(t *testing.T) {
	const limit, clients = 700 * ms, 20
	addr, _ := hanging(t)
	b := plain(t, proxy.Config{Upstream: addr, DialTimeout: limit})
	var all []*peer
	for range clients {
		all = append(all, b.dial(b.addr))
	}
	b.waitFor(clients, "session", func(e history.Event) bool { return e.Kind == history.SessionOpened })
	all[0].reset()
	for _, cl := range all[1:] {
		cl.wantAll("client", "", history.RST)
	}
	ev := b.stop()
	opened := map[int]time.Duration{}
	var left []int
	for _, e := range ev {
		switch e.Kind {
		case history.SessionOpened:
			opened[e.Session] = e.At
		case history.ServerDialed:
			if strings.Contains(e.Detail, "the client left") {
				left = append(left, e.Session)
			} else if took := e.At - opened[e.Session]; took < limit || !strings.HasSuffix(e.Detail, ": no connection within 700ms") {
				t.Errorf("session %d: %s after %v", e.Session, e.Detail, took)
			}
		}
	}
	if !slices.Equal(left, []int{1}) {
		t.Errorf("sessions %v ended their dials", left)
	}
}

// TestHangingEnds: the end of Serve breaks dials off that are far from their limit.
func TestHangingEnds(t *testing.T) {
	addr, _ := hanging(t)
	b := plain(t, proxy.Config{Upstream: addr})
	cl := b.dial(b.addr)
	b.waitKind(history.SessionOpened)
	began := time.Now()
	ev := b.stop()
	if took := time.Since(began); took > proxy.DialLimit/2 {
		t.Errorf("it took %v", took)
	}
	cl.wantAll("client", "", history.RST)
	wantEnds(t, ev, "client rst sent by teardown")
}

// TestHangingRecovers: what a client sent while its server hung is delivered when that
// answers, its FIN behind it, and later clients are served at once.
func TestHangingRecovers(t *testing.T) {
	addr, room := hanging(t)
	b := plain(t, proxy.Config{Upstream: addr, Grammar: grammar})
	cl := b.dial(b.addr)
	cl.send(auth, acquire)
	cl.closeWrite()
	b.waitEndSeen(history.ClientSide, history.FIN)
	b.up = room()
	c, err := b.up.Accept()
	must(t, err)
	sv := b.newPeer(c)
	sv.wantAll("server", auth+acquire, history.FIN)
	sv.send(greeting)
	sv.closeWrite()
	cl.wantAll("client", greeting, history.FIN)
	b.dialed++
	for range 3 {
		b.wantTalk(b.addr)
	}
	b.stop()
}

// TestOwnDialer: net's dialer reaches a server, and tells of one that is not there.
func TestOwnDialer(t *testing.T) {
	up, err := tcp.listen()
	must(t, err)
	b := plain(t, proxy.Config{Upstream: up.Addr().String(), Grammar: grammar})
	b.up = up
	b.wantTalk(b.addr)
	must(t, up.Close())
	c, err := net.Dial("tcp", b.addr)
	if err == nil {
		b.newPeer(c).wantAll("client", "", history.RST)
	}
	b.waitFor(2, "dial", func(e history.Event) bool { return e.Kind == history.ServerDialed })
	if d := details(b.stop()); len(d) != 2 || !strings.Contains(d[1], "connection refused") {
		t.Errorf("dialled: %q", d)
	}
}

// BenchmarkOpen opens and resets sessions.
func BenchmarkOpen(b *testing.B) {
	up, err := tcp.listen()
	if err != nil {
		b.Fatal(err)
	}
	defer up.Close()
	go func() {
		for {
			c, err := up.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("x"))
				_, _ = c.Read(make([]byte, 1))
				_ = c.Close()
			}()
		}
	}()
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){"own": nil, "given": (&net.Dialer{}).DialContext} {
		b.Run(name, func(b *testing.B) {
			l, err := tcp.listen()
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			served := make(chan error, 1)
			go func() {
				served <- proxy.New(proxy.Config{Grammar: grammar, Upstream: up.Addr().String(), Dial: dial}).Serve(ctx, l, "")
			}()
			b.ReportAllocs()
			for b.Loop() {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
			cancel()
			<-served
		})
	}
}
