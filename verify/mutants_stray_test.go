package verify

// strayShows lists the cases that show a defect of its list.
func strayShows(defect, dialect string) []string {
	keepAlive := func(workload, fault string) []string {
		return cuts(dialect, workload, "s2c.keepalive.1", []int{0}, fault)
	}
	twice := cuts(dialect, "duplicate-grant", "s2c.A.1", []int{25}, "duplicate")
	switch defect {
	case "stray-ignored":
		return append(keepAlive("stray-reply", "inject-stray"), keepAlive("wrong-key-reply", "inject-stray")...)
	case "release-dead-lane":
		return keepAlive("stray-reply", "inject-stray")
	case "key-blind":
		return keepAlive("wrong-key-reply", "inject-stray")
	case "duplicate-released":
		return twice
	case "unknown-skipped":
		return keepAlive("unknown-op", "inject-garbage")
	case "malformed-skipped", "error-skipped":
		return keepAlive("malformed", "inject-garbage")
	case "overlong-skipped":
		return keepAlive("overlong", "inject-garbage")
	}
	return nil
}
