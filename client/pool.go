package client

import (
	"context"
	"errors"
	"time"
)

// pool is a set of sessions with its own pacing. Acquires have one and the
// lane has one, so that neither can starve the other.
type pool struct {
	free     int // a session with less load is taken before another is dialled
	share    int // a session with this load takes no more
	total    int // most sessions, opening ones included
	each     int // most sessions to one address
	sessions []*session
	opening  map[string]int
	pacers   map[string]*pacer
	seed     uint64 // of the pauses; 0: none
	leader   pacer  // its back-off is that of all addresses: there was no leader
}

func newPool(free, share, total, each int) *pool {
	return &pool{free: free, share: share, total: total, each: each, opening: map[string]int{}, pacers: map[string]*pacer{}}
}

// paused is when the pause of addr after failures ends.
func (p *pool) paused(addr string) time.Time {
	if t := p.pacer(addr).until; t.After(p.leader.until) {
		return t
	}
	return p.leader.until
}

// ok forgets the failures of addr: a session to it has worked.
func (p *pool) ok(addr string) {
	p.pacer(addr).ok()
	p.leader.ok()
}

func (p *pool) pacer(addr string) *pacer {
	pc := p.pacers[addr]
	if pc == nil {
		pc = &pacer{}
		if p.seed != 0 {
			pc.random = seeded(p.seed, addr)
		}
		p.pacers[addr] = pc
	}
	return pc
}

// opened ends an opening that choose began.
func (p *pool) opened(addr string) {
	if p.opening[addr]--; p.opening[addr] == 0 {
		delete(p.opening, addr)
	}
}

// room tells whether one more session to addr is allowed.
func (p *pool) room(addr string) bool {
	n, all := p.opening[addr], len(p.sessions)
	for _, k := range p.opening {
		all += k
	}
	for _, s := range p.sessions {
		if s.addr == addr {
			n++
		}
	}
	return all < p.total && n < p.each
}

// least finds the session with the smallest load under limit that can take r,
// to addr only unless that is empty.
func (p *pool) least(r *request, addr string, limit int) *session {
	var best *session
	for _, s := range p.sessions {
		if s.load < limit && (addr == "" || s.addr == addr) && s.takes(r) && (best == nil || s.load < best.load) {
			best = s
		}
	}
	return best
}

// get finds or opens a session for r and counts r into its load; the caller
// must put it back. prefer is the address to try first; empty means the leader,
// if one was named. Opening goes on to other addresses, with pauses, until ctx
// ends: nothing of r has been sent yet (spec/ticketing.md §3.2).
func (c *Client) get(ctx context.Context, p *pool, r *request, prefer string) (*session, error) {
	var last error
	for {
		if spent(ctx) {
			<-ctx.Done() // any moment; a session would come too late
		}
		if err := context.Cause(ctx); err != nil {
			return nil, errors.Join(err, last)
		}
		c.mu.Lock()
		if r.rank == 0 {
			c.ranks++
			r.rank = c.ranks%maxRank + 1
		}
		s, addr, at := c.choose(p, r, prefer, time.Now())
		changed := c.changed
		c.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case addr == "":
			pause(ctx, changed, at, r.rank)
			c.queue(r)
			continue
		}
		s, err := c.openSession(ctx, p, addr)
		if err == nil {
			return s, nil
		}
		last, prefer = err, ""
	}
}

// spent tells whether ctx has ended or its deadline has come: what else was due at that
// time may be heard of first.
func spent(ctx context.Context) bool {
	by, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(by)
}

// choose returns a session, or an address to dial now, or when to look again
// (zero: only when something changes).
//
// An address that only has to keep its pace is waited for: another node would
// most likely be no leader, and sharing a session would tie the fates of calls.
// One that pauses after failures is passed over, and if there is no other, a
// session is shared.
func (c *Client) choose(p *pool, r *request, prefer string, now time.Time) (*session, string, time.Time) {
	if prefer == "" {
		prefer = c.hint
	}
	if s := p.least(r, prefer, p.free); s != nil {
		return s.take(), "", time.Time{}
	}
	var at time.Time
	for _, addr := range c.order(prefer) {
		if !p.room(addr) {
			if p.each < p.total {
				return nil, "", time.Time{} // its one session is being opened, or is full
			}
			break
		}
		until := p.paused(addr)
		if !until.After(now) {
			if prefer != "" && addr != prefer {
				if s := p.least(r, "", p.free); s != nil {
					return s.take(), "", time.Time{}
				}
			}
			if next := p.pacer(addr).next(); next.After(now) {
				return nil, "", next
			}
			p.pacer(addr).take(now)
			p.opening[addr]++
			return nil, addr, time.Time{}
		}
		if at.IsZero() || until.Before(at) {
			at = until
		}
	}
	if s := p.least(r, "", p.share); s != nil {
		return s.take(), "", time.Time{}
	}
	return nil, "", at
}

// order is the order in which addresses are considered for a dial.
func (c *Client) order(prefer string) []string {
	var out []string
	if prefer != "" {
		out = append(out, prefer)
	}
	n := len(c.cfg.Addresses)
	for i := range n {
		if a := c.cfg.Addresses[(c.cursor+i)%n]; a != prefer {
			out = append(out, a)
		}
	}
	return out
}

// put takes a request that is over out of the session's load.
func (c *Client) put(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.load--; s.load == 0 && !s.ended {
		s.lastUse = time.Now()
		s.idle.Reset(idleLimit)
	}
	c.wake()
}

// queue puts those who go on in one moment into the order of their ranks, where what a
// client does must repeat: each waits for its rank, in nanoseconds.
func (c *Client) queue(r *request) {
	if c.cfg.Seed != 0 {
		time.Sleep(time.Duration(r.rank))
	}
}

// maxRank is how many requests wait for one time in their order.
const maxRank = 1000

// pause waits until ctx ends, something changes, or at (if it is set). Those who wait for
// one time go on by their ranks.
func pause(ctx context.Context, changed <-chan struct{}, at time.Time, rank int) {
	var alarm <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at) + time.Duration(rank))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-alarm:
	}
}
