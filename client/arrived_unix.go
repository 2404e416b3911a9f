//go:build unix

package client

import (
	"net"
	"syscall"
	"time"
)

// arrived reads, without waiting, bytes that have arrived on a connection whose
// read deadline has passed. The runtime refuses them then, although after a
// pause of the process an answer may have been lying there for long. It knows
// TCP connections only; others may carry something else than plain bytes.
func arrived(conn net.Conn, buf []byte) int {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil || tcp.SetReadDeadline(time.Time{}) != nil {
		return 0
	}
	n := 0
	err = raw.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), buf) // the runtime's descriptors do not block
		return true
	})
	if err != nil {
		return 0
	}
	return max(n, 0)
}
