// Package wrongclient is a compact Ticketing client that obeys the whole client
// contract (spec/ticketing.md §3), or all of it but one thing. It shares no code
// with package client, and only the tests of tornwire verify use it: each defect
// must be found, and the right client must be SAFE.
//
// Up to 16 calls share a session, acquires and releases alike. A session has no
// two requests whose answers look the same: in ticketing-v0 one acquire of a key at
// a time. There, wait 0 goes out as wait 0 and is bounded by the same 5 s as in the
// current dialect.
package wrongclient

import (
	"context"
	"fmt"
	"net"
	"slices"

	"tornwire/adapter"
	"tornwire/frames"
)

const (
	dialectCurrent = "ticketing"
	dialectV0      = "ticketing-v0"
)

// Outcomes of spec/adapter.md.
const (
	acquired      = "acquired"
	timeout       = "timeout"
	busy          = "busy"
	indeterminate = "indeterminate"
	unsent        = "unsent"
	failed        = "error"
	released      = "released"
	notHeld       = "not_held"
)

// Library returns the client with one defect, or an odd but right one, or the
// plain right one for "". It refuses a name that neither Defects nor Odd lists.
func Library(defect string) (adapter.Library, error) {
	return WithDial(defect, (&net.Dialer{}).DialContext)
}

// WithDial is Library with its own way to connect. dial must return when its
// context is over.
func WithDial(defect string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (adapter.Library, error) {
	d, err := parseDefect(defect)
	if err != nil {
		return nil, err
	}
	return &library{defect: d, dial: dial}, nil
}

type library struct {
	defect defect
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Info implements adapter.Library.
func (l *library) Info() adapter.Info {
	return adapter.Info{
		Client:   l.defect.String(),
		Dialects: []string{dialectCurrent, dialectV0},
		Features: []string{"cancel", "close", "owner"},
		Outcomes: l.defect.words(),
	}
}

// Open implements adapter.Library.
func (l *library) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	if !slices.Contains(l.Info().Dialects, dialect) {
		return nil, fmt.Errorf("no dialect %q; there are %v", dialect, l.Info().Dialects)
	}
	if len(addresses) == 0 || len(addresses) > maxNodes {
		return nil, fmt.Errorf("%d addresses, not 1 to %d", len(addresses), maxNodes)
	}
	g := frames.MustBuiltin(dialect)
	c := &client{
		defect:  l.defect,
		dialer:  l.dial,
		secret:  secret,
		owner:   newOwner(),
		grammar: g,
		auth:    g.MustShape(frames.ClientToServer, "auth"),
		acquire: g.MustShape(frames.ClientToServer, "A"),
		release: g.MustShape(frames.ClientToServer, "R"),
	}
	_, c.hasOwner = c.acquire.Field("owner")
	_, c.exact = c.release.Field("token")
	for _, a := range addresses {
		c.nodes = append(c.nodes, &node{addr: a})
	}
	c.root, c.cancel = context.WithCancel(context.Background())
	return c, nil
}
