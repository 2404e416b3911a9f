package checker

// paceRules are those about pauses: of the client, and between its connections.
func paceRules() []implemented {
	return []implemented{
		{Rule{
			"error-backs-off", sideClient, Hygiene,
			"Reconnects are paced, whatever ended the connection before.",
			"spec/ticketing.md §3.12",
			"More than 20 connections to one address were accepted from a client in each of three seconds in a row, for each session that it ever had at a time.",
			"Every connection is accepted and closed with a FIN for 3 s, while a call waits.",
		}, errorBacksOff},
	}
}
