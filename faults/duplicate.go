package faults

// duplicate: the frame is sent twice.
var _ = register(&Type{
	ID: "duplicate", Family: "byzantine", Class: Byzantine, Range: AtEnd,
	Sentence: "the frame is sent twice",
	Steps: func(k int, _ Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Repeat}}
	},
})
