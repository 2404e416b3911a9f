package faults

// truncate-rst: k bytes, then RST to both peers.
var _ = register(&Type{
	ID: "truncate-rst", Family: "truncate", Class: Network, Range: Every,
	Args:     []Arg{after},
	Sentence: "k bytes pass, then both peers get an RST",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Client: RST, Server: RST, This: true, Other: true, For: a["after"]}}
	},
})
