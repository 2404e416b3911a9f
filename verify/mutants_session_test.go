package verify

// sessionShows lists the cases that show a defect of its list.
func sessionShows(defect, dialect string) []string {
	half := []string{dialect + "/silent-server/c2s.A.1@0:drop"}
	switch defect {
	case "deadline-keeps-session", "status-query":
		return half
	case "cancel-keeps-session", "release-dies-with-call":
		return []string{dialect + "/cancel/none"}
	case "close-all":
		return []string{dialect + "/two-sessions/none"}
	case "close-is-release":
		size := map[string]int{dialectCurrent: 18, dialectV0: 10}[dialect]
		return append(cuts(dialect, "single", "c2s.R.1", []int{size}, "truncate-fin", "truncate-rst"),
			cuts(dialect, "release-lost", "s2c.R.1", []int{releaseMiddle[dialect]}, "truncate-fin-client", "truncate-rst-client")...)
	case "renew-by-resend":
		return []string{dialect + "/held-past-lease/none"}
	}
	return nil
}

// releaseMiddle is the one offset of release-lost's R of the server in the standard
// sweep.
var releaseMiddle = map[string]int{dialectCurrent: 8, dialectV0: 4}
