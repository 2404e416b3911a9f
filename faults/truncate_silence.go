package faults

// truncate-silence: k bytes, then nothing in either direction; both connections
// stay open, and ends are recorded but not forwarded.
var _ = register(&Type{
	ID: "truncate-silence", Family: "truncate", Class: Network, Range: Every,
	Sentence: "k bytes pass, then nothing more in either direction; both connections stay open until the case or the rule ends",
	Steps: func(k int, _ Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, This: true, Other: true}}
	},
})
