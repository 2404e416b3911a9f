package faults

// accept-fin: the connection is accepted and gets a FIN at once; the server does
// not hear of it.
var _ = register(&Type{
	ID: "accept-fin", Family: "accept", Class: Network, Range: Start, Opens: true, Only: OpOpen,
	Sentence: "the connection is accepted, and the client gets a FIN at once; what it still sends is read and recorded",
	Steps: func(int, Args) []Step {
		return []Step{{Kind: Cut, Client: FIN, This: true, Other: true}}
	},
})
