package cli

import (
	"bytes"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Limits of what waits to be logged; what is over them is counted, not logged.
const (
	logLineLimit = 4096    // lines
	logByteLimit = 1 << 20 // bytes of all lines
	// logFlushLimit is how long the end of the program waits for who reads the log.
	logFlushLimit = time.Second
)

// logQueue is between a logger and where the log goes, so that who logs never waits
// for who reads. A line that cannot be written counts as lost too.
type logQueue struct {
	w     io.Writer
	lines chan []byte
	held  atomic.Int64 // bytes in lines
	lost  atomic.Uint64
	done  chan struct{}
	ended chan struct{}
}

// newLogger logs JSON lines to w, or readable ones if w is a terminal. It may be used
// by several goroutines whatever w is. Flush has to be called once, at the
// end: it waits for what is left to be written, up to logFlushLimit.
func newLogger(w io.Writer, level zerolog.Level) (log zerolog.Logger, flush func()) {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w = zerolog.ConsoleWriter{Out: f, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""}
	}
	q := &logQueue{w: w, lines: make(chan []byte, logLineLimit), done: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return zerolog.New(q).Level(level).With().Timestamp().Logger(), q.flush
}

// Write takes a line, or counts it; it never blocks and never fails.
func (q *logQueue) Write(line []byte) (int, error) {
	n := int64(len(line))
	if q.held.Add(n) <= logByteLimit {
		select {
		case q.lines <- bytes.Clone(line):
			return len(line), nil
		default:
		}
	}
	q.held.Add(-n)
	q.lost.Add(1)
	return len(line), nil
}

// run writes until flush, and then what is left.
func (q *logQueue) run() {
	defer close(q.ended)
	for {
		select {
		case line := <-q.lines:
			q.one(line)
			continue
		case <-q.done:
		}
		for len(q.lines) > 0 {
			q.one(<-q.lines)
		}
		q.tellLost()
		return
	}
}

func (q *logQueue) one(line []byte) {
	q.tellLost()
	if _, err := q.w.Write(line); err != nil {
		q.lost.Add(1)
	}
	q.held.Add(-int64(len(line)))
}

func (q *logQueue) tellLost() {
	n := q.lost.Swap(0)
	if n == 0 {
		return
	}
	var b bytes.Buffer
	log := zerolog.New(&b).With().Timestamp().Logger()
	log.Warn().Uint64("lines", n).Msg("the log could not keep up; lines are missing")
	if _, err := q.w.Write(b.Bytes()); err != nil {
		q.lost.Add(n)
	}
}

// flush ends the queue. A write that nobody reads is left to itself.
func (q *logQueue) flush() {
	close(q.done)
	t := time.NewTimer(logFlushLimit)
	defer t.Stop()
	select {
	case <-q.ended:
	case <-t.C:
	}
}
