// Package faults decides what happens to a frame: a rule is a trigger and a
// fault, and a fault at an offset is a short list of steps that the proxy
// carries out. It does no I/O. Ids, classes and offsets are those of
// spec/faults.md; each fault is one type in one file, and registers itself.
package faults

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tornwire/frames"
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
	Ends   Range = "0, n"
	AtEnd  Range = "n"
	Before Range = "0…n−1"
)

// span is the range as its first and last offset and the step between them.
func (r Range) span(n int) (lo, hi, by int) {
	switch r {
	case Every:
		return 0, n, 1
	case Inside:
		return 1, n - 1, 1
	case Ends:
		return 0, n, max(n, 1)
	case AtEnd:
		return n, n, 1
	case Before:
		return 0, n - 1, 1
	}
	return 0, 0, 1
}

// Offsets lists the offsets of a range for a frame of n bytes.
func (r Range) Offsets(n int) []int {
	var out []int
	lo, hi, by := r.span(n)
	for k := lo; k <= hi; k += by {
		out = append(out, k)
	}
	return out
}

// Contains tells whether k is an offset of the range for a frame of n bytes.
func (r Range) Contains(k, n int) bool {
	lo, hi, by := r.span(n)
	return k >= lo && k <= hi && (k-lo)%by == 0
}

// FrameEnd is the offset n of a frame whose length is not known beforehand.
const FrameEnd = -1 << 31

// possible tells whether k is an offset of the range for any frame at all, which
// has at least one byte.
func (r Range) possible(k int) bool {
	if k == FrameEnd {
		return r == Every || r == Ends || r == AtEnd
	}
	for n := max(k, 1); n <= k+1; n++ {
		if r.Contains(k, n) {
			return true
		}
	}
	return false
}

// StepKind is what a step does.
type StepKind uint8

// The kinds of steps. Join, Swap and Splice hold the rest of the frame until
// the next one in the direction is whole, which no rule then acts on; if For is
// over before, or the sender ends, both go out as they are.
const (
	Pass   StepKind = iota + 1 // let bytes pass until N of the frame have, FrameEnd for all
	Wait                       // hold back what follows in this direction for For
	Gate                       // hold it back until the gate Name opens, at most For
	Cut                        // end the flow of bytes as Client, Server, This, Other say
	Drip                       // write the rest of the frame byte by byte, For apart
	Drop                       // lose the rest of the frame
	Inject                     // write the bytes of the rule
	Repeat                     // write the whole frame once more
	Flip                       // invert the lowest bit of the next byte
	Join                       // both frames go out in one write
	Swap                       // the next frame goes out first
	Splice                     // in place of the rest, what the next frame has behind its first N bytes
	Refuse                     // nobody listens until the gate Name opens, at most For
)

// Step is one thing that the proxy does to a frame, in order. After the last
// step the rest of the frame passes.
type Step struct {
	Kind   StepKind
	N      int
	For    time.Duration // of a cut: from the last byte to the ends
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

// Ops that faults are meant for.
const (
	OpOpen     = frames.OpOpen // the pseudo-frame of a connection, c2s, before any byte
	OpGreeting = "greeting"    // the server's preface line
)

// Arg is one argument of a fault. A default of 0 means none.
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
	Opens    bool   // acts on a connection, before any byte
	Only     string // the op that it is meant for, "" for any frame
	Injects  string // the kind of frame that a rule's Inject has to be, "" for none
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
// to the argument's limit. Zero is right where it is the default.
func (t *Type) CheckArgs(a Args) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(a)) {
		v, field := a[name], "fault.args."+name
		i := slices.IndexFunc(t.Args, func(arg Arg) bool { return arg.Name == name })
		if i < 0 {
			errs = append(errs, fieldf(field, "fault %s has no argument %q", t.ID, name))
			continue
		}
		least := "over 0s and"
		if t.Args[i].Default == 0 {
			least = "0s or more and"
		}
		if v < 0 || v > t.Args[i].Max || v == 0 && t.Args[i].Default > 0 {
			errs = append(errs, fieldf(field, "fault %s: %s is %s, not %s up to %s", t.ID, name, v, least, t.Args[i].Max))
		}
	}
	return errors.Join(errs...)
}

// order is the order of spec/faults.md, in which faults are listed.
var order = []string{
	"truncate-fin", "truncate-rst", "truncate-silence",
	"truncate-fin-client", "truncate-fin-server", "truncate-rst-client", "truncate-rst-server",
	"stall", "split", "dribble", "delay", "coalesce", "hold",
	"refuse", "accept-rst", "accept-fin", "slow-accept",
	"hold-greeting", "drop",
	"inject-keepalive", "inject-notice", "inject-error", "inject-stray", "inject-garbage",
	"duplicate", "reorder", "corrupt", "splice",
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
