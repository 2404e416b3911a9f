package proxy

import (
	"context"
	"slices"
	"sync"
	"time"
)

// attempt is a dial under way, and its context. One made of package context's would
// cost a session that reaches its server at once, as most do, a timer and an entry
// with its parent. This one is put into a list, and gets both if it is still there
// after WatchAfter.
type attempt struct {
	s      *session
	parent context.Context
	until  time.Time
	done   chan struct{}

	mu    sync.Mutex
	err   error // why it was called off
	after []callback
	room  [1]callback // for most dials' after
	made  int         // callbacks so far

	// Guarded by the session's mutex.
	timer *time.Timer
	off   func() bool // forgets it with the parent

	// Guarded by the list's mutex.
	due        time.Time
	prev, next *attempt
	listed     bool
}

type callback struct {
	id int
	f  func()
}

var _ context.Context = (*attempt)(nil)

// Deadline returns when the dial is too late.
func (a *attempt) Deadline() (time.Time, bool) { return a.until, !a.s.p.near }

// Done is closed when the dial is over or called off.
func (a *attempt) Done() <-chan struct{} { return a.done }

// Err returns why the dial was called off.
func (a *attempt) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Value returns the values of the context that Serve was given.
func (a *attempt) Value(key any) any { return context.WithoutCancel(a.parent).Value(key) }

// AfterFunc is what package context calls instead of having a goroutine wait for Done.
func (a *attempt) AfterFunc(f func()) (stop func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		go f()
		return func() bool { return false }
	}
	if a.after == nil {
		a.after = a.room[:0]
	}
	a.made++
	id := a.made
	a.after = append(a.after, callback{id, f})
	return func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		i := slices.IndexFunc(a.after, func(c callback) bool { return c.id == id })
		if i < 0 {
			return false
		}
		a.after = slices.Delete(a.after, i, i+1)
		return true
	}
}

// cancel calls the dial off, and returns why it was before.
func (a *attempt) cancel(err error) (was error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	a.err = err
	close(a.done)
	for _, c := range a.after {
		go c.f()
	}
	a.after = nil
	return nil
}

// attempt begins a dial.
func (s *session) attempt(ctx context.Context) *attempt {
	a := &attempt{s: s, parent: ctx, done: make(chan struct{})}
	s.mu.Lock()
	s.dialled = a
	waits := s.wait != nil
	if waits {
		a.until = time.Now().Add(s.p.dialTimeout())
		a.keep()
		s.hurry()
	}
	s.mu.Unlock()
	if !waits {
		s.p.dials.add(a, s.p.dialTimeout())
	}
	if err := ctx.Err(); err != nil {
		a.cancel(err) // whoever ended it may not have seen this one
	}
	return a
}

// attempted ends an attempt, and tells why it was called off, if it was.
func (s *session) attempted(a *attempt) error {
	s.p.dials.remove(a)
	s.mu.Lock()
	s.dialled = nil
	if a.timer != nil {
		a.timer.Stop()
		a.off()
	}
	s.mu.Unlock()
	return a.cancel(context.Canceled)
}

// keep has a dial ended in time and with its parent. The session's mutex is held.
func (a *attempt) keep() {
	a.timer = time.AfterFunc(time.Until(a.until), a.expire)
	a.off = context.AfterFunc(a.parent, func() { a.cancel(a.parent.Err()) })
}

// linger is called when a dial has lasted WatchAfter.
func (a *attempt) linger() {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialled == a {
		a.keep()
		s.watch()
	}
}

// expire ends a dial whose time is over, or that of its client.
func (a *attempt) expire() {
	if time.Until(a.until) > 0 {
		a.cancel(errLeft)
	} else {
		a.cancel(a.s.p.tooLate())
	}
}

// dials are the attempts that have not lasted WatchAfter, the oldest first. One timer
// looks after all.
type dials struct {
	mu          sync.Mutex
	first, last *attempt
	timer       *time.Timer
	armed       bool
}

func (d *dials) add(a *attempt, limit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now() // here, so that the order is that of time
	a.until, a.due = now.Add(limit), now.Add(min(limit, WatchAfter))
	a.listed, a.prev = true, d.last
	if d.last != nil {
		d.last.next = a
	} else {
		d.first = a
	}
	d.last = a
	if !d.armed {
		d.arm(min(limit, WatchAfter))
	}
}

func (d *dials) arm(in time.Duration) {
	d.armed = true
	if d.timer == nil {
		d.timer = time.AfterFunc(in, d.sweep)
	} else {
		d.timer.Reset(in)
	}
}

// remove takes an attempt out, if it is there.
func (d *dials) remove(a *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(a)
}

func (d *dials) drop(a *attempt) {
	if !a.listed {
		return
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		d.first = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		d.last = a.prev
	}
	a.listed, a.prev, a.next = false, nil, nil
}

// sweep takes out what has lasted too long. The timer then waits for the oldest that
// is left; with none it rests.
func (d *dials) sweep() {
	for _, a := range d.overdue() {
		a.linger()
	}
}

func (d *dials) overdue() (out []*attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.first != nil {
		a := d.first
		if rest := time.Until(a.due); rest > 0 {
			d.arm(rest)
			return out
		}
		d.drop(a)
		out = append(out, a)
	}
	d.armed = false
	return out
}

// callOff ends the dials of a Serve that has ended.
func (d *dials) callOff() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := d.first; a != nil; a = a.next {
		if err := a.parent.Err(); err != nil {
			a.cancel(err)
		}
	}
}
