package checker

// paceRules are those about pauses: of the client, and between its connections.
func paceRules() []implemented {
	return nil
}
