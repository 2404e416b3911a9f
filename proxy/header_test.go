package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/pires/go-proxyproto"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

// TestProxyHeader: the server hears first who the client is and where it came in,
// in front of TLS; and it is no part of what the link carries.
func TestProxyHeader(t *testing.T) {
	six := tcp
	six.listen = func() (net.Listener, error) { return net.Listen("tcp", "[::1]:0") }
	all := map[string]transport{"tcp": tcp, "tls": overTLS(tcp), "unix": overUnix(t)}
	if l, err := six.listen(); err == nil {
		_ = l.Close()
		all["tcp6"] = six
	}
	for name, tr := range all {
		t.Run(name, func(t *testing.T) { wantHeader(t, tr) })
	}
	synctest.Test(t, func(t *testing.T) { wantHeader(t, inMemory(0)) })
	n := memnet.New(memnet.Options{})
	synctest.Test(t, func(t *testing.T) {
		wantHeader(t, transport{ // without IP addresses
			listen: func() (net.Listener, error) { return n.Listen("tcp", "somewhere:0") },
			again:  n.Listen, dial: n.Dial, virtual: true,
		})
	})
}

func wantHeader(t *testing.T, tr transport) {
	var header *proxyproto.Header
	got := make(chan error, 1)
	server := tr.server
	tr.server = func(c net.Conn) net.Conn {
		r := bufio.NewReader(c)
		h, err := proxyproto.Read(r)
		header = h
		got <- err
		b := &behind{Conn: c, r: r}
		if server != nil {
			return server(b)
		}
		return b
	}
	b := newBed(t, tr, proxy.Config{Grammar: grammar, ProxyHeader: true, Rules: rules(t, faults.Rule{
		ID: "cut", Fault: fault(t, "truncate-fin"), At: 3, Trigger: faults.Trigger{Dir: c2s, Op: "A"},
	})})
	cl, sv := b.connect()
	must(t, <-got)
	if header == nil || header.Version != 2 {
		t.Fatalf("the header is %+v", header)
	}
	from, ok := cl.LocalAddr().(*net.TCPAddr)
	if _, err := netip.ParseAddrPort(b.addr); err != nil {
		ok = false
	}
	src, dst, tcpToo := header.TCPAddrs()
	switch {
	case !ok && (header.Command != proxyproto.LOCAL || header.TransportProtocol != proxyproto.UNSPEC):
		t.Errorf("the header is %+v, wanted LOCAL and UNSPEC", header)
	case ok && (header.Command != proxyproto.PROXY || !tcpToo || src.String() != from.String() || dst.String() != b.addr):
		t.Errorf("the header is %+v, the client %s at %s", header, from, b.addr)
	}
	play(cl, sv, exchange[:2])
	b.px.RecordAcked()
	cl.send(acquire)
	sv.wantAll("server", auth+acquire[:3], history.FIN)
	ev := b.stop()
	for _, e := range ofKind(ev, history.Acked) {
		if e.Dir == frames.ClientToServer && e.N > e.Total {
			t.Errorf("acknowledged: %+v", e)
		}
	}
	checkRecord(t, ev)
}

// behind reads what is behind a header.
type behind struct {
	net.Conn
	r io.Reader
}

func (b *behind) Read(p []byte) (int, error) { return b.r.Read(p) }

func (b *behind) CloseWrite() error { return b.Conn.(interface{ CloseWrite() error }).CloseWrite() }
