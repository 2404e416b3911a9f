package checker

import (
	"fmt"
	"slices"

	"tornwire/history"
)

// exactToken compares the token that was told with those of all A frames that the
// call may have got (V and E, P2), and each token in an R with all tokens of which
// the eight bytes had begun to be written to this client, on any session, before
// the R's last token byte was received (P9). A frame whose newline never came
// shows its token too ("Never a finding" 6), and an R for an expired token or a
// repeated one is right (4).
func exactToken(j *judge) {
	acquired, _ := j.confirmed()
	for _, c := range acquired {
		known := j.tokensFor(c)
		if !c.hasToken || len(known) == 0 || j.blind(c.client, c.result.ord) {
			continue
		}
		j.checked()
		if slices.Contains(known, c.token) {
			continue
		}
		f := wholeBefore(j.finals(c, opAcquired), c.result.ord)[0]
		j.find(Safety, Certain, fmt.Sprintf("%s although %s carried token %d", told(c), f.ref, known[0]),
			j.evidence(scene{call: c, frame: f, offset: len(f.data), at: c.result.ord}))
	}
	if !j.tokens {
		return
	}
	var clients []string
	for _, s := range j.sessions {
		if s.client != "" && !slices.Contains(clients, s.client) {
			clients = append(clients, s.client)
		}
	}
	for _, client := range clients {
		for _, r := range j.releasesOf(client) {
			j.releasedToken(client, r)
		}
	}
	for _, c := range acquired {
		j.releasedOther(c)
	}
}

// releasedToken judges the token of one R.
func (j *judge) releasedToken(client string, r *wireFrame) {
	token, m, ok := r.field(fieldToken)
	if !ok || j.blind(client, m.ord) {
		return
	}
	j.checked()
	for _, s := range j.sessionsOf(client) {
		for _, f := range s.delivered() {
			if t, seen, ok := f.field(fieldToken); ok && t == token && seen.before(m) {
				return
			}
		}
	}
	s := scene{call: j.releasing(client, r), frame: r, offset: len(r.data), at: m.ord}
	j.find(Safety, Certain, fmt.Sprintf("client %s sent %s on session %d with token %d, of which not all 8 bytes had been delivered to it",
		client, r.ref, r.session, token), j.evidence(s))
}

// releasing is the call whose release was asked for last before an R came.
func (v *view) releasing(client string, r *wireFrame) *call {
	var last *call
	var when moment
	for _, c := range v.calls {
		for _, m := range c.releases {
			if c.client == client && keyFits(r, c.key) && m.before(r.first()) && m.ord > when.ord {
				last, when = c, m
			}
		}
	}
	return last
}

// askedToRelease tells whether a call of the same client, not c, had a token that it was
// to release at a moment, its release not told done yet: so the R is that one's.
func (v *view) askedToRelease(c *call, token uint64, m moment) bool {
	return slices.ContainsFunc(v.calls, func(d *call) bool {
		done := func(r releaseResult) bool {
			return r.before(m) && (r.outcome == history.OutcomeReleased || r.outcome == history.OutcomeNotHeld)
		}
		return d != c && d.client == c.client && d.hasToken && d.token == token &&
			len(d.releases) > 0 && d.releases[0].before(m) && !slices.ContainsFunc(d.released, done)
	})
}

// releasedOther judges a release that was told done although the client never sent
// its token, but another one meanwhile. Every byte of the client is received
// before it is forwarded, so an answer to the right R cannot have come.
func (j *judge) releasedOther(c *call) {
	if !c.hasToken || len(c.releases) == 0 || len(c.released) == 0 {
		return
	}
	got := c.released[0]
	if got.outcome != history.OutcomeReleased && got.outcome != history.OutcomeNotHeld || j.blind(c.client, got.ord) {
		return
	}
	var other *wireFrame
	for _, r := range j.releasesOf(c.client) {
		t, m, ok := r.field(fieldToken)
		switch {
		case !ok || !m.before(got.moment):
		case t == c.token:
			return
		case c.releases[0].before(r.first()) && keyFits(r, c.key) && !j.askedToRelease(c, t, r.first()):
			other = r
		}
	}
	if other == nil {
		return
	}
	t, _, _ := other.field(fieldToken)
	j.find(Safety, Certain, fmt.Sprintf("the release of call %d on key %q was told %s although the client sent token %d in %s and never its own token %d",
		c.id, c.key, got.outcome, t, other.ref, c.token), j.evidence(scene{call: c, frame: other, offset: len(other.data), at: got.ord}))
}
