package checker

// tableRules are those about the server, beyond its replies, and about a client that
// a server answers at once.
func tableRules() []implemented {
	return []implemented{
		{Rule{
			"register-first", sideClient, Contract,
			"An attempt is registered before it is written, so that its answer may come at any time after that.",
			"spec/ticketing.md §3.9",
			"The right and only answer was written within 50 ms of the request, over a second before the deadline, nothing else happened on the session, and the client closed it or left the call without an outcome for a second.",
			"Grants are written as soon as byte 11 of the request is in, many times over.",
		}, registerFirst},
	}
}
