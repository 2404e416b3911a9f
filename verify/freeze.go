package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"tornwire/history"
)

// freezer is an adapter that can be stopped as a whole and continued: a child process
// on Linux.
type freezer interface {
	// freeze stops the adapter's process group, and returns when every thread of it
	// has stopped; before, a right client may still act. thaw must follow.
	freeze(ctx context.Context) error
	// frozen fails if a thread of the group runs.
	frozen() error
	// holds fails if no process of the group has the socket with these addresses: with
	// errNotListed if the system knows of none.
	holds(local, remote string) error
	// thaw continues the group.
	thaw()
}

const (
	// freezeLimit is how long the threads of a stopped process group may go on.
	freezeLimit = 2 * time.Second
	freezePoll  = time.Millisecond
	// heldTries is how often the sockets of a stopped client are looked for.
	heldTries = 10
	heldPoll  = 10 * time.Millisecond
)

var errNotListed = errors.New("not in the kernel's tables")

// skipError ends a case that cannot be done here, by its reason.
type skipError struct{ reason string }

func (e *skipError) Error() string { return e.reason }

var (
	errSameProcess = &skipError{"the client runs inside tornwire, which cannot stop it alone: this needs an adapter that is a process of its own"}
	errCannotStop  = &skipError{"a process is stopped and continued on Linux only"}
	errGoesOn      = &skipError{"the adapter answered while its process group was stopped: the client runs elsewhere"}
)

// adapterFor returns the adapter of a case; done must be called after it. A case that
// stops its adapter has one to itself.
func (r *runner) adapterFor(ctx context.Context, c Case) (conn *adapterConn, done func(), err error) {
	if !c.Workload.Alone {
		conn, err = r.pool.get(ctx)
		return conn, func() { r.pool.put(conn) }, err
	}
	start := r.p.Alone
	if start == nil {
		start = r.p.Start
	}
	t, err := start()
	if err != nil {
		return nil, nil, &failure{reason: err.Error()}
	}
	if _, ok := t.(freezer); !ok {
		err := errSameProcess
		if _, child := t.(*process); child {
			err = errCannotStop
		}
		return nil, nil, errors.Join(err, t.Stop())
	}
	if conn, err = dialAdapter(ctx, t, r.p.Dialect); err != nil {
		return nil, nil, err
	}
	return conn, conn.stop, nil
}

// freeze stops the case's adapter. It is false if the case cannot go on; thaw must
// follow in any case.
func (r *caseRun) freeze(client string) bool {
	f, ok := r.conn.t.(freezer)
	if !ok || r.over() {
		r.fail(errSameProcess)
		return false
	}
	r.conn.freezing()
	if err := f.freeze(r.ctx); err != nil {
		r.fail(fmt.Errorf("the adapter cannot be stopped: %w", err))
		return false
	}
	if err := r.stopped(f, client); err != nil {
		r.fail(&skipError{fmt.Sprintf("it is not certain that what was stopped is the client: %s", err)})
		return false
	}
	r.conn.froze()
	r.rec.Add(history.Event{Kind: history.Frozen})
	return true
}

// thaw continues it. Where it had not stood still all the time the case fails.
func (r *caseRun) thaw() {
	f, ok := r.conn.t.(freezer)
	if !ok {
		return
	}
	defer f.thaw()
	if !r.conn.isFrozen() {
		return
	}
	if err := f.frozen(); err != nil {
		r.fail(fmt.Errorf("somebody else continued the adapter: %w", err))
	}
	r.rec.Add(history.Event{Kind: history.Thawed})
	if r.conn.thawing() {
		r.fail(errGoesOn)
	}
}

// stopped fails if a connection of the client belongs to no process that has been
// stopped. It looks more than once: what the client closed last may not be in the record
// yet, and a socket can be missed where the kernel's tables change while they are read.
func (r *caseRun) stopped(f freezer, client string) error {
	var err error
	for range heldTries {
		err = nil
		for local, remote := range r.sockets(client) {
			if err = f.holds(local, remote); err != nil {
				break
			}
		}
		if !errors.Is(err, errNotListed) || r.over() {
			return err
		}
		r.pause(heldPoll)
	}
	return err
}

// sockets lists the client's and our address of each of its open connections.
func (r *caseRun) sockets(client string) iter.Seq2[string, string] {
	open := map[int]history.Event{}
	ev, _ := r.rec.Events(0)
	for _, e := range ev {
		switch {
		case e.Kind == history.SessionOpened && e.Client == client:
			open[e.Session] = e
		case e.Kind == history.EndSeen && e.Side == history.ClientSide:
			delete(open, e.Session)
		}
	}
	return func(yield func(local, remote string) bool) {
		for _, e := range open {
			if !yield(e.Peer, e.Addr) {
				return
			}
		}
	}
}

// freezing says that the adapter is about to be stopped: its answers may be late from
// now on. A ping that is late already stays so.
func (c *adapterConn) freezing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if p := &c.pings; !p.sent.IsZero() && now.Sub(p.sent) > LateLimit {
		p.lastLate = now
	}
	c.pings.stopping = true
}

// froze says that it has stopped: it cannot answer what it is asked from now on.
func (c *adapterConn) froze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pings.frozen = time.Now()
}

func (c *adapterConn) isFrozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.pings.frozen.IsZero()
}

// thawing says that it is about to be continued, from when on it has to answer in time
// again. It tells whether it has answered in the meantime.
func (c *adapterConn) thawing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.pings
	p.thawed, p.frozen, p.stopping = time.Now(), time.Time{}, false
	return p.spoke
}

// since is how long a ping has been under way, a time when the adapter was stopped
// apart.
func (p *pinger) since() time.Duration {
	switch {
	case p.sent.IsZero() || p.stopping:
		return 0
	case p.thawed.After(p.sent):
		return time.Since(p.thawed)
	}
	return time.Since(p.sent)
}
