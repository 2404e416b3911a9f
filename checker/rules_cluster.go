package checker

// clusterRules are those about M, L and E.
func clusterRules() []implemented {
	return []implemented{
		{Rule{
			"moved-uncorrelated", sideClient, Safety,
			"An M ends no call as acquired, timeout or busy.",
			"spec/ticketing.md §3.10",
			"A call that waited on the session of an M was told acquired, timeout or busy just after it, well before its deadline, while no byte of an answer to it had begun and nothing else had been written there since its request.",
			"An acquire is sent to a node that does not lead.",
		}, func(j *judge) { uncorrelated(j, opMoved) }},
		{Rule{
			"leader-uncorrelated", sideClient, Safety,
			"An L ends no call.",
			"spec/ticketing.md §3.11",
			"A call that waited on the session of an L was told acquired, timeout or busy just after it, well before its deadline, while no byte of an answer to it had begun and nothing else had been written there since its request.",
			"Notices come while a call waits for a held key.",
		}, func(j *judge) { uncorrelated(j, opNotice) }},
		{Rule{
			"moved-closes", sideClient, Contract,
			"An M closes its connection.",
			"spec/ticketing.md §3.10",
			"The client is proved to have read the M (it told or released the token of a grant behind it, or ended a call that nothing else ended), and for a call asked for after that an A came on the same session; hygiene in ticketing-v0.",
			"A release and an acquire are sent to a node that does not lead; it leads again if the client keeps the session.",
		}, func(j *judge) { closesAfter(j, j.words(opMoved)) }},
		{Rule{
			"moved-allowlist", sideClient, Contract,
			"An address that an M names is not dialled unless the client was given it.",
			"spec/ticketing.md §3.10, §3.11",
			"The client was not given the address that an M or L named, and a connection was made to it afterwards.",
			"An M names an address at which only the tool listens.",
		}, movedAllowlist},
		{Rule{
			"leader-stays", sideClient, Hygiene,
			"An L leaves the connection open.",
			"spec/ticketing.md §3.11",
			"Three of three sessions without anything under way were closed by the client within a quarter of a second of an L, and each had stayed open for as long just before with nothing coming, and one for longer without an L.",
			"Three times an L comes on a session whose lock has been released, and once none does.",
		}, leaderStays},
		{Rule{
			"error-closes", sideClient, Contract,
			"E no_leader, not_active and auth_failed close the connection.",
			"spec/ticketing.md §3.12",
			"The client is proved to have read the E (it told or released the token of a grant behind it, or ended a call that nothing else ended), and for a call asked for after that an A came on the same session; hygiene in ticketing-v0.",
			"A release and an acquire are sent when there is no leader, or to a standby; the node leads again if the client keeps the session. In front of a call that waits comes E auth_failed, and its grant behind it.",
		}, func(j *judge) { closesAfter(j, j.listedErrors()) }},
		{Rule{
			"no-leader-drops-hint", sideClient, Hygiene,
			"E no_leader drops the leader hint.",
			"spec/ticketing.md §3.12",
			"Twenty of twenty times, with varying hints, the node that an L had named just before the E was the first to be dialled after it, all nodes being up.",
			"Twenty clients of three nodes wait on one; an L names another, now the second and now the third, and then nobody leads.",
		}, noLeaderDropsHint},
	}
}
