package api

import (
	"maps"

	"tornwire/faults"
	"tornwire/proxy"
)

// carried is a rule that goes on on a new data path: how it was asked for, and what
// it did before.
type carried struct {
	asked                 faults.Rule
	matched, fired, bytes int64
}

// before is what has to be kept of a rule, which may have been carried already.
func (d *member) before(s proxy.RuleState) carried {
	d.mu.Lock()
	c, ok := d.kept[s.Rule.ID]
	d.mu.Unlock()
	if !ok {
		c.asked = s.Rule
	}
	c.matched, c.fired, c.bytes = c.matched+s.Matched, c.fired+s.Fired, c.bytes+s.Bytes
	return c
}

// whole is a rule's state as if there had only been one data path.
func (c carried) whole(s proxy.RuleState) proxy.RuleState {
	r, t := c.asked, &s.Rule.Trigger
	s.Rule.TTL, s.Rule.Skip, s.Rule.Times = r.TTL, r.Skip, r.Times
	t.Begin, t.End = r.Trigger.Begin, r.Trigger.End
	s.Matched, s.Fired, s.Bytes = s.Matched+c.matched, s.Fired+c.fired, s.Bytes+c.bytes
	return s
}

// rules lists the states of the rules, in the order in which they are asked.
func (d *member) rules() []proxy.RuleState {
	d.mu.Lock()
	p, kept := d.prx, d.kept
	d.mu.Unlock()
	list := p.Rules()
	for i, s := range list {
		if c, ok := kept[s.Rule.ID]; ok {
			list[i] = c.whole(s)
		}
	}
	return list
}

// forget is for a rule that begins anew. The map is never changed, because it is
// read without the turn.
func (d *member) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.kept[id]; ok {
		kept := maps.Clone(d.kept)
		delete(kept, id)
		d.kept = kept
	}
}

// remaining is what is left of a rule: of its time, its window, and the frames that
// it passes and takes. It is false if that is nothing.
func remaining(s proxy.RuleState) (faults.Rule, bool) {
	r := s.Rule
	passed := r.TTL - s.Left
	if r.TTL > 0 {
		r.TTL = s.Left
	}
	r.Skip = max(r.Skip-int(s.Matched), 0)
	if r.Times > 0 {
		if r.Times -= int(s.Fired); r.Times <= 0 {
			return r, false
		}
	}
	r.Trigger.Begin = max(r.Trigger.Begin-passed, 0)
	if r.Trigger.End > 0 {
		if r.Trigger.End -= passed; r.Trigger.End <= 0 {
			return r, false
		}
	}
	return r, true
}
