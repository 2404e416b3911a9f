package proxy_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"

	"tornwire/history"
	"tornwire/proxy"
)

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
	b := newBed(t, tr, proxy.Config{})
	cl, sv := b.connect()
	down := strings.Repeat("\n", 1800) // in one record, but in two if their size grew from a packet's
	sv.send(down)
	cl.wait(len(down))
	if _, parts, _ := cl.now(); parts[0].data != down {
		t.Errorf("the first record has %d bytes", len(parts[0].data))
	}
	if got := cl.Conn.(*tlsPeer).ConnectionState().NegotiatedProtocol; got != "x" {
		t.Errorf("the client speaks %q", got)
	}
	b.stop()
}
