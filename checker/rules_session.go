package checker

// sessionRules are those about which sessions a client keeps.
func sessionRules() []implemented {
	return []implemented{
		{Rule{
			"no-renewal", sideClient, Contract,
			"An acquire is never sent again to renew a lease or to ask how the first one stands.",
			"spec/ticketing.md §2",
			"An A came with the owner and key of an earlier A of the client, on its session or after its A or T, and no other call can have sent it.",
			"The lock is held past half of its lease and past all of it, and a request stays without an answer past half of its wait and past all of it.",
		}, noRenewal},
		{Rule{
			"deadline-closes", sideClient, Contract,
			"A session on which a request is unanswered at its deadline is closed.",
			"spec/ticketing.md §3.5, §3.2",
			"The call had been told its outcome, no answer to it had begun to be written whole, and the client had not ended the session by the deadline + --grace + --tolerance.",
			"The request is lost, so that there is no answer for the whole wait and longer.",
		}, deadlineCloses},
		{Rule{
			"exact-session", sideClient, Hygiene,
			"When a call's deadline passes, only its own session is closed.",
			"spec/ticketing.md §3.5",
			"Each time, and three times at least, another session with an unexpired call, on which nothing had gone wrong, was closed together with it.",
			"Three times in one case, a call runs into its deadline while another of the same client waits.",
		}, exactSession},
		{Rule{
			"cancel-closes", sideClient, Contract,
			"Cancelling a call that was sent closes its session.",
			"spec/ticketing.md §3.15",
			"A byte of the A was received before the cancel was asked for, no answer had begun to be written whole when the result came, and a call that was asked for after that was sent on the same session.",
			"A call is cancelled while it waits for a held key, then another is made; once more while the key is being released.",
		}, cancelCloses},
		{Rule{
			"close-proves-nothing", sideClient, Contract,
			"A release is told as released only after R, and as not held only after N: the end of a connection says nothing.",
			"spec/ticketing.md §3.17, §3.16",
			"The client told released or not held before the last byte of any R or N for that token (in ticketing-v0: for that key) had begun to be written to it.",
			"The connection is cut after the R and in its answer, and the answer is lost.",
		}, closeProvesNothing},
	}
}
