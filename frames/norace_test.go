//go:build !race

package frames_test

const underRace = false
