package wrongclient

import (
	"fmt"
	"strings"
	"time"

	"tornwire/frames"
)

// Defect is one way to be wrong, and the rule of spec/rules.md that must name it.
type Defect struct {
	Name     string   // as in spec/mutants.md
	Rule     string   // id in spec/rules.md
	Sentence string   // what the client does wrong
	Dialects []string // in which the rule, at its full severity, shows it
}

// defect switches one decision of the client. Its methods are those decisions:
// each gives the right answer except under the defect that it names.
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
)

// Defects lists the defects that Library knows, in a fixed order.
func Defects() []Defect {
	current, v0, both := []string{dialectCurrent}, []string{dialectV0}, []string{dialectCurrent, dialectV0}
	return []Defect{
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
	}
}

func parseDefect(name string) (defect, error) {
	if name == "" {
		return right, nil
	}
	var names []string
	for _, d := range Defects() {
		if d.Name == name {
			return defect(name), nil
		}
		names = append(names, d.Name)
	}
	return right, fmt.Errorf("no defect %q; there are %s", name, strings.Join(names, ", "))
}

// String is the name of the client that has the defect.
func (d defect) String() string {
	if d == right {
		return "right"
	}
	return string(d)
}

// splitter cuts what a session reads into frames.
func (d defect) splitter(g *frames.Grammar) splitter {
	if d == newlineFirst {
		return &newlineSplitter{g: g}
	}
	return &countSplitter{dec: g.Decoder(frames.ServerToClient)}
}

// early tells whether a grant with the first n bytes there is acted on before
// its newline.
func (d defect) early(s *frames.Shape, n int) bool {
	return d == partialIsAcquired && s.Op == "A" && n >= s.Header
}

// fate is what becomes of an acquire that was sent and not answered.
type fate int

const (
	tell  fate = iota // an outcome
	again             // the acquire is sent once more
	hang              // nothing, until the caller gives up
)

// unanswered decides about an acquire that was sent and whose session then
// ended without a final answer. The outcome belongs to tell.
func (d defect) unanswered(e end) (f fate, outcome string) {
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
	case (d == resendSame || d == resendNewOwner) && peer:
		return again, ""
	case d == neverSettles && e.how == endReset:
		return hang, ""
	}
	return tell, indeterminate
}

// nextOwner is the owner of an acquire that is sent again.
func (d defect) nextOwner(old uint64) uint64 {
	if d == resendNewOwner {
		return newOwner()
	}
	return old
}

// patience is until when a session waits for the answer to an acquire.
func (d defect) patience(deadline time.Time) time.Time {
	if d == enterLate {
		return deadline.Add(4 * time.Second) // under the 5 s of rule settles
	}
	return deadline
}

// late tells whether a grant that is delivered now must not be entered. stale
// is zero where the lease's end cannot be known.
func (d defect) late(now, deadline, stale time.Time) bool {
	if d != enterLate && !now.Before(deadline) {
		return true
	}
	return d != staleZero && !stale.IsZero() && !now.Before(stale)
}

// releaseToken is the token that a release of the grant names.
func (d defect) releaseToken(g *grant) uint64 {
	if d == wrongTokenReleased {
		return g.owner
	}
	return g.token
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
