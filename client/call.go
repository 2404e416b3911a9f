package client

import (
	"context"
	"errors"
	"time"
)

// Acquire asks for key and blocks until the call is over.
//
// wait is how long the server may queue the call; the call's deadline is wait
// after Acquire was entered, whatever connections are needed. A wait over the
// dialect's limit (255 s; 65535 s in ticketing-v0) is cut to it, and the
// deadline with it. A wait of 0 is an immediate attempt, with a deadline of 5 s
// for the transport (spec/ticketing.md §3.4, §3.8); ticketing-v0 cannot express
// it. lease is how long the grant lasts, at most 255 s (65535 s), rounded up to
// whole seconds. Cancelling ctx, and a deadline of ctx as well, ends the call:
// Unsent if nothing was sent, otherwise Indeterminate, unless an answer was
// there already.
//
// The error is ErrInvalid for arguments that the dialect cannot express (a key
// is 1 to 128 bytes of UTF-8 without space, CR and LF) or ErrClosed; nothing
// was sent then, and the outcome is nil.
func (c *Client) Acquire(ctx context.Context, key string, wait, lease time.Duration) (Outcome, error) {
	start := time.Now()
	if err := c.wire.check(key, wait, lease); err != nil {
		return nil, err
	}
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.wg.Done()
	r := &request{
		ident:  ident{key: key},
		budget: newBudget(start, wait, c.wire.mostWait),
		lease:  time.Duration(seconds(lease)) * time.Second,
		done:   make(chan reply, 1),
	}
	r.by = r.budget.deadline
	if c.wire.owners {
		r.id = c.draw()
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	return c.call(ctx, r), nil
}

// call tries sessions until one may have sent a byte of r. All tries have one
// owner and one deadline (spec/ticketing.md §3.2).
func (c *Client) call(ctx context.Context, r *request) Outcome {
	before, cancel := context.WithDeadlineCause(ctx, r.budget.deadline, ErrDeadline)
	defer cancel()
	var last error
	for {
		s, err := c.get(before, c.acquires, r, "")
		if err != nil {
			return Unsent{Cause: errors.Join(err, last)}
		}
		rep := reply{kind: unsent}
		if s.hand(before, r) {
			rep = c.await(ctx, s, r)
		}
		c.put(s)
		if rep.kind != unsent {
			return c.settle(s, r, rep)
		}
		if r.dropped {
			return Unsent{Cause: errors.Join(rep.cause, last)}
		}
		if rep.cause != nil {
			last = rep.cause
		}
	}
}

// await waits for the reply until ctx ends or the deadline has passed; with a
// response grace, that much longer for T and B.
func (c *Client) await(ctx context.Context, s *session, r *request) reply {
	timer := time.NewTimer(time.Until(r.budget.deadline) + c.cfg.ResponseGrace)
	defer timer.Stop()
	select {
	case rep := <-r.done:
		return rep
	case <-ctx.Done():
		return s.giveUp(r, context.Cause(ctx))
	case <-timer.C:
		return s.giveUp(r, ErrDeadline)
	}
}

// settle turns the reply of a sent request into the outcome.
func (c *Client) settle(s *session, r *request, rep reply) Outcome {
	switch rep.kind {
	case timedOut:
		return TimedOut{}
	case busy:
		return Busy{}
	case granted:
		return c.deliver(s, r, rep)
	}
	return c.indeterminate(r, rep.cause)
}

// deliver is the last step before the application: a grant found here too late
// is released and not told (spec/ticketing.md §3.6, §3.8).
func (c *Client) deliver(s *session, r *request, rep reply) Outcome {
	t := &Ticket{
		c: c, s: s, key: r.key, token: rep.token, owner: r.id,
		sent: r.sent, read: rep.read, lease: r.lease,
	}
	if by := r.budget.useBy(r.sent, rep.read, r.lease); time.Now().Before(by) {
		return Acquired{Ticket: t}
	}
	c.mu.Lock()
	c.orphan(t.task())
	c.mu.Unlock()
	return c.indeterminate(r, ErrLate)
}

func (c *Client) indeterminate(r *request, cause error) Outcome {
	wait, _ := r.budget.wire(r.sent)
	return Indeterminate{Cause: cause, UntilAtMost: r.sent.Add(time.Duration(wait)*time.Second + r.lease)}
}
