package checker

// clusterRules are those about M, L and E.
func clusterRules() []implemented {
	return nil
}
