//go:build !unix

package verify

import "time"

func descriptorLimit() (int, bool) { return 0, false }

func processorTime() (time.Duration, bool) { return 0, false }

func used() (consumed, bool) { return consumed{}, false }
