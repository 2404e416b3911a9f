// Package client is the reference Ticketing client: it acquires a named lock
// with a wait budget and a lease, gives the application a fencing token, and
// releases with that exact token (spec/ticketing.md).
//
// # Outcomes
//
// Acquire ends in exactly one of five ways, told apart by a type switch:
// Acquired, TimedOut, Busy, Indeterminate and Unsent. A Ticket exists only
// inside Acquired. Indeterminate means that a byte of the request may have
// reached the server and no complete, matching answer was read in time: the
// lock may be held in this call's name until its lease ends. The application
// must not enter its critical section, and nothing sends that request again
// (spec/ticketing.md §3.1, §3.2). A new call is a new attempt with a new owner.
//
// # Sessions
//
// A session is one TCP connection, opened when a call needs one. Its frames
// are written by one goroutine and read by another; no lock is held across
// either. An acquire that is unanswered at its deadline, or cancelled, closes
// its session, because a grant on its way there could not be refused in any
// other way (§3.5, §3.15). It is reset, not only ended: a server may take FIN for
// a half-close and keep the attempt in its queue. Every other acquire sent on
// that session becomes Indeterminate with it. Concurrent acquires therefore do not share a session
// while there is a choice: an idle session is used again, and otherwise a new
// one is opened. Only when 64 sessions are in use, or while every address
// pauses after failures, are calls pipelined on the session with the fewest of
// them. A call's deadline then breaks nothing but itself.
//
// An address is dialled 5 times a second at most, after a burst of 16; a call
// that has to wait for that ends as Unsent at worst. Failed connections and
// error frames add a pause that doubles with every failure in a row, with
// jitter, until a session works. Where many calls time out on contended keys,
// Config.ResponseGrace saves the reconnects.
//
// Releases that have no living session of their own, and grants that came when
// nobody waited for them, go over reserved sessions (the lane) that acquires
// never use, so acquires cannot starve them (§3.14).
//
// # Dialects
//
// "ticketing" is the current dialect. "ticketing-v0" has neither owner nor
// exact-token release, which costs guarantees: a wait of 0 would wait for ever
// on the wire and is refused with ErrInvalid; a session carries at most one
// acquire of a key at a time, as nothing else tells two replies apart; and
// "release key" frees whatever grant holds the key, so it is sent at most once
// per ticket, only while the ticket's own lease cannot have ended, and never
// for a grant nobody waited for (§1.3).
//
// # What no client can know
//
// A grant for a call with a wait > 0 does not say when its lease began, so its
// frame may arrive after the lease has ended (§3.3). Only a resource that
// refuses an older fencing token than it has seen protects against that: pass
// Ticket.Token along with every write.
package client
