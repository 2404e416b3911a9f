package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/history"
	"tornwire/proxy"
)

func decoded() proxy.Config { return proxy.Config{Grammar: grammar} }

// TestExchange: bytes cross, in frames that have not ended too, and are recorded.
func TestExchange(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		down, up := greeting+acquired+"\n"+released, auth+acquire+release+"\n"
		for i := range len(down) {
			sv.send(down[i : i+1])
			cl.wait(i + 1) // each byte crosses before the next is sent
		}
		for i := range len(up) {
			cl.send(up[i : i+1])
			sv.wait(i + 1)
		}
		cl.closeWrite()
		sv.wantAll("server", up, history.FIN)
		sv.closeWrite()
		cl.wantAll("client", down, history.FIN)
		ev := b.stop()
		wantEnds(t, ev, "client fin seen", "server fin sent by forwarded", "server fin seen", "client fin sent by forwarded")
		ws := checkRecord(t, ev)
		for k, want := range map[wireKey]string{{1, c2s}: up, {1, s2c}: down} {
			if w := ws[k]; string(w.received) != want || string(w.delivered) != want {
				t.Errorf("%s: %q received, %q delivered", k.dir, w.received, w.delivered)
			} else if w.acked != len(want) && k.dir == c2s { // the FIN that came back proves it
				t.Errorf("%s: %d of %d bytes acknowledged", k.dir, w.acked, len(want))
			}
		}
		var names []string
		for _, e := range ofKind(ev, history.Received) {
			if e.Last {
				names = append(names, e.Frame.String())
			}
		}
		if got := strings.Join(names, " "); got != "s2c.greeting.1 s2c.A.1 s2c.keepalive.1 s2c.R.1 c2s.auth.1 c2s.A.1 c2s.R.1 c2s.keepalive.1" {
			t.Errorf("frames are %s", got)
		}
	})
}

// TestPeerAddresses: the record tells both connections' addresses as the peers
// know them.
func TestPeerAddresses(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		b.waitKind(history.ServerDialed)
		o, d := b.events(history.SessionOpened), b.events(history.ServerDialed)
		if len(o) != 1 || o[0].Client != "c1" || o[0].Peer != cl.LocalAddr().String() || o[0].Session != 1 {
			t.Errorf("opened: %+v, the client is %s", o, cl.LocalAddr())
		}
		if o[0].Addr != cl.RemoteAddr().String() || o[0].Upstream != "" {
			t.Errorf("opened: %+v, the client connected to %s", o[0], cl.RemoteAddr())
		}
		if len(d) != 1 || d[0].Peer != sv.RemoteAddr().String() || d[0].Detail != "" || d[0].Session != 1 {
			t.Errorf("dialled: %+v, the server sees %s", d, sv.RemoteAddr())
		}
		b.stop()
	})
}

// TestServeTo: each listener of a proxy can have a server of its own; the sessions
// are numbered over all of them, and the record says whose is which.
func TestServeTo(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		l, other := b.listen(), b.listen()
		upstream := tr.upstream(other)
		if tr.server != nil {
			other = wrapping{other, tr.server}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		served := make(chan error, 1)
		go func() { served <- b.px.ServeTo(ctx, l, "c2", upstream) }()
		for i := range 3 {
			addr, up, word := b.addr, b.up, "first"
			if i == 1 {
				addr, up, word = l.Addr().String(), other, "other"
			}
			own := b.up
			b.up = up
			cl, sv := b.connectTo(addr)
			b.up = own
			sv.send(word + " node\n")
			cl.wait(len(word) + 6)
			cl.wantGot("client", word+" node\n", "")
		}
		var got []string
		for _, e := range b.events(history.SessionOpened) {
			got = append(got, fmt.Sprint(e.Session, " ", e.Client, " ", e.Upstream))
		}
		if want := []string{"1 c1 ", "2 c2 " + upstream, "3 c1 "}; !slices.Equal(got, want) {
			t.Errorf("opened %q, want %q", got, want)
		}
		cancel()
		must(t, <-served)
		b.stop()
	})
}

// TestHalfClose: after a FIN in one direction bytes go on in the other.
func TestHalfClose(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		cl.send(auth)
		cl.closeWrite()
		sv.wantAll("server", auth, history.FIN)
		sv.send(greeting)
		cl.wait(len(greeting))
		cl.wantGot("client", greeting, "")
		sv.closeWrite()
		cl.wantAll("client", greeting, history.FIN)
		b.stop()

		b = newBed(t, tr, decoded())
		cl, sv = b.connect()
		sv.send(greeting)
		sv.closeWrite()
		cl.wantAll("client", greeting, history.FIN)
		cl.send(auth)
		sv.wait(len(auth))
		sv.wantGot("server", auth, "")
		cl.closeWrite()
		sv.wantAll("server", auth, history.FIN)
		wantEnds(t, b.stop(), "server fin seen", "client fin sent by forwarded", "client fin seen", "server fin sent by forwarded")
	})
}

// TestBulk: much data both ways at once, in and out of frames.
func TestBulk(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		for times, cfg := range map[int]proxy.Config{1_000: decoded(), 30_000: {}} { // decoded it is 3 events a frame
			b := newBed(t, tr, cfg)
			cl, sv := b.connect()
			down := greeting + strings.Repeat(acquired+released+"\n", times)
			up := auth + strings.Repeat(acquire+release, times)
			go func() {
				sv.send(down)
				sv.closeWrite()
			}()
			cl.send(up)
			cl.closeWrite()
			sv.wantAll("server", up, history.FIN)
			cl.wantAll("client", down, history.FIN)
			ws := checkRecord(t, b.stop())
			if !ws[wireKey{1, c2s}].is(up, up) || !ws[wireKey{1, s2c}].is(down, down) {
				t.Errorf("of %d and %d bytes others are recorded", len(up), len(down))
			}
		}
	})
}

// TestNoGrammar: without a grammar bytes pass and are recorded as one run.
func TestNoGrammar(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, proxy.Config{})
		cl, sv := b.connect()
		sv.send("anything ")
		cl.wait(9)
		sv.send("goes")
		cl.wait(13)
		cl.send("\x00\xff")
		sv.wait(2)
		cl.closeWrite()
		sv.closeWrite()
		cl.wantAll("client", "anything goes", history.FIN)
		sv.wantAll("server", "\x00\xff", history.FIN)
		ev := b.stop()
		if w := checkRecord(t, ev)[wireKey{1, s2c}]; !w.is("anything goes", "anything goes") {
			t.Errorf("recorded: %+v", w)
		}
		for _, e := range ev {
			if e.Kind == history.WentOpaque || e.Frame != nil && (e.Frame.Op != "" || e.Frame.Seq != 0 || e.Last) {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestOpaque: what cannot be decoded passes unchanged, with one event a link.
func TestOpaque(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		garbage, long := "?what\n"+acquired, "M"+strings.Repeat("x", 200)
		sv.send(greeting + acquired + garbage)
		cl.wait(len(greeting + acquired + garbage))
		sv.send("more", released)
		cl.send(auth)
		sv.wait(len(auth))
		cl.send(frame(c2s, "A", "k", 1, 1, 1)[:12] + long) // a key over the limit
		cl.closeWrite()
		sv.closeWrite()
		cl.wantAll("client", greeting+acquired+garbage+"more"+released, history.FIN)
		sv.wantAll("server", auth+frame(c2s, "A", "k", 1, 1, 1)[:12]+long, history.FIN)
		ev := b.stop()
		var said []string
		for _, e := range ofKind(ev, history.WentOpaque) {
			said = append(said, e.Dir.String()+": "+e.Detail)
		}
		if len(said) != 2 || !strings.HasPrefix(said[0], "s2c: unknown op 0x3f") || !strings.HasPrefix(said[1], "c2s: text of c2s A is over") {
			t.Errorf("went opaque: %q", said)
		}
		ws := checkRecord(t, ev)
		if got := string(ws[wireKey{1, s2c}].frames[2]); got != garbage+"more"+released {
			t.Errorf("the opaque run is %q", got)
		}
		for _, e := range ofKind(ev, history.Received) {
			if opaque := e.Frame.Seq == 2; opaque != (e.Frame.Op == "") || opaque && e.Last {
				t.Errorf("%s, last %v, of %+v", e.Data, e.Last, e.Frame)
			}
		}
	})
}

// TestDialFails: a client whose server cannot be reached is reset.
func TestDialFails(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		gone, err := tr.listen()
		must(t, err)
		must(t, gone.Close())
		b := newBed(t, tr, proxy.Config{Grammar: grammar, Upstream: tr.upstream(gone)})
		c, err := b.tryDial(b.addr)
		if err == nil {
			b.newPeer(c).wantAll("client", "", tr.rst())
		} else if !errors.Is(err, syscall.ECONNRESET) { // the reset may come that early
			t.Error(err)
		}
		b.waitFor(1, "end", func(e history.Event) bool { return e.Kind == history.EndSent })
		ev := b.stop()
		wantEnds(t, ev, "client rst sent by dial")
		if d := ofKind(ev, history.ServerDialed); len(d) != 1 || !strings.Contains(d[0].Detail, "refused") && !tr.unix || !strings.Contains(d[0].Detail, "dial") || d[0].Peer != "" {
			t.Errorf("dialled: %+v", d)
		}
	})
}

// TestDialLimit: a dial takes no longer than its limit, or than the proxy lives.
func TestDialLimit(t *testing.T) {
	for _, stopAfter := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			cfg := decoded()
			cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			b := newBed(t, inMemory(0), cfg)
			cl := b.dial(b.addr)
			want, cause := proxy.DialLimit, "client rst sent by dial"
			if stopAfter > 0 {
				time.AfterFunc(stopAfter, b.end)
				want, cause = stopAfter, "client rst sent by teardown"
			}
			cl.wantAll("client", "", history.RST)
			if took := time.Since(b.began); took != want {
				t.Errorf("given up after %v, not %v", took, want)
			}
			wantEnds(t, b.stop(), cause)
		})
	}
}

// TestTeardown: when ctx is done, every session is reset on both sides and Serve
// returns, in whatever state they are.
func TestTeardown(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, decoded())
		cl, sv := b.connect()
		cl2, sv2 := b.connect()
		cl2.closeWrite()
		sv2.wantAll("server 2", "", history.FIN)
		sv.send(greeting[:5])
		cl.wait(5)
		ev := b.stop()
		cl.wantAll("client", greeting[:5], tr.rst())
		sv.wantAll("server", "", tr.rst())
		cl2.wantAll("client 2", "", tr.rst())
		for side, want := range map[history.Side]int{history.ClientSide: 2, history.ServerSide: 2} {
			n := 0
			for _, e := range ofKind(ev, history.EndSent) {
				if e.Side == side && e.How == history.RST && e.Cause == history.CauseTeardown {
					n++
				}
			}
			if n != want {
				t.Errorf("%d resets to the %s", n, side)
			}
		}
		if _, err := tr.dial(context.Background(), "tcp", b.addr); err == nil {
			t.Error("the listener is still open")
		}
	})
}
