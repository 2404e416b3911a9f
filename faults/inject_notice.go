package faults

// inject-notice: a notice, before or behind the frame.
var _ = register(&Type{
	ID: "inject-notice", Family: "inject", Class: Peer, Range: Ends, Injects: "notice",
	Args:     injectArgs,
	Sentence: "a notice is sent before or behind the frame",
	Steps:    injectSteps,
})
