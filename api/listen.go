package api

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"

	"tornwire/proxy"
)

// spot is where a proxy is to be served.
type spot struct {
	net.Listener
	leave func() // to be called when it is served no longer
}

// listen is how a proxy gets its address.
func (d *member) listen(address string) (spot, error) {
	s, err := d.tryListen(address)
	if err == nil {
		return s, nil
	}
	e := newError(http.StatusInternalServerError, "%v", err)
	e.Field, e.cause = "listen", err
	return spot{}, e
}

func (d *member) tryListen(address string) (spot, error) {
	network, rest, err := proxy.ParseAddress(address)
	if err != nil {
		return spot{}, err
	}
	leave := func() {}
	if path, ok := unixPath(address); ok {
		if leave, err = d.m.claim(path, d.name); err != nil {
			return spot{}, fmt.Errorf("listen on %s: %w", address, err)
		}
	}
	l, err := proxy.Listen(network, rest)
	if err != nil {
		leave()
		return spot{}, err
	}
	return spot{l, leave}, nil
}

// claim notes that a proxy is about to listen on a unix socket. That of another
// proxy must not be tried: to find out whether somebody listens, one has to
// connect, and the other would take that for a client.
func (m *Manager) claim(path, name string) (leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, taken := m.unix[path]; taken {
		return nil, fmt.Errorf("proxy %s has it: %w", other, syscall.EADDRINUSE)
	}
	m.unix[path] = name
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.unix, path)
	}, nil
}

// unixPath is the path of a unix socket in one form for all ways to write it.
func unixPath(address string) (string, bool) {
	network, path, err := proxy.ParseAddress(address)
	if err != nil || network != "unix" {
		return "", false
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path, true
}

// sameAddress tells whether two addresses are one to listen on.
func sameAddress(a, b string) bool {
	return a == b || resolved(a) == resolved(b)
}

func resolved(address string) string {
	if path, ok := unixPath(address); ok {
		return "unix:" + path
	}
	if network, rest, err := proxy.ParseAddress(address); err == nil && network == "tcp" {
		if a, err := net.ResolveTCPAddr("tcp", rest); err == nil {
			return a.String()
		}
	}
	return address
}

func samePort(a, b string) bool {
	_, p, err := net.SplitHostPort(resolved(a))
	_, q, err2 := net.SplitHostPort(resolved(b))
	return err == nil && err2 == nil && p == q
}
