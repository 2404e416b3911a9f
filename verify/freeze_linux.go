package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func (p *process) freeze(ctx context.Context) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, freezeLimit, fmt.Errorf("it still ran %s after it had been told to stop", freezeLimit))
	defer cancel()
	t := time.NewTicker(freezePoll)
	defer t.Stop()
	for p.frozen() != nil {
		select {
		case <-t.C:
		case <-p.exited:
			return errExited
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (p *process) thaw() { _ = p.signal(syscall.SIGCONT) } // one that has exited is thawed too

var errExited = errors.New("it has exited")

// signal signals the group. Its number is the process's own, which nobody else gets as
// long as exited is open.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.exited:
		return errExited
	default:
		return syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

func (p *process) frozen() error {
	members, err := groupMembers(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if len(members) == 0 {
		return errExited
	}
	for _, pid := range members {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		for _, name := range threads {
			if st, ok := readStat(name); ok && st.state != "T" && !st.dead() {
				return fmt.Errorf("thread %s of process %d is in state %s", filepath.Base(filepath.Dir(name)), pid, st.state)
			}
		}
	}
	return nil
}

// stat is what is needed of /proc/PID/stat.
type stat struct {
	state string
	group int
}

func (s stat) dead() bool { return s.state == "Z" || s.state == "X" }

// readStat is false for a process or thread that is gone.
func readStat(name string) (stat, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return stat{}, false
	}
	// The name of the program, in brackets, may have anything in it.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 3 {
		return stat{}, false
	}
	group, err := strconv.Atoi(fields[2])
	return stat{fields[0], group}, err == nil
}

// groupMembers lists the live processes of a process group.
func groupMembers(group int) ([]int, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		if st, ok := readStat(name); ok && st.group == group && !st.dead() {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

func (p *process) holds(local, remote string) error {
	from, err := netip.ParseAddrPort(local)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(remote)
	if err != nil {
		return err
	}
	inode, err := socketInode(from, to)
	if err != nil {
		return err
	}
	members, err := groupMembers(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	want := "socket:[" + inode + "]"
	for _, pid := range members {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(links, func(l string) bool { to, err := os.Readlink(l); return err == nil && to == want }) {
			return nil
		}
	}
	return fmt.Errorf("no process of the adapter's group has the connection from %s to %s", local, remote)
}

// socketInode finds a socket in the kernel's tables by both of its addresses: sockets
// to different ones may share a port. One of the other family shows an IPv4 address in
// the last 4 of its 16 bytes.
func socketInode(local, remote netip.AddrPort) (string, error) {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[9] == "0" {
				continue
			}
			from, ok := kernelAddr(fields[1])
			to, ok2 := kernelAddr(fields[2])
			if ok && ok2 && from == local && to == remote {
				return fields[9], nil
			}
		}
	}
	return "", fmt.Errorf("the connection from %s to %s is %w", local, remote, errNotListed)
}

// kernelAddr reads "0100007F:1F90": 32-bit words in the machine's byte order, and the
// port.
func kernelAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	b, err2 := hex.DecodeString(host)
	if !ok || err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}
