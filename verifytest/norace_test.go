//go:build !race

package verifytest

const share = 1
