package checker

// strayRules are those about answers that nobody waits for, and frames that cannot be read.
func strayRules() []implemented {
	return []implemented{
		{Rule{
			"unmatched-closes", sideClient, Contract,
			"A client that reads a response which nobody waits for closes that session.",
			"spec/ticketing.md §3.14",
			"More responses with its identifier and key had been delivered than the session carried requests for them; an R with its token, or the effect of a frame behind it, shows that it was read; and 200 ms later the A of a call that was asked for after that came on the session.",
			"A grant with a foreign owner, with a key that nobody asked for, and one that is delivered twice; then another key is asked for.",
		}, unmatchedCloses},
		{Rule{
			"unmatched-released", sideClient, Contract,
			"A grant that nobody waits for is released with its exact token, unless that token is a call's already, which is then not released.",
			"spec/ticketing.md §3.14",
			"The A was read, the client had a working session until the lease was over, or for 5 s where no table knows the grant, and sent no R with its token; or it sent one with the token that a call had been told, before anybody asked for it.",
			"A grant with a foreign owner, with a key that nobody asked for, and one that is delivered twice, with another session of the client up.",
		}, unmatchedReleased},
		{Rule{
			"unknown-fatal", sideClient, Safety,
			"An unknown op, a malformed frame, and an error that is none of those a client backs off by, are fatal for the connection; an A behind it is not accepted.",
			"spec/ticketing.md §3.13",
			"A call was told the token that only an A behind that frame carried; or a call or release was told another definite word that only a frame behind it can have told, on a session that stayed open.",
			"A frame with an unknown op, frames whose key breaks the limits, and an unlisted error, each with a grant behind it.",
		}, unknownFatal},
		{Rule{
			"framing-closes", sideClient, Contract,
			"A frame over the limit of its text closes the session.",
			"spec/ticketing.md §3.15",
			"A call or release was told what only a frame behind it can have told.",
			"A grant with a key of 600 bytes and a timeout behind it; then another key is asked for.",
		}, framingCloses},
	}
}
