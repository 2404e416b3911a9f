package checker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tornwire/history"
)

// zeroDeadline is the transport deadline of a wait of 0 (spec/ticketing.md §3.8).
const zeroDeadline = 5 * time.Second

// call is one acquire asked for by the application.
type call struct {
	id          int
	client, key string
	wait, lease time.Duration
	asked       moment
	started     moment // the adapter's word that it is about to call the library
	result      moment
	outcome     string
	token       uint64
	hasToken    bool
	owner       uint64
	hasOwner    bool
	cancel      moment
	overdue     moment
	entered     moment
	refused     bool // the resource would have refused its token
	left        moment
	releases    []moment // asked
	released    []releaseResult
	attempts    []*attempt // that may be its own, in order of their first byte
}

type releaseResult struct {
	moment
	outcome string
}

// deadline is the latest that the call's own deadline can be; false for a wait
// without end.
func (v *view) deadline(c *call) (time.Duration, bool) {
	switch {
	case c.wait > 0:
		return c.asked.at + c.wait, true
	case v.owners:
		return c.asked.at + zeroDeadline, true
	}
	return 0, false
}

// longest is the most that a library can have been given for the call's wait, if it
// takes whole seconds only.
func (c *call) longest() time.Duration { return time.Duration(wholeSeconds(c.wait)) * time.Second }

// attempt is one A frame received from a client, or the part of it that came.
type attempt struct {
	*wireFrame
	client   string
	owner    uint64
	hasOwner bool
	calls    []*call // whose attempt it may be
}

// only is the one call whose attempt it must be, or nil.
func (a *attempt) only() *call {
	if len(a.calls) != 1 {
		return nil
	}
	return a.calls[0]
}

func (v *view) callEvent(e *history.Event, m moment) {
	if e.Kind == history.CloseAsked {
		if _, ok := v.closing[e.Client]; !ok {
			v.closing[e.Client] = m
		}
		return
	}
	if e.Kind == history.CallAsked {
		if v.byCall[e.Call] == nil {
			c := &call{id: e.Call, client: e.Client, key: e.Key, wait: e.Wait, lease: e.Lease, asked: m}
			v.byCall[e.Call] = c
			v.calls = append(v.calls, c)
		}
		return
	}
	c := v.byCall[e.Call]
	if c == nil {
		return
	}
	switch e.Kind {
	case history.CallResult:
		if !c.result.happened() && e.Outcome != "" {
			c.result, c.outcome = m, e.Outcome
			c.token, c.hasToken, c.owner, c.hasOwner = e.Token, e.HasToken, e.Owner, e.HasOwner
		}
	case history.CallStarted:
		c.started = earliest(c.started, m)
	case history.CancelAsked:
		c.cancel = earliest(c.cancel, m)
	case history.CallOverdue:
		c.overdue = earliest(c.overdue, m)
	case history.Entered:
		if !c.entered.happened() {
			c.entered, c.refused = m, e.Refused
		}
	case history.Left:
		c.left = earliest(c.left, m)
	case history.ReleaseAsked:
		c.releases = append(c.releases, m)
	case history.ReleaseResult:
		c.released = append(c.released, releaseResult{m, e.Outcome})
	}
}

func earliest(a, b moment) moment {
	if a.happened() {
		return a
	}
	return b
}

// findAttempts collects the A frames of the clients and says whose each may be
// (P2): by key and lease as far as they came, by the owner that a result named,
// and by which calls were running.
func (v *view) findAttempts() {
	for _, s := range v.sessions {
		if s.client == "" {
			continue
		}
		for _, f := range s.requests() {
			if f.isOp(opAcquire) && !f.unknown {
				a := &attempt{wireFrame: f, client: s.client}
				a.owner, _, a.hasOwner = f.field(fieldOwner)
				v.attempts = append(v.attempts, a)
			}
		}
	}
	slices.SortFunc(v.attempts, func(a, b *attempt) int { return cmp.Compare(a.first().ord, b.first().ord) })
	taken := map[*call]bool{}
	for _, a := range v.attempts {
		a.calls = v.candidates(a, taken)
		if c := a.only(); c != nil {
			taken[c] = true
		}
		for _, c := range a.calls {
			c.attempts = append(c.attempts, a)
		}
	}
}

// candidates lists the calls that may have sent a. A call that has ended stays
// one for a while, since its request may still have been under way, unless its
// one attempt is known already.
func (v *view) candidates(a *attempt, taken map[*call]bool) []*call {
	out := slices.DeleteFunc(slices.Clone(v.calls), func(c *call) bool {
		ended := c.result.before(a.first())
		return c.client != a.client || !c.asked.before(a.first()) || !keyFits(a.wireFrame, c.key) ||
			ended && a.first().at > c.result.at+inFlight
	})
	out = narrow(out, func(c *call) bool { return leaseFits(a.wireFrame, c.lease) })
	if a.hasOwner {
		out = narrow(out, func(c *call) bool { return c.hasOwner && c.owner == a.owner })
		out = narrow(out, func(c *call) bool { return !c.hasOwner || c.owner == a.owner })
	}
	return narrow(out, func(c *call) bool { return !taken[c] || !c.result.before(a.first()) })
}

// narrow keeps what fits, or everything if nothing does.
func narrow(calls []*call, fits func(*call) bool) []*call {
	var out []*call
	for _, c := range calls {
		if fits(c) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return calls
	}
	return out
}

// keyFits tells whether the text of a frame, as far as it came, is the key.
func keyFits(f *wireFrame, key string) bool {
	t, whole := f.tail()
	if whole {
		return t == key
	}
	return strings.HasPrefix(key, t)
}

// leaseFits tells whether the lease on the wire, if it came, is the call's in
// whole seconds, rounded either way.
func leaseFits(f *wireFrame, lease time.Duration) bool {
	n, _, ok := f.field(fieldLease)
	if !ok || n > 1<<16 {
		return true
	}
	d := time.Duration(n)*time.Second - lease
	return d > -time.Second && d < time.Second
}

// foreign tells whether an owner is known to be that of another attempt of the
// client than a.
func (v *view) foreign(a *attempt, owner uint64) bool {
	return slices.ContainsFunc(v.attempts, func(b *attempt) bool {
		return b != a && b.client == a.client && b.hasOwner && b.owner == owner
	})
}

// answers tells whether a frame written to the client on the session of a may be
// the answer to it for call c: after the first byte of the request, with the owner
// (where the dialect has one) and the key, as far as they were written.
func (v *view) answers(f *wireFrame, a *attempt, c *call) bool {
	if f.unknown || !keyFits(f, c.key) {
		return false
	}
	if last := f.cells[len(f.cells)-1].when; !a.first().before(last) {
		return false
	}
	if o, _, ok := f.field(fieldOwner); ok {
		if a.hasOwner {
			return o == a.owner
		}
		return !v.foreign(a, o)
	}
	return true
}

// finals lists the frames of the given ops written to the client that may answer
// c, whole or in part, in the order of their first bytes.
func (v *view) finals(c *call, ops ...string) []*wireFrame {
	var out []*wireFrame
	for _, a := range c.attempts {
		for _, f := range v.byID[a.session].delivered() {
			if slices.ContainsFunc(ops, f.isOp) && v.answers(f, a, c) && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	slices.SortFunc(out, func(a, b *wireFrame) int { return cmp.Compare(a.first().ord, b.first().ord) })
	return out
}

// wholeBefore keeps the frames whose last byte had begun to be written before an
// order number.
func wholeBefore(fs []*wireFrame, ord int) []*wireFrame {
	var out []*wireFrame
	for _, f := range fs {
		if f.whole && f.end().ord < ord {
			out = append(out, f)
		}
	}
	return out
}

// releasesOf lists the R frames, whole or in part, that a client sent, in the
// order of their first bytes.
func (v *view) releasesOf(client string) []*wireFrame {
	var out []*wireFrame
	for _, s := range v.sessionsOf(client) {
		for _, f := range s.requests() {
			if f.isOp(opRelease) && !f.unknown {
				out = append(out, f)
			}
		}
	}
	slices.SortFunc(out, func(a, b *wireFrame) int { return cmp.Compare(a.first().ord, b.first().ord) })
	return out
}

// pairUp finds a largest pairing of things with candidates, each used once, that
// serves earlier things and earlier candidates first. The result holds the
// candidate of each thing, or -1.
func pairUp(candidates [][]int, n int) []int {
	got, owner := make([]int, len(candidates)), make([]int, n)
	for i := range got {
		got[i] = -1
	}
	for i := range owner {
		owner[i] = -1
	}
	var try func(i int, seen []bool) bool
	try = func(i int, seen []bool) bool {
		for _, k := range candidates[i] {
			if seen[k] {
				continue
			}
			seen[k] = true
			if owner[k] < 0 || try(owner[k], seen) {
				owner[k], got[i] = i, k
				return true
			}
		}
		return false
	}
	for i := range candidates {
		try(i, make([]bool, n))
	}
	return got
}
