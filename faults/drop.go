package faults

// drop: the frame is received and recorded, and never delivered.
var _ = register(&Type{
	ID: "drop", Family: "drop", Class: Peer, Range: Start,
	Sentence: "the frame is gone, the rest goes on: a server that never answers, or never saw it",
	Steps: func(int, Args) []Step {
		return []Step{{Kind: Drop}}
	},
})
