package proxy

import (
	"context"
	"net"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// waiting is a client that is watched before its server is reached. The link from it
// runs as if a fault held everything at its first byte. Over TLS there is nothing yet
// that a link could read: only the end is looked for.
type waiting struct {
	gone chan struct{} // closed when the client is not waited for any more
	over chan struct{} // closed when the link may write; nil without one
	stop func()        // ends the watch over TLS; nil without one

	// Of a held client that has sent bytes and a FIN.
	until  time.Time     // how long it is waited for
	look   chan struct{} // closed to end the look for its RST; nil without one
	looked chan struct{} // closed when that has ended
	past   bool          // the wait is over
}

// early tells whether the link from the client runs already.
func (w *waiting) early() bool { return w != nil && w.over != nil }

// waited ends what was done only while the client waited.
func (s *session) waited() {
	s.mu.Lock()
	w := s.wait
	if w != nil {
		w.past = true
	}
	s.mu.Unlock()
	if w == nil {
		return
	}
	if w.stop != nil {
		w.stop()
	}
	if w.look != nil {
		close(w.look)
		<-w.looked
	}
}

// watch watches the client from now on. The mutex is held.
func (s *session) watch() {
	if s.wait != nil {
		return
	}
	s.wait = &waiting{gone: make(chan struct{})}
	if c, ok := s.conns[frames.ServerToClient].(*secured); ok {
		s.wait.stop = s.watchHello(c)
		return
	}
	s.makeLinks()
	over := make(chan struct{})
	s.wait.over = over
	l := s.links[frames.ClientToServer]
	l.queue.start(item{})
	go func() {
		<-over
		l.drain()
	}()
	s.wg.Go(l.run)
}

// watchHello looks for the end of a client that waits for the answer to its hello.
// Such a client sends nothing; should it, the handshake reads that again. The
// function returned ends the watch.
func (s *session) watchHello(c *secured) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		from, buf := &listening{c.Conn, &c.wire.again}, make([]byte, 64)
		for c.wire.again.Len() < helloLimit {
			_, err := from.Read(buf)
			if err == nil {
				continue
			}
			how, detail := endOf(err)
			if how == history.FIN && wasReset(c) {
				how = history.RST
			}
			if how != "" {
				s.saw(frames.ServerToClient, how, detail)
			}
			return
		}
	}()
	return func() {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // fails only where it is closed
		<-ended
		_ = c.Conn.SetReadDeadline(time.Time{})
	}
}

// helloLimit is how many bytes of a client under TLS are kept before its handshake.
const helloLimit = 64 << 10

// departed heeds an end of the client while the server is dialled. The mutex is
// held.
func (s *session) departed(first bool) {
	w := s.wait
	switch {
	case w == nil:
		return
	case w.past:
		return
	case first && s.halfHeld():
		w.until = time.Now().Add(HalfClosedHold)
		w.look, w.looked = make(chan struct{}), make(chan struct{})
		go s.lookForReset(w)
	case first || !w.until.IsZero():
		close(w.gone)
	}
	s.hurry()
}

// halfHeld tells whether a client that is to be held has sent a FIN behind bytes that
// wait for the server. The mutex is held.
func (s *session) halfHeld() bool {
	l := s.links[frames.ClientToServer]
	return s.p.cfg.Unreachable == Hold && s.seen[frames.ServerToClient] == history.FIN && l != nil && l.queue.held() > 0
}

// lookForReset asks again and again whether a client that has sent a FIN has been
// reset since: no read tells that.
func (s *session) lookForReset(w *waiting) {
	defer close(w.looked)
	for rest(context.Background(), LookAgain, w.look) {
		if !deaf(s.conns[frames.ServerToClient]) {
			continue
		}
		if s.saw(frames.ServerToClient, history.RST, "") == history.FIN {
			s.links[frames.ClientToServer].passEnd(history.RST)
		}
		return
	}
}

// deaf tells whether a peer that has sent a FIN takes no more bytes. Nothing is sent.
func deaf(c net.Conn) bool {
	if wasReset(c) {
		return true
	}
	_, err := c.Write(nil)
	return err != nil && isEnd(err)
}

// hurry ends the attempt for a client that has left, or soon. The mutex is held.
func (s *session) hurry() {
	a, l := s.dialled, s.links[frames.ClientToServer]
	how := s.seen[frames.ServerToClient]
	switch {
	case a == nil || how == "":
	case how == history.RST || l == nil: // without a handshake nothing can come of it
		a.cancel(errLeft)
	case l.queue.held() == 0:
		a.timer.Reset(min(LeaveLimit, time.Until(a.until)))
	case !s.wait.until.IsZero():
		a.timer.Reset(min(time.Until(s.wait.until), time.Until(a.until)))
	}
}
