package verify

// clusterShows lists the cases that show a defect of its list.
func clusterShows(defect, dialect string) []string {
	return nil
}
