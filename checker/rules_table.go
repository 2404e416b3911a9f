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
		{Rule{
			"no-grant-after-timeout-or-busy", sideServer, Contract,
			"After T or B an attempt is never granted.",
			"spec/ticketing.md §3.7",
			"An A was received for an owner and key (v0: for a key) on a session where every attempt for it that had begun to be forwarded had been answered, each with T or B.",
			"Every workload in which a wait ends without a grant, or a server is busy.",
		}, noGrantAfterTimeoutOrBusy},
		{Rule{
			"repeat-is-new-attempt", sideServer, Contract,
			"A second attempt with the same key and owner is a new one; it is never answered with the active token.",
			"spec/ticketing.md §2",
			"Two A frames with one owner, key and token were received, and a second attempt for them had begun to be forwarded on the session of the later one.",
			"The tool itself repeats an acquire while it holds the key.",
		}, repeatIsNewAttempt},
		{Rule{
			"release-needs-exact-token", sideServer, Safety,
			"Only an R with its exact token ends a grant.",
			"spec/ticketing.md §2",
			"The table ended a grant by an R on a session where none had named its token; or an R was answered Released while another token certainly held the key, which was then granted anew within that lease.",
			"A ticket is released after its lease while another client holds the key, and the tool itself releases with a wrong token.",
		}, releaseNeedsExactToken},
	}
}
