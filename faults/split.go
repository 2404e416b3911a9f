package faults

import "time"

// split: k bytes, a pause, the rest.
var _ = register(&Type{
	ID: "split", Family: "split", Class: Network, Range: Inside,
	Args:     []Arg{{Name: "pause", Default: 50 * time.Millisecond, Max: time.Minute, Sentence: "between the two parts"}},
	Sentence: "k bytes pass, then a pause, then the rest: the receiver reads the frame in two parts",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Wait, For: a["pause"]}}
	},
})
