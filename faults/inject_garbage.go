package faults

// inject-garbage: what is no frame, before or behind the frame.
var _ = register(&Type{
	ID: "inject-garbage", Family: "inject", Class: Peer, Range: Ends, Injects: "garbage",
	Args:     injectArgs,
	Sentence: "what is no frame is sent before or behind the frame",
	Steps:    injectSteps,
})
