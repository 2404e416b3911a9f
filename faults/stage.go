package faults

import "tornwire/frames"

// Stages is an immutable list of byte stages: faults that act on the bytes of a
// link whatever frames they belong to. A proxy opens a pipe for each link of a
// session that a stage is meant for.
type Stages interface {
	// Len is the number of stages for a direction.
	Len(dir frames.Direction) int
	// Open starts a pipe through the stages for a direction. What is random in them
	// is drawn from their seed, the stage's name, the session and the direction.
	Open(session int, dir frames.Direction) Pipe
}

// Pipe carries the bytes of one link through its stages. One goroutine sends, one
// takes what comes out; the other methods may be called at any time, by anyone.
type Pipe interface {
	// Send takes a copy of p. It waits while the pipe has no room, and is false if
	// quiet was closed before it had, or the pipe is over.
	Send(p []byte, quiet <-chan struct{}) bool
	// End says that nothing more is sent. What was sent still comes out.
	End()
	// Next waits for bytes that come out of the last stage; they are valid until the
	// next call. It is false when the pipe is over.
	Next() (p []byte, ok bool)
	// Outcome tells why a pipe is over, once Next was false: NoEnd after End, or the
	// way in which a stage ends the connections of the session.
	Outcome() End
	// Change puts other stages in place of those the pipe has, at once and without
	// waiting. A stage that is in both lists goes on as it was; one that was removed
	// lets what it holds pass; no byte is lost or reordered.
	Change(s Stages)
	// Abandon ends the pipe; what is in it is lost. It returns at once, Next and Send
	// return false, and the pipe's goroutines end.
	Abandon()
}
