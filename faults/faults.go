// Package faults decides what happens to a frame: a rule is a trigger and a
// fault, and a fault at an offset is a short list of steps that the proxy
// carries out. It does no I/O. Ids, classes and offsets are those of
// spec/faults.md; each fault is one type in one file, and registers itself.
package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Class says who could do such a thing to a connection (spec/rules.md P12).
type Class string

// The classes.
const (
	Network   Class = "network"   // TCP and hosts do it
	Peer      Class = "peer"      // a legal or silent server does it
	Byzantine Class = "byzantine" // no network does it inside a TCP stream
)

// Range is the set of offsets at which a fault can act on a frame of n bytes.
type Range string

// The ranges of spec/faults.md.
const (
	Every  Range = "0…n"
	Inside Range = "1…n−1"
	Start  Range = "0"
)

// Offsets lists the offsets of a range for a frame of n bytes.
func (r Range) Offsets(n int) []int {
	lo, hi := 0, 0
	switch r {
	case Every:
		hi = n
	case Inside:
		lo, hi = 1, n-1
	}
	var out []int
	for k := lo; k <= hi; k++ {
		out = append(out, k)
	}
	return out
}

// Contains tells whether k is an offset of the range for a frame of n bytes.
func (r Range) Contains(k, n int) bool {
	switch r {
	case Every:
		return k >= 0 && k <= n
	case Inside:
		return k >= 1 && k < n
	}
	return k == 0
}

// StepKind is what a step does.
type StepKind uint8

// The kinds of steps.
const (
	Pass StepKind = iota + 1 // let bytes pass until N of the frame have
	Wait                     // hold back what follows in this direction for For
	Gate                     // hold it back until the gate Name opens, at most For
	Cut                      // end the flow of bytes as Client, Server, This, Other say
)

// Step is one thing that the proxy does to a frame, in order. After the last
// step the rest of the frame passes.
type Step struct {
	Kind   StepKind
	N      int
	For    time.Duration
	Name   string
	Client End  // of a cut: how the client's connection is ended
	Server End  // of a cut: how the server's connection is ended
	This   bool // of a cut: nothing more is delivered in the frame's direction
	Other  bool // of a cut: nor in the other
}

// End is how a connection is ended towards a peer.
type End string

// The ends. NoEnd leaves the connection open.
const (
	NoEnd End = ""
	FIN   End = "fin"
	RST   End = "rst"
)

// Arg is one argument of a fault.
type Arg struct {
	Name     string
	Default  time.Duration
	Max      time.Duration
	Sentence string
}

// Type is one kind of fault.
type Type struct {
	ID       string
	Family   string // selects several faults at once; the id of a fault alone in it
	Class    Class
	Range    Range
	Args     []Arg
	Sentence string // what happens, for list and explain
	// Steps lists what is done to a frame of which k bytes pass. Every argument
	// of the schema is set in a.
	Steps func(k int, a Args) []Step
}

// Args are the values of a fault's arguments; a missing one has its default.
type Args map[string]time.Duration

// fill returns the arguments with the schema's defaults for the missing ones.
func (t *Type) fill(a Args) Args {
	out := Args{}
	for _, arg := range t.Args {
		out[arg.Name] = arg.Default
	}
	maps.Copy(out, a)
	return out
}

// CheckArgs refuses unknown arguments and values that are not over zero and up
// to the argument's limit.
func (t *Type) CheckArgs(a Args) error {
	for name, v := range a {
		i := slices.IndexFunc(t.Args, func(arg Arg) bool { return arg.Name == name })
		if i < 0 {
			return fmt.Errorf("fault %s has no argument %q", t.ID, name)
		}
		if v <= 0 || v > t.Args[i].Max {
			return fmt.Errorf("fault %s: %s is %s, not over 0s and up to %s", t.ID, name, v, t.Args[i].Max)
		}
	}
	return nil
}

// order is the order of spec/faults.md, in which faults are listed.
var order = []string{
	"truncate-fin", "truncate-rst", "truncate-silence", "split", "hold",
}

var registry = map[string]*Type{}

// register adds a fault; it is called from init functions only.
func register(t *Type) *Type {
	if registry[t.ID] != nil || !slices.Contains(order, t.ID) {
		panic("faults: " + t.ID + " is registered twice or has no place in the order")
	}
	registry[t.ID] = t
	return t
}

// All lists the faults in the order of spec/faults.md.
func All() []*Type {
	var out []*Type
	for _, id := range order {
		out = append(out, registry[id])
	}
	return out
}

// ByID finds a fault.
func ByID(id string) (*Type, bool) {
	t, ok := registry[id]
	return t, ok
}

// Select returns the faults that an id or a family names, none if neither.
func Select(name string) []*Type {
	var out []*Type
	for _, t := range All() {
		if t.ID == name || t.Family == name {
			out = append(out, t)
		}
	}
	return out
}

// Words lists every id and family, for error messages.
func Words() []string {
	var out []string
	for _, t := range All() {
		for _, w := range []string{t.ID, t.Family} {
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// ArgsText describes the arguments in one line, "" if there are none.
func (t *Type) ArgsText() string {
	var parts []string
	for _, a := range t.Args {
		parts = append(parts, fmt.Sprintf("%s=%s (up to %s): %s", a.Name, a.Default, a.Max, a.Sentence))
	}
	return strings.Join(parts, "; ")
}
