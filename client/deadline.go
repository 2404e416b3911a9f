package client

import "time"

// zeroWaitLimit is the transport deadline of a call with wait 0
// (spec/ticketing.md §3.8).
const zeroWaitLimit = 5 * time.Second

// budget is the one deadline of a call (spec/ticketing.md §3.4). It is made
// from a time.Now, so it is monotonic: setting the clock does not move it.
type budget struct {
	deadline time.Time
	zero     bool // wait 0: an immediate attempt
}

func newBudget(now time.Time, wait, most time.Duration) budget {
	if wait == 0 {
		return budget{deadline: now.Add(zeroWaitLimit), zero: true}
	}
	return budget{deadline: now.Add(min(wait, most))}
}

// wire is the wait to send at now, in whole seconds rounded up; false if it is
// too late to send at all.
func (b budget) wire(now time.Time) (uint64, bool) {
	left := b.deadline.Sub(now)
	switch {
	case left <= 0:
		return 0, false
	case b.zero:
		return 0, true
	}
	return seconds(left), true
}

// useBy is when a grant must have been handed to the application: the deadline;
// for wait 0 no later than the stamp before the write + lease, as the lease
// cannot have begun earlier and is not known to have begun later; and in no
// case when the lease is over even counted from the read of its frame.
func (b budget) useBy(sent, read time.Time, lease time.Duration) time.Time {
	by := earlier(b.deadline, read.Add(lease))
	if b.zero {
		by = earlier(by, sent.Add(lease))
	}
	return by
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// seconds rounds up to whole seconds, without overflow.
func seconds(d time.Duration) uint64 {
	n := uint64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
