package client

import (
	"context"
	"errors"
	"time"
)

// Ticket is a grant that was told to the application. Its methods may be called
// concurrently.
type Ticket struct {
	c     *Client
	s     *session // that granted it
	key   string
	token uint64
	owner uint64
	sent  time.Time // before the request was written
	read  time.Time // when the grant was read
	lease time.Duration

	// Guarded by Client.mu.
	final ReleaseOutcome // Released, NotHeld, or in ticketing-v0 whatever the one release came to
	tried bool           // a release may have been sent
}

// Key returns the key that is held.
func (t *Ticket) Key() string { return t.key }

// Token returns the fencing token. Tokens rise with every grant; pass it along
// with every write that the lock protects.
func (t *Ticket) Token() uint64 { return t.token }

// Owner returns the owner that the call was sent with; false in ticketing-v0,
// which has none. It is a correlation id and no proof of anything.
func (t *Ticket) Owner() (uint64, bool) { return t.owner, t.c != nil && t.c.wire.owners }

// Expires returns when the lease must be assumed to be over. The lease runs
// from the grant, which was not before the request was written; true means that
// the lease lasts at least until then (written + lease), however long the
// server queued the call.
//
// False means that the grant came later than that, so the lease may be over
// already and no client can know (spec/ticketing.md §3.3): the time is then when
// it is over for certain (read + lease), and only a resource that checks the
// token protects what the lock is for. The times carry Go's monotonic clock,
// which on some systems stands still while the machine sleeps.
func (t *Ticket) Expires() (time.Time, bool) {
	if by := t.sent.Add(t.lease); t.read.Before(by) {
		return by, true
	}
	return t.read.Add(t.lease), false
}

// Release gives the lock back and blocks until the server has answered, ctx has
// ended or 5 s have passed, the latter two as ReleaseIndeterminate
// (spec/ticketing.md §3.16). It may be called again at any time: a definite
// outcome is remembered, and an exact-token release harms nobody.
//
// The release is sent even if ctx has ended already, and goes on behind the
// call until it is answered or the lease has ended, on other sessions if need be.
//
// In ticketing-v0 it is sent once, and only before the lease can have ended;
// otherwise the lease is left to end and every call returns
// ReleaseIndeterminate (§1.3).
func (t *Ticket) Release(ctx context.Context) ReleaseOutcome {
	if t.c == nil {
		return ReleaseIndeterminate{Cause: ErrInvalid}
	}
	k, out := t.c.startRelease(t)
	if out != nil {
		return out
	}
	limit := time.NewTimer(releaseLimit)
	defer limit.Stop()
	select {
	case <-k.done:
		return k.outcome
	case <-limit.C:
		return ReleaseIndeterminate{Cause: ErrUnanswered}
	case <-ctx.Done():
	}
	select {
	case <-k.done:
		return k.outcome
	default:
		return ReleaseIndeterminate{Cause: context.Cause(ctx)}
	}
}

// task is the release of one token. There is at most one task for a token at a
// time; it ends when the server has answered, or at until.
type task struct {
	key    string
	token  uint64
	addr   string    // of the node that granted it
	s      *session  // that granted it, nil if that has ended
	until  time.Time // no release is begun at or after
	ticket *Ticket   // nil if nobody holds one
	maybe  bool      // a release may have been sent
	orphan bool

	done    chan struct{}
	outcome ReleaseOutcome // before done is closed
}

// task returns a task that releases t, until the lease is over for certain; by
// key alone it must end as soon as the lease may be over.
func (t *Ticket) task() *task {
	k := &task{key: t.key, token: t.token, addr: t.s.addr, s: t.s, ticket: t, until: t.read.Add(t.lease)}
	if !t.c.wire.tokens {
		k.until = t.sent.Add(t.lease)
	}
	return k
}

// startRelease joins or starts the release of t, or returns what it came to.
func (c *Client) startRelease(t *Ticket) (*task, ReleaseOutcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.final != nil {
		return nil, t.final
	}
	if k := c.tasks[t.token]; k != nil {
		return k, nil
	}
	if c.closed {
		return nil, ReleaseIndeterminate{Cause: ErrClosed}
	}
	k := t.task()
	k.maybe = t.tried
	if least := time.Now().Add(releaseLimit); c.wire.tokens && k.until.Before(least) {
		k.until = least // a late release is harmless, and its answer tells that it was late
	}
	c.start(k)
	return k, nil
}

// orphan releases a token that the application is not told of, best effort.
// Client.mu is held.
func (c *Client) orphan(k *task) {
	if c.closed || c.tasks[k.token] != nil || c.orphans == maxOrphans {
		return // the lease will end
	}
	k.orphan = true
	c.orphans++
	c.start(k)
}

func (c *Client) start(k *task) {
	k.done = make(chan struct{})
	c.tasks[k.token] = k
	c.wg.Add(1)
	go c.run(k)
}

// run is the goroutine of a task.
func (c *Client) run(k *task) {
	defer c.wg.Done()
	ctx, cancel := context.WithDeadlineCause(c.ctx, k.until, ErrLeaseOver)
	defer cancel()
	out := c.releaseUntil(ctx, k)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, k.token)
	if k.orphan {
		c.orphans--
	}
	if t := k.ticket; t != nil {
		t.tried = k.maybe
		_, vague := out.(ReleaseIndeterminate)
		if !vague || (!c.wire.tokens && !c.closed) {
			t.final = out
		}
	}
	k.outcome = out
	close(k.done)
}

// releaseUntil sends the release until it is answered: first on the session
// that granted the token, then on the lane.
func (c *Client) releaseUntil(ctx context.Context, k *task) ReleaseOutcome {
	var last error
	prefer := k.addr
	for {
		r := &request{ident: ident{key: k.key}, release: true, done: make(chan reply, 1)}
		if c.wire.tokens {
			r.id = k.token
		}
		if c.cfg.Seed != 0 {
			r.rank = int(k.token%maxRank) + 1 // of two that begin in one moment, the same one is first each time
		}
		s, err := c.releaseSession(ctx, k, r, prefer)
		if err != nil {
			return ReleaseIndeterminate{Cause: errors.Join(err, last)}
		}
		rep := c.tryRelease(ctx, s, r, k.until)
		c.put(s)
		switch rep.kind {
		case released:
			return Released{}
		case notHeld:
			if k.maybe {
				return ReleaseIndeterminate{Cause: last, Over: true}
			}
			return NotHeld{}
		case lost:
			k.maybe = true
			if !c.wire.tokens {
				return ReleaseIndeterminate{Cause: rep.cause}
			}
		}
		if rep.cause != nil {
			last = rep.cause
		}
		if errors.As(last, new(*ServerError)) || errors.Is(last, ErrMoved) {
			prefer = ""
		}
	}
}

func (c *Client) releaseSession(ctx context.Context, k *task, r *request, prefer string) (*session, error) {
	s := k.s
	k.s = nil
	if s != nil {
		c.mu.Lock()
		usable := !s.ended && s.takes(r)
		if usable {
			s.take()
		}
		c.mu.Unlock()
		if usable {
			return s, nil
		}
	}
	c.queue(r)
	return c.get(ctx, c.lane, r, prefer)
}

// tryRelease sends r once. Unanswered for 5 s it ends its session.
func (c *Client) tryRelease(ctx context.Context, s *session, r *request, until time.Time) reply {
	limit := time.Now().Add(releaseLimit)
	r.by = earlier(limit, until)
	timer := time.NewTimer(releaseLimit)
	defer timer.Stop()
	hctx, cancel := context.WithDeadlineCause(ctx, r.by, ErrUnanswered)
	defer cancel()
	if !s.hand(hctx, r) {
		return reply{kind: unsent}
	}
	select {
	case rep := <-r.done:
		return rep
	case <-c.ctx.Done():
		return s.giveUp(r, ErrClosed)
	case <-timer.C:
		return s.giveUp(r, ErrUnanswered)
	}
}
