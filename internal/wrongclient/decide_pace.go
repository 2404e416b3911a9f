package wrongclient

import "time"

// lastLook is enough for a client that was stopped, and under the grace of rule
// deadline-closes.
const lastLook = time.Second

// pauses tells whether the client lets some time pass before it makes another
// connection to an address.
func (d defect) pauses() bool { return d != reconnectHot }

// looksAgain is how long a session goes on reading when a call's deadline has passed,
// before it is closed.
func (d defect) looksAgain(e end) time.Duration {
	if (d == entersAfterThaw || d == forgetsAfterThaw) && e.how == endDeadline {
		return lastLook
	}
	return 0
}
