package faults

import "time"

// GateGreeting is the gate that ends a held greeting early.
const GateGreeting = "greeting"

// hold-greeting: the server's preface line and all behind it are held until the
// gate opens, or for the argument's time at most.
var _ = register(&Type{
	ID: "hold-greeting", Family: "hold-greeting", Class: Peer, Range: Start, Only: OpGreeting,
	Args:     []Arg{{Name: "most", Default: 3500 * time.Millisecond, Max: 10 * time.Minute, Sentence: "the longest hold"}},
	Sentence: "the preface line is held, like by a server that accepts and is then slow to speak",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Gate, Name: GateGreeting, For: a["most"]}}
	},
})
