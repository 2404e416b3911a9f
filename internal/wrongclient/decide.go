package wrongclient

import (
	"net"
	"strings"
	"time"

	"tornwire/frames"
)

// How long the defects that wait too long do so.
const (
	latePatience = 4 * time.Second // under the 5 s of rule settles
	fifoPatience = 3 * time.Second // a T for a wait over 0 comes within it
	oddPatience  = time.Second     // under the grace of rule deadline-closes
	busyPause    = 50 * time.Millisecond
	lateConnect  = time.Second // after the start, for wait255
	forever      = 24 * time.Hour
)

// splitter cuts what a session reads into frames.
func (d defect) splitter(g *frames.Grammar) splitter {
	if d == newlineFirst {
		return &newlineSplitter{g: g}
	}
	if d.skips() {
		return &skippingSplitter{g: g, d: d, dec: g.Decoder(frames.ServerToClient)}
	}
	return &countSplitter{dec: g.Decoder(frames.ServerToClient)}
}

// early tells whether a grant with the first n bytes there is acted on before
// its newline.
func (d defect) early(s *frames.Shape, n int) bool {
	return d == partialIsAcquired && s.Op == "A" && n >= s.Header
}

// mixes tells whether a session takes requests whose answers look the same.
func (d defect) mixes() bool { return d == fifoKey || d == fifoConnection }

// matches tells whether f is the answer to x, which is the oldest that is not
// answered of those that f could belong to.
func (d defect) matches(f frame, x *exchange) bool {
	fits := strings.Contains(x.ops, f.shape.Op)
	if near, known := d.nearlyMatches(f, x); known {
		return near
	}
	switch {
	case d == fifoConnection:
		return fits
	case d == fifoKey, d == keyOnly && x.ops == acquireAnswers:
		return fits && f.tail() == x.key
	case d == keyBlind && x.ops == acquireAnswers:
		return fits && f.id() == x.id
	case d == opBlind:
		return f.id() == x.id && f.tail() == x.key
	}
	return f.answers(x)
}

// opFor is the op that a matched answer counts as: one that does not fit would be
// the good answer.
func (d defect) opFor(x *exchange, op byte) byte {
	if d == opBlind && strings.IndexByte(x.ops, op) < 0 {
		return x.ops[0]
	}
	return op
}

// fate is what becomes of an acquire that was sent and not answered.
type fate int

const (
	tell  fate = iota // an outcome
	again             // the acquire is sent once more
	hang              // nothing, until the caller gives up
)

// unanswered decides about an acquire that was sent and whose session then
// ended without a final answer; whole tells whether the write took all of it. The
// outcome belongs to tell.
func (d defect) unanswered(e end, whole bool) (f fate, outcome string) {
	peer := e.how == endEOF || e.how == endReset
	switch {
	case d == entersAnyway && e.how != endCancel:
		return tell, acquired
	case d == eofIsTimeout && peer:
		return tell, timeout
	case d == eofIsUnsent && peer:
		return tell, unsent
	case d == eofIsBusy && peer:
		return tell, busy
	case (d == resendSame || d == resendNewOwner) && peer, d == resendPartial && peer && !whole:
		return again, ""
	case d == cancelAsUnsent && e.how == endCancel:
		return tell, unsent
	case d == neverSettles && e.how == endReset:
		return hang, ""
	}
	return tell, indeterminate
}

// neverSent is the outcome of a call that was never sent.
func (d defect) neverSent(e end) string {
	switch {
	case d == oddTimeoutWhenUnsent && e.how == endDeadline:
		return timeout
	case d == oddUnsentIndeterminate && e.how == endDeadline:
		return indeterminate
	}
	return unsent
}

// owner is that of a new call. The client has one for the defect that needs it.
func (d defect) owner(clients uint64) uint64 {
	if d == ownerConstant {
		return clients
	}
	return newOwner()
}

// ownerOn is the owner of the nth acquire of a session; own is its call's.
func (d defect) ownerOn(nth, own uint64) uint64 {
	if d == ownerRestarts {
		return nth
	}
	return own
}

// nextOwner is the owner of an acquire that is sent again.
func (d defect) nextOwner(old uint64) uint64 {
	if d == resendNewOwner || d == busyRetried {
		return newOwner()
	}
	return old
}

// zeroBudget is the time that an immediate attempt has.
func (d defect) zeroBudget() time.Duration {
	switch d {
	case zeroForever:
		return forever
	case oddShortZero:
		return shortZero
	}
	return zeroLimit
}

// deadlineOn is the deadline of a call for which a new connection is made.
func (d defect) deadlineOn(k *call, now time.Time) time.Time {
	if d == deadlineRestarts {
		return now.Add(k.budget)
	}
	return k.deadline
}

// wireWait is what an acquire that is sent now asks for: the remaining time in
// whole seconds, rounded up. It is false if the acquire must not be sent.
func (d defect) wireWait(k *call, now time.Time) (wait uint64, ok bool) {
	left := k.deadline.Sub(now)
	ok = left > 0 || d == sendExpired
	switch {
	case k.zero && d == zeroAsOne:
		return 1, ok
	case k.zero:
		return 0, ok
	case d == waitStale:
		return seconds(k.budget), ok
	case d == wait255 && now.Sub(k.start) > lateConnect:
		return 255, ok
	case d == waitRoundedDown:
		return uint64(max(left/time.Second, 1)), ok
	}
	return seconds(max(left, 1)), ok
}

// sendUntil is until when an acquire may be sent.
func (d defect) sendUntil(deadline time.Time) time.Time {
	if d == sendExpired {
		return deadline.Add(latePatience)
	}
	return deadline
}

// patience is until when a session waits for the answer to an acquire.
func (d defect) patience(deadline time.Time) time.Time {
	switch d {
	case enterLate, sendExpired:
		return deadline.Add(latePatience)
	case fifoKey, fifoConnection:
		return deadline.Add(fifoPatience)
	case oddGrace:
		return deadline.Add(oddPatience)
	}
	return deadline
}

// keeps is how long a session stays open for the answer to x although nobody
// waits for it any more, for the reason e.
func (d defect) keeps(x *exchange, e end) time.Duration {
	if d == lateNotReleased && x.ops == acquireAnswers && e.how == endDeadline {
		return latePatience
	}
	return 0
}

// late tells whether a grant that is delivered now must not be entered. stale
// is zero where the lease's end cannot be known.
func (d defect) late(now, deadline, stale time.Time) bool {
	if d != enterLate && d != entersAfterThaw && !now.Before(deadline) {
		return true
	}
	return d != staleZero && !stale.IsZero() && !now.Before(stale)
}

// releasesLate tells whether a late grant is released.
func (d defect) releasesLate() bool { return d != lateNotReleased && d != forgetsAfterThaw }

// timeoutWord is the outcome for T.
func (d defect) timeoutWord() string {
	if d == timeoutAsError {
		return failed
	}
	return timeout
}

// busyWord is the outcome for B.
func (d defect) busyWord() string {
	if d == busyAsTimeout {
		return timeout
	}
	return busy
}

// retriesBusy tells whether the acquire is sent again after B.
func (d defect) retriesBusy(now, deadline time.Time) bool {
	return d == busyRetried && now.Add(busyPause).Before(deadline)
}

// closesAfterRefusal tells whether T and B end the session.
func (d defect) closesAfterRefusal() bool { return d == oddClosesOnTimeout }

// releaseToken is the token that a release of the grant names.
func (d defect) releaseToken(g *grant) uint64 {
	if d == wrongTokenReleased {
		return g.owner
	}
	return g.token
}

// releaseOn says where a grant of session s is released.
func (d defect) releaseOn(s *session) (prefer, avoid *session) {
	if d == oddReleaseElsewhere {
		return nil, s
	}
	return s, nil
}

// mayReleaseKey tells whether a release that names only the key may be sent: it
// would end another's grant after the own lease, or when it arrives twice.
func (d defect) mayReleaseKey(now time.Time, g *grant) bool {
	return d == releaseByKey || now.Before(g.until) && !g.sent.Load()
}

// claimKey is mayReleaseKey for one of several releases, which then sends it.
func (d defect) claimKey(now time.Time, g *grant) bool {
	return d == releaseByKey || now.Before(g.until) && g.sent.CompareAndSwap(false, true)
}

// doublesRelease tells whether a release by key is sent twice at once.
func (d defect) doublesRelease() bool { return d == releaseTwice }

// repeatsRelease tells whether an exact-token release that was answered is sent
// once more.
func (d defect) repeatsRelease() bool { return d == oddRepeatRelease }

// sessionPerCall tells whether every call has a fresh session to itself.
func (d defect) sessionPerCall() bool { return d == oddSessionPerCall || d == oddFewWords }

// ignoresHints tells whether M and L name no leader.
func (d defect) ignoresHints() bool { return d == oddIgnoresHints }

// beforeClose prepares the end of a connection.
func (d defect) beforeClose(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(sec int) error }); ok && d == oddRST {
		_ = c.SetLinger(0)
	}
}
