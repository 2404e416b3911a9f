//go:build unix

package verify

import (
	"runtime"
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
	return spentBy(&r), true
}

func spentBy(r *syscall.Rusage) time.Duration { return time.Duration(r.Utime.Nano() + r.Stime.Nano()) }

// used returns what this process and its children have used.
func used() (consumed, bool) {
	var self, children syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) != nil || syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children) != nil {
		return consumed{}, false
	}
	unit := int64(1024)
	if runtime.GOOS == "darwin" {
		unit = 1 // the others count KiB
	}
	return consumed{spentBy(&self), spentBy(&children), int64(self.Maxrss) * unit, int64(children.Maxrss) * unit}, true
}
