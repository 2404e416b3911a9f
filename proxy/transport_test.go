package proxy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

// transport makes connections, real or in memory.
type transport struct {
	listen func() (net.Listener, error)
	again  func(network, addr string) (net.Listener, error)
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	// hook, if set, wraps the proxy's connections; dir is where they lead to.
	hook func(dir frames.Direction, c net.Conn) net.Conn
	// client and server, if set, wrap those of the peers, and configure the proxy.
	client, server func(net.Conn) net.Conn
	configure      func(*proxy.Config)

	virtual    bool // in memory
	unix       bool // it has no resets, and no addresses
	unrecorded bool // the proxy has no recorder, and is observed
}

// unrecorded is a transport for a proxy that takes the short way.
func unrecorded(tr transport) transport {
	tr.unrecorded = true
	return tr
}

var tcp = transport{
	listen: func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
	again:  net.Listen,
	dial:   (&net.Dialer{}).DialContext,
}

// inMemory is a network whose connections hold size bytes in each direction.
func inMemory(size int) transport {
	n := memnet.New(memnet.Options{Buffer: size})
	return transport{
		listen:  func() (net.Listener, error) { return n.Listen("tcp", "127.0.0.1:0") },
		again:   n.Listen,
		dial:    n.Dial,
		virtual: true,
	}
}

// overTLS has both peers speak TLS to the proxy.
func overTLS(tr transport) transport {
	tr.client = func(c net.Conn) net.Conn { return newTLSPeer(c, tls.Client, clientTLS()) }
	tr.server = func(c net.Conn) net.Conn { return newTLSPeer(c, tls.Server, serverTLS()) }
	tr.configure = func(c *proxy.Config) { c.TLS, c.UpstreamTLS = serverTLS(), trustingTLS() }
	return tr
}

// overUnix is unix sockets in a directory of the test's own.
func overUnix(t *testing.T) transport {
	dir, err := os.MkdirTemp("", "tornwire") // that of the test would be too long a path
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var n atomic.Int32
	return transport{
		listen: func() (net.Listener, error) {
			return proxy.Listen("unix", filepath.Join(dir, string('a'+rune(n.Add(1)))))
		},
		again: proxy.Listen,
		dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", addr)
		},
		unix: true,
	}
}

// onEach runs a test over real sockets of each kind, and over memory in a bubble.
func onEach(t *testing.T, test func(*testing.T, transport)) {
	t.Run("tcp", func(t *testing.T) { test(t, tcp) })
	t.Run("tls", func(t *testing.T) { test(t, overTLS(tcp)) })
	t.Run("unix", func(t *testing.T) { test(t, overUnix(t)) })
	inBubbles(t, test)
}

// inBubbles runs a test over memory only.
func inBubbles(t *testing.T, test func(*testing.T, transport)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, inMemory(0)) })
	})
	t.Run("tls in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, overTLS(inMemory(0))) })
	})
}

// upstream is how a proxy is told of a listener.
func (tr transport) upstream(l net.Listener) string {
	if tr.unix {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// secure tells whether the proxy speaks TLS.
func (tr transport) secure() bool { return tr.client != nil }

// rst is what a peer whose connection is reset gets, or of one that resets is seen.
func (tr transport) rst() string {
	if tr.unix {
		return history.FIN
	}
	return history.RST
}

// ends is what wantEnds wants where resets are ends like others.
func (tr transport) ends(want ...string) []string {
	for i := range want {
		if tr.unix {
			want[i] = strings.NewReplacer(" rst seen", " fin seen", " rst sent by forwarded", " fin sent by forwarded").Replace(want[i])
		}
	}
	return want
}

// wrapping is a listener whose connections are wrapped.
type wrapping struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c = l.wrap(c)
	}
	return c, err
}

// tlsPeer is a peer's connection over TLS. It shakes hands at the first use. A FIN
// counts with a close_notify before it, and that with a FIN behind it.
type tlsPeer struct {
	*tls.Conn
	raw   *tapped
	reset atomic.Bool
}

// tapped knows how the transport ended.
type tapped struct {
	net.Conn
	ended atomic.Bool
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		c.ended.Store(true)
	}
	return n, err
}

func newTLSPeer(c net.Conn, side func(net.Conn, *tls.Config) *tls.Conn, cfg *tls.Config) *tlsPeer {
	raw := &tapped{Conn: c}
	return &tlsPeer{Conn: side(raw, cfg), raw: raw}
}

// errTruncated is how a tlsPeer reads a FIN alone.
var errTruncated = errors.New("truncated")

func (c *tlsPeer) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case c.raw.ended.Load() && c.ConnectionState().HandshakeComplete:
		err = errTruncated
	case c.raw.ended.Load():
		err = io.EOF
	case err == io.EOF:
		var b [1]byte
		if n, err2 := c.raw.Read(b[:]); n > 0 || err2 != io.EOF {
			err = fmt.Errorf("%d bytes behind close_notify, %v", n, err2) // not errors.Is the latter
		}
	}
	return n, err
}

func (c *tlsPeer) CloseWrite() error {
	if err := c.Handshake(); err != nil {
		return err
	}
	return errors.Join(c.Conn.CloseWrite(), c.truncate())
}

func (c *tlsPeer) truncate() error { return c.raw.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func (c *tlsPeer) SetLinger(n int) error {
	c.reset.Store(true)
	return c.raw.Conn.(interface{ SetLinger(int) error }).SetLinger(n)
}

func (c *tlsPeer) Close() error {
	if c.reset.Load() {
		return c.raw.Close()
	}
	return c.Conn.Close()
}

// authority is a certificate for this machine that is its own authority.
var authority = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tornwire"},
		NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), // virtual time begins in 2000
		NotAfter:  time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA:      true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
})

func serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{authority()}}
}

// trustingTLS trusts the authority, and names no server.
func trustingTLS() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(authority().Leaf)
	return &tls.Config{RootCAs: roots}
}

func clientTLS() *tls.Config {
	cfg := trustingTLS()
	cfg.ServerName = "127.0.0.1"
	return cfg
}
