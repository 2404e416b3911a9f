package faults

import "time"

var injectArgs = []Arg{{
	Name: "pause", Default: 50 * time.Millisecond, Max: time.Minute,
	Sentence: "from what is sent before the frame to the frame, so that the receiver acts on the one before it has the other",
}}

// injectSteps write the rule's bytes before a frame, or behind one of k bytes.
func injectSteps(k int, a Args) []Step {
	if k == 0 {
		return []Step{{Kind: Inject}, {Kind: Wait, For: a["pause"]}}
	}
	return []Step{{Kind: Pass, N: k}, {Kind: Inject}}
}
