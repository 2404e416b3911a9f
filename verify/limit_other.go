//go:build !unix

package verify

func descriptorLimit() (int, bool) { return 0, false }
