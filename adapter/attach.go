package adapter

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Attached is a Go library that is asked by calls in place of lines: what Serve does, for
// a tool in the same process to which thousands of lines would matter.
type Attached struct {
	mu  sync.Mutex // of the session's loop
	s   *session
	end context.CancelCauseFunc
}

// Attach takes a library into use. answer is called with every answer to Do, from several
// goroutines at once, in Do itself too; it must not call Do.
func Attach(lib Library, answer func(Response)) *Attached {
	ctx, end := context.WithCancelCause(context.Background())
	return &Attached{end: end, s: &session{
		ctx: ctx, lib: lib, info: lib.Info(), out: &writer{direct: answer}, book: newBook(), log: io.Discard,
	}}
}

// Do makes a request. It returns before a call of the library does.
func (a *Attached) Do(req Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.s.dispatch(req)
}

// Close does what the end of its input does to Serve: it cancels the calls that run and
// closes all clients, and fails if the library takes over 4 s for that.
func (a *Attached) Close() error {
	a.mu.Lock()
	a.end(errEnded)
	for _, c := range a.s.book.end() {
		a.s.work.Go(func() { a.s.closeQuietly(c) })
	}
	a.mu.Unlock()
	if err := a.s.drain(); err != nil {
		return errors.Join(errEnded, err)
	}
	return nil
}
