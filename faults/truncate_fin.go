package faults

// truncate-fin: k bytes, then FIN to both peers; what still comes in is read,
// recorded and dropped.
var _ = register(&Type{
	ID: "truncate-fin", Family: "truncate", Class: Network, Range: Every,
	Args:     []Arg{after},
	Sentence: "k bytes pass, then both peers get a FIN; what still comes in is read, recorded and dropped",
	Steps: func(k int, a Args) []Step {
		return []Step{{Kind: Pass, N: k}, {Kind: Cut, Client: FIN, Server: FIN, This: true, Other: true, For: a["after"]}}
	},
})
