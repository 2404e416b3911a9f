package faults

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"tornwire/frames"
)

// Limits of a rule.
const (
	// MaxInject is the most bytes that a rule injects.
	MaxInject = 4096
	// MaxName is the longest id of a rule and name of a gate, in bytes.
	MaxName = 256
)

// Rule is a trigger and the fault that then acts, at an offset of the frame.
type Rule struct {
	ID      string
	Trigger Trigger
	Fault   *Type // nil for a rule that only counts and signals
	At      int   // bytes of the frame that pass before the fault acts; FrameEnd for all
	Args    Args
	Inject  []byte // what a fault that injects writes, at most MaxInject bytes
	// Until is the gate that ends a fault which waits for one, in place of the fault's
	// own.
	Until string
	// Skip is how many frames that meet the trigger pass first.
	Skip int
	// Times is how many frames are taken, over all sessions; 0 means no limit.
	Times int
	// Signal is a gate that opens when the fault acts, or when a rule without one
	// takes a frame.
	Signal string
	// TTL is how long the rule stays armed; 0 means until it is disarmed.
	TTL time.Duration

	steps []Step
	conds []cond
}

// Prepare checks a rule and returns a copy that is ready to act. It refuses one that
// could never act: without an op, with an op that the grammar does not have or the
// fault is not meant for, with a number under zero, with an offset or an argument
// that the fault does not have, or without the bytes to inject. Each problem is a
// FieldError; several are joined. Without a grammar, names are taken on trust.
func (r Rule) Prepare(g *frames.Grammar) (*Rule, error) {
	var shape *frames.Shape
	if g != nil {
		shape, _ = g.Shape(r.Trigger.Dir, r.Trigger.Op)
	}
	conds, err := compile(r.Trigger.Where, shape)
	if err := errors.Join(r.Trigger.check(r.Fault, g), err, r.check()); err != nil {
		return nil, err
	}
	if shape != nil && r.At > shape.Size(shape.Limit) {
		return nil, fieldf("fault.at", "%s.%s has at most %d bytes, and the fault is to act behind %d",
			shape.Dir, shape.Op, shape.Size(shape.Limit), r.At)
	}
	r.conds = conds
	if r.Trigger.From.IsValid() {
		r.Trigger.From = plain(r.Trigger.From)
	}
	r.Args, r.Inject, r.Trigger.Where = maps.Clone(r.Args), slices.Clone(r.Inject), maps.Clone(r.Trigger.Where)
	if r.Fault != nil {
		r.steps = r.Fault.Steps(r.At, r.Fault.fill(r.Args))
		for i, st := range r.steps {
			if st.Name != "" && r.Until != "" {
				r.steps = slices.Clone(r.steps)
				r.steps[i].Name = r.Until
			}
		}
	}
	return &r, nil
}

// Steps lists what a prepared rule does; none if it only watches.
func (r *Rule) Steps() []Step { return r.steps }

// Gates lists the gates that a prepared rule names: those that it waits for, and its
// signal.
func (r *Rule) Gates() []string {
	names := []string{r.Trigger.After, r.Signal}
	for _, st := range r.steps {
		names = append(names, st.Name)
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

// check refuses what does not belong to the fault.
func (r *Rule) check() error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, fieldf(field, format, args...)) }
	if r.Skip < 0 || r.Times < 0 {
		bad("times", "skip %d and times %d: neither may be under 0", r.Skip, r.Times)
	}
	switch {
	case r.TTL < 0:
		bad("ttl", "ttl is %s, not 0s or more", r.TTL)
	case r.TTL > 0 && r.Trigger.Begin >= r.TTL:
		bad("window", "the window begins after %s, when the rule is no longer armed", r.Trigger.Begin)
	}
	for _, n := range []struct{ field, name string }{
		{"id", r.ID}, {"signal", r.Signal}, {"after", r.Trigger.After}, {"fault.until", r.Until},
	} {
		if len(n.name) > MaxName {
			bad(n.field, "%s has %d bytes, not up to %d", n.field, len(n.name), MaxName)
		}
	}
	f := r.Fault
	if f == nil {
		if r.At != 0 || len(r.Args) > 0 || len(r.Inject) > 0 || r.Until != "" {
			bad("fault.type", "there is no fault, but an offset, an argument, a gate or bytes for one")
		}
		return errors.Join(errs...)
	}
	if f.ID == "refuse" && r.Skip > 0 {
		bad("skip", "fault refuse counts no connections that pass; use nth")
	}
	if !f.Range.possible(r.At) {
		at := strconv.Itoa(r.At)
		if r.At == FrameEnd {
			at = "n"
		}
		bad("fault.at", "fault %s acts at %s, not at %s", f.ID, f.Range, at)
	}
	switch n := len(r.Inject); {
	case f.Injects == "" && n > 0:
		bad("inject_hex", "fault %s injects nothing, and there are %d bytes to inject", f.ID, n)
	case f.Injects != "" && (n == 0 || n > MaxInject):
		bad("inject_hex", "fault %s has %d bytes of %s to inject, not 1 to %d", f.ID, n, f.Injects, MaxInject)
	}
	errs = append(errs, f.CheckArgs(r.Args), r.checkUntil())
	return errors.Join(errs...)
}

// checkUntil refuses a gate for a fault that waits for none.
func (r *Rule) checkUntil() error {
	waits := func(st Step) bool { return st.Name != "" }
	if r.Until == "" || slices.ContainsFunc(r.Fault.Steps(r.At, r.Fault.fill(nil)), waits) {
		return nil
	}
	return fieldf("fault.until", "fault %s waits for no gate", r.Fault.ID)
}

// Set is an immutable list of rules; the first that matches a frame acts.
type Set struct{ rules []*Rule }

// NewSet prepares rules that each have a fault, and puts them into a set.
func NewSet(rules ...Rule) (*Set, error) {
	s := &Set{}
	for _, r := range rules {
		if r.Fault == nil {
			return nil, fmt.Errorf("rule %q has no fault", r.ID)
		}
		p, err := r.Prepare(nil)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.ID, err)
		}
		s.rules = append(s.rules, p)
	}
	return s, nil
}

// Rules lists the rules; a nil set has none.
func (s *Set) Rules() []*Rule {
	if s == nil {
		return nil
	}
	return s.rules
}

// Len returns the number of rules.
func (s *Set) Len() int { return len(s.Rules()) }
