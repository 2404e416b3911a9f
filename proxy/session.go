package proxy

import (
	"context"
	"net"
	"sync"

	"tornwire/frames"
	"tornwire/history"
)

// session is a client connection, a server connection and the two links
// between them.
type session struct {
	p      *Proxy
	id     int
	client string
	done   chan struct{} // closed when the proxy ends the session
	conns  [2]net.Conn   // by the direction whose receiver they are
	links  [2]*link      // by direction

	mu   sync.Mutex
	seen [2]string // how the peer that receives that direction has ended
	sent [2]string // how it was ended by us
}

func newSession(p *Proxy, id int, client string, c net.Conn) *session {
	s := &session{p: p, id: id, client: client, done: make(chan struct{})}
	s.conns[frames.ServerToClient] = c
	p.cfg.Recorder.Add(history.Event{
		Kind: history.SessionOpened, Session: id, Client: client, Peer: c.RemoteAddr().String(),
	})
	return s
}

// run dials the server and carries bytes until both links are done or ctx is.
func (s *session) run(ctx context.Context) {
	if !s.dial(ctx) {
		return
	}
	for _, dir := range []frames.Direction{frames.ClientToServer, frames.ServerToClient} {
		s.links[dir] = newLink(s, dir)
	}
	s.p.setLive(s, true)
	defer s.p.setLive(s, false)
	stop := onDone(ctx, func() {
		close(s.done)
		s.end(frames.ServerToClient, history.RST, history.CauseTeardown)
		s.end(frames.ClientToServer, history.RST, history.CauseTeardown)
	})
	var wg sync.WaitGroup
	for _, l := range s.links {
		wg.Go(l.run)
	}
	wg.Wait()
	stop()
	for _, c := range s.conns {
		c.Close()
	}
}

// dial reaches the server. A client whose server cannot be reached gets an RST.
func (s *session) dial(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, DialLimit)
	defer cancel()
	c, err := s.p.cfg.Dial(ctx, "tcp", s.p.cfg.Upstream)
	ev := history.Event{Kind: history.ServerDialed, Session: s.id}
	if err != nil {
		ev.Detail = err.Error()
		s.p.cfg.Recorder.Add(ev)
		s.end(frames.ServerToClient, history.RST, history.CauseDial)
		return false
	}
	ev.Peer = c.LocalAddr().String()
	s.p.cfg.Recorder.Add(ev)
	s.conns[frames.ClientToServer] = c
	return true
}

// saw records how the receiver of dir has ended its own sending side. An RST
// is told once.
func (s *session) saw(dir frames.Direction, how, detail string) {
	s.mu.Lock()
	dup := s.seen[dir] == history.RST || s.seen[dir] == how || s.sent[dir] == history.RST
	if !dup {
		s.seen[dir] = how
	}
	s.mu.Unlock()
	if !dup {
		s.p.cfg.Recorder.Add(history.Event{
			Kind: history.EndSeen, Session: s.id, Side: history.Receiver(dir), Dir: dir.Opposite(), How: how, Detail: detail,
		})
	}
}

// end ends the connection towards the receiver of dir, unless that was done.
// An RST after a FIN is still sent.
func (s *session) end(dir frames.Direction, how, cause string) {
	s.mu.Lock()
	dup := s.sent[dir] == history.RST || s.sent[dir] == how
	if !dup {
		s.sent[dir] = how
	}
	s.mu.Unlock()
	c := s.conns[dir]
	if dup || c == nil {
		return
	}
	s.p.cfg.Recorder.Add(history.Event{
		Kind: history.EndSent, Session: s.id, Side: history.Receiver(dir), Dir: dir, How: how, Cause: cause,
	})
	if how == history.FIN {
		closeWrite(c)
		return
	}
	reset(c)
}

// onDone calls f once when ctx is done. The function returned calls that off;
// if f has begun, it waits for its end.
func onDone(ctx context.Context, f func()) (stop func()) {
	ended := make(chan struct{})
	off := context.AfterFunc(ctx, func() {
		defer close(ended)
		f()
	})
	return func() {
		if !off() {
			<-ended
		}
	}
}
