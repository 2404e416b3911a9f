package faults

// truncate-rst-server: k bytes, then RST to the server, silence to the client.
var _ = register(&Type{
	ID: "truncate-rst-server", Family: "truncate", Class: Network, Range: Every,
	Args:     []Arg{after},
	Sentence: "k bytes pass, then the server gets an RST and the client nothing more; its connection stays open until the case or the rule ends",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Server: RST, This: true, Other: true, For: a["after"]}}
	},
})
