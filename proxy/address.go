package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// MaxUnixPath is the longest path of a unix socket in bytes.
	MaxUnixPath = len(syscall.RawSockaddrUnix{}.Path) - 1
	// probeLimit is how long a socket file is asked whether somebody listens.
	probeLimit = time.Second
)

// ParseAddress reads an address to listen on or to dial, "host:port" or
// "unix:/path", into what package net wants. The host may be empty, the port is a
// number. A path has 1 to MaxUnixPath bytes, and is no name in Linux's abstract
// namespace, which no file stands for.
func ParseAddress(s string) (network, address string, err error) {
	bad := func(why string, args ...any) (string, string, error) {
		return "", "", fmt.Errorf("address %q: %s", s, fmt.Sprintf(why, args...))
	}
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		switch {
		case path == "":
			return bad("no path behind unix:")
		case strings.HasPrefix(path, "//"):
			return bad("it is written unix:/path, not unix://")
		case strings.HasPrefix(path, "@"), strings.Contains(path, "\x00"):
			return bad("the path has to be that of a file")
		case len(path) > MaxUnixPath:
			return bad("the path has %d bytes, over %d", len(path), MaxUnixPath)
		}
		return "unix", path, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		var a *net.AddrError
		if errors.As(err, &a) {
			return bad("%s; it is host:port or unix:/path", a.Err)
		}
		return bad("%v", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return bad("port %q is not a number from 0 to 65535", port)
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7F || strings.ContainsRune("/@?#[]\\", r) }) {
		return bad("%q is no host", host)
	}
	return "tcp", s, nil
}

// Listen listens on what ParseAddress returned. The file of a unix socket goes
// with the listener. One that a dead process left is replaced; that of a living
// one, and any other kind of file, is an error.
func Listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if network != "unix" || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if err := removeStale(address); err != nil {
		return nil, fmt.Errorf("listen on unix:%s: %w", address, err)
	}
	return net.Listen(network, address)
}

// removeStale removes a socket at which nobody listens.
func removeStale(path string) error {
	was, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it went meanwhile
	case err != nil:
		return err
	case was.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is no socket")
	}
	c, err := net.DialTimeout("unix", path, probeLimit)
	switch {
	case err == nil:
		_ = c.Close()
		return errors.New("somebody listens there")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("somebody may listen there: %w", err)
	}
	if is, err := os.Lstat(path); err != nil || !os.SameFile(was, is) {
		return errors.New("somebody else has just taken it")
	}
	return os.Remove(path)
}
