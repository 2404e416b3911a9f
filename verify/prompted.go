package verify

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"tornwire/frames"
)

// prompted is a connection to a server that is not ours, on which the tool says in its
// place what a right server may say unasked: a keep-alive between two frames, or FIN
// while it goes on reading. The server knows nothing of it.
type prompted struct {
	*net.TCPConn
	dec *frames.Decoder
	mid bool // part of a frame has been read

	mu       sync.Mutex
	ready    bool // the preface is over
	alive    int  // keep-alives to be said
	ended    bool // FIN is to be said, or was
	woken    bool // a read is broken off, for what is to be said
	deadline time.Time
}

// dialPrompted reaches the server for a session.
func (r *caseRun) dialPrompted(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	tcp, ok := conn.(*net.TCPConn)
	if err != nil || !ok {
		return conn, err
	}
	c := &prompted{TCPConn: tcp, dec: r.grammar.Decoder(frames.ServerToClient)}
	r.mu.Lock()
	r.prompted = append(r.prompted, c)
	r.mu.Unlock()
	return c, nil
}

// Read reads what the server says, or what is said in its place.
func (c *prompted) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if n, err := c.say(p); n > 0 || err != nil {
			return n, err
		}
		n, err := c.TCPConn.Read(p)
		c.follow(p[:n])
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !c.wasWoken() {
			return n, err
		}
	}
	return 0, nil
}

func (c *prompted) say(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mid:
	case c.alive > 0:
		c.alive--
		p[0] = '\n'
		return 1, nil
	case c.ended:
		return 0, io.EOF
	}
	return 0, nil
}

// follow keeps count of where frames end.
func (c *prompted) follow(p []byte) {
	for len(p) > 0 {
		var pc frames.Piece
		pc, p = c.dec.Next(p)
		c.mid = pc.Kind == frames.Opaque || !pc.Last
	}
}

func (c *prompted) wasWoken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	woken := c.woken
	c.woken = false
	if woken {
		_ = c.TCPConn.SetReadDeadline(c.deadline) // fails only where it is closed
	}
	return woken
}

// SetReadDeadline sets the deadline of those who read, which outlasts being woken.
func (c *prompted) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.woken {
		return nil
	}
	return c.TCPConn.SetReadDeadline(t)
}

// Write writes to the server. What is written first ends the preface.
func (c *prompted) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.mu.Lock()
	c.ready = c.ready || n > 0
	c.mu.Unlock()
	return n, err
}

// prompt has something said on each connection whose preface is over.
func (r *caseRun) prompt(what func(*prompted)) {
	r.mu.Lock()
	list := r.prompted
	r.mu.Unlock()
	for _, c := range list {
		c.mu.Lock()
		if c.ready {
			what(c)
			c.woken = true
			_ = c.TCPConn.SetReadDeadline(time.Unix(1, 0)) // fails only where it is closed
		}
		c.mu.Unlock()
	}
}

// keepAlive has the server send a keep-alive on all sessions.
func (r *caseRun) keepAlive() {
	r.turn("")
	if r.own == nil {
		r.srv.KeepAlive()
		return
	}
	r.prompt(func(c *prompted) { c.alive++ })
}

// halfClose has the server end its sending side of all sessions and go on reading.
func (r *caseRun) halfClose() {
	r.turn("")
	if r.own == nil {
		r.srv.HalfClose()
		return
	}
	r.prompt(func(c *prompted) { c.ended = true })
}
