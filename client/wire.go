package client

import (
	"fmt"
	"time"

	"tornwire/frames"
)

// wire is what the client needs of a grammar. Fields are found by name, so
// their order is the grammar's alone.
type wire struct {
	grammar   *frames.Grammar
	acquire   *frames.Shape
	release   *frames.Shape
	auth      *frames.Shape
	owners    bool // acquires carry an owner
	tokens    bool // releases carry a token
	mostWait  time.Duration
	mostLease time.Duration
}

func newWire(g *frames.Grammar) wire {
	w := wire{
		grammar: g,
		acquire: g.MustShape(frames.ClientToServer, "A"),
		release: g.MustShape(frames.ClientToServer, "R"),
		auth:    g.MustShape(frames.ClientToServer, "auth"),
	}
	_, w.owners = w.acquire.Field("owner")
	_, w.tokens = w.release.Field("token")
	most := func(name string) time.Duration {
		f, _ := w.acquire.Field(name)
		return time.Duration(f.Max()) * time.Second
	}
	w.mostWait, w.mostLease = most("wait"), most("lease")
	return w
}

// ident is what a response is matched by, together with its op: the owner of
// an acquire or the token of a release, and the key (spec/ticketing.md §3.9).
// Where the dialect has no such field, id is 0.
type ident struct {
	id  uint64
	key string
}

// frame encodes a request as it is to be sent with the given wait.
func (w *wire) frame(r *request, wait uint64) ([]byte, error) {
	shape := w.acquire
	if r.release {
		shape = w.release
	}
	values := make([]uint64, len(shape.Fields))
	for i, f := range shape.Fields {
		switch f.Name {
		case "wait":
			values[i] = wait
		case "lease":
			values[i] = seconds(r.lease)
		case "owner", "token":
			values[i] = r.id
		default:
			return nil, fmt.Errorf("the grammar's field %s is unknown to the client", f.Name)
		}
	}
	return shape.Append(nil, []byte(r.key), values...)
}

// check tells whether an acquire with these arguments can be expressed.
func (w *wire) check(key string, wait, lease time.Duration) error {
	switch {
	case wait < 0:
		return fmt.Errorf("%w: wait is %v, under 0", ErrInvalid, wait)
	case wait == 0 && !w.owners:
		return fmt.Errorf("%w: wait is 0, which waits for ever in %s", ErrInvalid, w.grammar.Name)
	case lease <= 0 || lease > w.mostLease:
		return fmt.Errorf("%w: lease is %v, not over 0 and at most %v", ErrInvalid, lease, w.mostLease)
	}
	if _, err := w.frame(&request{ident: ident{key: key}, lease: lease}, 0); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
