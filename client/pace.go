package client

import (
	"math/rand/v2"
	"time"
)

// Limits of dialling one address, for acquires and for the lane each.
const (
	dialBurst = 16                     // dials at once after a quiet time
	dialEvery = 200 * time.Millisecond // one more dial is allowed in every
)

// backoff is a kind of failure with its first and its longest pause. The
// pause doubles with every failure in a row.
type backoff struct{ first, longest time.Duration }

// Kinds of failure (spec/ticketing.md §3.12: back off by error).
var (
	noBackoff  = backoff{}
	peerEnded  = backoff{100 * time.Millisecond, 5 * time.Second} // dial, preface or session died early
	movedAway  = backoff{250 * time.Millisecond, 250 * time.Millisecond}
	notActive  = backoff{250 * time.Millisecond, 5 * time.Second}
	noLeader   = backoff{250 * time.Millisecond, 5 * time.Second} // of every address
	authFailed = backoff{time.Second, 30 * time.Second}
)

// pacer says when one address may be dialled again.
type pacer struct {
	spent    time.Time // the bucket is full once this lies dialBurst intervals back
	failures int
	until    time.Time  // back-off
	random   *rand.Rand // nil: the process's
}

// next is the earliest time of the next dial, pauses after failures apart.
func (p *pacer) next() time.Time { return p.spent.Add(-(dialBurst - 1) * dialEvery) }

// take counts a dial at now.
func (p *pacer) take(now time.Time) {
	if p.spent.Before(now) {
		p.spent = now
	}
	p.spent = p.spent.Add(dialEvery)
}

// fail begins a pause of the given kind: half of it for certain, half at random,
// so that clients do not come back in step.
func (p *pacer) fail(now time.Time, b backoff) {
	if b == noBackoff {
		return
	}
	d := b.first
	for range p.failures {
		if d *= 2; d >= b.longest {
			d = b.longest
			break
		}
	}
	p.failures++
	d = d/2 + p.upTo(d/2)
	if t := now.Add(d); t.After(p.until) {
		p.until = t
	}
}

// ok forgets the failures: a session has worked.
func (p *pacer) ok() { p.failures, p.until = 0, time.Time{} }

// upTo draws a duration from 0 to most.
func (p *pacer) upTo(most time.Duration) time.Duration {
	if p.random == nil {
		return rand.N(most + 1)
	}
	return time.Duration(p.random.Int64N(int64(most) + 1))
}
