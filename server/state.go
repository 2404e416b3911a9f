package server

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// EventKind names a change of the lock table.
type EventKind string

// The kinds of events.
const (
	// Queued: an attempt waits for its turn.
	Queued EventKind = "queued"
	// Granted: a key was granted. Token is set.
	Granted EventKind = "granted"
	// GrantEnded: a grant is over. How is Released or Expired; Token, Owner, Wait
	// and Lease are the grant's, Peer is who sent the R ("" at expiry).
	GrantEnded EventKind = "grant_ended"
	// AttemptEnded: an attempt ended without a grant. How is TimedOut, Refused or
	// Dropped.
	AttemptEnded EventKind = "attempt_ended"
)

// Words for Event.How and Grant.How.
const (
	Released = "released" // by an R, or by Server.Release
	Expired  = "expired"  // the lease ran out
	TimedOut = "timed_out"
	// Refused: answered busy, or a wait of 0 on a held key, or no token left.
	Refused = "refused"
	// Dropped: its connection ended, or the embedding program gave it up, while it
	// was queued.
	Dropped = "dropped"
)

// Event is one change of the lock table. Events come in table order.
type Event struct {
	Kind     EventKind
	Key      string
	Token    uint64 // of a grant; 0 for an attempt
	Owner    uint64
	HasOwner bool // false in a dialect without owners and for direct use of the table
	Wait     time.Duration
	Lease    time.Duration
	Peer     string // remote address of the connection that asked; for grant_ended of the one that released; "" for direct use
	How      string
	At       time.Time // when the table decided
}

// Grant is one grant of a key, live or over.
type Grant struct {
	Key      string
	Token    uint64
	Owner    uint64
	HasOwner bool
	Wait     time.Duration // of the attempt
	Lease    time.Duration
	Peer     string // who was granted; "" for direct use
	At       time.Time
	Until    time.Time // when the lease ends
	How      string    // Released or Expired; "" while the grant is live
	EndedAt  time.Time // when the table ended it; zero while it is live
	EndedBy  string    // remote address of who released it; "" for expiry and direct use
}

// Waiter is a queued attempt.
type Waiter struct {
	Owner    uint64
	HasOwner bool
	Peer     string
	Wait     time.Duration
	Lease    time.Duration
	Deadline time.Time // zero if it waits for ever
}

// KeyState is a held key; a free key has no state.
type KeyState struct {
	Key    string
	Holder Grant
	Queue  []Waiter // first in line first
}

// Limits of what is remembered of past grants.
const (
	// HistoryLimit is the most grants of one key that History returns.
	HistoryLimit = 256
	// HistoryTotal is the most grants remembered over all keys; over it the
	// oldest goes, whatever its key.
	HistoryTotal = 65536
)

// archive remembers grants, the oldest first, over all keys and per key.
type archive struct {
	all   list.List // of *Grant
	byKey map[string][]*list.Element
}

func (h *archive) add(g *Grant) {
	if h.byKey == nil {
		h.byKey = map[string][]*list.Element{}
	}
	h.byKey[g.Key] = append(h.byKey[g.Key], h.all.PushBack(g))
	if len(h.byKey[g.Key]) > HistoryLimit {
		h.forget(g.Key)
	}
	if h.all.Len() > HistoryTotal {
		h.forget(h.all.Front().Value.(*Grant).Key)
	}
}

// forget drops the oldest grant of a key.
func (h *archive) forget(key string) {
	es := h.byKey[key]
	h.all.Remove(es[0])
	es[0] = nil
	if len(es) == 1 {
		delete(h.byKey, key)
		return
	}
	h.byKey[key] = es[1:]
}

func (h *archive) of(key string) []Grant {
	var gs []Grant
	for _, e := range h.byKey[key] {
		gs = append(gs, *e.Value.(*Grant))
	}
	return gs
}

func (t *table) snapshot() []KeyState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	defer t.arm()
	states := make([]KeyState, 0, len(t.locks))
	for _, l := range t.locks {
		k := KeyState{Key: l.key, Holder: *l.grant}
		for e := l.queue.Front(); e != nil; e = e.Next() {
			a := e.Value.(*attempt)
			k.Queue = append(k.Queue, Waiter{
				Owner: a.owner, HasOwner: a.hasOwner, Peer: a.peer(),
				Wait: a.wait, Lease: a.lease, Deadline: a.due,
			})
		}
		states = append(states, k)
	}
	slices.SortFunc(states, func(a, b KeyState) int { return cmp.Compare(a.Key, b.Key) })
	return states
}

func (t *table) holder(key string) (Grant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	defer t.arm()
	if l := t.locks[key]; l != nil {
		return *l.grant, true
	}
	return Grant{}, false
}

func (t *table) history(key string) []Grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settle()
	defer t.arm()
	return t.past.of(key)
}
