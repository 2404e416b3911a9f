package faults

// inject-stray: a response that nobody waits for, before or behind the frame.
var _ = register(&Type{
	ID: "inject-stray", Family: "inject", Class: Peer, Range: Ends, Injects: "stray",
	Args:     injectArgs,
	Sentence: "a response that nobody waits for is sent before or behind the frame",
	Steps:    injectSteps,
})
