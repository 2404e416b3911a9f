package faults

// truncate-rst: k bytes, then RST to both peers.
var _ = register(&Type{
	ID: "truncate-rst", Family: "truncate", Class: Network, Range: Every,
	Sentence: "k bytes pass, then both peers get an RST",
	Steps: func(k int, _ Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Client: RST, Server: RST, This: true, Other: true}}
	},
})
