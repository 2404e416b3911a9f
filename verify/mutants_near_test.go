package verify

// nearShows lists the cases that show a defect of its list.
func nearShows(defect, dialect string) []string {
	switch defect {
	case "owner-halved", "key-caseless", "key-prefix", "refusal-by-key", "answer-by-key", "answer-by-token", "op-blind":
		return []string{dialect + "/near-miss/none"}
	case "token-clamped", "token-text":
		return []string{dialect + "/contended/none"}
	case "notice-anywhere":
		return []string{dialect + "/leader-notice/none"}
	case "cancel-as-unsent":
		return []string{dialect + "/cancel/none"}
	case "release-inverted":
		return []string{dialect + "/expired/none"}
	}
	return nil
}
