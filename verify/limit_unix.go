//go:build unix

package verify

import (
	"syscall"
	"time"
)

// descriptorLimit returns how many files this process may have open. The Go
// runtime has raised the soft limit to the hard one.
func descriptorLimit() (int, bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return int(min(uint64(l.Cur), 1<<30)), true
}

// processorTime returns how much processor time this process has used.
func processorTime() (time.Duration, bool) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, false
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), true
}
