package faults

// truncate-fin-client: k bytes, then FIN to the client, silence to the server.
var _ = register(&Type{
	ID: "truncate-fin-client", Family: "truncate", Class: Network, Range: Every,
	Args:     []Arg{after},
	Sentence: "k bytes pass, then the client gets a FIN and the server nothing more; its connection stays open until the case or the rule ends",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Client: FIN, This: true, Other: true, For: a["after"]}}
	},
})
