package proxy_test

import (
	"context"
	"crypto/tls"
	"errors"
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
			nil, "protocol version not supported", "unsupported versions", true,
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

// TestServerChecked: the server's certificate is checked, for the upstream's host
// unless the configuration names another, or does without.
func TestServerChecked(t *testing.T) {
	untrusting := &tls.Config{}
	for _, c := range []struct {
		name   string
		host   string
		cfg    *tls.Config
		refuse string
		sni    string
	}{
		{"trusted", "localhost", trustingTLS(), "", "localhost"},
		{"trusted address", "127.0.0.1", trustingTLS(), "", ""},
		{"untrusted", "localhost", untrusting, "unknown authority", ""},
		{"another name", "localhost.", &tls.Config{RootCAs: trustingTLS().RootCAs, ServerName: "example.org"}, "example.org", ""},
		{"its name is given", "nowhere", &tls.Config{RootCAs: trustingTLS().RootCAs, ServerName: "localhost"}, "", "localhost"},
		{"not to be checked", "localhost", &tls.Config{InsecureSkipVerify: true}, "", "localhost"},
	} {
		asked := make(chan string, 1)
		tr := half(tcp, history.ServerSide)
		tr.server = func(raw net.Conn) net.Conn {
			cfg := serverTLS()
			cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				asked <- h.ServerName
				return nil, nil
			}
			return newTLSPeer(raw, tls.Server, cfg)
		}
		tr.configure = func(p *proxy.Config) { p.UpstreamTLS = c.cfg }
		up, err := tcp.listen()
		must(t, err)
		cfg := decoded()
		_, port, err := net.SplitHostPort(up.Addr().String())
		must(t, err)
		cfg.Upstream = net.JoinHostPort(c.host, port)
		cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return tcp.dial(ctx, network, up.Addr().String())
		}
		b := newBed(t, tr, cfg)
		must(t, b.up.Close())
		b.up = wrapping{up, tr.server}
		if c.refuse == "" {
			b.wantTalk(b.addr)
			if got := <-asked; got != c.sni {
				t.Errorf("%s: the server is asked for %q, wanted %q", c.name, got, c.sni)
			}
		} else {
			cl := b.dial(b.addr)
			s, err := b.up.Accept()
			must(t, err)
			b.newPeer(s)
			cl.wantAll("client", "", history.RST)
			d := b.events(history.ServerDialed)
			if !strings.Contains(d[0].Detail, c.refuse) || !strings.HasPrefix(d[0].Detail, "tls handshake with "+cfg.Upstream+": ") {
				t.Errorf("%s: dialled: %+v", c.name, d[0])
			}
		}
		b.stop()
		must(t, up.Close())
	}
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
				what := "tls handshake with "
				if header {
					what = "proxy header to "
				}
				if d := ofKind(ev, history.ServerDialed); len(d) != 1 || !strings.HasPrefix(d[0].Detail, what+s.LocalAddr().String()) {
					t.Errorf("dialled: %+v", d)
				}
				_ = s.Close()
			})
		}
	}
}

// TestALPN: the server is asked for what the client offers, and the client gets what
// the server chose, unless the configuration says otherwise.
func TestALPN(t *testing.T) {
	for _, c := range []struct {
		name                    string
		client, server          []string
		ours, theirs            []string // configured in the proxy
		asked                   []string
		clientGets, serverGives string
	}{
		{"passed on", []string{"a", "b"}, []string{"b"}, nil, nil, []string{"a", "b"}, "b", "b"},
		{"not offered", nil, []string{"b"}, nil, nil, nil, "", ""},
		{"not spoken by the server", []string{"a", "b"}, nil, nil, nil, []string{"a", "b"}, "", ""},
		{"one for the server", []string{"a"}, []string{"s"}, nil, []string{"s"}, []string{"s"}, "", "s"},
		{"one for clients", []string{"a", "b"}, []string{"b"}, []string{"a"}, nil, []string{"a", "b"}, "a", "b"},
		{"one for each", []string{"c"}, []string{"s"}, []string{"c"}, []string{"s"}, []string{"s"}, "c", "s"},
	} {
		asked := make(chan []string, 1)
		tr := overTLS(tcp)
		tr.client = func(raw net.Conn) net.Conn {
			cfg := clientTLS()
			cfg.NextProtos = c.client
			return newTLSPeer(raw, tls.Client, cfg)
		}
		tr.server = func(raw net.Conn) net.Conn {
			cfg := serverTLS()
			cfg.NextProtos = c.server
			cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				asked <- h.SupportedProtos
				return nil, nil
			}
			return newTLSPeer(raw, tls.Server, cfg)
		}
		configure := tr.configure
		tr.configure = func(p *proxy.Config) {
			configure(p)
			p.TLS.NextProtos, p.UpstreamTLS.NextProtos = c.ours, c.theirs
		}
		b := newBed(t, tr, decoded())
		if c.name == "one for the server" { // the client offers what nobody speaks, and is told so
			cl := b.dial(b.addr)
			s, err := b.up.Accept()
			must(t, err)
			b.newPeer(s)
			<-cl.ended
			if _, _, how := cl.now(); !strings.Contains(how, "no application protocol") {
				t.Errorf("%s: the client gets %s", c.name, how)
			}
			b.stop()
			continue
		}
		cl, sv := b.connect()
		play(cl, sv, exchange)
		if got := <-asked; !slices.Equal(got, c.asked) {
			t.Errorf("%s: the server is asked for %q, wanted %q", c.name, got, c.asked)
		}
		gets := cl.Conn.(*tlsPeer).ConnectionState().NegotiatedProtocol
		gives := sv.Conn.(*tlsPeer).ConnectionState().NegotiatedProtocol
		if gets != c.clientGets || gives != c.serverGives {
			t.Errorf("%s: the client speaks %q, the server %q; wanted %q and %q", c.name, gets, gives, c.clientGets, c.serverGives)
		}
		b.stop()
	}
}

// TestConfigForClient: a configuration that is chosen by the client's hello is
// taken, with what the proxy needs of it.
func TestConfigForClient(t *testing.T) {
	tr := overTLS(tcp)
	tr.client = func(raw net.Conn) net.Conn {
		cfg := clientTLS()
		cfg.NextProtos = []string{"x"}
		return newTLSPeer(raw, tls.Client, cfg)
	}
	tr.server = func(raw net.Conn) net.Conn {
		cfg := serverTLS()
		cfg.DynamicRecordSizingDisabled = true
		return newTLSPeer(raw, tls.Server, cfg)
	}
	configure := tr.configure
	tr.configure = func(p *proxy.Config) {
		configure(p)
		p.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := serverTLS()
			cfg.NextProtos = h.SupportedProtos
			return cfg, nil
		}}
	}
	b := newBed(t, tr, decoded())
	cl, sv := b.connect()
	play(cl, sv, exchange)
	if got := cl.Conn.(*tlsPeer).ConnectionState().NegotiatedProtocol; got != "x" {
		t.Errorf("the client speaks %q", got)
	}
	down := strings.Repeat("\n", 5000) // in one record, but in several if their size grew
	sv.send(down)
	cl.wait(len(greeting+acquired+released) + len(down))
	if _, parts, _ := cl.now(); parts[len(parts)-1].data != down {
		t.Errorf("the last record has %d bytes", len(parts[len(parts)-1].data))
	}
	b.stop()
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
