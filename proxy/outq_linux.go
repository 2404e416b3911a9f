package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// outq asks Linux (SIOCOUTQ) for the bytes in the send queue that were not
// acknowledged.
func outq(c syscall.Conn) (n int, ok bool) {
	rc, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	cerr := rc.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n, cerr == nil && err == nil
}
