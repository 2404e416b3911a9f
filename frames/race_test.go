//go:build race

package frames_test

// The race detector allocates by itself.
const underRace = true
