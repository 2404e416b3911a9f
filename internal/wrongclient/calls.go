package wrongclient

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"tornwire/adapter"
)

const (
	maxWait        = 255 * time.Second // longer waits are clamped
	zeroLimit      = 5 * time.Second   // transport deadline for wait 0
	releaseLimit   = 5 * time.Second   // for the answer to a release
	laneLimit      = 255 * time.Second // for a release in the background
	acquireAnswers = "ATB"
	releaseAnswers = "RN"
)

// call is one acquire asked for by the application.
type call struct {
	key      string
	lease    time.Duration
	zero     bool
	deadline time.Time
	owner    uint64
	stamp    time.Time // just before the latest write
}

// grant is a lock that the server gave to this client.
type grant struct {
	key   string
	token uint64
	owner uint64
	until time.Time   // send stamp + lease: it is over by then at the latest if granted at once
	sent  atomic.Bool // a release that names only the key may have been sent
}

// newOwner is a random number of 64 bits.
func newOwner() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

func (c *client) newCall(key string, wait, lease time.Duration) (*call, error) {
	field, _ := c.acquire.Field("lease")
	if lease < time.Second || lease%time.Second != 0 || uint64(lease/time.Second) > field.Max() {
		return nil, fmt.Errorf("lease is %v, not 1 to %d whole seconds", lease, field.Max())
	}
	if wait < 0 {
		return nil, fmt.Errorf("wait is %v, under 0", wait)
	}
	k := &call{key: key, lease: lease, zero: wait == 0, deadline: time.Now().Add(min(wait, maxWait))}
	if k.zero {
		k.deadline = time.Now().Add(zeroLimit)
	}
	if c.hasOwner {
		k.owner = newOwner()
	}
	_, err := c.acquireFrame(k, 0)
	return k, err
}

func (c *client) acquireFrame(k *call, wait uint64) ([]byte, error) {
	return encode(c.acquire, k.key, map[string]uint64{
		"wait": wait, "lease": uint64(k.lease / time.Second), "owner": k.owner,
	})
}

// wireWait is the remaining time in whole seconds, rounded up. It is false at
// the deadline.
func (k *call) wireWait(now time.Time) (uint64, bool) {
	left := k.deadline.Sub(now)
	if k.zero {
		return 0, left > 0
	}
	return uint64((left + time.Second - 1) / time.Second), left > 0
}

// Acquire implements adapter.Client.
func (c *client) Acquire(parent context.Context, key string, wait, lease time.Duration) adapter.Result {
	k, err := c.newCall(key, wait, lease)
	if err != nil {
		return adapter.Result{Outcome: failed, Raw: err.Error()}
	}
	base, cancel := c.scope(parent)
	defer cancel()
	send, stopSend := context.WithDeadline(base, k.deadline)
	defer stopSend()
	recv, stopRecv := context.WithDeadline(base, c.defect.patience(k.deadline))
	defer stopRecv()
	sent := false
	for {
		s, err := c.session(send, nil)
		if err != nil {
			if sent {
				return c.result(k, indeterminate, err.Error())
			}
			return c.result(k, unsent, err.Error())
		}
		x := newExchange(acquireAnswers, k.owner, key)
		if !c.sendAcquire(send, s, k, x) {
			continue
		}
		sent = true
		a := s.await(recv, x)
		if a.op != 0 {
			return c.answer(base, s, k, a)
		}
		switch fate, outcome := c.defect.unanswered(a.end); fate {
		case again:
			if c.hasOwner {
				k.owner = c.defect.nextOwner(k.owner)
			}
		case hang:
			<-base.Done()
			return c.result(k, indeterminate, a.end.text)
		default:
			if outcome == acquired {
				return c.entered(s, k, 0)
			}
			return c.result(k, outcome, a.end.text)
		}
	}
}

// sendAcquire writes the acquire. It is false if nothing was sent, for sure;
// otherwise x gets its answer or the session's end.
func (c *client) sendAcquire(ctx context.Context, s *session, k *call, x *exchange) bool {
	if !s.register(x) {
		return false
	}
	k.stamp = time.Now()
	wait, ok := k.wireWait(k.stamp)
	b, err := c.acquireFrame(k, wait)
	if !ok || err != nil || ctx.Err() != nil {
		s.unregister(x)
		c.park(s)
		return false
	}
	s.write(ctx, b)
	return true
}

// answer ends a call that got its final answer.
func (c *client) answer(base context.Context, s *session, k *call, a answer) adapter.Result {
	defer c.park(s)
	switch a.op {
	case 'T':
		return c.result(k, timeout, "T")
	case 'B':
		return c.result(k, busy, "B")
	}
	var stale time.Time
	if k.zero {
		stale = k.stamp.Add(k.lease)
	}
	if base.Err() != nil || c.defect.late(time.Now(), k.deadline, stale) {
		c.releaseLater(k.grant(a.token))
		return c.result(k, indeterminate, "granted too late")
	}
	return c.entered(s, k, a.token)
}

func (k *call) grant(token uint64) *grant {
	return &grant{key: k.key, token: token, owner: k.owner, until: k.stamp.Add(k.lease)}
}

func (c *client) result(k *call, outcome, raw string) adapter.Result {
	return adapter.Result{Outcome: outcome, Raw: raw, Owner: k.owner, HasOwner: c.hasOwner}
}

func (c *client) entered(s *session, k *call, token uint64) adapter.Result {
	r := c.result(k, acquired, "A")
	r.Token, r.HasToken = token, true
	r.Ticket = &ticket{c: c, s: s, g: k.grant(token)}
	return r
}

// ticket is a held grant.
type ticket struct {
	c *client
	s *session // that the grant came on
	g *grant
}

// Release implements adapter.Ticket.
func (t *ticket) Release(parent context.Context) adapter.Result {
	base, cancel := t.c.scope(parent)
	defer cancel()
	outcome, raw := t.c.releaseOnce(base, t.g, t.s)
	return adapter.Result{Outcome: outcome, Raw: raw}
}

// releaseOnce releases g on prefer if that is idle, else on another session, and
// again if a session ends before it answers, for 5 s. A release that names only
// the key is sent once, and only while the own lease runs for sure.
func (c *client) releaseOnce(base context.Context, g *grant, prefer *session) (outcome, raw string) {
	ctx, cancel := context.WithTimeout(base, releaseLimit)
	defer cancel()
	var token uint64
	if c.exact {
		token = c.defect.releaseToken(g)
	}
	b, err := encode(c.release, g.key, map[string]uint64{"token": token})
	if err != nil {
		return failed, err.Error()
	}
	for c.exact || c.defect.mayReleaseKey(time.Now(), g) {
		s, err := c.session(ctx, prefer)
		if err != nil {
			return indeterminate, err.Error()
		}
		x := newExchange(releaseAnswers, token, g.key)
		if !s.register(x) {
			continue
		}
		if !c.exact && !c.defect.claimKey(time.Now(), g) {
			s.unregister(x)
			c.park(s)
			continue
		}
		s.write(ctx, b)
		switch a := s.await(ctx, x); a.op {
		case 'R':
			c.park(s)
			return released, "R"
		case 'N':
			c.park(s)
			return notHeld, "N"
		}
	}
	return indeterminate, "left to the lease"
}

// orphan releases a grant that nobody waited for, unless its token is a call's.
// Without a token in the release it would end whatever holds the key.
func (c *client) orphan(f frame) {
	if c.exact && !c.matched.has(f.token()) {
		c.releaseLater(&grant{key: f.tail(), token: f.token(), owner: f.id()})
	}
}

// releaseLater releases g in the background until that is answered, at most for
// 255 s. Over maxLanes at once, the grant is left to its lease.
func (c *client) releaseLater(g *grant) {
	c.mu.Lock()
	ok := !c.closed && c.lanes < maxLanes
	if ok {
		c.lanes++
		c.running.Add(1)
	}
	c.mu.Unlock()
	if !ok {
		return
	}
	go func() {
		defer c.running.Done()
		ctx, cancel := context.WithTimeout(c.root, laneLimit)
		defer cancel()
		for ctx.Err() == nil {
			outcome, _ := c.releaseOnce(ctx, g, nil)
			if outcome != indeterminate || !c.exact {
				break
			}
		}
		c.mu.Lock()
		c.lanes--
		c.mu.Unlock()
	}()
}
