package proxy

import (
	"context"
	"time"

	"tornwire/history"
)

// Limits of a listener that fails.
const (
	// AcceptFirst and AcceptMost are the pauses after an accept that failed: each is twice
	// the one before, until one succeeds.
	AcceptFirst = 5 * time.Millisecond
	AcceptMost  = time.Second
	// AcceptTold is how long no accept must have failed for the next failure to be told.
	AcceptTold = time.Minute
)

// trouble is that of a listener whose accepts fail.
type trouble struct {
	pause time.Duration
	last  time.Time
}

// bear tells of an accept that failed, once, and waits before the next. It is
// false if ctx is done before.
func (p *Proxy) bear(ctx context.Context, d *door, err error) bool {
	t := &d.trouble
	if now := time.Now(); t.last.IsZero() || now.Sub(t.last) > AcceptTold {
		p.observe(history.Event{Kind: history.AcceptFailed, Client: d.client, Detail: err.Error()})
	}
	t.pause = min(max(2*t.pause, AcceptFirst), AcceptMost)
	ok := rest(ctx, t.pause, nil)
	t.last = time.Now()
	return ok
}
