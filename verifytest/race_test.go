//go:build race

package verifytest

// share is which clients are run, every so manyth: the race detector looks at this
// package and those below it, of which each client uses nearly all.
const share = 10

// sameRuns is how often the transcripts are compared.
const sameRuns = 2
