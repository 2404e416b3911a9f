package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/pires/go-proxyproto"
)

// reach connects to the server, as far as it is ready for the link's first byte:
// behind the PROXY header and the TLS handshake, for all of which ctx is the limit.
// The server is at the address to, or at that of the configuration. It is done for a
// client, or for nobody (nil).
func (p *Proxy) reach(ctx context.Context, to string, client net.Conn) (net.Conn, error) {
	cfg := &p.cfg
	if to == "" {
		to = cfg.Upstream
	}
	network, address, err := ParseAddress(to)
	if err != nil {
		return nil, err
	}
	c, err := cfg.Dial(ctx, network, address)
	if err != nil || !cfg.ProxyHeader && cfg.UpstreamTLS == nil {
		return c, err
	}
	out, err := p.introduce(ctx, c, client, to)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return out, nil
}

// introduce sends the PROXY header and speaks TLS, as far as is configured.
func (p *Proxy) introduce(ctx context.Context, c, client net.Conn, to string) (net.Conn, error) {
	cfg := &p.cfg
	if cfg.ProxyHeader {
		if err := sendHeader(ctx, c, client); err != nil {
			return nil, fmt.Errorf("proxy header to %s: %w", to, err)
		}
	}
	if cfg.UpstreamTLS == nil {
		return c, nil
	}
	host := ""
	if network, address, _ := ParseAddress(to); network != "unix" {
		host, _, _ = net.SplitHostPort(address) // it was parsed before
	}
	var offered []string
	if t, ok := client.(*secured); ok {
		offered = t.offered
	}
	t := newSecured(c, cfg.Recorder != nil)
	if err := t.shake(ctx, tls.Client, clientConfig(cfg.UpstreamTLS, host, offered)); err != nil {
		return nil, fmt.Errorf("tls handshake with %s: %w", to, err)
	}
	return t, nil
}

// sendHeader tells the server who the client is (PROXY protocol version 2, §2.2).
func sendHeader(ctx context.Context, c, client net.Conn) error {
	var from, to net.Addr
	if client != nil {
		from, to = client.RemoteAddr(), client.LocalAddr()
	}
	h, err := headerFor(from, to).Format()
	if err != nil {
		return err
	}
	defer interruptible(ctx, c)()
	_, err = c.Write(h)
	return err
}

// headerFor names a client, and the address that it reached us at. For nobody, and for
// one without an IP address, on a unix socket or in memory, it says that the connection is our
// own (LOCAL, UNSPEC), as the protocol wants.
func headerFor(from, to net.Addr) *proxyproto.Header {
	a, ok := from.(*net.TCPAddr)
	b, ok2 := to.(*net.TCPAddr)
	if !ok || !ok2 || (a.IP.To4() == nil) != (b.IP.To4() == nil) {
		return &proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	}
	return proxyproto.HeaderProxyFromAddrs(2, from, to)
}
