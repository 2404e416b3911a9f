package proxy

import (
	"errors"
	"io"
	"net"
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

// reset closes with an RST where the transport has one.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

// endOf tells how a peer ended, from the error of a read or write: FIN, RST, or
// "" if we closed the connection ourselves.
func endOf(err error) (how, detail string) {
	switch {
	case errors.Is(err, io.EOF):
		return history.FIN, ""
	case errors.Is(err, net.ErrClosed):
		return "", ""
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return history.RST, ""
	}
	return history.RST, err.Error()
}

// unacked returns how many bytes written to c its peer's kernel has not yet
// acknowledged; it is false where that cannot be told.
func unacked(c net.Conn) (int, bool) {
	if m, ok := c.(interface{ Unacked() int }); ok {
		return m.Unacked(), true
	}
	if s, ok := c.(syscall.Conn); ok {
		return outq(s)
	}
	return 0, false
}
