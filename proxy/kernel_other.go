//go:build !linux

package proxy

import "syscall"

// outq cannot be asked on this system.
func outq(syscall.Conn) (int, bool) { return 0, false }

// isReset cannot be asked on this system.
func isReset(syscall.Conn) bool { return false }
