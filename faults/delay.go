package faults

import "time"

// delay: the frame, and what comes in behind it meanwhile, goes out later.
var _ = register(&Type{
	ID: "delay", Family: "delay", Class: Network, Range: Start,
	Args:     []Arg{{Name: "by", Default: 250 * time.Millisecond, Max: 10 * time.Minute, Sentence: "the time"}},
	Sentence: "the frame goes out later, and all behind it not before",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Wait, For: a["by"]}}
	},
})
