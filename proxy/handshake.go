package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// terminated is a client's connection as the session has it.
func (p *Proxy) terminated(c net.Conn) net.Conn {
	if p.cfg.TLS == nil {
		return c
	}
	return newSecured(c, p.cfg.Recorder != nil)
}

// hello waits for a client's hello. The server is reached after it, because it is
// asked for the protocols that the client offers (ALPN), and before it is answered.
func (s *session) hello(ctx context.Context) bool {
	c, ok := s.conns[frames.ServerToClient].(*secured)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeoutCause(ctx, HandshakeLimit, errTooLong)
	defer cancel()
	err := c.peek(ctx)
	if err != nil && !c.wire.ended.Load() && !isEnd(err) && ctx.Err() == nil {
		err = c.shake(ctx, tls.Server, serverConfig(s.p.cfg.TLS, "")) // it fails in the same way, and says so
	}
	if err != nil {
		s.unheard(ctx, c, err)
	}
	return err == nil
}

// welcome ends the client's handshake.
func (s *session) welcome(ctx context.Context) bool {
	c, ok := s.conns[frames.ServerToClient].(*secured)
	if !ok {
		return true
	}
	protocol := ""
	if up, ok := s.conns[frames.ClientToServer].(*secured); ok {
		protocol = up.tls.ConnectionState().NegotiatedProtocol
	}
	ctx, cancel := context.WithTimeoutCause(ctx, HandshakeLimit, errTooLong)
	defer cancel()
	err := c.shake(ctx, tls.Server, serverConfig(s.p.cfg.TLS, protocol))
	if err != nil {
		s.unheard(ctx, c, err)
	}
	return err == nil
}

var errTooLong = errors.New("it took too long")

// unheard ends a session whose client's handshake failed. A client that ended is
// recorded so; one that was too slow is reset; to others crypto/tls has sent an
// alert, which they are given AlertLimit to read.
func (s *session) unheard(ctx context.Context, c *secured, err error) {
	server := s.conns[frames.ClientToServer]
	defer func() {
		_ = c.Close()
		if server != nil {
			_ = server.Close()
		}
	}()
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = cause
	}
	c.failure = "tls handshake: " + err.Error()
	how, _ := endOf(err)
	switch {
	case errors.Is(err, errTooLong):
		s.endBoth(history.RST, history.CauseHandshake)
	case ctx.Err() != nil:
		s.endBoth(history.RST, history.CauseTeardown)
	case c.wire.ended.Load():
		s.saw(frames.ServerToClient, history.FIN, c.failure)
		s.endBoth(history.FIN, history.CauseForwarded)
	case how == history.RST && isEnd(err):
		s.saw(frames.ServerToClient, history.RST, c.failure)
		s.end(frames.ClientToServer, history.RST, history.CauseForwarded)
	default:
		s.endBoth(history.FIN, history.CauseHandshake)
		c.linger(ctx)
	}
}

func (s *session) endBoth(how, cause string) {
	s.end(frames.ServerToClient, how, cause)
	s.end(frames.ClientToServer, how, cause)
}

// linger drops what a peer sends until it ends, ctx is done or AlertLimit is over.
// A close with unread bytes would be an RST, and lose what the peer has to read.
func (c *secured) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, AlertLimit)
	defer cancel()
	defer interruptible(ctx, c.Conn)()
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{c.Conn})
}

// detail is what the record says of an end beside how and why.
func (s *session) detail(dir frames.Direction, how, cause string) string {
	c, ok := s.conns[dir].(*secured)
	switch {
	case ok && cause == history.CauseHandshake:
		return c.failure
	case ok && how == history.FIN && s.truncates(dir, cause):
		return noNotify
	}
	return ""
}

// truncates tells whether a FIN in dir passes on one that came without close_notify.
func (s *session) truncates(dir frames.Direction, cause string) bool {
	from, ok := s.conns[dir.Opposite()].(*secured)
	return ok && cause == history.CauseForwarded && from.truncated.Load()
}

// finish sends a FIN to the receiver of dir. It is what the sender's was, with
// close_notify or without, if it passes that on. Behind a slow receiver it waits its
// turn then; one that a fault sends waits CloseLimit.
func (s *session) finish(dir frames.Direction, cause string) {
	c := s.conns[dir]
	t, ok := c.(*secured)
	switch {
	case ok && s.truncates(dir, cause):
		t.truncate()
		return
	case ok && cause != history.CauseForwarded:
		_ = t.SetWriteDeadline(time.Now().Add(CloseLimit)) // fails only where it is closed
	}
	closeWrite(c)
}

// serverConfig is what a client is answered with. It gets no session tickets: with
// one of them unread, what a client means as a FIN would be an RST. protocol is what
// the server chose of what the client offers, and counts where the configuration
// names none.
func serverConfig(from *tls.Config, protocol string) *tls.Config {
	cfg := settled(from)
	cfg.SessionTicketsDisabled = true
	if len(cfg.NextProtos) == 0 && protocol != "" {
		cfg.NextProtos = []string{protocol}
	}
	if ask := from.GetConfigForClient; ask != nil {
		cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			own, err := ask(h)
			if own != nil {
				own = own.Clone()
				own.GetConfigForClient = nil
				own = serverConfig(own, protocol)
			}
			return own, err
		}
	}
	return cfg
}

// clientConfig is how a server is spoken to. It is asked for what the client offers
// where the configuration names no protocols.
func clientConfig(from *tls.Config, host string, offered []string) *tls.Config {
	cfg := settled(from)
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	if len(cfg.NextProtos) == 0 {
		cfg.NextProtos = offered
	}
	return cfg
}

// settled has every write up to maxRecord become one record, which since TLS 1.2 it
// can.
func settled(from *tls.Config) *tls.Config {
	cfg := from.Clone()
	cfg.DynamicRecordSizingDisabled = true
	cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
	return cfg
}
