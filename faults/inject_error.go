package faults

// inject-error: an error, before or behind the frame.
var _ = register(&Type{
	ID: "inject-error", Family: "inject", Class: Peer, Range: Ends, Injects: "error",
	Args:     injectArgs,
	Sentence: "an error is sent before or behind the frame",
	Steps:    injectSteps,
})
