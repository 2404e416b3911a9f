// Package reference binds the reference client, package client, to the adapter
// protocol, so that it is verified like any other library.
package reference

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"tornwire/adapter"
	"tornwire/client"
)

// Dial opens a connection, like net.Dialer.DialContext.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Library is the reference client over TCP, with its default settings. It
// speaks every dialect and can say every outcome of spec/adapter.md.
func Library() adapter.Library { return &library{} }

// WithDial is Library over another network, such as one in memory. A seed that is not 0
// makes the clients draw the same each time, each its own.
func WithDial(dial Dial, seed uint64) adapter.Library { return &library{dial: dial, seed: seed} }

type library struct {
	dial  Dial
	seed  uint64
	opens atomic.Uint64
}

// next is the seed of the next client.
func (l *library) next() uint64 {
	if l.seed == 0 {
		return 0
	}
	return max(l.seed^l.opens.Add(1)<<32, 1)
}

// Info implements adapter.Library.
func (*library) Info() adapter.Info {
	return adapter.Info{
		Client:   "tornwire-reference " + version(),
		Dialects: []string{"ticketing", "ticketing-v0"},
		Features: []string{"cancel", "close", "owner"},
		Outcomes: []string{
			"acquired", "timeout", "busy", "indeterminate", "unsent", "error", "released", "not_held",
		},
	}
}

// version is that of the tornwire module in this binary, "devel" if it has none.
func version() string {
	v := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		v = info.Main.Version
		for _, dep := range info.Deps {
			if dep.Path == "tornwire" {
				v = dep.Version
			}
		}
	}
	if v = strings.Trim(v, "()"); v == "" {
		return "devel"
	}
	return v
}

// Open implements adapter.Library.
func (l *library) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c, err := client.New(client.Config{Addresses: addresses, Dialect: dialect, Secret: secret, Dial: l.dial, Seed: l.next()})
	if err != nil {
		return nil, err
	}
	return binding{c}, nil
}

type binding struct{ client *client.Client }

// Acquire implements adapter.Client.
func (b binding) Acquire(ctx context.Context, key string, wait, lease time.Duration) adapter.Result {
	out, err := b.client.Acquire(ctx, key, wait, lease)
	if err != nil {
		return adapter.Result{Outcome: "error", Raw: class(err)}
	}
	switch o := out.(type) {
	case client.Acquired:
		r := adapter.Result{
			Outcome: "acquired", Token: o.Ticket.Token(), HasToken: true, Ticket: ticket{o.Ticket},
		}
		r.Owner, r.HasOwner = o.Ticket.Owner()
		return r
	case client.TimedOut:
		return adapter.Result{Outcome: "timeout"}
	case client.Busy:
		return adapter.Result{Outcome: "busy"}
	case client.Indeterminate:
		return adapter.Result{Outcome: "indeterminate", Raw: class(o.Cause)}
	case client.Unsent:
		return adapter.Result{Outcome: "unsent", Raw: class(o.Cause)}
	default:
		return adapter.Result{Outcome: "error", Raw: fmt.Sprintf("outcome %T", out)}
	}
}

// Close implements adapter.Client.
func (b binding) Close() error { return b.client.Close() }

type ticket struct{ ticket *client.Ticket }

// Release implements adapter.Ticket.
func (t ticket) Release(ctx context.Context) adapter.Result {
	switch o := t.ticket.Release(ctx).(type) {
	case client.Released:
		return adapter.Result{Outcome: "released"}
	case client.NotHeld:
		return adapter.Result{Outcome: "not_held"}
	case client.ReleaseIndeterminate:
		return adapter.Result{Outcome: "indeterminate", Raw: class(o.Cause)}
	default:
		return adapter.Result{Outcome: "error", Raw: fmt.Sprintf("release outcome %T", o)}
	}
}
