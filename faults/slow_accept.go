package faults

import "time"

// slow-accept: the connection is accepted, but for a while nothing is done with it.
var _ = register(&Type{
	ID: "slow-accept", Family: "slow-accept", Class: Network, Range: Start, Opens: true, Only: OpOpen,
	Args:     []Arg{{Name: "pause", Default: 500 * time.Millisecond, Max: time.Minute, Sentence: "until the connection is served"}},
	Sentence: "the connection is accepted, but for a while nothing is read from it and the server is not dialled",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Wait, For: a["pause"]}}
	},
})
