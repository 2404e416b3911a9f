package proxy_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// hello is what a client says first.
func hello(t *testing.T) string {
	t.Helper()
	var said []byte
	c := &mute{said: &said}
	_ = tls.Client(c, clientTLS()).Handshake()
	return string(said)
}

// mute is a connection that keeps what is written, and ends.
type mute struct {
	net.Conn
	said *[]byte
}

func (m *mute) Write(p []byte) (int, error) {
	*m.said = append(*m.said, p...)
	return len(p), nil
}

func (*mute) Read([]byte) (int, error) { return 0, io.EOF }
func (*mute) Close() error             { return nil }

// TestSilentHandshake: a client that does not shake hands, wherever it stops,
// holds up nobody and is reset after the limit; it is a session.
func TestSilentHandshake(t *testing.T) {
	h := hello(t)
	for _, c := range []struct {
		says string
		ends []string
	}{
		{"", []string{"client rst sent by handshake"}},
		{h[:len(h)-1], []string{"client rst sent by handshake"}},
		{h, []string{"client rst sent by handshake", "server rst sent by handshake"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, overTLS(inMemory(0)), decoded())
			raw, err := b.tr.dial(t.Context(), "tcp", b.addr)
			must(t, err)
			silent := &peer{Conn: raw, t: t}
			for i := range len(c.says) {
				silent.send(c.says[i : i+1])
				if len(c.says) > 1 && i < 5 {
					time.Sleep(time.Second) // time is not given anew for each byte
				}
			}
			synctest.Wait()
			if len(c.ends) == 2 { // the server was reached
				s, err := b.up.Accept()
				must(t, err)
				b.newPeer(s)
				b.dialed++
			}
			said := time.Since(b.began)
			cl, sv := b.connect()
			play(cl, sv, exchange)
			if took := time.Since(b.began); took != said {
				t.Errorf("the second session took %v", took-said)
			}
			for err = nil; err == nil; {
				_, err = raw.Read(make([]byte, 100)) // of the server's part of the handshake
			}
			want := proxy.HandshakeLimit
			if len(c.ends) == 2 {
				want += said // it begins again when the server was reached
			}
			if took := time.Since(b.began); took != want || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("it read %v after %v, wanted a reset after %v", err, took, want)
			}
			ev := b.stop()
			wantEnds(t, ofSession(ev, 1), c.ends...)
			if e := ofKind(ev, history.EndSent); e[0].Detail != "tls handshake: it took too long" {
				t.Errorf("recorded: %+v", e[0])
			}
			if o := ofKind(ev, history.SessionOpened); len(o) != 2 {
				t.Errorf("opened: %+v", o)
			}
		})
	}
}

func ofSession(ev []history.Event, n int) []history.Event {
	return slices.DeleteFunc(slices.Clone(ev), func(e history.Event) bool { return e.Session != n })
}

// TestHandshakeEnds: the end of a client that has not shaken hands is seen and
// passed on, and the teardown waits for no handshake.
func TestHandshakeEnds(t *testing.T) {
	h := hello(t)
	for _, c := range []struct {
		says string
		do   func(*bed, *peer)
		ends []string
	}{
		{"", func(_ *bed, p *peer) { p.closeWrite() }, []string{"client fin seen", "client fin sent by forwarded"}},
		{h[:9], func(_ *bed, p *peer) { _ = p.Close() }, []string{"client fin seen", "client fin sent by forwarded"}},
		{h[:9], func(_ *bed, p *peer) { p.reset() }, []string{"client rst seen"}},
		{h, func(_ *bed, p *peer) { p.closeWrite() }, []string{"client fin seen", "client fin sent by forwarded", "server fin sent by forwarded"}},
		{h, func(_ *bed, p *peer) { p.reset() }, []string{"client rst seen", "server rst sent by forwarded"}},
		{h[:9], func(b *bed, _ *peer) { b.end() }, []string{"client rst sent by teardown"}},
		{h, func(b *bed, _ *peer) { b.end() }, []string{"client rst sent by teardown", "server rst sent by teardown"}},
	} {
		test := func(t *testing.T, tr transport) {
			b := newBed(t, overTLS(tr), decoded())
			raw, err := tr.dial(t.Context(), "tcp", b.addr)
			must(t, err)
			cl := &peer{Conn: raw, t: t}
			cl.send(c.says)
			if len(c.says) > 9 {
				s, err := b.up.Accept()
				must(t, err)
				b.newPeer(s)
				b.waitKind(history.ServerDialed)
				_, err = io.ReadFull(raw, make([]byte, 5)) // the answer begins
				must(t, err)
			}
			b.waitKind(history.SessionOpened)
			c.do(b, cl)
			if !strings.Contains(strings.Join(c.ends, ""), history.CauseTeardown) {
				b.waitKind(history.EndSeen)
				if len(c.ends) > 1 {
					b.waitFor(len(c.ends)-1, "end", func(e history.Event) bool { return e.Kind == history.EndSent })
				}
			}
			ev := b.stop()
			wantEnds(t, ev, c.ends...)
			if e := ofKind(ev, history.EndSeen); len(e) > 0 && !strings.HasPrefix(e[0].Detail, "tls handshake: ") {
				t.Errorf("recorded: %+v", e[0])
			}
			_ = raw.Close()
		}
		test(t, tcp)
		synctest.Test(t, func(t *testing.T) { test(t, inMemory(0)) })
	}
}

// TestHandshakeFails: a client that cannot be agreed with gets an alert and a FIN;
// the record says why.
func TestHandshakeFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		client  *tls.Config
		server  func(*tls.Config)
		gets    string // what the client's error says
		detail  string
		reached bool
	}{
		{
			"too old", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true},
			func(c *tls.Config) { c.MinVersion = tls.VersionTLS10 },
			"protocol version not supported", "unsupported versions", true,
		},
		{"not trusting", &tls.Config{ServerName: "127.0.0.1"}, nil, "unknown authority", "remote error", true},
		{
			"without a certificate", clientTLS(),
			func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert },
			"certificate required", "didn't provide a certificate", true,
		},
		{"no TLS", nil, nil, "", "does not look like a TLS handshake", false},
	} {
		test := func(t *testing.T, tr transport) {
			tr = overTLS(tr)
			cfg := serverTLS()
			if c.server != nil {
				c.server(cfg)
			}
			tr.configure = func(p *proxy.Config) { p.TLS = cfg }
			tr.server = nil
			b := newBed(t, tr, decoded())
			raw, err := tr.dial(t.Context(), "tcp", b.addr)
			must(t, err)
			if !tr.virtual {
				must(t, raw.SetDeadline(time.Now().Add(patience)))
			}
			if c.client != nil {
				tc := tls.Client(raw, c.client)
				// With TLS 1.3 the client's part is over before the server has judged it.
				if err = tc.Handshake(); err == nil {
					_, err = tc.Read(make([]byte, 1))
				}
				if err == nil || !strings.Contains(err.Error(), c.gets) {
					t.Errorf("%s: the client gets %v, wanted %q", c.name, err, c.gets)
				}
			} else {
				_, err := io.WriteString(raw, strings.Repeat(auth+acquire, 1000)) // more than is read
				must(t, err)
			}
			if _, err := io.Copy(io.Discard, raw); err != nil { // it may have left a part of the handshake unread
				t.Errorf("%s: behind it the client reads %v", c.name, err)
			}
			want := []string{"client fin sent by handshake"}
			if c.reached {
				want = append(want, "server fin sent by handshake")
				s, err := b.up.Accept()
				must(t, err)
				b.newPeer(s).wantAll("server, "+c.name, "", history.FIN)
			}
			if took := time.Since(b.began); tr.virtual && took > 0 {
				t.Errorf("%s: it took %v", c.name, took)
			}
			_ = raw.Close()
			ev := b.stop()
			wantEnds(t, ev, want...)
			if e := ofKind(ev, history.EndSent); len(e) == 0 || !strings.Contains(e[0].Detail, c.detail) {
				t.Errorf("%s: recorded: %+v", c.name, e)
			}
		}
		test(t, tcp)
		synctest.Test(t, func(t *testing.T) { test(t, inMemory(0)) })
	}
}

// TestNonsense: a hello that makes no sense is answered with an alert, and the server
// hears nothing of it.
func TestNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, overTLS(inMemory(0)), decoded())
		c, err := b.tr.dial(t.Context(), "tcp", b.addr)
		must(t, err)
		_, err = c.Write([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0xFF}) // of one byte
		must(t, err)
		got, err := io.ReadAll(c)
		if err != nil || len(got) != 7 || got[0] != 21 || got[5] != 2 { // an alert, fatal
			t.Errorf("the client gets %v, %v", got, err)
		}
		must(t, c.Close())
		ev := b.stop()
		wantEnds(t, ev, "client fin sent by handshake")
		if d := ofKind(ev, history.ServerDialed); len(d) > 0 {
			t.Errorf("dialled: %+v", d)
		}
	})
}

// TestAlertLimit: a client that got an alert and stays is closed on, whether it
// goes on sending or not.
func TestAlertLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, overTLS(inMemory(0)), decoded())
		c, err := b.tr.dial(t.Context(), "tcp", b.addr)
		must(t, err)
		for err == nil {
			_, err = io.WriteString(c, "not a record")
			time.Sleep(100 * ms)
		}
		if took := time.Since(b.began); took < proxy.AlertLimit || took > proxy.AlertLimit+time.Second {
			t.Errorf("closed on after %v", took)
		}
		b.stop()
	})
}

// TestServerHandshakeHangs: the server's handshake and the header are part of the
// dial, and have its limit; and the teardown does not wait for them.
func TestServerHandshakeHangs(t *testing.T) {
	for _, stopAfter := range []time.Duration{0, 3 * time.Second} {
		for _, header := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				size := 0
				if header {
					size = 10 // it does not fit
				}
				tr := inMemory(size)
				cfg := proxy.Config{Grammar: grammar, ProxyHeader: header, UpstreamTLS: trustingTLS()}
				b := newBed(t, tr, cfg)
				cl := b.dial(b.addr)
				s, err := b.up.Accept()
				must(t, err)
				want, cause := proxy.DialLimit, "client rst sent by dial"
				if stopAfter > 0 {
					time.AfterFunc(stopAfter, b.end)
					want, cause = stopAfter, "client rst sent by teardown"
				}
				cl.wantAll("client", "", history.RST)
				if took := time.Since(b.began); took != want {
					t.Errorf("given up after %v, not %v", took, want)
				}
				ev := b.stop()
				wantEnds(t, ev, cause)
				what, limit := "tls handshake with ", ""
				if stopAfter == 0 {
					limit = fmt.Sprintf(" (no connection within %s)", want)
				}
				if header {
					what = "proxy header to "
				}
				if d := ofKind(ev, history.ServerDialed); len(d) != 1 || !strings.HasSuffix(d[0].Detail, limit) || !strings.HasPrefix(d[0].Detail, what+s.LocalAddr().String()) {
					t.Errorf("dialled: %+v", d)
				}
				_ = s.Close()
			})
		}
	}
}

// TestTLSRefused: what a fault does to connections it does before they shake hands.
func TestTLSRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := onOpen(t, "slow-accept", faults.Trigger{Nth: 1})
		rule.Args = faults.Args{"pause": time.Minute}
		b := newBed(t, overTLS(inMemory(0)), proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
		cl := b.dial(b.addr)
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if n := len(b.events(history.ServerDialed)); n > 0 {
			t.Error("the server was dialled")
		}
		s, err := b.up.Accept()
		must(t, err)
		sv := b.newPeer(s)
		sv.send(greeting)
		cl.wait(len(greeting))
		if took := time.Since(b.began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		b.stop()
	})
}
