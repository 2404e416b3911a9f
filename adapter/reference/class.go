package reference

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"tornwire/client"
)

var named = []error{
	client.ErrInvalid, client.ErrClosed, client.ErrDeadline, client.ErrLate, client.ErrMismatch,
	client.ErrProtocol, client.ErrMoved, client.ErrUnanswered, client.ErrLeaseOver,
	context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
	net.ErrClosed,
}

// class tells an error without what differs from case to case, such as ports,
// because the report counts equal words: the names that errors.Is finds, or the
// whole text if there are none.
func class(err error) string {
	if err == nil {
		return ""
	}
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, e := range named {
		if errors.Is(err, e) {
			add(e.Error())
		}
	}
	if server := (*client.ServerError)(nil); errors.As(err, &server) {
		add(server.Error())
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		if errno := syscall.Errno(0); errors.As(op, &errno) {
			add(op.Op + ": " + errno.Error())
		} else if op.Timeout() {
			add(op.Op + ": timeout")
		}
	}
	if len(names) == 0 {
		return err.Error()
	}
	return strings.Join(names, "; ")
}
