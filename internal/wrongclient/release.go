package wrongclient

import (
	"context"
	"sync/atomic"
	"time"

	"tornwire/adapter"
)

const (
	releaseLimit   = 5 * time.Second   // for the answer to a release
	laneLimit      = 255 * time.Second // for a release in the background
	releaseAnswers = "RN"
)

// grant is a lock that the server gave to this client.
type grant struct {
	key           string
	token         uint64
	owner         uint64
	until         time.Time   // send stamp + lease: it is over by then at the latest if granted at once
	sent          atomic.Bool // a release that names only the key may have been sent
	prefer, avoid *session    // for its release; may be nil
}

func (c *client) grant(s *session, k *call, token uint64) *grant {
	g := &grant{key: k.key, token: token, owner: k.owner, until: k.stamp.Add(k.lease)}
	g.prefer, g.avoid = c.defect.releaseOn(s)
	return g
}

// ticket is a held grant.
type ticket struct {
	c    *client
	g    *grant
	stop func() // of what goes on while it is held
}

// Release implements adapter.Ticket.
func (t *ticket) Release(parent context.Context) adapter.Result {
	t.stop()
	base, cancel := t.c.scope(parent)
	defer cancel()
	outcome, raw := t.c.releaseOnce(base, t.g)
	if t.c.exact && outcome != indeterminate && t.c.defect.repeatsRelease() {
		t.c.releaseOnce(base, t.g)
	}
	return adapter.Result{Outcome: t.c.defect.word(outcome), Raw: raw}
}

// releaseOnce releases g on the session that it prefers if that is open, else on
// another, and again if a session ends before it answers, for 5 s. A release that
// names only the key is sent once, and only while the own lease runs for sure.
func (c *client) releaseOnce(base context.Context, g *grant) (outcome, raw string) {
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
		if ctx.Err() != nil {
			return indeterminate, endOf(ctx).text
		}
		x := newExchange(releaseAnswers, token, g.key)
		s, fresh := c.claim(x, g.prefer, g.avoid)
		if s == nil {
			return indeterminate, errClosed.Error()
		}
		if fresh {
			s.connect(ctx)
		}
		var a answer
		if s.ready(ctx) && c.sendRelease(ctx, s, g, x, b) {
			a = s.await(ctx, x)
		}
		c.leave(s, x)
		if c.defect.releasedBy(a.end) {
			return released, a.end.text
		}
		switch a.op {
		case 'R':
			return released, "R"
		case 'N':
			if c.defect == releaseInverted {
				return released, "N"
			}
			return notHeld, "N"
		}
	}
	return indeterminate, "left to the lease"
}

// sendRelease writes the release b. It is false if nothing was sent, for sure.
func (c *client) sendRelease(ctx context.Context, s *session, g *grant, x *exchange, b []byte) bool {
	if !s.takeTurn(ctx) {
		return false
	}
	defer s.endTurn()
	if !s.register(x) {
		return false
	}
	if ctx.Err() != nil || !c.exact && !c.defect.claimKey(time.Now(), g) {
		s.unregister(x)
		return false
	}
	if !c.exact && c.defect.doublesRelease() {
		if s.register(newExchange(x.ops, x.id, x.key)) {
			b = append(b, b...)
		}
	}
	s.write(ctx, b)
	return true
}

// orphan releases a grant that nobody waited for, unless its token is a call's.
// Without a token in the release it would end whatever holds the key. The session
// that it came on is about to end.
func (c *client) orphan(s *session, f frame) {
	if c.exact && c.defect.releasesOrphan(c.matched.has(f.token())) {
		c.releaseLater(&grant{key: f.tail(), token: f.token(), owner: f.id(), avoid: s})
	}
}

// releaseLater releases g in the background until that is answered, at most for
// 255 s. Over maxLanes at once, the grant is left to its lease.
func (c *client) releaseLater(g *grant) {
	c.mu.Lock()
	ok := c.lanes < maxLanes
	if ok {
		c.lanes++
	}
	c.mu.Unlock()
	if !ok {
		return
	}
	done := func() {
		c.mu.Lock()
		c.lanes--
		c.mu.Unlock()
	}
	lane := func() {
		defer done()
		ctx, cancel := context.WithTimeout(c.root, laneLimit)
		defer cancel()
		for ctx.Err() == nil {
			outcome, _ := c.releaseOnce(ctx, g)
			if outcome != indeterminate || !c.exact {
				return
			}
		}
	}
	if !c.start(lane) {
		done()
	}
}
