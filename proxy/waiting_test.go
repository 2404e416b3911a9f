package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

var errDown = errors.New("it is down")

// attempts are a proxy's dials, each answered by a function, nil for a connection.
type attempts struct {
	mu        sync.Mutex
	began     time.Time
	at, ended []time.Duration
	answer    func(ctx context.Context, n int) error
}

func (a *attempts) begin() (n int, answer func(context.Context, int) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Since(a.began))
	return len(a.at), a.answer
}

func (a *attempts) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = append(a.ended, time.Since(a.began))
}

// now returns when the dials began and ended.
func (a *attempts) now() (began, ended []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at), slices.Clone(a.ended)
}

func (a *attempts) set(answer func(ctx context.Context, n int) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// never answers no dial.
func never(ctx context.Context, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// after answers every dial when a time has passed.
func after(d time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitingBed is a proxy over memory whose dials are answered by a function.
func waitingBed(t *testing.T, tr transport, cfg proxy.Config, answer func(ctx context.Context, n int) error) (*bed, *attempts) {
	a := &attempts{began: time.Now(), answer: answer}
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n, answer := a.begin()
		err := answer(ctx, n)
		a.end()
		if err != nil {
			return nil, err
		}
		return tr.dial(ctx, network, addr)
	}
	cfg.Grammar = grammar
	return newBed(t, tr, cfg), a
}

func received(b *bed) (n int) {
	for _, e := range b.events(history.Received) {
		n += e.N
	}
	return n
}

// details are those of the dials in a record, "" for one that succeeded.
func details(ev []history.Event) (out []string) {
	for _, e := range ofKind(ev, history.ServerDialed) {
		out = append(out, e.Detail)
	}
	return out
}

// TestDialTimeout: a dial takes as long as is configured, and no longer than
// DialLimit.
func TestDialTimeout(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{
		3 * ms: 3 * ms, 3 * time.Second: 3 * time.Second, -1: proxy.DialLimit, proxy.DialLimit + 1: proxy.DialLimit,
	} {
		inBubbles(t, func(t *testing.T, tr transport) {
			b, _ := waitingBed(t, tr, proxy.Config{DialTimeout: set}, func(ctx context.Context, n int) error {
				if until, ok := ctx.Deadline(); !ok || time.Until(until) != want {
					t.Errorf("the dial is told %v, %v", time.Until(until), ok)
				}
				return never(ctx, n)
			})
			cl := b.dial(b.addr)
			cl.wantAll("client", "", history.RST)
			if took := time.Since(b.began); took != want {
				t.Errorf("%v: given up after %v, not %v", set, took, want)
			}
			ev := b.stop()
			wantEnds(t, ev, "client rst sent by dial")
			if d := details(ev); len(d) != 1 || d[0] != fmt.Sprintf("no connection within %v", want) {
				t.Errorf("dialled: %q", d)
			}
		})
	}
}

// TestWaitingClient: what a client sends, and its FIN, are seen while its server is
// dialled, and delivered when it is reached; then it can still hear the server.
func TestWaitingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := waitingBed(t, inMemory(0), proxy.Config{}, after(3*time.Second))
		cl := b.dial(b.addr)
		cl.send(auth, acquire[:5])
		time.Sleep(proxy.WatchAfter - 1)
		synctest.Wait()
		if n := received(b); n > 0 {
			t.Errorf("%d bytes were read at once", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := received(b); n != len(auth)+5 {
			t.Errorf("%d bytes were read", n)
		}
		time.Sleep(time.Second)
		cl.send(acquire[5:])
		cl.closeWrite()
		synctest.Wait()
		ev, _ := b.rec.Events(0)
		wantEnds(t, ev, "client fin seen")
		if len(ofKind(ev, history.WriteBegun)) > 0 {
			t.Error("it was written to nobody")
		}
		c, err := b.up.Accept()
		must(t, err)
		sv := b.newPeer(c)
		sv.wantAll("server", auth+acquire, history.FIN)
		if took := time.Since(b.began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		sv.send(greeting, acquired)
		sv.closeWrite()
		cl.wantAll("client", greeting+acquired, history.FIN)
		ev = b.stop()
		wantEnds(t, ev, "client fin seen", "server fin sent by forwarded", "server fin seen", "client fin sent by forwarded")
	})
}

// TestEachIsWatched: of dials that overlap, each that lasts has its client watched in
// its own time.
func TestEachIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := waitingBed(t, inMemory(0), proxy.Config{}, func(ctx context.Context, n int) error {
			if n%3 == 2 {
				return after(ms)(ctx, n)
			}
			return never(ctx, n)
		})
		for range 9 {
			b.dial(b.addr).send(auth)
			time.Sleep(2 * ms)
		}
		time.Sleep(time.Second)
		ev := b.stop()
		opened := map[int]time.Duration{}
		for _, e := range ev {
			switch e.Kind {
			case history.SessionOpened:
				opened[e.Session] = e.At
			case history.Received:
				want := proxy.WatchAfter
				if e.Session%3 == 2 {
					want = ms
				}
				if took := e.At - opened[e.Session]; took != want {
					t.Errorf("session %d was read after %v, not %v", e.Session, took, want)
				}
			}
		}
		if n := len(ofKind(ev, history.Received)); n != 9 {
			t.Errorf("%d were read", n)
		}
	})
}

// TestDialEndsWithServe: the end of Serve ends dials that have just begun, too.
func TestDialEndsWithServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := waitingBed(t, inMemory(0), proxy.Config{}, never)
		for range 3 {
			b.dial(b.addr)
		}
		synctest.Wait()
		ev := b.stop()
		if took := time.Since(b.began); took > 0 {
			t.Errorf("it took %v", took)
		}
		if n := len(ofKind(ev, history.EndSent)); n != 3 {
			t.Errorf("%d clients were reset", n)
		}
	})
}

// TestWaitingClientGoesOn: a client that was waited for is a client like others
// afterwards, also over TLS, where it is not read before it has shaken hands.
func TestWaitingClientGoesOn(t *testing.T) {
	inBubbles(t, func(t *testing.T, tr transport) {
		b, _ := waitingBed(t, tr, proxy.Config{}, after(3*time.Second))
		b.wantTalk(b.addr)
		if took := time.Since(b.began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		b.stop()
	})
}

// TestWaitingClientResets: an RST ends the dial at once. Nothing is sent to who has
// gone.
func TestWaitingClientResets(t *testing.T) {
	for _, hold := range []proxy.Unreachable{proxy.Reset, proxy.Refuse, proxy.Close, proxy.Hold} {
		inBubbles(t, func(t *testing.T, tr transport) {
			b, a := waitingBed(t, tr, proxy.Config{Unreachable: hold}, never)
			cl := b.dial(b.addr)
			if !tr.secure() {
				cl.send(auth)
			}
			time.Sleep(time.Second)
			cl.reset()
			synctest.Wait()
			if _, ended := a.now(); len(ended) != 1 || ended[0] != time.Second {
				t.Errorf("%s: the dial ended at %v", hold, ended)
			}
			b.wantOpen(b.addr)
			ev := b.stop()
			own := slices.DeleteFunc(ev, func(e history.Event) bool { return e.Session != 1 })
			wantEnds(t, own, "client rst seen")
			if d := details(own); len(d) != 1 || !strings.Contains(d[0], "the client left") {
				t.Errorf("dialled: %q", d)
			}
		})
	}
}

// wantOpen finds somebody listening.
func (b *bed) wantOpen(addr string) {
	b.t.Helper()
	c, err := b.tr.dial(context.Background(), "tcp", addr)
	if err != nil {
		b.t.Error(err)
		return
	}
	_ = c.Close()
}

// TestWaitingClientLeaves: a client that ends with nothing sent has its dial last
// LeaveLimit longer, and hears the server if it is reached by then. One that cannot
// shake hands any more is not waited for.
func TestWaitingClientLeaves(t *testing.T) {
	inBubbles(t, func(t *testing.T, tr transport) {
		for answered, want := range map[time.Duration]time.Duration{
			time.Hour: 2*time.Second + proxy.LeaveLimit, 2*time.Second + proxy.LeaveLimit - 1: 0,
		} {
			b, a := waitingBed(t, tr, proxy.Config{}, after(answered))
			c, err := b.tr.dial(context.Background(), "tcp", b.addr)
			must(t, err)
			if tr.secure() {
				go func() { _ = b.tr.client(c).(*tlsPeer).Handshake() }()
				want = 2 * time.Second
			}
			time.Sleep(2 * time.Second)
			must(t, c.(*memnet.Conn).CloseWrite())
			if want == 0 {
				s, err := b.up.Accept()
				must(t, err)
				sv, cl := b.newPeer(s), b.newPeer(c)
				sv.wantAll("server", "", history.FIN)
				sv.send(greeting)
				sv.closeWrite()
				cl.wantAll("client", greeting, history.FIN)
			} else {
				time.Sleep(proxy.LeaveLimit)
				synctest.Wait()
				if _, ended := a.now(); len(ended) != 1 || ended[0] != want {
					t.Errorf("the dial ended at %v, wanted %v", ended, want)
				}
				wantEnds(t, b.stop(), "client fin seen", "client rst sent by dial")
				_ = c.Close()
				continue
			}
			b.stop()
		}
	})
}

// TestWaitingHello: what a client sends behind its hello, while its server is dialled,
// the handshake reads.
func TestWaitingHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := waitingBed(t, overTLS(inMemory(0)), proxy.Config{}, after(3*time.Second))
		c, err := b.tr.dial(context.Background(), "tcp", b.addr)
		must(t, err)
		shaken := make(chan error, 1)
		go func() { shaken <- b.tr.client(c).(*tlsPeer).Handshake() }()
		time.Sleep(time.Second)
		_, err = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) // an alert: the handshake failed
		must(t, err)
		sv, err := b.up.Accept()
		must(t, err)
		b.newPeer(sv)
		<-shaken // nil: a client is done before the server hears its alert
		_ = c.Close()
		synctest.Wait()
		if took := time.Since(b.began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		refused := slices.ContainsFunc(b.stop(), func(e history.Event) bool {
			return e.Kind == history.EndSent && e.Side == history.ClientSide && e.Cause == history.CauseHandshake
		})
		if !refused {
			t.Error("the alert was not read")
		}
	})
}

// TestWaitingClientIsBounded: while its server is dialled no more of a client is
// kept than QueueLimit; nothing is lost.
func TestWaitingClientIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const small = 1 << 10
		b, _ := waitingBed(t, inMemory(small), proxy.Config{}, after(3*time.Second))
		cl := b.dial(b.addr)
		up := auth + "?" + strings.Repeat("x", 2*proxy.QueueLimit)
		go cl.send(up)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := received(b); n < proxy.QueueLimit || n > proxy.QueueLimit+small {
			t.Errorf("%d bytes were read, the limit is %d", n, proxy.QueueLimit)
		}
		c, err := b.up.Accept()
		must(t, err)
		sv := b.newPeer(c)
		sv.wait(len(up))
		sv.wantGot("server", up, "")
		b.stop()
	})
}

// TestWaitingClientIsTorn: a fault acts on what a client sent meanwhile as on
// anything else, and not before there is a server.
func TestWaitingClientIsTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := waitingBed(t, inMemory(0), proxy.Config{Rules: rules(t, faults.Rule{
			ID: "cut", Fault: fault(t, "truncate-rst"), At: 5, Trigger: faults.Trigger{Dir: c2s, Op: "A"},
		})}, after(3*time.Second))
		cl := b.dial(b.addr)
		cl.send(auth, acquire, release)
		time.Sleep(2 * time.Second)
		cl.wantGot("client", "", "")
		c, err := b.up.Accept()
		must(t, err)
		b.newPeer(c).wantAll("server", auth+acquire[:5], history.RST)
		cl.wantAll("client", "", history.RST)
		ev := b.stop()
		wantEnds(t, ev, "client rst sent by fault", "server rst sent by fault")
		if f := ofKind(ev, history.Fired); len(f) != 1 || f[0].At != 3*time.Second {
			t.Errorf("fired: %+v", f)
		}
	})
}
