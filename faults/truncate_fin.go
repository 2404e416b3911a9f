package faults

// truncate-fin: k bytes, then FIN to both peers; what still comes in is read,
// recorded and dropped.
var _ = register(&Type{
	ID: "truncate-fin", Family: "truncate", Class: Network, Range: Every,
	Sentence: "k bytes pass, then both peers get a FIN; what still comes in is read, recorded and dropped",
	Steps: func(k int, _ Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Client: FIN, Server: FIN, This: true, Other: true}}
	},
})
