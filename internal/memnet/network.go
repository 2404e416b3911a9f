package memnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// Limits of a network.
const (
	DefaultBuffer  = 64 << 10 // bytes in flight per direction
	MaxBuffer      = 64 << 20
	DefaultBacklog = 128 // connections that wait for Accept
	MaxBacklog     = 64 << 10

	firstPort = 32768 // the ephemeral ports of Linux
	lastPort  = 60999
)

var loopback = net.IPv4(127, 0, 0, 1)

// Options sets up a network or a pipe. The zero value is ready to use.
type Options struct {
	// Buffer is how many bytes one direction holds before Write blocks: 1 to MaxBuffer, 0 means DefaultBuffer; what is out of range is moved into it.
	Buffer int
	// Backlog is how many connections of one listener wait for Accept before Dial blocks: 1 to MaxBacklog, 0 means DefaultBacklog.
	Backlog int
	// OnConn, if set, is called for every connection, by Dial, before either side can use it: the place to set limits or
	// to arm a reset at a byte.
	OnConn func(dialed, accepted *Conn)
}

func (o Options) withDefaults() Options {
	o.Buffer = within(o.Buffer, DefaultBuffer, MaxBuffer)
	o.Backlog = within(o.Backlog, DefaultBacklog, MaxBacklog)
	return o
}

func within(n, unset, most int) int {
	if n == 0 {
		return unset
	}
	return min(max(n, 1), most)
}

// Network holds listeners by address. It knows no routes: every host name and every IP address can be listened on and dialled.
type Network struct {
	opts Options

	mu        sync.Mutex
	listeners map[place]*Listener
	port      int // the ephemeral port handed out last
}

// New returns an empty network.
func New(opts Options) *Network {
	return &Network{opts: opts.withDefaults(), listeners: map[place]*Listener{}, port: firstPort - 1}
}

// Listen listens on "host:port" for network "tcp", "tcp4" or "tcp6" (all the same here). Port 0 takes a free one; the host is an IP address,
// "localhost" (127.0.0.1), any other name, or empty or unspecified for all of them. An address in use gives EADDRINUSE.
func (n *Network) Listen(network, addr string) (net.Listener, error) {
	at, err := parse(network, addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.port == 0 {
		at.port = n.freePort(at.host)
	}
	if at.port == 0 || n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: at.addr(), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &Listener{network: n, at: at}
	n.listeners[at] = l
	return l, nil
}

// Dial connects to a listener. It returns once the connection waits for Accept, and blocks while the backlog is full. Errors: ECONNREFUSED
// if nobody listens (any longer), and that of ctx.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	to, err := parse(network, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if to.host == anyHost {
		to.host = loopback.String()
	}
	c, err := n.dial(ctx, to)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: to.addr(), Err: err}
	}
	return c, nil
}

func (n *Network) dial(ctx context.Context, to place) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, from := n.find(to)
	if l == nil {
		return nil, errRefused()
	}
	if err := l.reserve(ctx); err != nil {
		return nil, err
	}
	dialed, accepted := newPair(n.opts, from.addr(), to.addr())
	if n.opts.OnConn != nil {
		n.opts.OnConn(dialed, accepted)
	}
	if err := l.enqueue(accepted); err != nil {
		return nil, err
	}
	return dialed, nil
}

func errRefused() error { return os.NewSyscallError("connect", syscall.ECONNREFUSED) }

// find returns who listens at a place, or nil, and a place for the dialling side.
func (n *Network) find(to place) (*Listener, place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[to]
	if l == nil {
		l = n.listeners[place{anyHost, to.port}]
	}
	if l == nil {
		return nil, place{}
	}
	return l, place{loopback.String(), n.nextPort()}
}

// remove takes a closed listener out.
func (n *Network) remove(l *Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.listeners, l.at)
}

func (n *Network) nextPort() int {
	if n.port++; n.port > lastPort {
		n.port = firstPort
	}
	return n.port
}

// freePort returns an ephemeral port that nobody listens on at host, or 0.
func (n *Network) freePort(host string) int {
	for range lastPort - firstPort + 1 {
		if port := n.nextPort(); n.listeners[place{host, port}] == nil {
			return port
		}
	}
	return 0
}

// place is an address in a form that can be compared.
type place struct {
	host string // an IP address in its canonical form, a name, or anyHost
	port int
}

const anyHost = ""

func parse(network, addr string) (place, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return place{}, net.UnknownNetworkError(network)
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return place{}, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return place{}, &net.AddrError{Err: fmt.Sprintf("port %q is not a number from 0 to 65535", service), Addr: addr}
	}
	if host == "localhost" {
		host = loopback.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
		if ip.IsUnspecified() {
			host = anyHost
		}
	}
	return place{host, int(port)}, nil
}

func (p place) addr() net.Addr {
	if p.host == anyHost {
		return &net.TCPAddr{IP: net.IPv6unspecified, Port: p.port}
	}
	if ip, err := netip.ParseAddr(p.host); err == nil {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(p.port)))
	}
	return Addr{Host: p.host, Port: p.port}
}

// Addr is the address of a host that has a name instead of an IP address.
type Addr struct {
	Host string
	Port int
}

// Network returns "tcp".
func (a Addr) Network() string { return "tcp" }

// String returns "host:port", which Dial takes.
func (a Addr) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }
