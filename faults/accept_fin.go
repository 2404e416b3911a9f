package faults

import "time"

// accept-fin: the connection is accepted and gets a FIN at once, or after a while;
// the server does not hear of it.
var _ = register(&Type{
	ID: "accept-fin", Family: "accept", Class: Network, Range: Start, Opens: true, Only: OpOpen,
	Args:     []Arg{{Name: "after", Max: time.Minute, Sentence: "from the accept to the FIN; nothing is read meanwhile"}},
	Sentence: "the connection is accepted, and the client gets a FIN at once; what it still sends is read and recorded",
	Steps: func(_ int, a Args) []Step {
		return []Step{{Kind: Cut, Client: FIN, This: true, Other: true, For: a["after"]}}
	},
})
