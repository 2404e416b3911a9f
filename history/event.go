// Package history is the append-only record of what happened in a case: the
// bytes on the wire, what the client said, what the server's table did. The
// checker judges nothing else.
//
// Seq is the order in which events were recorded under one lock. An event that
// is recorded before an action (Begun before the write call, CallAsked before
// the request is written to the adapter) or after one (Received after the read,
// CallResult after the adapter's line was read) therefore proves an order in
// time where spec/rules.md P9 needs one.
package history

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"tornwire/frames"
)

// Kind says what an event records.
type Kind string

// Kinds of events. The fields that each one sets are listed; At and Seq are
// always set.
const (
	// SessionOpened: a client connected. Session, Client (whose listener it
	// was), Peer (the client's address), Addr (the address that it connected to), Upstream
	// (of the server, where the listener has one of its own).
	SessionOpened Kind = "session_opened"
	// ServerDialed: the session's connection to the server is up (Peer is our
	// own address, as the server sees it) or failed (Detail says why).
	ServerDialed Kind = "server_dialed"
	// Received: bytes of one frame were read from the sender of Dir. Session,
	// Dir, Frame, Off (of the first byte), N, Data, Last (ends the frame).
	Received Kind = "received"
	// WriteBegun: a write to the receiver of Dir is about to begin. Session,
	// Dir, Frame, Off, N. One event per frame touched by the write. Data where
	// the bytes need not be those that were received: the fault made or altered
	// the frame. One that it made has Nth 0 and a Seq of its own, from the top.
	WriteBegun Kind = "write_begun"
	// WriteAccepted: our kernel took these bytes. Fields as WriteBegun.
	WriteAccepted Kind = "write_accepted"
	// Acked: of all bytes accepted towards the receiver of Dir so far (Total),
	// N were acknowledged by its kernel. Session, Dir, N, Total.
	Acked Kind = "acked"
	// EndSeen: a peer ended its sending side. Session, Side, How (FIN or RST), and
	// Detail where there is more to it.
	EndSeen Kind = "end_seen"
	// EndSent: we ended our side towards a peer. Session, Side, How, Cause, and
	// Detail where there is more to it.
	EndSent Kind = "end_sent"
	// Fired: the fault acted. Session, Dir, Frame, Off (bytes of the frame that
	// had passed), Rule, Fault, Draw. A connection is the frame "open"; one that was
	// refused has no Session, but the Client whose listener it was.
	Fired Kind = "fired"
	// WentOpaque: the link can no longer be decoded. Session, Dir, Detail.
	WentOpaque Kind = "went_opaque"
	// AcceptFailed: a listener could not accept; it is tried again. Told once for
	// failures in a row. Client (whose listener it is), Detail.
	AcceptFailed Kind = "accept_failed"
	// ServerLost: nobody listens any more, because the server cannot be reached.
	// Detail.
	ServerLost Kind = "server_lost"
	// ServerBack: the server can be reached again, and connections are accepted.
	ServerBack Kind = "server_back"

	// CanarySet: an address that no client is given can be connected to from now on,
	// and its sessions are recorded. Client (to which they are ascribed), Addr.
	CanarySet Kind = "canary_set"
	// ClientOpened: the adapter said that the client is open. Client, Addr (the
	// addresses that it was given, separated by commas).
	ClientOpened Kind = "client_opened"
	// CloseAsked: the tool is about to ask the client to close. Client.
	CloseAsked Kind = "close_asked"
	// ClientClosed: the adapter said that the client is closed. Client.
	ClientClosed Kind = "client_closed"
	// CallAsked: the tool is about to ask for an acquire. Call, Client, Key,
	// Wait, Lease.
	CallAsked Kind = "call_asked"
	// CallStarted: the adapter's started event was read. Call.
	CallStarted Kind = "call_started"
	// CallResult: the result of an acquire was read. Call, Outcome, and for
	// acquired HasToken, Token, HasOwner, Owner; Raw.
	CallResult Kind = "call_result"
	// CancelAsked: the tool is about to ask for a cancel. Call.
	CancelAsked Kind = "cancel_asked"
	// CancelDone: cancel_ok was read. Call.
	CancelDone Kind = "cancel_done"
	// Entered: the tool's application entered the critical section. Call, Key,
	// Token, Refused (the resource would have refused the token: it has seen a
	// higher one).
	Entered Kind = "entered"
	// Left: it left. Call, Key, Token, Refused (likewise, on its way out).
	Left Kind = "left"
	// ReleaseAsked: the tool is about to ask for a release. Call.
	ReleaseAsked Kind = "release_asked"
	// ReleaseResult: the result of a release was read. Call, Outcome, Raw.
	ReleaseResult Kind = "release_result"
	// CallOverdue: no result at the call's deadline + 5 s while the client was
	// alive (pongs in time); the tool stopped waiting. Call.
	CallOverdue Kind = "call_overdue"

	// Queued: the server queued an attempt. Key, Owner, HasOwner, Peer.
	Queued Kind = "queued"
	// Granted: the server granted a key. Key, Token, Owner, HasOwner, Wait,
	// Lease, Peer ("" for the tool's own direct use of the table).
	Granted Kind = "granted"
	// GrantEnded: a grant is over. Key, Token, How (Released or Expired), Peer
	// (who sent the R that ended it; "" at expiry).
	GrantEnded Kind = "grant_ended"
	// AttemptEnded: an attempt ended without a grant. Key, Owner, HasOwner,
	// Peer, How (TimedOut, Refused, Dropped).
	AttemptEnded Kind = "attempt_ended"

	// RanLate: the tool's ticker or the adapter's pong was late (P11). Detail, N
	// (milliseconds).
	RanLate Kind = "ran_late"
	// Frozen: every thread of the clients was seen stopped; they do nothing until
	// Thawed.
	Frozen Kind = "frozen"
	// Thawed: they were seen stopped, and are about to be continued.
	Thawed Kind = "thawed"
	// CaseEnding: the workload is over; what follows is the tool clearing up.
	CaseEnding Kind = "case_ending"
)

// kinds is every kind above, in their order.
var kinds = []Kind{
	SessionOpened, ServerDialed, Received, WriteBegun, WriteAccepted, Acked, EndSeen, EndSent, Fired, WentOpaque,
	AcceptFailed, ServerLost, ServerBack, CanarySet,
	ClientOpened, CloseAsked, ClientClosed, CallAsked, CallStarted, CallResult, CancelAsked, CancelDone, Entered, Left,
	ReleaseAsked, ReleaseResult, CallOverdue,
	Queued, Granted, GrantEnded, AttemptEnded,
	RanLate, Frozen, Thawed, CaseEnding,
}

// Kinds lists every kind of event that this package knows.
func Kinds() []Kind { return slices.Clone(kinds) }

// Words for Event.How.
const (
	FIN      = "fin"
	RST      = "rst"
	Released = "released"
	Expired  = "expired"
	TimedOut = "timed_out"
	Refused  = "refused" // answered busy, or wait 0 on a held key
	Dropped  = "dropped" // its connection closed while it was queued
)

// Words for Event.Cause.
const (
	CauseFault     = "fault"     // the case's fault did it
	CauseForwarded = "forwarded" // the other peer did it first
	CauseTeardown  = "teardown"  // the case is over
	CauseDial      = "dial"      // the server could not be reached
	CauseHandshake = "handshake" // the client's TLS handshake failed; Detail says why
)

// Side is a peer of a session.
type Side string

// The two sides.
const (
	ClientSide Side = "client"
	ServerSide Side = "server"
)

// Receiver returns the side that receives what travels in dir.
func Receiver(dir frames.Direction) Side {
	if dir == frames.ServerToClient {
		return ClientSide
	}
	return ServerSide
}

// FrameRef names a frame of a case. Two frames with one Session, Dir and Seq
// are one.
type FrameRef struct {
	Dir frames.Direction `json:"dir"`
	Op  string           `json:"op"`  // "" where the link is opaque
	Nth int              `json:"nth"` // of its kind in the case, on any session, from 1; a preface line's in its session
	Seq uint64           `json:"seq"` // on its link, from 0
}

// String returns the form of the case ids, "s2c.A.1".
func (f FrameRef) String() string { return fmt.Sprintf("%s.%s.%d", f.Dir, f.Op, f.Nth) }

// Hex is bytes written in hexadecimal in JSON.
type Hex []byte

// MarshalText returns lower-case hexadecimal.
func (h Hex) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

// UnmarshalText reads hexadecimal.
func (h *Hex) UnmarshalText(b []byte) (err error) {
	*h, err = hex.DecodeString(string(b))
	return err
}

// Event is one thing that happened. Which fields are set depends on Kind.
type Event struct {
	Seq  uint64        `json:"seq"`
	At   time.Duration `json:"at"` // nanoseconds since the case began, monotonic
	Kind Kind          `json:"kind"`

	Session int              `json:"session,omitempty"` // from 1, in accept order
	Side    Side             `json:"side,omitempty"`
	Dir     frames.Direction `json:"dir"`
	Frame   *FrameRef        `json:"frame,omitempty"`
	Off     int              `json:"off,omitempty"`
	N       int              `json:"n,omitempty"`
	Total   int              `json:"total,omitempty"`
	Data    Hex              `json:"data,omitempty"`
	Last    bool             `json:"last,omitempty"`
	How     string           `json:"how,omitempty"`
	Cause   string           `json:"cause,omitempty"`
	Peer    string           `json:"peer,omitempty"`
	Addr    string           `json:"addr,omitempty"`
	// Upstream is the address of a server.
	Upstream string  `json:"upstream,omitempty"`
	Rule     string  `json:"rule,omitempty"`
	Fault    string  `json:"fault,omitempty"`
	Draw     float64 `json:"draw,omitempty"` // what a rule with a chance drew: under the chance

	Client   string        `json:"client,omitempty"`
	Call     int           `json:"call,omitempty"` // from 1 in each case
	Key      string        `json:"key,omitempty"`
	Wait     time.Duration `json:"wait,omitempty"`
	Lease    time.Duration `json:"lease,omitempty"`
	Outcome  string        `json:"outcome,omitempty"`
	Token    uint64        `json:"token,omitempty,string"`
	HasToken bool          `json:"has_token,omitempty"`
	Owner    uint64        `json:"owner,omitempty,string"`
	HasOwner bool          `json:"has_owner,omitempty"`
	Refused  bool          `json:"refused,omitempty"`
	Raw      string        `json:"raw,omitempty"`
	Detail   string        `json:"detail,omitempty"`
}

// Outcomes of an acquire and of a release, the words of spec/adapter.md.
const (
	OutcomeAcquired      = "acquired"
	OutcomeTimeout       = "timeout"
	OutcomeBusy          = "busy"
	OutcomeIndeterminate = "indeterminate"
	OutcomeUnsent        = "unsent"
	OutcomeError         = "error"
	OutcomeReleased      = "released"
	OutcomeNotHeld       = "not_held"
)
