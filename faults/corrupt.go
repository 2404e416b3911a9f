package faults

// corrupt: one bit of byte k is inverted.
var _ = register(&Type{
	ID: "corrupt", Family: "byzantine", Class: Byzantine, Range: Before,
	Sentence: "k bytes pass, then one with its lowest bit inverted, then the rest",
	Steps: func(k int, _ Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Flip}}
	},
})
