// Package server is the embedded Ticketing lock server: one node that speaks
// every dialect of spec/ticketing.md §1 and keeps the lock table of its §2, or a
// Cluster of such nodes with one table.
//
// The table decides under one lock and does no I/O; connections carry its
// answers in the order in which it decided them. Time comes from package time,
// so that a server inside a testing/synctest bubble runs in virtual time.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tornwire/frames"
)

// Defaults of Config.
const (
	DefaultDialect        = "ticketing"
	DefaultServerID       = "tornwire"
	DefaultQueueLimit     = 1024
	DefaultCapacity       = 65536
	DefaultConnLimit      = 4096
	DefaultPrefaceTimeout = 10 * time.Second
)

// Bounds of Config; a value over one is refused.
const (
	MaxQueueLimit     = 1 << 20
	MaxCapacity       = 1 << 20
	MaxConnLimit      = 1 << 16
	MaxPrefaceTimeout = 24 * time.Hour
	// MaxLease and MaxWait are the longest lease and wait of Server.Acquire and
	// Server.Wait, those of a u16 of seconds.
	MaxLease = 65535 * time.Second
	MaxWait  = 65535 * time.Second

	maxSecret   = 4096 // bytes
	maxServerID = 128  // bytes; leaves a nonce as many in the greeting
)

// Config says how a Server behaves. The zero value is a server of the current
// dialect without a secret. 0 stands for a field's default.
type Config struct {
	Dialect        string        // grammar name, default "ticketing"
	Secret         string        // of the preface digest; may be empty; at most 4096 bytes
	ServerID       string        // first word of the greeting, default "tornwire"; printable ASCII, at most 128 bytes
	Nonce          func() string // a fresh nonce per connection, one printable word; default 16 hex digits from crypto/rand
	FirstToken     uint64        // token of the first grant, default 1
	QueueLimit     int           // waiters per key, default 1024
	Capacity       int           // attempts held or queued over all keys, default 65536
	ConnLimit      int           // connections at once, default 4096; one more is closed at once
	PrefaceTimeout time.Duration // how long a client may take for its preface line, default 10 s
	// OnEvent is called for every change of the table, in table order and under
	// the table's lock: it must not block, nor call the server.
	OnEvent func(Event)
}

// Server is an embedded lock server. Its table outlives the connections and the
// calls of Serve. All methods are safe for concurrent use.
type Server struct {
	cfg     Config
	dialect *dialect
	table   *table
	seat    *seat // in a cluster, or nil
	conns   atomic.Int64
	live    liveConns
}

// New returns a server. All problems of the configuration are reported together.
func New(cfg Config) (*Server, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Server{
		cfg:     cfg,
		dialect: newDialect(frames.MustBuiltin(cfg.Dialect)),
		table: &table{
			emit: cfg.OnEvent, queueLimit: cfg.QueueLimit, capacity: cfg.Capacity,
			token: cfg.FirstToken, locks: map[string]*lock{},
		},
	}, nil
}

func (c *Config) setDefaults() {
	orDefault(&c.Dialect, DefaultDialect)
	orDefault(&c.ServerID, DefaultServerID)
	orDefault(&c.FirstToken, 1)
	orDefault(&c.QueueLimit, DefaultQueueLimit)
	orDefault(&c.Capacity, DefaultCapacity)
	orDefault(&c.ConnLimit, DefaultConnLimit)
	orDefault(&c.PrefaceTimeout, DefaultPrefaceTimeout)
	if c.Nonce == nil {
		c.Nonce = randomNonce
	}
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func randomNonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func (c *Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	between := func(name string, v, most int) {
		if v < 1 || v > most {
			bad("%s is %d, not 1 to %d", name, v, most)
		}
	}
	if _, ok := frames.Builtin(c.Dialect); !ok {
		bad("there is no dialect %q; there are %s", c.Dialect, strings.Join(frames.Names(), " and "))
	}
	if len(c.Secret) > maxSecret {
		bad("the secret has %d bytes, over %d", len(c.Secret), maxSecret)
	}
	if !isWord(c.ServerID) {
		bad("server id %q is not one word of at most %d printable ASCII characters", c.ServerID, maxServerID)
	}
	between("queue limit", c.QueueLimit, MaxQueueLimit)
	between("capacity", c.Capacity, MaxCapacity)
	between("connection limit", c.ConnLimit, MaxConnLimit)
	if c.PrefaceTimeout < 0 || c.PrefaceTimeout > MaxPrefaceTimeout {
		bad("preface timeout is %v, not over 0 and up to %v", c.PrefaceTimeout, MaxPrefaceTimeout)
	}
	return errors.Join(errs...)
}

// isWord tells whether s can be one of the two words of a greeting.
func isWord(s string) bool {
	if s == "" || len(s) > maxServerID {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// acceptPause is the longest pause after an accept that failed for want of a
// resource.
const acceptPause = time.Second

// Serve accepts connections until ctx is done, and closes l. It returns nil when
// ctx is done, or why the listener failed, in both cases after every goroutine
// it started has ended and every connection it accepted is closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = l.Close()
	})
	defer wg.Wait()
	defer cancel()
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			wg.Go(func() { s.ServeConn(ctx, nc) })
			continue
		case ctx.Err() != nil:
			return nil
		case !isPassing(err):
			return fmt.Errorf("accepting connections: %w", err)
		}
		pause = min(max(2*pause, 5*time.Millisecond), acceptPause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// isPassing tells whether an accept may succeed later.
func isPassing(err error) bool {
	for _, e := range []error{syscall.ECONNABORTED, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// ServeConn serves one connection and closes it. It returns when the connection
// is over or ctx is done, and its goroutines have ended.
func (s *Server) ServeConn(ctx context.Context, c net.Conn) {
	defer s.conns.Add(-1)
	if s.conns.Add(1) > int64(s.cfg.ConnLimit) {
		_ = c.Close()
		return
	}
	newConn(s, c).serve(ctx)
}

// Acquire is an immediate attempt of the embedding program, without a
// connection: it is never queued. It fails if the key is held, the server is at
// capacity or out of tokens, the key could not be in a frame, or the lease is
// not over 0 and up to MaxLease.
func (s *Server) Acquire(key string, lease time.Duration) (token uint64, ok bool) {
	if !s.dialect.validKey(key) || lease <= 0 || lease > MaxLease {
		return 0, false
	}
	return s.table.acquire(&attempt{key: key, lease: lease})
}

// Wait is an attempt of the embedding program, without a connection, that is
// queued while the key is held: in turn with those of the clients, and counted
// against QueueLimit and Capacity. When its turn comes it is a grant like that of
// Acquire, with the next token; Holder tells it. A free key is granted at once, a
// full queue or a server at capacity refuses. Events and states of it have no peer
// and no owner.
//
// The function returned gives the attempt up if it is still queued, and otherwise
// does nothing; it may be called more than once, but not from Config.OnEvent. With
// a key that could not be in a frame, a lease or a wait that is not over 0 and up
// to MaxLease or MaxWait, nothing happens at all.
func (s *Server) Wait(key string, wait, lease time.Duration) (cancel func()) {
	if !s.dialect.validKey(key) || lease <= 0 || lease > MaxLease || wait <= 0 || wait > MaxWait {
		return func() {}
	}
	a := &attempt{key: key, wait: wait, lease: lease, patience: bounded}
	s.table.acquire(a)
	return func() { s.table.cancel(a) }
}

// Release ends the grant of key that has this token, in every dialect. It is
// false if there is none.
func (s *Server) Release(key string, token uint64) bool {
	return s.table.release(nil, key, token, true)
}

// Holder returns the live grant of key.
func (s *Server) Holder(key string) (Grant, bool) { return s.table.holder(key) }

// Table returns every held key with its queue, sorted by key.
func (s *Server) Table() []KeyState { return s.table.snapshot() }

// History returns the grants of key so far, the oldest first, the live one
// included. The oldest are forgotten over HistoryLimit of this key, or
// HistoryTotal of all.
func (s *Server) History(key string) []Grant { return s.table.history(key) }
