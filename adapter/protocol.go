// Package adapter is the protocol between tornwire verify and a client library
// in any language: JSON Lines on the adapter's stdin and stdout
// (spec/adapter.md). Go libraries implement Library and call Serve.
package adapter

import (
	"context"
	"time"
)

// Version is the protocol version in init.
const Version = 1

// MaxLine is the longest line in bytes, newline included.
const MaxLine = 64 << 10

// Types of requests.
const (
	TypeInit    = "init"
	TypeOpen    = "open"
	TypeAcquire = "acquire"
	TypeCancel  = "cancel"
	TypeRelease = "release"
	TypeClose   = "close"
	TypePing    = "ping"
)

// Types of answers.
const (
	TypeInitOK      = "init_ok"
	TypeOpenOK      = "open_ok"
	TypeStarted     = "started"
	TypeResult      = "result"
	TypeCancelOK    = "cancel_ok"
	TypeCloseOK     = "close_ok"
	TypePong        = "pong"
	TypeUnsupported = "unsupported"
	TypeError       = "error"
)

// Request is a line from the tool. Which fields are set depends on Type.
type Request struct {
	Type      string   `json:"type"`
	ID        uint64   `json:"id"`
	Version   int      `json:"version,omitempty"`
	Dialect   string   `json:"dialect,omitempty"`
	Client    string   `json:"client,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Secret    *string  `json:"secret,omitempty"`
	Key       string   `json:"key,omitempty"`
	Wait      *float64 `json:"wait,omitempty"`  // seconds
	Lease     *float64 `json:"lease,omitempty"` // seconds
	Call      *uint64  `json:"call,omitempty"`  // id of the acquire meant
}

// Response is a line from the adapter. ID is nil only in a line that is not an
// answer at all.
type Response struct {
	Type     string   `json:"type"`
	ID       *uint64  `json:"id"`
	Client   string   `json:"client,omitempty"`
	Dialects []string `json:"dialects,omitempty"`
	Features []string `json:"features,omitempty"`
	Outcomes []string `json:"outcomes,omitempty"`
	Outcome  string   `json:"outcome,omitempty"`
	Token    string   `json:"token,omitempty"` // decimal
	Owner    string   `json:"owner,omitempty"` // decimal
	Raw      string   `json:"raw,omitempty"`
	Detail   string   `json:"detail,omitempty"`
}

// Library is a client library under test, as Serve sees it.
type Library interface {
	// Info says what the library is and can do.
	Info() Info
	// Open makes a client for a cluster. Addresses are host:port.
	Open(dialect string, addresses []string, secret string) (Client, error)
}

// Info is what init_ok tells of a library.
type Info struct {
	Client   string   // name and version
	Dialects []string // that it speaks
	Features []string // of cancel, close, owner
	Outcomes []string // words it can express; empty means all
}

// Client is one open client of the library. Its methods may be called
// concurrently.
type Client interface {
	// Acquire blocks until the call is over. Cancelling ctx is the library's
	// cancel. A wait of 0 is an immediate attempt.
	Acquire(ctx context.Context, key string, wait, lease time.Duration) Result
	// Close closes the client; running calls end.
	Close() error
}

// Result is how an acquire or a release ended, in the words of spec/adapter.md.
type Result struct {
	Outcome  string
	Token    uint64
	HasToken bool
	Owner    uint64
	HasOwner bool
	Raw      string // the library's own words
	Ticket   Ticket // set exactly when Outcome is acquired
}

// Ticket is a held grant.
type Ticket interface {
	// Release passes the release on to the library, every time it is called.
	Release(ctx context.Context) Result
}
