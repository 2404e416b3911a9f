package faults

import "time"

// coalesce: the frame waits for the next one, and both go out in one write.
var _ = register(&Type{
	ID: "coalesce", Family: "coalesce", Class: Network, Range: Start,
	Args:     []Arg{{Name: "most", Default: time.Second, Max: time.Minute, Sentence: "the longest wait for the next frame"}},
	Sentence: "the frame is held until the next one in its direction is whole, and both go out in one write",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Join, For: a["most"]}}
	},
})
