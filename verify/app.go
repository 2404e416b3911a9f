package verify

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tornwire/adapter"
	"tornwire/faults"
	"tornwire/history"
)

// call is one acquire that the tool's application asked for.
type call struct {
	r      *caseRun
	n      int // in the case, from 1
	id     uint64
	client string
	key    string
	wait   time.Duration
	lease  time.Duration
	asked  time.Time
	ended  chan struct{} // closed with the result
	failed bool          // it could not be asked

	outcome string
	token   uint64
	inside  bool
	settled *bool // of a play: what settle has told
}

var acquireOutcomes = []string{
	history.OutcomeAcquired, history.OutcomeTimeout, history.OutcomeBusy,
	history.OutcomeIndeterminate, history.OutcomeUnsent, history.OutcomeError,
}

var releaseOutcomes = []string{
	history.OutcomeReleased, history.OutcomeNotHeld, history.OutcomeIndeterminate, history.OutcomeError,
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// acquire asks for a key. The result is awaited with settle.
func (r *caseRun) acquire(client, key string, wait, lease time.Duration) *call {
	mine := r.key(key)
	r.turn(client + key)
	r.mu.Lock()
	c := &call{
		r: r, n: len(r.calls) + 1, client: client, key: mine, wait: wait, lease: lease,
		asked: time.Now(), ended: make(chan struct{}),
	}
	r.calls = append(r.calls, c)
	cl := r.clients[client]
	r.mu.Unlock()
	if cl == nil || !cl.opened || r.over() {
		c.failed = true
		return c
	}
	r.rec.Add(history.Event{Kind: history.CallAsked, Call: c.n, Client: client, Key: mine, Wait: wait, Lease: lease})
	var err error
	_, c.id, err = r.conn.start(adapter.Request{
		Type: adapter.TypeAcquire, Client: cl.name, Key: mine, Wait: seconds(wait), Lease: seconds(lease),
	}, &waiter{
		types: []string{adapter.TypeStarted, adapter.TypeResult, adapter.TypeUnsupported},
		last:  func(t string) bool { return t != adapter.TypeStarted },
		got:   c.answer,
	})
	if err != nil {
		c.failed = true
		r.fail(err)
	}
	return c
}

// answer records what the adapter says of a call; the reader calls it.
func (c *call) answer(a adapter.Response) {
	r := c.r
	switch a.Type {
	case adapter.TypeStarted:
		r.rec.Add(history.Event{Kind: history.CallStarted, Call: c.n, Client: c.client, Key: c.key})
		return
	case adapter.TypeUnsupported:
		r.fail(&errUnsupported{adapter.TypeAcquire, a.Detail})
		return
	}
	ev := history.Event{
		Kind: history.CallResult, Call: c.n, Client: c.client, Key: c.key,
		Outcome: a.Outcome, Raw: a.Raw,
	}
	var bad error
	ev.Token, ev.HasToken, bad = number("token", a.Token)
	if bad == nil {
		ev.Owner, ev.HasOwner, bad = number("owner", a.Owner)
	}
	if bad == nil && !slices.Contains(acquireOutcomes, a.Outcome) {
		bad = fmt.Errorf("outcome %q of an acquire is none of %v", a.Outcome, acquireOutcomes)
	}
	if bad == nil && a.Outcome == history.OutcomeAcquired && !ev.HasToken {
		bad = errors.New("acquired without a token")
	}
	if bad != nil {
		err := &failure{reason: "the adapter's result is wrong: " + bad.Error()}
		r.conn.fail(err)
		r.fail(err)
		return
	}
	c.outcome, c.token = ev.Outcome, ev.Token
	r.rec.Add(ev)
	close(c.ended)
}

func number(name, s string) (uint64, bool, error) {
	if s == "" {
		return 0, false, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%s %q is not a decimal 64-bit number in a string", name, s)
	}
	return n, true, nil
}

// deadline is when the call should be over.
func (c *call) deadline() time.Time {
	if c.wait == 0 {
		return c.asked.Add(immediateLimit)
	}
	return c.asked.Add(c.wait)
}

// settle waits for the call's result, and tells whether it is acquired. A call
// without a result at its deadline + 5 s is given up.
func (c *call) settle() bool {
	if c.failed {
		return false
	}
	r := c.r
	t := time.NewTimer(time.Until(c.deadline()) + settleAfter)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-r.ctx.Done():
		return false
	case <-t.C:
		if r.conn.hasPong() {
			r.rec.Add(history.Event{Kind: history.CallOverdue, Call: c.n, Client: c.client, Key: c.key})
		}
	}
	r.turn(c.client + c.key)
	r.letGo()
	select {
	case <-c.ended:
	default:
		r.note()
		return false
	}
	if c.outcome != history.OutcomeAcquired {
		r.note()
	}
	return c.outcome == history.OutcomeAcquired
}

// note remembers that a call ended other than acquired.
func (r *caseRun) note() {
	r.mu.Lock()
	r.watch = true
	r.mu.Unlock()
}

// enter goes into the critical section and writes to the resource there.
func (c *call) enter() {
	c.inside = true
	c.r.enter(c.n, c.client, c.key, c.token)
}

// enter records an entry, and whether a resource that checks tokens would have
// refused its write.
func (r *caseRun) enter(call int, client, key string, token uint64) {
	r.rec.Add(history.Event{
		Kind: history.Entered, Call: call, Client: client, Key: key, Token: token, HasToken: true, Refused: r.write(key, token),
	})
}

// write writes to the resource, which knows the highest token that it has seen. It
// tells whether one that checks tokens would have refused the write.
func (r *caseRun) write(key string, token uint64) (refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	top := r.top[key]
	r.top[key] = max(top, token)
	return token < top
}

// leave writes to the resource once more, and goes out.
func (c *call) leave() {
	if c.inside {
		c.inside = false
		refused := c.r.write(c.key, c.token)
		c.r.rec.Add(history.Event{Kind: history.Left, Call: c.n, Client: c.client, Key: c.key, Token: c.token, HasToken: true, Refused: refused})
	}
}

// letGo ends a hold that has begun: the call that it was to outlast is over
// (spec/faults.md). Workloads with a hold of their own say themselves when.
func (r *caseRun) letGo() {
	if r.id.Fault == "hold" && r.of.Workload.Own == nil && r.until(0, once(isFiring)) {
		r.px.OpenGate(faults.GateHold)
	}
}

// release asks for the release of an acquired call and waits for its result.
func (c *call) release() { c.startRelease()() }

// startRelease asks for the release; the function returned waits for its result.
func (c *call) startRelease() (wait func()) {
	r := c.r
	if c.failed || c.outcome != history.OutcomeAcquired || r.over() {
		return func() {}
	}
	r.turn(c.client + c.key)
	r.rec.Add(history.Event{Kind: history.ReleaseAsked, Call: c.n, Client: c.client, Key: c.key, Token: c.token, HasToken: true})
	w, _, err := r.conn.start(adapter.Request{
		Type: adapter.TypeRelease, Client: r.clientOf(c.client).name, Call: &c.id,
	}, &waiter{
		types: []string{adapter.TypeResult, adapter.TypeUnsupported},
		got:   c.released,
	})
	if err != nil {
		r.fail(err)
		return func() {}
	}
	limit := time.Now().Add(releaseLimit)
	return func() {
		t := time.NewTimer(time.Until(limit))
		defer t.Stop()
		select {
		case <-w.done:
		case <-t.C:
		case <-r.ctx.Done():
		}
		r.letGo()
	}
}

// released records the result of a release; the reader calls it.
func (c *call) released(a adapter.Response) {
	r := c.r
	switch {
	case a.Type == adapter.TypeUnsupported:
		r.fail(&errUnsupported{adapter.TypeRelease, a.Detail})
	case !slices.Contains(releaseOutcomes, a.Outcome):
		err := &failure{reason: fmt.Sprintf("the adapter's result is wrong: outcome %q of a release is none of %v", a.Outcome, releaseOutcomes)}
		r.conn.fail(err)
		r.fail(err)
	default:
		r.rec.Add(history.Event{
			Kind: history.ReleaseResult, Call: c.n, Client: c.client, Key: c.key, Outcome: a.Outcome, Raw: a.Raw,
		})
	}
}
