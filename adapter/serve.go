package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of Serve. A request past one of them is answered, never dropped.
const (
	maxRunning     = 1 << 16 // library calls that run at once
	maxClients     = 1 << 16 // clients that are open at once
	maxCalls       = 1 << 16 // calls that run or hold a ticket
	maxSpent       = 4096    // tickets kept after their release, or after their client was closed
	maxQueued      = 16 << 20
	maxSeconds     = 1e9 // of a wait or a lease
	maxText        = 4 << 10
	maxComplaints  = 20
	endCallsLimit  = 4 * time.Second
	endOutputLimit = 500 * time.Millisecond
)

// Serve is the adapter's side of spec/adapter.md for a Go library: it reads
// requests from in, runs each acquire, release, open and close in a goroutine
// of its own, and writes answers to out, one JSON object a line. Nothing else
// may write to out. What cannot be answered, such as a line without an id, is
// told on the process's stderr.
//
// Serve returns nil at the end of in, and the cause when ctx is done; then the
// calls that run are cancelled and all clients closed, which the library has
// 4 s to do, so that Serve returns within 5 s; held tickets are not released.
// It fails when in or out fails, when more than 16 MiB of answers are waiting
// to be read, and when the library did not come to an end in time: its
// goroutines are then left behind. When ctx ends first, in is closed if it is
// an io.Closer; a Read that does not end by that is left behind too.
//
// Limits: 64 KiB a line, 65,536 library calls at once, as many open clients and
// as many calls with a ticket; a released ticket, or one whose client is
// closed, can be released (again) until 4096 others came after it. A panic of
// the library is not caught.
func Serve(ctx context.Context, in io.Reader, out io.Writer, lib Library) error {
	return serve(ctx, in, out, os.Stderr, lib)
}

func serve(ctx context.Context, in io.Reader, out, complaints io.Writer, lib Library) error {
	callsCtx, endCalls := context.WithCancelCause(ctx)
	defer endCalls(nil)
	s := &session{
		ctx: callsCtx, lib: lib, info: lib.Info(),
		out:  newWriter(out),
		book: newBook(),
		log:  complaints,
	}
	go s.out.run()
	err := s.loop(ctx, in)
	endCalls(errEnded)
	for _, c := range s.book.end() {
		s.work.Go(func() { s.closeQuietly(c) })
	}
	return errors.Join(err, s.drain(), s.out.finish(endOutputLimit))
}

var errEnded = errors.New("the tool has ended the adapter's input")

// session is one run of Serve. Its methods but those that say otherwise run on
// the loop's goroutine.
type session struct {
	ctx     context.Context // of the library's calls
	lib     Library
	info    Info
	out     *writer
	book    *book
	log     io.Writer
	dialect string // chosen by init; empty before, or if the library lacks it
	ready   bool   // init was answered with init_ok
	told    int    // complaints so far
	work    sync.WaitGroup
	running atomic.Int64
}

// loop dispatches requests until the input ends, the output fails or ctx is
// done. It never blocks on anything else.
func (s *session) loop(ctx context.Context, in io.Reader) error {
	lines := make(chan line)
	stop := make(chan struct{})
	end := make(chan error, 1)
	go func() { end <- readLines(in, lines, stop) }()
	defer close(stop)
	for {
		select {
		case l := <-lines:
			s.read(l)
		case err := <-end:
			return err
		case <-s.out.failed:
			closeReader(in)
			return nil // finish tells why
		case <-ctx.Done():
			closeReader(in)
			return context.Cause(ctx)
		}
	}
}

func closeReader(in io.Reader) {
	if c, ok := in.(io.Closer); ok {
		_ = c.Close() // only to end its Read; there is nobody to tell an error
	}
}

// drain waits for the library's calls.
func (s *session) drain() error {
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	limit := time.NewTimer(endCallsLimit)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		return fmt.Errorf("%d calls of the library had not returned %v after the end of the input", s.running.Load(), endCallsLimit)
	}
}

func (s *session) read(l line) {
	if l.blank() {
		return
	}
	req, err := l.parse()
	if err != nil {
		s.malformed(l, err)
		return
	}
	s.dispatch(req)
}

func (s *session) dispatch(req Request) {
	switch req.Type {
	case TypePing:
		s.out.answer(TypePong, req.ID)
	case TypeInit:
		s.init(req)
	case TypeOpen:
		s.open(req)
	case TypeAcquire:
		s.acquire(req)
	case TypeCancel:
		s.cancel(req)
	case TypeRelease:
		s.release(req)
	case TypeClose:
		s.close(req)
	default:
		s.out.unsupported(req.ID, fmt.Sprintf("unknown request type %q", clip(req.Type, 100)))
	}
}

func (s *session) malformed(l line, err error) {
	if id, ok := l.id(); ok {
		s.out.failure(id, err.Error())
		return
	}
	if s.told++; s.told > maxComplaints {
		return
	}
	// A stderr that cannot be written leaves nobody to tell.
	_, _ = fmt.Fprintf(s.log, "adapter: request ignored: %v: %.200q\n", err, l.text)
}

func (s *session) init(req Request) {
	switch {
	case req.Version != Version:
		s.out.failure(req.ID, fmt.Sprintf("protocol version %d, this adapter speaks %d", req.Version, Version))
		return
	case req.Dialect == "":
		s.out.failure(req.ID, "init without a dialect")
		return
	case s.book.clientCount() > 0:
		s.out.failure(req.ID, "init while clients are open")
		return
	}
	s.ready, s.dialect = true, ""
	if slices.Contains(s.info.Dialects, req.Dialect) {
		s.dialect = req.Dialect
	}
	s.out.send(Response{
		Type: TypeInitOK, ID: &req.ID, Client: clip(s.info.Client, maxText),
		Dialects: s.info.Dialects, Features: s.info.Features, Outcomes: s.info.Outcomes,
	})
}

func (s *session) open(req Request) {
	switch {
	case !s.ready:
		s.out.failure(req.ID, "open before init")
		return
	case s.dialect == "":
		s.out.failure(req.ID, "the library does not speak the dialect of init")
		return
	case req.Client == "":
		s.out.failure(req.ID, "open without a client name")
		return
	case len(req.Addresses) == 0 || slices.Contains(req.Addresses, ""):
		s.out.failure(req.ID, "open without addresses, or with an empty one")
		return
	}
	secret := ""
	if req.Secret != nil {
		secret = *req.Secret
	}
	if err := s.book.reserve(req.Client); err != nil {
		s.out.failure(req.ID, err.Error())
		return
	}
	dialect := s.dialect
	err := s.spawn(func() {
		c, err := s.lib.Open(dialect, req.Addresses, secret)
		if err != nil {
			s.book.drop(req.Client)
			s.out.failure(req.ID, err.Error())
			return
		}
		if !s.book.opened(req.Client, c) {
			s.closeQuietly(c)
			s.out.failure(req.ID, errEnded.Error())
			return
		}
		s.out.answer(TypeOpenOK, req.ID)
	})
	if err != nil {
		s.book.drop(req.Client)
		s.out.failure(req.ID, err.Error())
	}
}

func (s *session) acquire(req Request) {
	wait, err := seconds("wait", req.Wait)
	if err != nil {
		s.out.refuse(req.ID, err)
		return
	}
	lease, err := seconds("lease", req.Lease)
	if err != nil {
		s.out.refuse(req.ID, err)
		return
	}
	c, err := s.book.client(req.Client)
	if err != nil {
		s.out.refuse(req.ID, err)
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if err := s.book.begin(req.ID, req.Client, cancel); err != nil {
		cancel()
		s.out.refuse(req.ID, err)
		return
	}
	err = s.spawn(func() {
		defer cancel()
		s.out.answer(TypeStarted, req.ID)
		res := c.Acquire(ctx, req.Key, wait, lease)
		// The ticket is known before the tool can ask for its release.
		s.book.finish(req.ID, res)
		s.out.result(req.ID, res, acquireOutcomes)
	})
	if err != nil {
		cancel()
		s.book.finish(req.ID, Result{})
		s.out.refuse(req.ID, err)
	}
}

// cancel does not wait for the Acquire to return: cancel_ok says that the
// library's cancel returned, and in Go that is the cancelling of the context.
// A library that ignores it is then found by its missing result.
func (s *session) cancel(req Request) {
	switch {
	case !slices.Contains(s.info.Features, "cancel"):
		s.out.unsupported(req.ID, "the library has no cancel")
	case req.Call == nil:
		s.out.failure(req.ID, "cancel without a call")
	default:
		s.book.cancel(*req.Call)
		s.out.answer(TypeCancelOK, req.ID)
	}
}

func (s *session) release(req Request) {
	if req.Call == nil {
		s.out.refuse(req.ID, errors.New("release without a call"))
		return
	}
	ticket, err := s.book.ticket(*req.Call, req.Client)
	if err == nil {
		err = s.spawn(func() {
			s.out.result(req.ID, ticket.Release(s.ctx), releaseOutcomes)
		})
	}
	if err != nil {
		s.out.refuse(req.ID, err)
	}
}

func (s *session) close(req Request) {
	if !slices.Contains(s.info.Features, "close") {
		s.out.unsupported(req.ID, "the library has no close")
		return
	}
	c, err := s.book.client(req.Client)
	if err == nil {
		err = s.spawn(func() {
			if err := c.Close(); err != nil {
				s.out.failure(req.ID, err.Error())
				return
			}
			s.out.answer(TypeCloseOK, req.ID)
		})
	}
	if err != nil {
		s.out.failure(req.ID, err.Error())
		return
	}
	s.book.closed(req.Client)
}

// closeQuietly closes a client that nobody asked to close. Any goroutine.
func (s *session) closeQuietly(c Client) {
	_ = c.Close() // no request is there to be answered
}

// spawn runs a library call in a goroutine of its own.
func (s *session) spawn(f func()) error {
	if s.running.Add(1) > maxRunning {
		s.running.Add(-1)
		return fmt.Errorf("more than %d library calls at once", maxRunning)
	}
	s.work.Go(func() {
		defer s.running.Add(-1)
		f()
	})
	return nil
}
