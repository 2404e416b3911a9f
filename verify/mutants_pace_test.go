package verify

// paceShows lists the cases that show a defect of its list.
func paceShows(defect, dialect string) []string {
	return nil
}
