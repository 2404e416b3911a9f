package faults

import "time"

// GateHold is the gate that ends a hold early.
const GateHold = "hold"

// hold: the frame and all behind it are held until the gate opens, or for the
// argument's time at most.
var _ = register(&Type{
	ID: "hold", Family: "hold", Class: Network, Range: Start,
	Args:     []Arg{{Name: "most", Default: 3500 * time.Millisecond, Max: 10 * time.Minute, Sentence: "the longest hold"}},
	Sentence: "the frame and all behind it are held until an event of the scenario, then delivered",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Gate, Name: GateHold, For: a["most"]}}
	},
})
