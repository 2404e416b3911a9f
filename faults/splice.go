package faults

// splice: k bytes of the frame, then the next frame from its byte k. If that is
// shorter, or none comes, the frame goes on as it is.
var _ = register(&Type{
	ID: "splice", Family: "byzantine", Class: Byzantine, Range: Inside,
	Args:     []Arg{nextWithin},
	Sentence: "k bytes pass, then the next frame in this direction from its byte k",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Splice, N: k, For: a["most"]}}
	},
})
