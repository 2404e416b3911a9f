package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"tornwire/history"
)

// Limits of the time in which nobody listens.
const (
	// PartingLimit is how long a connection that was made to see whether the server is back
	// is read until the server ends it too.
	PartingLimit = time.Second
	// ListenFirst and ListenMost are the pauses before it is tried to listen again where that
	// has failed: each is twice the one before.
	ListenFirst = 50 * time.Millisecond
	ListenMost  = 5 * time.Second
)

// outage is a time in which nobody listens because the server cannot be reached.
type outage struct {
	over  chan struct{} // closed when it can
	turn  chan struct{} // held by the door that tries to
	pause time.Duration // before it is tried next; whoever has the turn changes it
	doors int           // that wait; guarded by the proxy's mutex
}

// shutDoors has nobody listen until the server can be reached, unless that is so
// already or was since the era in which it could not.
func (p *Proxy) shutDoors(era int, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outage != nil || era != p.era {
		return
	}
	p.outage = &outage{over: make(chan struct{}), turn: make(chan struct{}, 1), pause: RetryFirst}
	p.observe(history.Event{Kind: history.ServerLost, Detail: why.Error()})
	for _, d := range slices.Clone(p.doors) {
		p.shutDoor(d)
	}
}

// shutDoor closes a door for the outage. The mutex is held.
func (p *Proxy) shutDoor(d *door) {
	d.refusal = &refusal{down: true}
	_ = d.l.Close()
	p.doors = slices.DeleteFunc(p.doors, func(o *door) bool { return o == d })
}

// outlast waits until the server can be reached, if it cannot. It is false if ctx
// is done before.
func (p *Proxy) outlast(ctx context.Context, d *door) bool {
	p.mu.Lock()
	o := p.outage
	if o != nil {
		o.doors++
	}
	p.mu.Unlock()
	if o == nil {
		return ctx.Err() == nil
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if o.doors--; o.doors == 0 && p.outage == o { // nobody is left who would end it
			p.outage = nil
			p.era++
		}
	}()
	select {
	case <-o.over:
		return true
	case <-ctx.Done():
		return false
	case o.turn <- struct{}{}:
	}
	defer func() { <-o.turn }()
	for rest(ctx, o.pause, o.over) {
		o.pause = min(2*o.pause, RetryMost)
		if p.probe(ctx, d) {
			p.restored(o)
		}
	}
	return ctx.Err() == nil
}

// probe tries to reach the server.
func (p *Proxy) probe(ctx context.Context, d *door) bool {
	dctx, cancel := context.WithTimeout(ctx, p.dialTimeout())
	defer cancel()
	c, err := p.reach(dctx, d.to, nil)
	if err != nil {
		return false
	}
	d.wg.Go(func() { takeLeave(ctx, c) })
	return true
}

// takeLeave ends a connection that nobody needs, in order.
func takeLeave(ctx context.Context, c net.Conn) {
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(PartingLimit))
	defer onDone(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	closeWrite(c)
	_, _ = io.Copy(io.Discard, c)
}

// restored ends an outage.
func (p *Proxy) restored(o *outage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outage == o {
		p.outage = nil
		p.era++
		p.observe(history.Event{Kind: history.ServerBack})
		close(o.over)
	}
}

// listenAgain listens where a door was. It waits for the end of an outage, tries until
// that succeeds, and tells of the first failure. It has nothing if ctx is done before.
func (p *Proxy) listenAgain(ctx context.Context, d *door) net.Listener {
	addr, told := d.l.Addr(), false
	for pause := ListenFirst; p.outlast(ctx, d); pause = min(2*pause, ListenMost) {
		l, err := p.cfg.Listen(addr.Network(), addr.String())
		if err == nil {
			return l
		}
		if !told {
			told = true
			p.observe(history.Event{
				Kind: history.AcceptFailed, Client: d.client, Detail: fmt.Sprintf("listen again on %s: %v", addr, err),
			})
		}
		rest(ctx, pause, nil)
	}
	return nil
}
