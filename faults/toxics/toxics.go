// Package toxics makes byte stages of toxiproxy's toxics (v2.12.0): delays,
// rates, slices and ends that act on the bytes of a link, whatever frames they
// belong to. It is the only package that knows toxiproxy, and keeps its traps
// from everybody else: arguments are checked before a toxic sees them, a toxic
// is never without a reader of what it writes, and stages are put in and taken
// out without waiting for one.
//
// limit_data, slow_close and noop are toxiproxy's own, each run by a host. The
// others mean what toxiproxy's mean, but are made here, as hosting would be
// wrong:
//   - latency and slicer draw from the random source of the whole process there,
//     so that no run could be repeated;
//   - bandwidth writes a line to the standard error there whenever it is
//     interrupted, through a logger that is the whole process's;
//   - timeout decides by lot there when a byte comes in the moment in which its time
//     is over, and in virtual time many things happen in one moment;
//   - reset_peer sleeps there and cannot be interrupted, up to the whole of its
//     time, and its end cannot be told from a FIN.
//
// Toxicity is drawn once for a stage, session and direction, from the seed; so
// is all else that is random. A later change of the toxicity compares the same
// draw with the new number, and so re-rolls nothing.
//
// Where toxiproxy is silent or different:
//   - latency counts from the moment in which bytes come to the stage, so that
//     the delays of two stages add up;
//   - a jitter over the latency is right; a delay is never under zero;
//   - a timeout or reset_peer that is removed loses what it swallowed, and what
//     comes later passes; toxiproxy ends the connection;
//   - a limit_data that is changed goes on counting, as it does there.
package toxics

import "time"

// The limits. Times, sizes and rates are those of the attributes; the others
// bound what a pipe holds.
const (
	MaxDuration = 10 * time.Minute // of every delay and timeout
	MaxRate     = 10 << 30 / 1000  // KB/s of 1000 bytes: 10 GiB/s
	MaxSlice    = 1 << 30          // bytes of a slicer's average
	MaxBytes    = 1 << 50          // of limit_data
	MaxName     = 128              // bytes of a stage's name
	MaxStages   = 32               // in a list, both directions together

	// MaxHeld is how much a pipe holds before Send waits: the bytes, and ChunkCost
	// for each chunk.
	MaxHeld = 1 << 20
	// MaxChunk is the most bytes that go through a stage at once.
	MaxChunk = 32 << 10
	// ChunkCost is what a chunk costs beside its bytes.
	ChunkCost = 64
	// MaxQueue is how many chunks wait before a stage, or for the taker, until the
	// stage that they come from has to wait.
	MaxQueue = 4096
)
