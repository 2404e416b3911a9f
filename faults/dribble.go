package faults

import "time"

// dribble: every byte of the frame is a write of its own.
var _ = register(&Type{
	ID: "dribble", Family: "dribble", Class: Network, Range: Start,
	Args:     []Arg{{Name: "pause", Default: time.Millisecond, Max: time.Minute, Sentence: "between two bytes"}},
	Sentence: "the whole frame byte by byte, with a pause between two; what is behind it waits",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Drip, For: a["pause"]}}
	},
})
