package faults

// accept-rst: the connection is accepted and gets an RST at once; the server does
// not hear of it.
var _ = register(&Type{
	ID: "accept-rst", Family: "accept", Class: Network, Range: Start, Opens: true, Only: OpOpen,
	Sentence: "the connection is accepted, and the client gets an RST at once",
	Steps: func(int, Args) []Step {
		return []Step{{Kind: Cut, Client: RST, This: true, Other: true}}
	},
})
