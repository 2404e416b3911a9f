package wrongclient

import "time"

// readLate is how late the odd client reads what it is told of the cluster.
const readLate = 20 * time.Millisecond

// takesAny tells whether the address in a frame is taken for the leader's although it
// is none of ours.
func (d defect) takesAny(op string) bool {
	return d == movedAnywhere && op == "M" || d == noticeAnywhere && op == "L"
}

// staysAfter tells whether a frame about the cluster leaves its session open; reason
// is that of an E.
func (d defect) staysAfter(op, reason string) bool {
	switch op {
	case "L":
		return d != leaderCloses
	case "M":
		return d == movedKeeps
	}
	return d == errorKeeps && (reason == "no_leader" || reason == "not_active" || reason == "auth_failed")
}

// answersWith is what a frame about the cluster tells the acquires that wait on its
// session, 0 for nothing.
func (d defect) answersWith(op string) byte {
	switch {
	case d == movedAsReply && op == "M":
		return 'T'
	case d == leaderAsReply && op == "L":
		return 'A'
	}
	return 0
}

// dropsHint tells whether an error makes the client forget the leader.
func (d defect) dropsHint(reason string) bool { return d != hintSticky && reason == "no_leader" }

// returns tells whether the node that was connected to last is dialled first.
func (d defect) returns() bool { return d == oddReturns }

// delaysWords waits before a frame about the cluster is acted on.
func (d defect) delaysWords() {
	if d == oddReadsLate {
		time.Sleep(readLate)
	}
}
