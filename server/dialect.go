package server

import (
	"time"

	"tornwire/frames"
)

// Reasons of the E frames that this server sends (spec/ticketing.md §1.1, §1.4, §2).
// reasonNoToken answers an acquire that could only be granted by wrapping the
// token counter.
const (
	reasonAuthFailed = "auth_failed"
	reasonBadFrame   = "bad_frame"
	reasonNoToken    = "no_token"
	reasonNoLeader   = "no_leader"
	reasonNotActive  = "not_active"
)

// dialect is what a grammar means to the server: the rows it reads and writes,
// and the few rules that a layout cannot express.
type dialect struct {
	grammar  *frames.Grammar
	greeting *frames.Shape
	acquire  *frames.Shape
	release  *frames.Shape
	answers  [outcomes]*frames.Shape // nil where the dialect has no such reply
	fault    *frames.Shape
	alive    *frames.Shape // a keep-alive
	moved    *frames.Shape
	notice   *frames.Shape // nil where the dialect has none

	hasOwner    bool
	exactToken  bool // a release names its token
	zeroForever bool // wait 0 waits for ever
}

// outcome is what the table decided about a request.
type outcome int

const (
	granted outcome = iota
	timedOut
	busy
	released
	notHeld
	outcomes // how many there are
)

var outcomeOps = [outcomes]string{granted: "A", timedOut: "T", busy: "B", released: "R", notHeld: "N"}

func newDialect(g *frames.Grammar) *dialect {
	d := &dialect{
		grammar:  g,
		greeting: g.MustShape(frames.ServerToClient, "greeting"),
		acquire:  g.MustShape(frames.ClientToServer, "A"),
		release:  g.MustShape(frames.ClientToServer, "R"),
		fault:    g.MustShape(frames.ServerToClient, "E"),
		alive:    g.MustShape(frames.ServerToClient, frames.OpKeepAlive),
		moved:    g.MustShape(frames.ServerToClient, "M"),
	}
	if s, ok := g.Shape(frames.ServerToClient, "L"); ok {
		d.notice = s
	}
	for o, op := range outcomeOps {
		if s, ok := g.Shape(frames.ServerToClient, op); ok {
			d.answers[o] = s
		}
	}
	_, d.hasOwner = d.acquire.Field("owner")
	_, d.exactToken = d.release.Field("token")
	d.zeroForever = g.Name == "ticketing-v0"
	return d
}

// request reads an acquire frame. It is false if the lease is 0.
func (d *dialect) request(frame []byte) (*attempt, bool) {
	wait, _ := d.acquire.Uint(frame, "wait")
	lease, _ := d.acquire.Uint(frame, "lease")
	owner, _ := d.acquire.Uint(frame, "owner")
	if lease == 0 {
		return nil, false
	}
	a := &attempt{
		key:      string(d.acquire.TailOf(frame)),
		owner:    owner,
		hasOwner: d.hasOwner,
		wait:     time.Duration(wait) * time.Second,
		lease:    time.Duration(lease) * time.Second,
	}
	switch {
	case wait > 0:
		a.patience = bounded
	case d.zeroForever:
		a.patience = forever
	}
	return a, true
}

// validKey tells whether a key that came from no frame would fit in one.
func (d *dialect) validKey(key string) bool {
	_, err := d.release.Append(nil, []byte(key), make([]uint64, len(d.release.Fields))...)
	return err == nil
}

// answer appends the reply for an outcome. It is false, and dst is unchanged, if
// the dialect has no such reply.
func (d *dialect) answer(dst []byte, o outcome, key string, owner, token uint64) ([]byte, bool) {
	s := d.answers[o]
	if s == nil {
		return dst, false
	}
	var room [2]uint64
	values := room[:0]
	for _, f := range s.Fields {
		if f.Name == "token" {
			values = append(values, token)
		} else {
			values = append(values, owner)
		}
	}
	out, err := s.Append(dst, []byte(key), values...)
	return out, err == nil
}
