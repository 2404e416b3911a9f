package verify

// tableShows lists the cases that show a defect of its list.
func tableShows(defect, dialect string) []string {
	if defect == "register-late" {
		return []string{dialect + "/early-reply/none"}
	}
	return nil
}
