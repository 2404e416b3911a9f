// Package proxy is the data path: sessions between clients and a server, and
// the faults that are done to their frames. It is the only package with sockets,
// goroutines and timers on that path.
//
// Without a rule that matches, the proxy is transparent: identical bytes, and
// FIN, half-close and RST passed on each way. While a rule withholds bytes, both
// peers are still read (up to QueueLimit), so that an end or a request behind
// the withheld bytes is seen at once.
package proxy

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// Limits of the data path.
const (
	// ReadSize is how many bytes are read at once.
	ReadSize = 32 << 10
	// QueueLimit is how many bytes a link keeps while it withholds them; then
	// it no longer reads.
	QueueLimit = 1 << 20
	// stepCost is what a step counts for among them.
	stepCost = 256
	// DialLimit is how long the server is dialled.
	DialLimit = 10 * time.Second
	// SilentLimit is how long a silenced connection stays open when both peers
	// have ended.
	SilentLimit = 10 * time.Minute
)

// Config describes a proxy.
type Config struct {
	// Grammar decodes both directions; without one the bytes just pass, and no
	// rule can match.
	Grammar *frames.Grammar
	// Upstream is the server's address, host:port or unix:/path (ParseAddress).
	Upstream string
	// Rules are armed from the start; nil for none. See Arm for later ones.
	Rules *faults.Set
	// Seed is what the dice of rules and byte stages are thrown with.
	Seed uint64
	// Recorder keeps every byte and end; nil for none.
	Recorder *history.Recorder
	// Observe, if set, is shown the events of kind session_opened, server_dialed,
	// fired, went_opaque, accept_failed, server_lost and server_back, with or without a
	// recorder. It must not block, nor call the proxy.
	Observe func(history.Event)
	// ReadSize is how many bytes are read at once, and so what a waiting link keeps in
	// memory: 1 to ReadSize, 0 means ReadSize.
	ReadSize int
	// Keep, if set, is given the connections of clients that are still connected
	// when Serve ends, instead of an RST to them. Nothing more is read or written.
	Keep func(net.Conn)
	// TLS, if set, ends the clients' TLS here, so that frames can be seen. TLS 1.2 is
	// the least, and no session tickets are given. Where it names no protocols (ALPN)
	// clients get the one that the server chose. See ServerTLS.
	TLS *tls.Config
	// UpstreamTLS, if set, speaks TLS to the server, whose certificate is checked
	// unless it says otherwise, for the upstream's host unless it names another. Where
	// it names no protocols (ALPN) the server is asked for the client's. See ClientTLS.
	UpstreamTLS *tls.Config
	// ProxyHeader sends a PROXY protocol header (version 2) with the client's address
	// to the server first, in front of TLS. It is no part of the link: offsets and
	// counts begin behind it.
	ProxyHeader bool
	// Unreachable is what a client gets while the server cannot be reached; Reset
	// by default.
	Unreachable Unreachable
	// DialTimeout is how long the server is dialled, its TLS handshake included: over
	// 0 up to DialLimit, which is the default.
	DialTimeout time.Duration
	// Dial reaches the server; net.Dialer by default. network is tcp or unix.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Listen listens again where nobody did for a while; Listen by default.
	Listen func(network, address string) (net.Listener, error)
}

// Unreachable is what a client gets while the server cannot be reached.
type Unreachable string

// What a client can get.
const (
	Reset  Unreachable = "reset"  // its connection is reset
	Refuse Unreachable = "refuse" // it is reset, and nobody listens until the server can be reached again
	Close  Unreachable = "close"  // its connection is accepted and closed (FIN)
	Hold   Unreachable = "hold"   // its connection stays open, and the server is tried again
)

// Proxy forwards connections to one server. It is safe for concurrent use.
type Proxy struct {
	cfg    Config
	book   atomic.Pointer[rulebook]
	stages atomic.Pointer[faults.Stages]
	record *history.Recorder // keeps the bytes of links; nil for none

	unsure atomic.Int64 // links that wait for more of a frame

	mu       sync.Mutex
	sessions int    // accepted so far
	arms     uint64 // rules armed so far
	tallies  map[tallyKey]*counter
	doors    []*door // at which somebody listens
	gates    map[string]*gate
	live     map[int]*session
	outage   *outage // while nobody listens because the server cannot be reached
	era      int     // how many outages are over

	dialing atomic.Int64 // sessions that have no server yet
	dials   dials
	near    bool // one address is dialled, which needs no deadline to be shared out
}

// New returns a proxy. It listens nowhere until Serve is called.
func New(cfg Config) *Proxy {
	_, err := netip.ParseAddrPort(cfg.Upstream)
	near := cfg.Dial == nil && err == nil
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Listen == nil {
		cfg.Listen = Listen
	}
	p := &Proxy{cfg: cfg, record: cfg.Recorder, near: near}
	p.tallies, p.live, p.gates = map[tallyKey]*counter{}, map[int]*session{}, map[string]*gate{}
	var rules []*armed
	for _, r := range cfg.Rules.Rules() {
		rules = append(rules, newArmed(r))
	}
	p.book.Store(newRulebook(rules))
	p.mu.Lock() // a time to live may be over at once
	defer p.mu.Unlock()
	for _, r := range rules {
		p.arm(r)
	}
	return p
}

// RecordAcked records, for every live session, how much of what was delivered
// the receivers' kernels have acknowledged.
func (p *Proxy) RecordAcked() {
	p.mu.Lock()
	var links []*link
	for _, id := range slices.Sorted(maps.Keys(p.live)) {
		links = append(links, p.live[id].links[:]...)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.recordAcked()
	}
}

// sessionsNow lists the live sessions.
func (p *Proxy) sessionsNow() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.live))
}

func (p *Proxy) setLive(s *session, live bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if live {
		p.live[s.id] = s
	} else {
		delete(p.live, s.id)
	}
}
