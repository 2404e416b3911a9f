package faults

// injectSteps write the rule's bytes before a frame, or behind one of k bytes.
func injectSteps(k int, _ Args) []Step {
	if k == 0 {
		return []Step{{Kind: Inject}}
	}
	return []Step{{Kind: Pass, N: k}, {Kind: Inject}}
}
