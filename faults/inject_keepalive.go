package faults

// inject-keepalive: a keep-alive, before or behind the frame.
var _ = register(&Type{
	ID: "inject-keepalive", Family: "inject", Class: Peer, Range: Ends, Injects: "keepalive",
	Args:     injectArgs,
	Sentence: "a keep-alive is sent before or behind the frame",
	Steps:    injectSteps,
})
