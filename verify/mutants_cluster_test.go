package verify

// clusterShows lists the cases that show a defect of its list.
func clusterShows(defect, dialect string) []string {
	switch defect {
	case "moved-anywhere", "moved-keeps", "moved-as-reply":
		return []string{dialect + "/moved/none"}
	case "leader-closes", "leader-as-reply":
		return []string{dialect + "/leader-notice/none"}
	case "error-keeps":
		return []string{dialect + "/no-leader/none", dialect + "/not-active/none", dialect + "/auth-failed/none"}
	case "hint-sticky":
		return []string{dialect + "/no-leader/none"}
	}
	return nil
}
