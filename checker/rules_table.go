package checker

// tableRules are those about the server, beyond its replies.
func tableRules() []implemented {
	return nil
}
