package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"tornwire/history"
)

// closeWrite sends a FIN and leaves the reading side open. A connection without
// a half-close is closed whole.
func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite() // fails only where the connection is gone already
		return
	}
	_ = c.Close()
}

// reset closes with an RST where the transport has one. A unix socket has none: its
// peer reads an end once it has read what came before, or ECONNRESET if we had not
// read all that it sent, and can write no more (EPIPE).
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// noNotify is what the record says of a FIN over TLS without close_notify.
const noNotify = "no close_notify"

// isEnd tells whether an error is that of a connection that its peer has ended.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// endOf tells how a peer ended, from the error of a read or write: FIN, RST, or
// "" if we closed the connection, or broke off the write, ourselves.
func endOf(err error) (how, detail string) {
	switch {
	case errors.Is(err, errTruncated):
		return history.FIN, noNotify
	case errors.Is(err, io.EOF):
		return history.FIN, ""
	case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		return "", ""
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return history.RST, ""
	}
	return history.RST, err.Error()
}

// unacked returns how many bytes written to c its peer's kernel has not yet
// acknowledged; it is false where that cannot be told. ended says that a FIN was
// sent behind them. A connection in memory has no kernel: there it is what the
// peer has not read, because bytes that are lost to a closed peer would else
// count as delivered. Both ends of a unix socket are in one kernel: what it took is
// with the peer.
func unacked(c net.Conn, ended bool) (int, bool) {
	switch c := c.(type) {
	case *secured:
		return c.unacked(ended)
	case *net.UnixConn:
		return 0, true
	case interface{ Unread() int }:
		return c.Unread(), true
	case syscall.Conn:
		n, ok := outq(c)
		if ended && n > 0 {
			n-- // the FIN counts too, and comes last
		}
		return n, ok
	}
	return 0, false
}

// wasReset tells whether a connection that reads as ended, and was not ended by
// us, had a reset. It is false where that cannot be told.
func wasReset(c net.Conn) bool {
	if t, ok := c.(*secured); ok {
		c = t.Conn
	}
	s, ok := c.(syscall.Conn)
	return ok && isReset(s)
}
