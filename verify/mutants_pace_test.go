package verify

// paceShows lists the cases that show a defect of its list.
func paceShows(defect, dialect string) []string {
	switch defect {
	case "reconnect-hot":
		return []string{dialect + "/hot-reconnect/c2s.open.1@0:accept-fin"}
	}
	return nil
}
