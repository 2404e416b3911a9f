package checker

import (
	"fmt"
	"slices"

	"tornwire/history"
)

// entryAfterLease stands on S and P9: the table had ended the grant at its lease
// before the write of the last byte of its A had begun, so whatever the client
// read, it read too late. Who can know that is told by the wait: with W = 0, or
// W up to the lease, the client's own clock from its send does; with a longer wait
// (and in v0 with wait 0, which waits for ever) nobody can, and the entry is only
// counted. Not judged without the table (P14).
func entryAfterLease(j *judge) {
	if !j.policy.SawTable {
		return
	}
	_, by := j.confirmed()
	for _, c := range j.calls {
		if !c.result.happened() {
			continue
		}
		endless := c.wait == 0 && !j.owners
		unknowable := endless || c.wait > c.lease
		if !unknowable && slices.ContainsFunc(j.finals(c, opAcquired), func(f *wireFrame) bool { return j.stale(c, f) != nil && j.open(f) }) {
			j.checked()
		}
		f := by[c]
		if f == nil {
			continue
		}
		g := j.stale(c, f)
		if g == nil {
			continue
		}
		message := fmt.Sprintf("%s by %s, written %s after the lease of that grant had ended", told(c), f.ref, ms(since(g.end, f.end())))
		switch {
		case unknowable:
			j.fence(c, g)
		case c.wait == 0 && j.policy.Profile == ProfileOfficial:
			j.find(Contract, Certain, message, j.evidence(scene{call: c, frame: f, offset: len(f.data), at: c.result.ord}))
		default:
			j.find(Hygiene, Certain, message, j.evidence(scene{call: c, frame: f, offset: len(f.data), at: c.result.ord}))
		}
	}
}

// stale returns the grant of an A for c if it had expired before the write of the
// A's last byte began.
func (v *view) stale(c *call, f *wireFrame) *grant {
	t, _, ok := f.field(fieldToken)
	if !ok || !f.whole {
		return nil
	}
	g := v.grantOf(c.key, t)
	if g == nil || g.how != history.Expired || !g.end.before(f.end()) {
		return nil
	}
	return g
}

// open tells whether the client had not ended its session when f was written.
func (v *view) open(f *wireFrame) bool { return !v.byID[f.session].closed.before(f.end()) }

// fence counts an entry that no client could have avoided, and names both holders.
func (j *judge) fence(c *call, g *grant) {
	j.res.NeedsFencing++
	when := c.result
	if c.entered.happened() {
		when = c.entered
	}
	line := fmt.Sprintf("key %q: call %d of client %s entered with token %d at %s, after its lease had ended at %s; ",
		c.key, c.id, c.client, g.token, ms(when.at), ms(g.end.at))
	var other *grant
	for _, o := range j.grants {
		if o.key == c.key && o != g && o.ord > g.end.ord && o.ord < when.ord {
			other = o
		}
	}
	if other == nil {
		line += "nobody else had been granted the key; "
	} else {
		line += fmt.Sprintf("%s had been granted token %d at %s; ", other.holder(), other.token, ms(other.at))
	}
	if c.refused {
		line += fmt.Sprintf("a resource that checks tokens refuses token %d", g.token)
	} else {
		line += fmt.Sprintf("the resource had seen no token above %d", g.token)
	}
	j.res.Fenced = append(j.res.Fenced, line)
}
