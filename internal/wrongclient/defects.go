package wrongclient

import (
	"fmt"
	"slices"
	"strings"
)

// Defect is one way to be wrong, and the rule of spec/rules.md that must name it.
type Defect struct {
	Name     string   // as in spec/mutants.md
	Rule     string   // id in spec/rules.md
	Sentence string   // what the client does wrong
	Dialects []string // in which the rule, at its full severity, shows it
}

// defect switches one decision of the client. Its methods are those decisions:
// each gives the right answer except under the defect, or the oddity, that it
// names.
type defect string

// The defects; right is none.
const (
	right              defect = ""
	entersAnyway       defect = "enters-anyway"
	partialIsAcquired  defect = "partial-is-acquired"
	eofIsTimeout       defect = "eof-is-timeout"
	eofIsUnsent        defect = "eof-is-unsent"
	eofIsBusy          defect = "eof-is-busy"
	resendSame         defect = "resend-same"
	resendNewOwner     defect = "resend-new-owner"
	newlineFirst       defect = "newline-first"
	releaseByKey       defect = "release-by-key"
	wrongTokenReleased defect = "wrong-token-released"
	neverSettles       defect = "never-settles"
	staleZero          defect = "stale-zero"
	enterLate          defect = "enter-late"
	fifoKey            defect = "fifo-key"
	fifoConnection     defect = "fifo-connection"
	keyOnly            defect = "key-only"
	opBlind            defect = "op-blind"
	ownerConstant      defect = "owner-constant"
	ownerRestarts      defect = "owner-restarts"
	waitStale          defect = "wait-stale"
	wait255            defect = "wait-255"
	waitRoundedDown    defect = "wait-rounded-down"
	zeroAsOne          defect = "zero-as-one"
	zeroForever        defect = "zero-forever"
	deadlineRestarts   defect = "deadline-restarts"
	sendExpired        defect = "send-expired"
	lateNotReleased    defect = "late-not-released"
	timeoutAsError     defect = "timeout-as-error"
	busyAsTimeout      defect = "busy-as-timeout"
	busyRetried        defect = "busy-retried"
	releaseTwice       defect = "release-twice"
	resendPartial      defect = "resend-partial"
)

// What is odd and yet right (spec/rules.md, "Never a finding").
const (
	oddGrace             defect = "odd-grace"               // waits 1 s past the deadline for T or B
	oddRST               defect = "odd-rst"                 // closes with RST
	oddRepeatRelease     defect = "odd-repeat-release"      // sends an exact-token R again after its answer
	oddSessionPerCall    defect = "odd-session-per-call"    // no call shares or reuses a session
	oddTimeoutWhenUnsent defect = "odd-timeout-when-unsent" // tells a call that was not sent by its deadline as timeout
	oddIgnoresHints      defect = "odd-ignores-hints"       // takes no address from M or L
	oddClosesOnTimeout   defect = "odd-closes-on-timeout"   // closes the session after T or B
	oddReleaseElsewhere  defect = "odd-release-elsewhere"   // never releases on the session of the grant
)

// Odd lists the names of the odd but right clients that Library knows, in a fixed
// order.
func Odd() []string {
	var names []string
	for _, o := range slices.Concat([]defect{
		oddGrace, oddRST, oddRepeatRelease, oddSessionPerCall,
		oddTimeoutWhenUnsent, oddIgnoresHints, oddClosesOnTimeout, oddReleaseElsewhere,
	}, strayOdd, sessionOdd, clusterOdd, paceOdd, wordsOdd) {
		names = append(names, string(o))
	}
	return names
}

// Unseen lists the defects that Library knows and that sockets do not show, because the
// sender is told of a cut in the midst of a write only where that is cut short.
func Unseen() []Defect {
	return []Defect{{
		string(resendPartial), "one-attempt", "takes an acquire for sent only if its write took the whole frame, and else sends it again",
		[]string{dialectCurrent, dialectV0},
	}}
}

// Defects lists the defects that Library knows, in a fixed order.
func Defects() []Defect {
	current, v0, both := []string{dialectCurrent}, []string{dialectV0}, []string{dialectCurrent, dialectV0}
	return slices.Concat([]Defect{
		{string(entersAnyway), "no-entry-unconfirmed", "tells every end of an acquire that was sent as acquired, with token 0", both},
		{string(partialIsAcquired), "no-partial-frame", "enters as soon as the token of a grant is complete, before the key and the newline", both},
		{string(eofIsTimeout), "indeterminate-stays", "tells a connection that ended before the answer as timeout", both},
		{string(eofIsUnsent), "indeterminate-stays", "tells a connection that ended before the answer as unsent", both},
		{string(eofIsBusy), "indeterminate-stays", "tells a connection that ended before the answer as busy", both},
		{string(resendSame), "no-resend", "sends the same acquire again, with the same owner, when the connection ends", current},
		{string(resendNewOwner), "one-attempt", "sends the acquire again with a fresh owner when the connection ends", both},
		{string(newlineFirst), "header-by-count", "ends a frame at the first newline byte, inside the fixed fields too", both},
		{string(releaseByKey), "release-own", "releases whatever holds the key: after its own lease, and again after a possible send", v0},
		{string(wrongTokenReleased), "exact-token", "releases with the owner in the token's place", current},
		{string(neverSettles), "settles", "leaves a call that was in flight at a reset without an end", both},
		{string(staleZero), "entry-after-lease", "enters on a grant for wait 0 that came after the send stamp and the lease", current},
		{string(enterLate), "late-grant", "keeps the session past the deadline and enters on a grant that comes then", current},
		{string(fifoKey), "no-fifo", "gives an answer to the oldest call of its key, whatever its owner or token, and waits for it 3 s past the deadline", both},
		{string(fifoConnection), "no-fifo", "gives an answer to the oldest call on the connection, whatever its key, and waits for it 3 s past the deadline", both},
		{string(keyOnly), "match-triple", "gives the answer to an acquire to any acquire of that key, whatever its owner", current},
		{string(opBlind), "match-triple", "matches identifier and key but not the op: a timeout with a token for its owner ends a release", current},
		{string(ownerConstant), "owner-fresh", "has one owner for all calls of a client", current},
		{string(ownerRestarts), "owner-fresh", "counts its owners from 1 on every connection", current},
		{string(waitStale), "wait-recomputed", "sends the wait that the call started with, however late the connection came", current},
		{string(wait255), "wait-range", "sends a wait of 255 s when the connection came over 1 s after the start", both},
		{string(waitRoundedDown), "wait-rounded-up", "rounds the remaining time down, to 1 s at least", current},
		{string(zeroAsOne), "wait-range", "sends a wait of 1 s for an immediate attempt", current},
		{string(zeroForever), "zero-is-immediate", "gives an immediate attempt no deadline: it dials and waits for a day", current},
		{string(deadlineRestarts), "deadline-once", "starts the deadline anew with every new connection", current},
		{string(sendExpired), "expired-unsent", "sends an acquire that waited for its connection up to 4 s past the deadline", current},
		{string(lateNotReleased), "late-grant", "tells indeterminate at the deadline, keeps the session 4 s longer and drops a grant that comes then", current},
		{string(timeoutAsError), "timeout-final", "tells a timeout as an error", current},
		{string(busyAsTimeout), "busy-final", "tells busy as timeout", current},
		{string(busyRetried), "busy-not-retried", "sends the acquire again with a fresh owner 50 ms after busy, until the deadline", current},
		{string(releaseTwice), "release-own", "sends every release by key twice at once", v0},
	}, strayDefects, sessionDefects, clusterDefects, paceDefects, tableDefects, nearDefects)
}

func parseDefect(name string) (defect, error) {
	if name == "" || slices.Contains(Odd(), name) {
		return defect(name), nil
	}
	var names []string
	for _, d := range slices.Concat(Defects(), Unseen()) {
		if d.Name == name {
			return defect(name), nil
		}
		names = append(names, d.Name)
	}
	return right, fmt.Errorf("no defect %q; there are %s", name, strings.Join(append(names, Odd()...), ", "))
}

// String is the name of the client that has the defect.
func (d defect) String() string {
	if d == right {
		return "right"
	}
	return string(d)
}
