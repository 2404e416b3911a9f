package faults

// truncate-rst-client: k bytes, then RST to the client, silence to the server.
var _ = register(&Type{
	ID: "truncate-rst-client", Family: "truncate", Class: Network, Range: Every,
	Args:     []Arg{after},
	Sentence: "k bytes pass, then the client gets an RST and the server nothing more; its connection stays open until the case or the rule ends",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Client: RST, This: true, Other: true, For: a["after"]}}
	},
})
