package proxy

import (
	"context"

	"tornwire/frames"
	"tornwire/history"
)

// dial reaches the server. A client whose server cannot be reached gets an RST.
func (s *session) dial(ctx context.Context) bool {
	dctx, cancel := context.WithTimeout(ctx, DialLimit)
	defer cancel()
	c, err := s.reach(dctx)
	ev := history.Event{Kind: history.ServerDialed, Session: s.id}
	if err != nil {
		ev.Detail = err.Error()
		s.p.observe(ev)
		cause := history.CauseDial
		if ctx.Err() != nil {
			cause = history.CauseTeardown
		}
		s.end(frames.ServerToClient, history.RST, cause)
		return false
	}
	if s.p.observed() {
		ev.Peer = c.LocalAddr().String()
		s.p.observe(ev)
	}
	s.conns[frames.ClientToServer] = c
	return true
}
