// Package memnet is a TCP network in memory, for tests that need what sockets do and a virtual clock too.
//
// Connections have a bounded buffer in each direction, half-close, reset, deadlines and the error values of package net
// (*net.OpError around io/os/syscall errors), and where Linux TCP has a habit that a program can trip over, they have it as well:
// a close with unread input is a reset, data that arrived before a reset stays readable, and the first write after the
// peer has closed succeeds and is lost.
//
// Three things differ, so that what a program sees does not depend on which of its goroutines runs first or on the
// kernel's buffers: a reset is reported by every later Read and Write, not by one of them only; a byte that Write counted is in
// the peer's buffer, there is none on the way; and there is no latency.
//
// Everything blocks on channels made by the goroutine that waits, so inside a testing/synctest bubble a blocked call is
// durably blocked and deadlines cost no time. The package starts no goroutine.
package memnet
