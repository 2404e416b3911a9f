package verify

// sessionShows lists the cases that show a defect of its list.
func sessionShows(defect, dialect string) []string {
	return nil
}
