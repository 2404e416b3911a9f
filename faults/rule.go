package faults

import (
	"fmt"
	"maps"

	"tornwire/frames"
)

// Frame is what a trigger can see of a frame when its first byte has arrived.
type Frame struct {
	Dir        frames.Direction
	Op         string
	Session    int // from 1, in accept order
	Nth        int // of its direction and op over all sessions, from 1
	SessionNth int // the same within its session
}

// Trigger says to which frames a rule applies. A zero number means any.
type Trigger struct {
	Dir        frames.Direction
	Op         string
	Session    int
	Nth        int
	SessionNth int
}

// Matches tells whether the trigger applies to a frame.
func (t Trigger) Matches(f Frame) bool {
	return t.Dir == f.Dir && t.Op == f.Op &&
		(t.Session == 0 || t.Session == f.Session) &&
		(t.Nth == 0 || t.Nth == f.Nth) &&
		(t.SessionNth == 0 || t.SessionNth == f.SessionNth)
}

// Rule is a trigger and the fault that then acts, at an offset of the frame.
type Rule struct {
	ID      string
	Trigger Trigger
	Fault   *Type
	At      int // bytes of the frame that pass before the fault acts
	Args    Args
	steps   []Step
}

// Set is an immutable list of rules; the first that matches a frame acts.
type Set struct{ rules []*Rule }

// NewSet checks the rules and puts them into a set. It refuses a rule that could
// never act: one without a fault or an op, with a count under zero, or with an
// offset or an argument that the fault does not have.
func NewSet(rules ...Rule) (*Set, error) {
	s := &Set{}
	for _, r := range rules {
		if r.Fault == nil {
			return nil, fmt.Errorf("rule %q has no fault", r.ID)
		}
		if t := r.Trigger; t.Op == "" {
			return nil, fmt.Errorf("rule %q has no op", r.ID)
		} else if t.Session < 0 || t.Nth < 0 || t.SessionNth < 0 {
			return nil, fmt.Errorf("rule %q: session %d, nth %d, nth in session %d: none may be under 0", r.ID, t.Session, t.Nth, t.SessionNth)
		}
		if r.At < 0 || (r.Fault.Range == Start && r.At != 0) || (r.Fault.Range == Inside && r.At < 1) {
			return nil, fmt.Errorf("rule %q: fault %s acts at %s, not at %d", r.ID, r.Fault.ID, r.Fault.Range, r.At)
		}
		if err := r.Fault.CheckArgs(r.Args); err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.ID, err)
		}
		r.Args = maps.Clone(r.Args)
		r.steps = r.Fault.Steps(r.At, r.Fault.fill(r.Args))
		s.rules = append(s.rules, &r)
	}
	return s, nil
}

// Match returns the rule that acts on a frame and its steps, or nil.
func (s *Set) Match(f Frame) (*Rule, []Step) {
	if s == nil {
		return nil, nil
	}
	for _, r := range s.rules {
		if r.Trigger.Matches(f) {
			return r, r.steps
		}
	}
	return nil, nil
}

// Len returns the number of rules; a nil set has none.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.rules)
}
