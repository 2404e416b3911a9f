package client

import (
	"errors"
	"fmt"
	"time"
)

// Errors of New, Acquire and Release, and causes in Indeterminate, Unsent and
// ReleaseIndeterminate. Use errors.Is; causes are wrapped with details.
var (
	// ErrInvalid is returned for an argument the dialect cannot express.
	ErrInvalid = errors.New("invalid argument")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client is closed")
	// ErrDeadline: the call's own deadline passed.
	ErrDeadline = errors.New("the call's deadline has passed")
	// ErrLate: the grant was found after the deadline or after its lease; its
	// release is under way (spec/ticketing.md §3.6, §3.8).
	ErrLate = errors.New("the grant came too late")
	// ErrMismatch: a response came that nobody waited for (§3.14).
	ErrMismatch = errors.New("a response nobody waits for")
	// ErrProtocol: the peer sent bytes that are no frame of the dialect (§3.13).
	ErrProtocol = errors.New("protocol error")
	// ErrMoved: the server said that another node leads (§3.10).
	ErrMoved = errors.New("the server has moved")
	// ErrUnanswered: a release was not answered within 5 s (§3.16).
	ErrUnanswered = errors.New("the release was not answered")
	// ErrLeaseOver: the lease may have ended, and a release by key could free
	// another client's grant (ticketing-v0 only, §1.3).
	ErrLeaseOver = errors.New("the lease may be over")
)

// ServerError is an E frame (spec/ticketing.md §3.12, §3.13).
type ServerError struct{ Reason string }

// Error quotes the reason.
func (e *ServerError) Error() string { return fmt.Sprintf("the server said error %q", e.Reason) }

// Outcome is how an acquire ended: Acquired, TimedOut, Busy, Indeterminate or
// Unsent, always as a value and never nil. No other type implements it.
type Outcome interface {
	// String begins with the outcome's word and adds the cause if there is one.
	String() string
	outcome()
}

// Acquired: the lock is held. It is the only outcome on which the application
// may enter its critical section.
type Acquired struct{ Ticket *Ticket }

// TimedOut: the server said T. The lock was not granted (spec/ticketing.md §3.7).
type TimedOut struct{}

// Busy: the server said B. The lock was not granted and was not queued for;
// the client does not try again (spec/ticketing.md §3.1, §3.7).
type Busy struct{}

// Indeterminate: the request may have reached the server, and no answer to it
// was read in time. The lock may be held in this call's name: do not enter
// (spec/ticketing.md §3.1).
type Indeterminate struct {
	Cause error
	// UntilAtMost is when the grant that was not seen has ended at the latest:
	// when the request was written + the wait sent + the lease. A network that
	// held the request back on its way moves it by as much.
	UntilAtMost time.Time
}

// Unsent: no byte of the request was handed to a connection, so no grant can
// come of it. Cause joins why the call ended with the last connection error.
type Unsent struct{ Cause error }

func (Acquired) outcome()      {}
func (TimedOut) outcome()      {}
func (Busy) outcome()          {}
func (Indeterminate) outcome() {}
func (Unsent) outcome()        {}

// String returns "acquired" and the token.
func (o Acquired) String() string {
	if o.Ticket == nil {
		return "acquired"
	}
	return fmt.Sprintf("acquired with token %d", o.Ticket.token)
}

// String returns "timeout".
func (TimedOut) String() string { return "timeout" }

// String returns "busy".
func (Busy) String() string { return "busy" }

// String returns "indeterminate" and the cause.
func (o Indeterminate) String() string { return worded("indeterminate", o.Cause) }

// String returns "unsent" and the cause.
func (o Unsent) String() string { return worded("unsent", o.Cause) }

// ReleaseOutcome is how a release ended: Released, NotHeld or
// ReleaseIndeterminate, always as a value and never nil. No other type
// implements it.
type ReleaseOutcome interface {
	// String begins with the outcome's word and adds the cause if there is one.
	String() string
	releaseOutcome()
}

// Released: the server said R. The lock was held until now and is free.
type Released struct{}

// NotHeld: the server said N. The lease had ended before the release.
type NotHeld struct{}

// ReleaseIndeterminate: the release may or may not have taken effect. The lock
// is free at the latest when its lease ends.
type ReleaseIndeterminate struct {
	Cause error
	// Over says that the server answered N to a repeated release whose
	// predecessor may have arrived: the lock is no longer held, but whether the
	// release or the end of the lease ended it is unknown (spec/ticketing.md §3.16).
	Over bool
}

func (Released) releaseOutcome()             {}
func (NotHeld) releaseOutcome()              {}
func (ReleaseIndeterminate) releaseOutcome() {}

// String returns "released".
func (Released) String() string { return "released" }

// String returns "not held".
func (NotHeld) String() string { return "not held" }

// String returns "indeterminate" and the cause.
func (o ReleaseIndeterminate) String() string { return worded("indeterminate", o.Cause) }

func worded(word string, cause error) string {
	if cause == nil {
		return word
	}
	return word + ": " + cause.Error()
}
