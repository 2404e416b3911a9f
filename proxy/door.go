package proxy

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// door is a listener that is served. All but the client is guarded by the
// proxy's mutex.
type door struct {
	client  string
	to      string       // the server's address; that of the configuration if empty
	l       net.Listener // only the door's own goroutine replaces it
	refusal *refusal     // why nobody listens here at present
	rested  uint64       // the last connection here was refused, none accepted since: the rules up to this number let one in first
	shut    bool         // for good

	trouble trouble        // of the door's own goroutine
	wg      sync.WaitGroup // sessions, and what else has begun here
}

// refusal is a time in which nobody listens: because of a rule, or as long as the
// server is down.
type refusal struct {
	step faults.Step
	rule *armed
	down bool
}

// Serve accepts connections on l, whose clients are recorded as client, until
// ctx is done or l is closed. It closes l, ends its sessions and returns when all
// their goroutines have ended. Several listeners may be served at once; sessions
// are numbered over all of them in accept order. An accept that fails is tried
// again. Where a rule refuses connections, or the server cannot be reached and the
// configuration says so, l is closed for that time. If it then fails to listen again on
// its address, as when somebody has taken the port, it tries on after growing pauses
// (ListenFirst to ListenMost) until ctx is done; an event accept_failed tells that once.
// So nothing ends Serve with an error: it returns nil.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, client string) error {
	return p.serve(ctx, l, &door{client: client})
}

// ServeTo is Serve with a server of its own for what comes in on l: upstream is an
// address as in Config.Upstream, and session_opened names it. Rules, counts and the
// numbers of sessions are the proxy's, over all its listeners. So is the time in which
// nobody listens because one of the servers cannot be reached (Config.Unreachable,
// Refuse).
func (p *Proxy) ServeTo(ctx context.Context, l net.Listener, client, upstream string) error {
	return p.serve(ctx, l, &door{client: client, to: upstream})
}

func (p *Proxy) serve(ctx context.Context, l net.Listener, d *door) error {
	ctx, cancel := context.WithCancel(ctx)
	p.enter(d, l)
	stop := onDone(ctx, func() { p.leave(d) })
	defer func() {
		stop()
		p.leave(d)
		cancel()
		p.dials.callOff()
		d.wg.Wait()
	}()
	for {
		c, err := d.l.Accept()
		s, refusal := p.admit(d, c)
		switch {
		case refusal != nil && ctx.Err() == nil:
			p.refuse(ctx, d, refusal)
		case s != nil:
			d.trouble.pause = 0
			d.wg.Go(func() { s.run(ctx) })
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !p.bear(ctx, d, err):
			return nil
		}
	}
}

// enter has a door served by a listener. A door that is shut closes it.
func (p *Proxy) enter(d *door, l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.l, d.refusal = l, nil
	if d.shut {
		_ = l.Close()
		return
	}
	p.doors = append(p.doors, d)
	if p.outage != nil {
		p.shutDoor(d)
	}
	p.refuseNext()
}

// leave shuts a door for good.
func (p *Proxy) leave(d *door) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !d.shut {
		d.shut = true
		_ = d.l.Close() // it fails only where it is closed
	}
	p.doors = slices.DeleteFunc(p.doors, func(o *door) bool { return o == d })
}

// admit makes a session of a connection. It tells why there is none if
// connections are refused at the door: one that was too early for that is reset.
func (p *Proxy) admit(d *door, c net.Conn) (*session, *refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case d.refusal != nil:
		if c != nil {
			reset(c)
		}
		return nil, d.refusal
	case c == nil:
		return nil, nil
	}
	f := p.nextOpen(d.client)
	p.countOpen(d.client)
	d.rested = 0
	p.sessions++
	f.Session = p.sessions
	f.From = addrOf(c.RemoteAddr())
	s := newSession(p, d, f, c)
	p.ruleOnOpen(s, f)
	p.refuseNext()
	return s, nil
}

// ruleOnOpen finds the rule that acts on a connection that was accepted. The mutex
// is held.
func (p *Proxy) ruleOnOpen(s *session, f faults.Frame) {
	for _, r := range p.book.Load().by[f.Dir][f.Op] {
		if !r.Trigger.Applies(f) || !r.open() {
			continue
		}
		if r.refuses() {
			if _, ok := r.cast(p.cfg.Seed, 0, f.Dir, uint64(f.Nth)); !ok {
				r.matched.Add(1)
			}
			continue
		}
		draw, ok := r.take(p.cfg.Seed, 0, f.Dir, uint64(f.Nth))
		switch {
		case !ok:
		case r.watches():
			p.watched(r)
		default:
			s.rule, s.draw, s.opening = r, draw, r.Steps()[0]
			return
		}
	}
}

// watched gives the signal of a rule that only watches. The mutex is held.
func (p *Proxy) watched(r *armed) {
	r.fired.Add(1)
	if r.Signal != "" {
		p.gateOf(r.Signal).set(true)
	}
}

// nextOpen is the connection that a client would make next. It is matched with
// the session that it would be if none had been refused.
func (p *Proxy) nextOpen(client string) faults.Frame {
	nth := int(p.tally(tallyKey{op: faults.OpOpen}).Load()) + 1
	own := int(p.tally(tallyKey{op: faults.OpOpen, of: true, client: client}).Load()) + 1
	return faults.Frame{
		Dir: frames.ClientToServer, Op: faults.OpOpen,
		Session: nth, Nth: nth, SessionNth: 1, Client: client, ClientNth: own,
	}
}

func (p *Proxy) countOpen(client string) {
	p.tally(tallyKey{op: faults.OpOpen}).Add(1)
	p.tally(tallyKey{op: faults.OpOpen, of: true, client: client}).Add(1)
}

// refuseNext closes the doors at which the next connection is to be refused. The
// mutex is held.
func (p *Proxy) refuseNext() {
	for len(p.book.Load().by[frames.ClientToServer][faults.OpOpen]) > 0 && p.refuseOne() {
	}
}

// refuseOne begins one refusal if a rule asks for it. Where the rule's connection
// could be made at several doors, it is refused at all of them.
func (p *Proxy) refuseOne() bool {
	var rule *armed
	var first faults.Frame
	for _, d := range slices.Clone(p.doors) {
		f := p.nextOpen(d.client)
		if rule != nil {
			f.Nth, f.Session = first.Nth, first.Session
		}
		r := p.refuser(d, f)
		if r == nil || rule != nil && r != rule {
			continue
		}
		if rule == nil {
			rule, first = r, f
			p.countOpen(d.client)
		}
		d.refusal, d.rested = &refusal{step: r.Steps()[0], rule: r}, p.arms
		_ = d.l.Close()
		p.doors = slices.DeleteFunc(p.doors, func(o *door) bool { return o == d })
	}
	if rule == nil {
		return false
	}
	draw, _ := rule.take(p.cfg.Seed, 0, first.Dir, uint64(first.Nth))
	rule.fired.Add(1)
	p.observe(history.Event{
		Kind: history.Fired, Client: first.Client, Dir: first.Dir, Frame: openRef(first.Nth),
		Rule: rule.ID, Fault: rule.Fault.ID, Draw: draw,
	})
	if rule.Signal != "" {
		p.gateOf(rule.Signal).set(true)
	}
	return true
}

// refuser is the rule that would refuse a connection at a door: the first that takes
// it, if that is what it does. A rule that does not count connections rests after a
// refusal until one was accepted, or it would shut the door for good.
func (p *Proxy) refuser(d *door, f faults.Frame) *armed {
	for _, r := range p.book.Load().by[f.Dir][f.Op] {
		rests := r.refuses() && r.no <= d.rested && !r.Trigger.Counts()
		if !r.Trigger.Applies(f) || !r.open() || r.watches() || rests || r.matched.Load() < int64(r.Skip) {
			continue
		}
		if _, ok := r.cast(p.cfg.Seed, 0, f.Dir, uint64(f.Nth)); !ok {
			continue
		}
		if r.refuses() {
			return r
		}
		return nil
	}
	return nil
}

// refuses tells whether a rule refuses connections.
func (r *armed) refuses() bool { return r.Fault != nil && r.Steps()[0].Kind == faults.Refuse }

func openRef(nth int) *history.FrameRef {
	return &history.FrameRef{Dir: frames.ClientToServer, Op: faults.OpOpen, Nth: nth}
}

// refuse waits until a refusal is over, and listens again.
func (p *Proxy) refuse(ctx context.Context, d *door, r *refusal) {
	if !r.down {
		t := time.NewTimer(r.step.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-p.gate(r.step.Name):
		case <-r.rule.gone:
		case <-ctx.Done():
			return
		}
	}
	if l := p.listenAgain(ctx, d); l != nil {
		p.enter(d, l)
	}
}
