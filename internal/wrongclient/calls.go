package wrongclient

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"tornwire/adapter"
)

const (
	maxWait        = 255 * time.Second // longer waits are clamped
	zeroLimit      = 5 * time.Second   // transport deadline for wait 0
	acquireAnswers = "ATB"
)

// call is one acquire asked for by the application.
type call struct {
	key      string
	lease    time.Duration
	zero     bool
	start    time.Time
	budget   time.Duration // from start to deadline
	deadline time.Time
	owner    uint64
	stamp    time.Time // just before the latest write
	sent     bool      // possibly
	whole    bool      // the latest write took all of it
	refused  bool      // B was the last answer
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
	k := &call{key: key, lease: lease, zero: wait == 0, start: time.Now(), budget: min(wait, maxWait)}
	if k.zero {
		k.budget = c.defect.zeroBudget()
	}
	k.deadline = k.start.Add(k.budget)
	if c.hasOwner {
		k.owner = c.defect.owner(c.owner)
	}
	_, err := c.acquireFrame(k, 0)
	return k, err
}

func (c *client) acquireFrame(k *call, wait uint64) ([]byte, error) {
	return encode(c.acquire, k.key, map[string]uint64{
		"wait": wait, "lease": uint64(k.lease / time.Second), "owner": k.owner,
	})
}

// seconds is d in whole seconds, rounded up.
func seconds(d time.Duration) uint64 { return uint64((d + time.Second - 1) / time.Second) }

// Acquire implements adapter.Client.
func (c *client) Acquire(parent context.Context, key string, wait, lease time.Duration) adapter.Result {
	k, err := c.newCall(key, wait, lease)
	if err != nil {
		return adapter.Result{Outcome: failed, Raw: err.Error()}
	}
	base, cancel := c.scope(parent)
	defer cancel()
	for {
		if r, over := c.try(base, k); over {
			sleep(c.root, time.Now().Add(c.defect.tellsAfter()))
			return r
		}
	}
}

// try is one try of a call, on one session. It is false if there has to be
// another.
func (c *client) try(base context.Context, k *call) (adapter.Result, bool) {
	x := newExchange(acquireAnswers, k.owner, k.key)
	s, fresh := c.claim(x, nil, nil)
	if s == nil {
		return c.giveUp(k, end{endCancel, errClosed.Error()}), true
	}
	defer c.leave(s, x)
	k.owner = x.id
	if fresh {
		k.deadline = c.defect.deadlineOn(k, time.Now())
	}
	send, stopSend := context.WithDeadline(base, c.defect.sendUntil(k.deadline))
	defer stopSend()
	if fresh {
		s.connect(send)
	}
	if !s.ready(send) || !c.sendAcquire(send, s, k, x) {
		if send.Err() != nil {
			return c.giveUp(k, endOf(send)), true
		}
		return adapter.Result{}, false
	}
	recv, stopRecv := context.WithDeadline(base, c.defect.patience(k.deadline))
	defer stopRecv()
	stop := func() {}
	if after, ok := c.defect.asksAgain(k); ok {
		stop = c.repeat(s, *k, after)
	}
	a := s.await(recv, x)
	stop()
	if a.op == 0 {
		return c.unanswered(base, s, k, a.end)
	}
	return c.answer(base, s, k, a)
}

// sendAcquire writes the acquire. It is false if nothing was sent, for sure;
// otherwise x gets its answer or the session's end.
func (c *client) sendAcquire(ctx context.Context, s *session, k *call, x *exchange) bool {
	if !s.takeTurn(ctx) {
		return false
	}
	defer s.endTurn()
	late := c.defect.registersLate(c.written.Add(1))
	if !late && !s.register(x) {
		return false
	}
	k.stamp = time.Now()
	wait, ok := c.defect.wireWait(k, k.stamp)
	b, err := c.acquireFrame(k, wait)
	if !ok || err != nil || ctx.Err() != nil {
		s.unregister(x)
		return false
	}
	k.sent = true
	k.whole = s.write(ctx, b)
	if late {
		sleep(ctx, time.Now().Add(registerPause))
		if !s.register(x) {
			x.answer <- answer{end: end{endReset, "the session is over"}}
		}
	}
	return true
}

// giveUp ends a call that will not be sent any more.
func (c *client) giveUp(k *call, e end) adapter.Result {
	switch {
	case k.refused:
		return c.result(k, busy, "B")
	case k.sent:
		return c.result(k, indeterminate, e.text)
	}
	return c.result(k, c.defect.neverSent(e), e.text)
}

// unanswered takes the end of a session on which a call was sent.
func (c *client) unanswered(base context.Context, s *session, k *call, e end) (adapter.Result, bool) {
	fate, outcome := c.defect.unanswered(e, k.whole)
	switch {
	case fate == again:
		c.renew(k)
		return adapter.Result{}, false
	case fate == hang:
		<-base.Done()
		return c.result(k, indeterminate, e.text), true
	case outcome == acquired:
		return c.entered(s, k, 0), true
	}
	return c.result(k, outcome, e.text), true
}

// renew prepares a call that is sent once more.
func (c *client) renew(k *call) {
	if c.hasOwner {
		k.owner = c.defect.nextOwner(k.owner)
	}
}

// answer takes the final answer to a call.
func (c *client) answer(base context.Context, s *session, k *call, a answer) (adapter.Result, bool) {
	if a.op != 'A' && c.defect.closesAfterRefusal() {
		s.close(end{endCancel, "refused"})
	}
	switch a.op {
	case 'T':
		return c.result(k, c.defect.timeoutWord(), "T"), true
	case 'B':
		if c.defect.retriesBusy(time.Now(), k.deadline) {
			k.refused = true
			sleep(base, time.Now().Add(busyPause))
			c.renew(k)
			return adapter.Result{}, false
		}
		return c.result(k, c.defect.busyWord(), "B"), true
	}
	var stale time.Time
	if k.zero {
		stale = k.stamp.Add(k.lease)
	}
	if base.Err() != nil || c.defect.late(time.Now(), k.deadline, stale) {
		if c.defect.releasesUntold(base.Err() != nil) {
			c.releaseLater(c.grant(s, k, a.token))
		}
		return c.result(k, indeterminate, "granted too late"), true
	}
	return c.entered(s, k, a.token), true
}

func (c *client) result(k *call, outcome, raw string) adapter.Result {
	return adapter.Result{Outcome: c.defect.word(outcome), Raw: raw, Owner: k.owner, HasOwner: c.hasOwner}
}

func (c *client) entered(s *session, k *call, token uint64) adapter.Result {
	r := c.result(k, acquired, "A")
	r.Token, r.HasToken = token, true
	t := &ticket{c: c, g: c.grant(s, k, token), stop: func() {}}
	if after, ok := c.defect.renews(k); ok {
		t.stop = c.repeat(s, *k, after)
	}
	r.Ticket = t
	return r
}
