package faults

// reorder: the frame is swapped with the next in its direction.
var _ = register(&Type{
	ID: "reorder", Family: "byzantine", Class: Byzantine, Range: Start,
	Args:     []Arg{nextWithin},
	Sentence: "the frame is sent behind the next one in its direction",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Swap, For: a["most"]}}
	},
})
