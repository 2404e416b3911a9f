package proxy

import (
	"context"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// begin does what a fault does to the connection itself. It is false if that was
// the end of it.
func (s *session) begin(ctx context.Context) bool {
	if s.rule == nil {
		return true
	}
	s.p.acted(s.rule, history.Event{
		Session: s.id, Dir: frames.ClientToServer, Frame: openRef(s.nth), Draw: s.draw,
	})
	cut := s.opening.Kind == faults.Cut
	if cut && s.opening.For == 0 {
		s.turnAway(ctx, string(s.opening.Client))
		return false
	}
	t := time.NewTimer(s.opening.For)
	defer t.Stop()
	select {
	case <-t.C:
		if cut {
			s.turnAway(ctx, string(s.opening.Client))
		}
		return !cut
	case <-s.rule.gone:
		return true
	case <-ctx.Done():
		s.end(frames.ServerToClient, history.RST, history.CauseTeardown)
		return false
	}
}

// turnAway ends the connection towards the client without a server. What the
// client still sends is read and recorded until it ends.
func (s *session) turnAway(ctx context.Context, how string) {
	s.makeLinks()
	s.silence()
	stop := onDone(ctx, s.tearDown)
	s.end(frames.ServerToClient, how, history.CauseFault)
	s.links[frames.ClientToServer].run()
	stop()
	s.conns[frames.ServerToClient].Close()
}
