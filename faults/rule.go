package faults

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tornwire/frames"
)

// Frame is what a trigger can see of a frame when its first byte has arrived.
type Frame struct {
	Dir        frames.Direction
	Op         string
	Session    int    // from 1, in accept order
	Nth        int    // of its direction and op over all sessions, from 1
	SessionNth int    // the same within its session
	Client     string // whose listener it came in on
	ClientNth  int    // of its direction and op over all sessions of that client, from 1
}

// Trigger says to which frames a rule applies. A zero number and an empty client
// mean any.
type Trigger struct {
	Dir        frames.Direction
	Op         string
	Session    int
	Nth        int
	SessionNth int
	Client     string
	ClientNth  int
}

// Matches tells whether the trigger applies to a frame.
func (t Trigger) Matches(f Frame) bool {
	return t.Dir == f.Dir && t.Op == f.Op &&
		(t.Session == 0 || t.Session == f.Session) &&
		(t.Nth == 0 || t.Nth == f.Nth) &&
		(t.SessionNth == 0 || t.SessionNth == f.SessionNth) &&
		(t.Client == "" || t.Client == f.Client) &&
		(t.ClientNth == 0 || t.ClientNth == f.ClientNth)
}

// Counts tells whether the trigger names a frame by a number that no second
// connection has.
func (t Trigger) Counts() bool { return t.Session > 0 || t.Nth > 0 || t.ClientNth > 0 }

// Rule is a trigger and the fault that then acts, at an offset of the frame.
type Rule struct {
	ID      string
	Trigger Trigger
	Fault   *Type
	At      int // bytes of the frame that pass before the fault acts
	Args    Args
	Inject  []byte // what a fault that injects writes, at most MaxInject bytes
	steps   []Step
}

// MaxInject is the most bytes that a rule injects.
const MaxInject = 4096

// Set is an immutable list of rules; the first that matches a frame acts.
type Set struct{ rules []*Rule }

// NewSet checks the rules and puts them into a set. It refuses a rule that could
// never act: one without a fault or an op, with an op that the fault is not meant
// for, with a count under zero, with an offset or an argument that the fault does
// not have, or without the bytes to inject.
func NewSet(rules ...Rule) (*Set, error) {
	s := &Set{}
	for _, r := range rules {
		if r.Fault == nil {
			return nil, fmt.Errorf("rule %q has no fault", r.ID)
		}
		err := r.Trigger.check(r.Fault)
		if err == nil {
			err = r.check()
		}
		if err != nil {
			return nil, fmt.Errorf("rule %q%w", r.ID, err)
		}
		r.Args, r.Inject = maps.Clone(r.Args), slices.Clone(r.Inject)
		r.steps = r.Fault.Steps(r.At, r.Fault.fill(r.Args))
		s.rules = append(s.rules, &r)
	}
	return s, nil
}

// check tells why a trigger never matches a frame that the fault can act on.
func (t Trigger) check(f *Type) error {
	switch {
	case t.Op == "":
		return errors.New(" has no op")
	case t.Session < 0 || t.Nth < 0 || t.SessionNth < 0 || t.ClientNth < 0:
		return fmt.Errorf(": session %d, nth %d, nth in session %d, nth of client %d: none may be under 0", t.Session, t.Nth, t.SessionNth, t.ClientNth)
	case f.Only != "" && t.Op != f.Only:
		return fmt.Errorf(": fault %s is meant for %s, not for %s", f.ID, f.Only, t.Op)
	case f.Opens != (t.Op == OpOpen):
		return fmt.Errorf(": fault %s acts on a frame, and %s is a connection", f.ID, t.Op)
	case f.Opens && (t.Dir != frames.ClientToServer || t.SessionNth > 1):
		return fmt.Errorf(": a connection is %s and the first of its session, not %s and number %d", frames.ClientToServer, t.Dir, t.SessionNth)
	}
	return nil
}

// check refuses what does not belong to the fault.
func (r *Rule) check() error {
	f := r.Fault
	if !f.Range.possible(r.At) {
		return fmt.Errorf(": fault %s acts at %s, not at %d", f.ID, f.Range, r.At)
	}
	switch n := len(r.Inject); {
	case f.Injects == "" && n > 0:
		return fmt.Errorf(": fault %s injects nothing, and there are %d bytes to inject", f.ID, n)
	case f.Injects != "" && (n == 0 || n > MaxInject):
		return fmt.Errorf(": fault %s has %d bytes of %s to inject, not 1 to %d", f.ID, n, f.Injects, MaxInject)
	}
	if err := f.CheckArgs(r.Args); err != nil {
		return fmt.Errorf(": %w", err)
	}
	return nil
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
