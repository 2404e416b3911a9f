//go:build !race

package verifytest

const share = 1

const sameRuns = 3
