// Package stub is a lock server that follows a script, for what no right server
// does: an answer before the request is whole, a second grant, a silence. It stands
// alone, and then says nothing but what the script says; or in front of a right
// server, and then alters what the script names and passes on all else.
//
// Time comes from package time, so that a stub inside a testing/synctest bubble runs
// in virtual time.
package stub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"tornwire/frames"
)

// Limits of a stub.
const (
	MaxSteps   = 256
	MaxPause   = time.Hour
	ConnLimit  = 1024 // connections at once; one more is closed at once
	maxPending = 256  // writes of one connection that wait; one more ends it

	// prefaceLimit bounds the wait for a client's preface line.
	prefaceLimit = 30 * time.Second
	// writeLimit bounds one write, and the wait for the client's end after ours.
	writeLimit = 5 * time.Second
	readSize   = 1024
)

// Config says what a Server does. The zero value is a server of the current dialect
// that accepts connections, does the preface and answers nothing.
type Config struct {
	Dialect  string        // grammar name, default "ticketing"
	Secret   string        // of the preface digest
	ServerID string        // first word of the greeting, default "tornwire"
	Nonce    func() string // of a connection, one word; default sixteen zeros
	Steps    []Step        // in order; the first that matches a frame acts, at most MaxSteps
	// Behind, if not nil, opens a connection to a right server for each one of a
	// client. The preface is then between those two, and so is every frame for which
	// there is no step.
	Behind func(ctx context.Context) (net.Conn, error)
}

// Step is what the server does about the frames that match it. A frame for which
// there is a step goes no further, unless the step passes it on. The functions of all
// steps are called one at a time; they must not block, nor call the server.
type Step struct {
	// Dir is ClientToServer for a request, ServerToClient for an answer of the server
	// behind.
	Dir frames.Direction
	Op  string // of the frame; "" for any message
	Key string // of it; "" for any
	// Nth is which matching frame it acts on, from 1, over all connections; 0 for each.
	Nth int
	// If is a further condition, nil for none.
	If func(Frame) bool
	// At is how many bytes of the frame must have come before the step acts; 0 for all
	// of it. Key and If then see so much of the frame.
	At int
	// Pause is how long the step waits before it does anything, up to MaxPause.
	Pause time.Duration
	// Write returns what the client gets; nil for nothing.
	Write func(Frame) []byte
	// Pass returns what goes on in the frame's place to where it was going, which is
	// nowhere for a request without a server behind; nil for nothing.
	Pass func(Frame) []byte
	// End ends the connection after that with FIN.
	End bool
}

// Server is a scripted server. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	grammar *frames.Grammar

	mu    sync.Mutex
	conns int
	met   []int // frames that each step has matched
}

// New checks the script. All problems are reported together.
func New(cfg Config) (*Server, error) {
	if cfg.Dialect == "" {
		cfg.Dialect = "ticketing"
	}
	if cfg.ServerID == "" {
		cfg.ServerID = "tornwire"
	}
	if cfg.Nonce == nil {
		cfg.Nonce = func() string { return "0000000000000000" }
	}
	var errs []error
	g, ok := frames.Builtin(cfg.Dialect)
	if !ok {
		errs = append(errs, fmt.Errorf("there is no dialect %q", cfg.Dialect))
	}
	if len(cfg.Steps) > MaxSteps {
		errs = append(errs, fmt.Errorf("there are %d steps, over %d", len(cfg.Steps), MaxSteps))
	}
	for i := range cfg.Steps {
		if err := cfg.Steps[i].check(cfg.Behind != nil); err != nil {
			errs = append(errs, fmt.Errorf("step %d: %w", i+1, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, grammar: g, met: make([]int, len(cfg.Steps))}, nil
}

func (s *Step) check(behind bool) error {
	switch {
	case s.Dir != frames.ClientToServer && s.Dir != frames.ServerToClient:
		return fmt.Errorf("there is no direction %d", s.Dir)
	case s.Dir == frames.ServerToClient && !behind:
		return errors.New("no server is behind whose answers it could be about")
	case s.Dir == frames.ServerToClient && s.At != 0:
		return errors.New("only a request can be acted on before it is whole")
	case s.At < 0 || s.Nth < 0:
		return fmt.Errorf("byte %d and number %d are not 0 or more", s.At, s.Nth)
	case s.At > 0 && s.Pass != nil:
		return errors.New("a request that is not whole cannot be passed on")
	case s.Pause < 0 || s.Pause > MaxPause:
		return fmt.Errorf("a pause of %v is not 0 to %v", s.Pause, MaxPause)
	}
	return nil
}

// Serve accepts connections until ctx is done, and closes l. It returns nil when ctx
// is done, or why the listener failed, in both cases after every goroutine it
// started has ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = l.Close()
	})
	defer wg.Wait()
	defer cancel()
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting connections: %w", err)
		}
		wg.Go(func() { s.ServeConn(ctx, nc) })
	}
}

// ServeConn serves one connection and closes it. It returns when the connection is
// over or ctx is done, and its goroutines have ended.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) {
	defer nc.Close()
	if !s.enter() {
		return
	}
	defer s.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &conn{s: s, nc: nc, done: ctx.Done(), end: cancel, toClient: newQueue(), toServer: newQueue()}
	c.serve(ctx)
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns >= ConnLimit {
		return false
	}
	s.conns++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
}

// step finds the one that acts on a frame of which n bytes are in; whole tells
// whether that is all.
func (s *Server) step(f Frame, whole bool) *Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.cfg.Steps {
		st := &s.cfg.Steps[i]
		if !st.fits(f, whole) {
			continue
		}
		s.met[i]++
		if st.Nth == 0 || st.Nth == s.met[i] {
			return st
		}
	}
	return nil
}

// carryOut asks a step for what it passes on and what it writes.
func (s *Server) carryOut(st *Step, f Frame) (pass, write []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.Pass != nil {
		pass = st.Pass(f)
	}
	if st.Write != nil {
		write = st.Write(f)
	}
	return pass, write
}

func (st *Step) fits(f Frame, whole bool) bool {
	due := st.At == 0 && whole || st.At > 0 && len(f.Bytes) == st.At
	return due && st.Dir == f.shape.Dir && (st.Op == "" || st.Op == f.shape.Op) && f.keyFits(st.Key) && (st.If == nil || st.If(f))
}
