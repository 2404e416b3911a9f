package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// outq asks Linux (SIOCOUTQ) for the bytes in the send queue that were not
// acknowledged.
func outq(c syscall.Conn) (n int, ok bool) {
	ok = ask(c, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		return err
	})
	return n, ok
}

// isReset asks for the state (TCP_INFO): after the peer's FIN alone it is not
// yet closed.
func isReset(c syscall.Conn) bool {
	var info *unix.TCPInfo
	return ask(c, func(fd int) (err error) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	}) && info.State == unix.BPF_TCP_CLOSE
}

func ask(c syscall.Conn, f func(fd int) error) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	cerr := rc.Control(func(fd uintptr) { err = f(int(fd)) })
	return cerr == nil && err == nil
}
