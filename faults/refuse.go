package faults

import "time"

// GateOpen is the gate that ends a refusal early.
const GateOpen = "open"

// refuse: nobody listens where the connection would go. One that was made before
// it could be refused is reset.
var _ = register(&Type{
	ID: "refuse", Family: "refuse", Class: Network, Range: Start, Opens: true, Only: OpOpen,
	Args:     []Arg{{Name: "most", Default: 500 * time.Millisecond, Max: 10 * time.Minute, Sentence: "the longest time in which nobody listens"}},
	Sentence: "the listener is closed, so that connections are refused, and listens again later",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Refuse, Name: GateOpen, For: a["most"]}}
	},
})
