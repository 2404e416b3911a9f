package server

import (
	"container/list"
	"math"
	"sync"
	"time"
)

// patience says how long an attempt may be queued.
type patience uint8

const (
	immediate patience = iota // not at all
	bounded                   // until its deadline
	forever
)

// attempt is one acquire, from its arrival until it is answered without a grant
// or its grant is over.
type attempt struct {
	key      string
	owner    uint64
	hasOwner bool
	wait     time.Duration
	lease    time.Duration
	patience patience
	from     *party // nil for direct use of the table

	seq     uint64        // arrival
	held    bool          // granted, not queued
	due     time.Time     // deadline while queued (zero for ever), lease end while held
	slot    int           // in the agenda, -1 outside
	inLock  *list.Element // in the queue of its key
	inParty *list.Element // in the queued attempts of its party
}

func (a *attempt) peer() string {
	if a.from == nil {
		return ""
	}
	return a.from.peer
}

// lock is a held key.
type lock struct {
	key   string
	held  *attempt
	grant *Grant
	queue list.List // of *attempt, FIFO
}

// party is a connection as the table knows it. All but peer, out and seat is guarded
// by the table's lock.
type party struct {
	peer   string
	out    sink
	seat   *seat     // of the node that the connection is to; nil for a server that is alone
	queued list.List // of *attempt
	fin    bool      // sends no more requests
	gone   bool      // gets no more answers
}

// sink takes what the table decides for one connection, in that order. Its
// methods are called under the table's lock and must not block.
type sink interface {
	// answer is false if the dialect cannot say it: the connection must end.
	answer(o outcome, key string, owner, token uint64) bool
	complain(reason string)
	redirect(address string)
	// hangUp asks for the connection to end once its answers are written.
	hangUp()
	// idle tells that nothing is queued any more and no request will come.
	idle()
}

// table is the lock table of spec/ticketing.md §2. It decides; it does no I/O.
// Every operation first ends what is due, so a timer that fires late changes
// nothing but the moment at which waiters hear of it.
type table struct {
	emit       func(Event)
	queueLimit int
	capacity   int

	mu     sync.Mutex
	locks  map[string]*lock // held keys only
	used   int              // attempts held or queued
	token  uint64           // of the next grant
	spent  bool             // the last token was granted
	seq    uint64
	agenda agenda
	timer  *time.Timer // wakes the table for the head of the agenda
	armed  time.Time   // when it will; zero if it will not
	past   archive
}

// acquire decides about a new attempt. It returns the token if the key was
// granted at once.
func (t *table) acquire(a *attempt) (token uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.settle()
	defer t.arm()
	if a.from != nil && (a.from.gone || t.turnsAway(a.from)) {
		return 0, false
	}
	a.seq, a.slot = t.seq, -1
	t.seq++
	l := t.locks[a.key]
	switch {
	case t.used >= t.capacity:
		t.refuse(a, busy, now)
	case l == nil:
		l = &lock{key: a.key}
		if t.grant(l, a, now) {
			return l.grant.Token, true
		}
	case a.patience == immediate:
		t.refuse(a, timedOut, now)
	case l.queue.Len() >= t.queueLimit:
		t.refuse(a, busy, now)
	default:
		t.enqueue(l, a, now)
	}
	return 0, false
}

// cancel takes an attempt out of its queue, if it is still in it.
func (t *table) cancel(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.settle()
	defer t.arm()
	if a.inLock == nil {
		return
	}
	t.unqueue(a)
	t.used--
	t.attemptEvent(a, AttemptEnded, Dropped, now)
}

// release ends the grant of a key: the one with this token, or any if exact is
// false. It tells whether there was one.
func (t *table) release(from *party, key string, token uint64, exact bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.settle()
	defer t.arm()
	if from != nil && (from.gone || t.turnsAway(from)) {
		return false
	}
	l := t.locks[key]
	if l == nil || exact && l.grant.Token != token {
		if from != nil {
			from.out.answer(notHeld, key, 0, token)
		}
		return false
	}
	peer := ""
	if from != nil {
		peer = from.peer
	}
	t.end(l, Released, peer, now)
	if from != nil {
		from.out.answer(released, key, 0, token)
	}
	t.grantNext(l, now)
	return true
}

// finish tells that a connection sends no more requests (a FIN). Its queued
// attempts stay.
func (t *table) finish(p *party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.fin = true
	t.tellIdle(p)
}

// leave tells that a connection is over: what it has queued is dropped, what it
// holds stays.
func (t *table) leave(p *party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.settle()
	defer t.arm()
	t.drop(p, now)
}

func (t *table) drop(p *party, now time.Time) {
	p.gone = true
	for e := p.queued.Front(); e != nil; e = p.queued.Front() {
		a := e.Value.(*attempt)
		t.unqueue(a)
		t.used--
		t.attemptEvent(a, AttemptEnded, Dropped, now)
	}
}

// hangUp ends a connection by the table's own decision.
func (t *table) hangUp(p *party, now time.Time) {
	if p == nil || p.gone {
		return
	}
	t.drop(p, now)
	p.out.hangUp()
}

// settle ends everything that is due, oldest first, and returns the moment for
// which the table is then right.
func (t *table) settle() time.Time {
	now := time.Now()
	for len(t.agenda) > 0 && !t.agenda[0].due.After(now) {
		a := t.agenda[0]
		if a.held {
			l := t.locks[a.key]
			t.end(l, Expired, "", now)
			t.grantNext(l, now)
		} else {
			t.timeOut(a, now)
		}
	}
	return now
}

// arm sets the timer for the head of the agenda.
func (t *table) arm() {
	if len(t.agenda) == 0 {
		if t.timer != nil {
			t.timer.Stop()
		}
		t.armed = time.Time{}
		return
	}
	due := t.agenda[0].due
	if due.Equal(t.armed) {
		return
	}
	t.armed = due
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(due), t.tick)
		return
	}
	t.timer.Reset(time.Until(due))
}

func (t *table) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = time.Time{}
	t.settle()
	t.arm()
}

func (t *table) enqueue(l *lock, a *attempt, now time.Time) {
	t.used++
	a.inLock = l.queue.PushBack(a)
	if a.from != nil {
		a.inParty = a.from.queued.PushBack(a)
	}
	if a.patience == bounded {
		a.due = now.Add(a.wait)
		t.agenda.add(a)
	}
	t.attemptEvent(a, Queued, "", now)
}

// unqueue takes an attempt out of every queue; it still counts as used.
func (t *table) unqueue(a *attempt) {
	t.locks[a.key].queue.Remove(a.inLock)
	if a.from != nil {
		a.from.queued.Remove(a.inParty)
	}
	a.inLock, a.inParty = nil, nil
	t.agenda.remove(a)
}

func (t *table) timeOut(a *attempt, now time.Time) {
	t.unqueue(a)
	t.used--
	t.attemptEvent(a, AttemptEnded, TimedOut, now)
	t.answer(a, timedOut, 0, now)
}

// refuse answers an attempt that was never queued.
func (t *table) refuse(a *attempt, o outcome, now time.Time) {
	t.attemptEvent(a, AttemptEnded, Refused, now)
	t.answer(a, o, 0, now)
}

func (t *table) answer(a *attempt, o outcome, token uint64, now time.Time) {
	p := a.from
	if p == nil || p.gone {
		return
	}
	if !p.out.answer(o, a.key, a.owner, token) {
		t.hangUp(p, now)
		return
	}
	t.tellIdle(p)
}

func (t *table) tellIdle(p *party) {
	if p.fin && p.queued.Len() == 0 {
		p.out.idle()
	}
}

// grant gives a free key to an attempt that is in no queue. It is false if there
// is no token left: the attempt is then refused and its connection ends.
func (t *table) grant(l *lock, a *attempt, now time.Time) bool {
	if t.spent {
		t.attemptEvent(a, AttemptEnded, Refused, now)
		if a.from != nil && !a.from.gone {
			a.from.out.complain(reasonNoToken)
			t.hangUp(a.from, now)
		}
		return false
	}
	t.used++
	a.held, a.due = true, now.Add(a.lease)
	l.held = a
	l.grant = &Grant{
		Key: l.key, Token: t.token, Owner: a.owner, HasOwner: a.hasOwner,
		Wait: a.wait, Lease: a.lease, Peer: a.peer(), At: now, Until: a.due,
	}
	t.spent = t.token == math.MaxUint64
	t.token++
	t.locks[l.key] = l
	t.agenda.add(a)
	t.past.add(l.grant)
	t.grantEvent(l.grant, Granted, a.peer(), now)
	t.answer(a, granted, l.grant.Token, now)
	return true
}

// grantNext gives a key whose grant is over to the first waiter whose deadline
// has not come.
func (t *table) grantNext(l *lock, now time.Time) {
	for e := l.queue.Front(); e != nil; e = l.queue.Front() {
		a := e.Value.(*attempt)
		if a.patience == bounded && !a.due.After(now) {
			t.timeOut(a, now)
			continue
		}
		t.unqueue(a)
		t.used--
		if t.grant(l, a, now) {
			return
		}
	}
	delete(t.locks, l.key)
}

// end closes the books on a grant; the key is then free or goes to grantNext.
func (t *table) end(l *lock, how, by string, now time.Time) {
	t.agenda.remove(l.held)
	t.used--
	l.held = nil
	l.grant.How, l.grant.EndedAt, l.grant.EndedBy = how, now, by
	t.grantEvent(l.grant, GrantEnded, by, now)
}

func (t *table) attemptEvent(a *attempt, kind EventKind, how string, now time.Time) {
	if t.emit != nil {
		t.emit(Event{
			Kind: kind, Key: a.key, Owner: a.owner, HasOwner: a.hasOwner,
			Wait: a.wait, Lease: a.lease, Peer: a.peer(), How: how, At: now,
		})
	}
}

func (t *table) grantEvent(g *Grant, kind EventKind, peer string, now time.Time) {
	if t.emit != nil {
		t.emit(Event{
			Kind: kind, Key: g.Key, Token: g.Token, Owner: g.Owner, HasOwner: g.HasOwner,
			Wait: g.Wait, Lease: g.Lease, Peer: peer, How: g.How, At: now,
		})
	}
}
