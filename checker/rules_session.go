package checker

// sessionRules are those about which sessions a client keeps.
func sessionRules() []implemented {
	return nil
}
