package faults

// stall: k bytes, then nothing more in this direction; the other lives on. The
// sender's end is recorded, not forwarded.
var _ = register(&Type{
	ID: "stall", Family: "stall", Class: Network, Range: Every,
	Sentence: "k bytes pass, then nothing more in this direction, not even an end; the other direction lives on",
	Steps: func(k int, _ Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, This: true}}
	},
})
