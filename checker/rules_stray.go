package checker

// strayRules are those about answers that nobody waits for, and frames that cannot be read.
func strayRules() []implemented {
	return nil
}
