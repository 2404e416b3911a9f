package wrongclient

// Defects and oddities about M, L and E.
const (
	movedAnywhere defect = "moved-anywhere"
	movedKeeps    defect = "moved-keeps"
	movedAsReply  defect = "moved-as-reply"
	leaderCloses  defect = "leader-closes"
	leaderAsReply defect = "leader-as-reply"
	errorKeeps    defect = "error-keeps"
	hintSticky    defect = "hint-sticky"

	oddReturns   defect = "odd-returns"    // dials the node first that it was connected to last, whoever leads
	oddReadsLate defect = "odd-reads-late" // reads M, L and E 20 ms late, when more may have been sent
)

var clusterDefects = []Defect{
	{string(movedAnywhere), "moved-allowlist", "takes any address in an M for the leader's, and dials it first", []string{dialectCurrent, dialectV0}},
	{string(movedKeeps), "moved-closes", "keeps the session after an M, and uses it", []string{dialectCurrent}},
	{string(movedAsReply), "moved-uncorrelated", "tells the calls that wait on the session of an M as timeout", []string{dialectCurrent, dialectV0}},
	{string(leaderCloses), "leader-stays", "closes the session after an L", []string{dialectCurrent}},
	{string(leaderAsReply), "leader-uncorrelated", "tells the calls that wait on the session of an L as acquired, with token 0", []string{dialectCurrent}},
	{string(errorKeeps), "error-closes", "keeps the session after E no_leader, not_active and auth_failed, and uses it", []string{dialectCurrent}},
	{string(hintSticky), "no-leader-drops-hint", "keeps the leader hint after E no_leader", []string{dialectCurrent}},
}

var clusterOdd = []defect{oddReturns, oddReadsLate}
