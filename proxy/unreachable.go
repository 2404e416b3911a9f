package proxy

import (
	"context"
	"errors"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// Limits of a server that cannot be reached.
const (
	// RetryFirst and RetryMost are the pauses before the server is tried again: each is
	// twice the one before.
	RetryFirst = 50 * time.Millisecond
	RetryMost  = 5 * time.Second
	// TurnAwayLimit is how long a client that was sent a FIN because the server cannot be
	// reached is read until it ends too; then it is reset.
	TurnAwayLimit = 10 * time.Second
	// HalfClosedHold is how long a held client that has sent bytes and then a FIN is held on:
	// it may want to hear the server, or have left. One that has sent nothing is let go.
	HalfClosedHold = time.Minute
	// LookAgain is how often it is looked in that time whether it was reset.
	LookAgain = 250 * time.Millisecond
)

// holds waits before the server is tried again. It is false if it is not to be:
// clients are not held, this one has left, or ctx is done.
func (s *session) holds(ctx context.Context, pause time.Duration) bool {
	if s.p.cfg.Unreachable != Hold || ctx.Err() != nil {
		return false
	}
	s.mu.Lock()
	s.watch()
	s.mu.Unlock()
	return rest(ctx, s.patience(pause), s.wait.gone) && s.patience(pause) > 0
}

// patience is how much of a pause the client is waited for.
func (s *session) patience(pause time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wait.until.IsZero() {
		return pause
	}
	return min(pause, time.Until(s.wait.until))
}

// rest waits for a time. It is false if ctx is done, or end closed, before.
func rest(ctx context.Context, d time.Duration, end <-chan struct{}) bool {
	select { // of what is ready at once, an end counts first
	case <-end:
		return false
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-end:
	case <-ctx.Done():
	}
	return false
}

// unreached deals with a client whose server could not be reached.
func (s *session) unreached(ctx context.Context, err error) {
	mode, cause := s.p.cfg.Unreachable, history.CauseDial
	if ctx.Err() != nil {
		cause = history.CauseTeardown
	} else if mode == Refuse && !exhausted(err) && !errors.Is(err, errLeft) {
		s.p.shutDoors(s.era, err)
	}
	s.mu.Lock()
	gone := s.seen[frames.ServerToClient] == history.RST
	s.mu.Unlock()
	if mode == Close && cause == history.CauseDial && !gone && !errors.Is(err, errTooMany) {
		s.closeSlowly(ctx)
		return
	}
	if s.wait.early() {
		s.silence()
		close(s.wait.over)
	}
	if !gone {
		s.end(frames.ServerToClient, history.RST, cause)
	}
	s.wg.Wait()
	s.conns[frames.ServerToClient].Close()
}

// closeSlowly ends the connection towards the client with a FIN, and reads what it
// still sends until it ends, so that the FIN is not overtaken by a reset.
func (s *session) closeSlowly(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, TurnAwayLimit)
	defer cancel()
	if !s.linked() {
		s.makeLinks()
	}
	s.silence()
	stop := onDone(limited, func() {
		if ctx.Err() == nil {
			s.end(frames.ServerToClient, history.RST, history.CauseDial)
		} else {
			s.tearDown()
		}
	})
	s.end(frames.ServerToClient, history.FIN, history.CauseDial)
	if s.wait.early() {
		close(s.wait.over)
		s.wg.Wait()
	} else {
		s.links[frames.ClientToServer].run()
	}
	stop()
	s.conns[frames.ServerToClient].Close()
}
