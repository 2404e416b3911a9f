package checker

// paceRules are those about pauses: of the client, and between its connections.
func paceRules() []implemented {
	return []implemented{
		{Rule{
			"late-gate", sideClient, Contract,
			"A grant that came in time and is found after the deadline, because the client was paused, is not told, and if it was read it is released with its exact token.",
			"spec/ticketing.md §3.6",
			"Every thread of the client was stopped before the last byte of the A began to be written and until the deadline had passed, and the client entered on the live grant; or it provably read that A and let the lease pass without an R.",
			"The client's processes are stopped (SIGSTOP) before the grant is written, and continued 0.5 s after the deadline.",
		}, lateGate},
		{Rule{
			"error-backs-off", sideClient, Hygiene,
			"Reconnects are paced, whatever ended the connection before.",
			"spec/ticketing.md §3.12",
			"More than 20 connections to one address were accepted from a client in each of three seconds in a row, for each session that it ever had at a time.",
			"Every connection is accepted and closed with a FIN for 3 s, while a call waits.",
		}, errorBacksOff},
		{Rule{
			"no-overstay", sideClient, Hygiene,
			"The application is not kept inside past its lease.",
			"spec/ticketing.md §2",
			"The application's own witness told that it came out over a second after its lease had ended.",
			"Nothing provokes it: it is judged where an application tells when it enters and leaves (tornwire serve), never in verify.",
		}, noOverstay},
	}
}
