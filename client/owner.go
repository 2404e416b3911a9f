package client

import (
	"crypto/rand"
	"encoding/binary"
	"hash/fnv"
	mathrand "math/rand/v2"
	"sync"
)

// Limits of what is remembered.
const (
	maxOwners = 8192 // owners of the process that are not drawn again
	maxTokens = 1024 // tokens a client remembers as matched to its calls
)

// ring is a set that forgets its oldest member when it is full.
type ring struct {
	set   map[uint64]struct{}
	order []uint64
	next  int
	most  int
}

func newRing(most int) *ring { return &ring{set: map[uint64]struct{}{}, most: most} }

func (r *ring) has(v uint64) bool {
	_, ok := r.set[v]
	return ok
}

// add is false if v is there already.
func (r *ring) add(v uint64) bool {
	if r.has(v) {
		return false
	}
	if len(r.order) < r.most {
		r.order = append(r.order, v)
	} else {
		delete(r.set, r.order[r.next])
		r.order[r.next] = v
		r.next = (r.next + 1) % r.most
	}
	r.set[v] = struct{}{}
	return true
}

var owners = struct {
	sync.Mutex
	*ring
}{ring: newRing(maxOwners)}

// newOwner draws a fresh owner for a call (spec/ticketing.md §3.3). It is drawn
// for every call, not counted from a random start, so that a process copied
// with its memory does not go on with the same owners.
func newOwner() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails: it ends the process instead
		o := binary.BigEndian.Uint64(b[:])
		owners.Lock()
		fresh := o != 0 && owners.add(o)
		owners.Unlock()
		if fresh {
			return o
		}
	}
}

// seeded is a source for what a name stands for. Each has its own, so that what is
// drawn for one does not depend on when the others draw.
func seeded(seed uint64, name string) *mathrand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return mathrand.New(mathrand.NewPCG(seed, h.Sum64()))
}

// seededOwners draws owners in the order of the calls.
func seededOwners(seed uint64) func() uint64 {
	var mu sync.Mutex
	random := seeded(seed, "owners")
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		for {
			if o := random.Uint64(); o != 0 {
				return o
			}
		}
	}
}
