package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// session is a client connection, a server connection and the two links
// between them.
type session struct {
	p       *Proxy
	id      int
	nth     int // of all connections, those refused included
	client  string
	to      string     // the server's address; that of the configuration if empty
	from    netip.Addr // the client's, invalid if it has none
	rule    *armed     // that acts on the connection itself, or nil
	draw    float64
	opening faults.Step // what it does
	conns   [2]net.Conn // by the direction whose receiver they are
	links   [2]*link    // by direction; nil before there are any
	both    [2]link

	mu      sync.Mutex
	written sync.Cond     // a link's write is over
	seen    [2]string     // how the peer that receives that direction has ended
	sent    [2]string     // how it was ended by us
	torn    chan struct{} // closed when the proxy has ended the session
	kept    bool          // the client's connection outlives the session
	dialled *attempt      // the dial under way, if it can be called off
	wait    *waiting      // once the client is watched before its server is reached
	era     int           // of the proxy, when the session was opened

	muter *armed         // the first rule that left a peer without an end; it is then the rule's
	over  chan struct{}  // closed when the session is, once there is a muter
	muted sync.WaitGroup // who waits for the rule to go

	wg sync.WaitGroup // links, and what comes later
}

// newSession opens a session that came in at a door; f is its connection.
func newSession(p *Proxy, d *door, f faults.Frame, c net.Conn) *session {
	s := &session{p: p, id: f.Session, nth: f.Nth, client: f.Client, to: d.to, from: f.From, era: p.era, torn: make(chan struct{})}
	s.written.L = &s.mu
	s.conns[frames.ServerToClient] = p.terminated(c)
	if p.observed() {
		p.observe(history.Event{
			Kind: history.SessionOpened, Session: s.id, Client: s.client, Peer: c.RemoteAddr().String(),
			Addr: c.LocalAddr().String(), Upstream: d.to,
		})
	}
	return s
}

// run dials the server and carries bytes until both links are done or ctx is,
// unless a fault turns the client away.
func (s *session) run(ctx context.Context) {
	defer s.unlist()
	if !s.begin(ctx) || !s.hello(ctx) || !s.dial(ctx) || !s.welcome(ctx) {
		return
	}
	if !s.linked() {
		s.makeLinks()
	}
	s.p.setLive(s, true)
	defer s.p.setLive(s, false)
	if s.p.stages.Load() != nil {
		s.stage()
	}
	stop := onDone(ctx, s.tearDown)
	s.wg.Go(s.links[frames.ServerToClient].run)
	if s.wait.early() {
		s.rouse() // what changed before the session was live did not
		close(s.wait.over)
	} else {
		s.links[frames.ClientToServer].run() // on this goroutine: stacks are most of what an idle session costs
	}
	s.wg.Wait()
	if s.owed() {
		t := time.NewTimer(SilentLimit)
		select {
		case <-t.C:
		case <-s.torn:
		case <-s.unmuted():
			s.unmute()
		}
		t.Stop()
	}
	stop()
	if s.over != nil {
		close(s.over)
		s.muted.Wait()
	}
	for _, l := range s.links {
		l.recordAcked()
	}
	s.conns[frames.ClientToServer].Close()
	if c := s.conns[frames.ServerToClient]; s.kept {
		_ = c.SetDeadline(time.Time{})
		s.p.cfg.Keep(c)
	} else {
		c.Close()
	}
}

func (s *session) makeLinks() {
	for _, dir := range []frames.Direction{frames.ClientToServer, frames.ServerToClient} {
		s.links[dir] = &s.both[dir]
		s.links[dir].init(s, dir)
	}
}

func (s *session) linked() bool { return s.links[frames.ClientToServer] != nil }

// tearDown ends both connections, but keeps that of a client that is still
// there if the configuration asks for it.
func (s *session) tearDown() {
	defer close(s.torn)
	s.silence()
	s.mu.Lock()
	s.kept = s.p.cfg.Keep != nil && s.seen[frames.ServerToClient] == "" && s.sent[frames.ServerToClient] == ""
	s.mu.Unlock()
	if s.kept {
		_ = s.conns[frames.ServerToClient].SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	} else {
		s.end(frames.ServerToClient, history.RST, history.CauseTeardown)
	}
	s.end(frames.ClientToServer, history.RST, history.CauseTeardown)
}

// saw records how the receiver of dir has ended its own sending side, and
// returns how it had before. After an RST, its own or ours, nothing is news.
func (s *session) saw(dir frames.Direction, how, detail string) (was string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.seen[dir]
	if was == history.RST || was == how || s.sent[dir] == history.RST {
		return was
	}
	s.seen[dir] = how
	s.p.cfg.Recorder.Add(history.Event{
		Kind: history.EndSeen, Session: s.id, Side: history.Receiver(dir), Dir: dir.Opposite(), How: how, Detail: detail,
	})
	if dir == frames.ServerToClient {
		s.departed(was == "")
	}
	s.hushDead()
	return was
}

// owed tells whether a peer that is still there was not sent an end, because of a
// silence.
func (s *session) owed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir, how := range s.sent {
		if how == "" && s.seen[dir] != history.RST {
			return true
		}
	}
	return false
}

// endedByUs tells whether the receiver of dir was sent an end.
func (s *session) endedByUs(dir frames.Direction) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[dir] != ""
}

// end ends the connection towards the receiver of dir, unless that was done.
// An RST after a FIN is still sent.
func (s *session) end(dir frames.Direction, how, cause string) {
	s.mu.Lock()
	c := s.conns[dir]
	if c == nil {
		s.mu.Unlock()
		return // the server was not dialled
	}
	dup := s.sent[dir] == history.RST || s.sent[dir] == how
	if !dup {
		s.sent[dir] = how
		s.p.cfg.Recorder.Add(history.Event{
			Kind: history.EndSent, Session: s.id, Side: history.Receiver(dir), Dir: dir, How: how, Cause: cause,
			Detail: s.detail(dir, how, cause),
		})
		s.hushDead()
	}
	s.mu.Unlock()
	switch {
	case dup:
	case how == history.FIN:
		s.finish(dir, cause)
		if l := s.links[dir]; l != nil {
			l.ending.Store(true)
		}
	default:
		if l := s.links[dir]; l != nil {
			l.recordAcked() // it is the last chance
		}
		reset(c)
	}
}

// hushDead silences both links, so that nothing is held any longer, when both
// connections are reset. The mutex is held.
func (s *session) hushDead() {
	for dir := range s.sent {
		if s.links[dir] == nil || s.seen[dir] != history.RST && s.sent[dir] != history.RST {
			return
		}
	}
	for _, l := range s.links {
		s.hush(l)
	}
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
