package wrongclient

import "time"

// registerPause is what a client on a busy machine may take from a write to its next
// line.
const registerPause = 5 * time.Millisecond

// registersLate tells whether the nth acquire of a client is registered only after it
// was written: every fourth, as a machine is busy now and then.
func (d defect) registersLate(nth uint64) bool { return d == registerLate && nth%4 == 0 }
