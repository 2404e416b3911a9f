package faults

// truncate-fin-server: k bytes, then FIN to the server, silence to the client.
var _ = register(&Type{
	ID: "truncate-fin-server", Family: "truncate", Class: Network, Range: Every,
	Args:     []Arg{after},
	Sentence: "k bytes pass, then the server gets a FIN and the client nothing more; its connection stays open until the case or the rule ends",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Server: FIN, This: true, Other: true, For: a["after"]}}
	},
})
