package stub

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"tornwire/frames"
)

// conn is one connection of a client.
type conn struct {
	s    *Server
	nc   net.Conn
	back net.Conn // to the server behind; nil without one
	done <-chan struct{}
	end  context.CancelFunc // ends all of it
	wg   sync.WaitGroup

	toClient, toServer *queue
}

// serve returns when the connection and its goroutines have ended.
func (c *conn) serve(ctx context.Context) {
	defer c.wg.Wait()
	defer c.end()
	if c.s.cfg.Behind != nil {
		back, err := c.s.cfg.Behind(ctx)
		if err != nil {
			return
		}
		defer back.Close()
		c.back = back
		c.wg.Go(func() { c.write(back, c.toServer) })
		c.wg.Go(func() {
			c.read(back, frames.ServerToClient)
			c.toClient.finish()
		})
	}
	c.wg.Go(func() {
		c.write(c.nc, c.toClient)
		c.end()
	})
	// Only this interrupts reads and writes that block.
	c.wg.Go(func() {
		<-c.done
		_ = c.nc.Close()
		if c.back != nil {
			_ = c.back.Close()
		}
	})
	var nonce string
	if c.back == nil {
		c.toServer.last() // nothing is kept for nobody
		nonce = c.s.cfg.Nonce()
		c.toClient.put([]byte(c.s.cfg.ServerID + " " + nonce + "\n"))
		_ = c.nc.SetReadDeadline(time.Now().Add(prefaceLimit))
	}
	c.requests(nonce)
}

// requests reads what the client sends until it ends or there is no more to be said.
func (c *conn) requests(nonce string) {
	take := func(f frames.Piece) bool {
		if f.Kind != frames.Preface || c.back != nil {
			return false
		}
		if f.Last && !c.authentic(f.Whole, nonce) {
			g := c.s.grammar
			c.toClient.put(Frame{g: g}.Answer("E", "auth_failed", 0))
			c.toClient.last()
		}
		_ = c.nc.SetReadDeadline(time.Time{})
		return true
	}
	c.readWith(c.nc, frames.ClientToServer, take)
	close(c.toClient.quiet)
	c.toServer.finish()
	if c.back == nil {
		c.toClient.finish()
	}
	<-c.done // the writer ends it when all is written
}

func (c *conn) authentic(line []byte, nonce string) bool {
	sum := sha256.Sum256([]byte(c.s.cfg.Secret + nonce))
	return string(line) == base64.RawURLEncoding.EncodeToString(sum[:])+"\n"
}

func (c *conn) read(from net.Conn, dir frames.Direction) {
	c.readWith(from, dir, func(frames.Piece) bool { return false })
}

// readWith decodes one direction, and hands the script each message, and at each
// byte the part of it that has come.
func (c *conn) readWith(from net.Conn, dir frames.Direction, preface func(frames.Piece) bool) {
	dec := c.s.grammar.Decoder(dir)
	on := c.toServer
	if dir == frames.ServerToClient {
		on = c.toClient
	}
	var under frame
	buf := make([]byte, readSize)
	for {
		n, err := from.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			var pc frames.Piece
			pc, p = dec.Next(p)
			switch {
			case preface(pc):
			case pc.Kind != frames.Message:
				on.put(pc.Data) // a preface line, a keep-alive, what cannot be read
			default:
				under.add(pc)
				c.message(&under, len(pc.Data), on)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.end()
			}
			return
		}
	}
}

// frame is the message that is coming in.
type frame struct {
	shape *frames.Shape
	data  []byte
	last  bool
	taken bool // a step has acted on it
}

func (f *frame) add(pc frames.Piece) {
	if pc.First {
		*f = frame{shape: pc.Shape}
	}
	f.data = append(f.data, pc.Data...)
	f.last = pc.Last
}

// message tells the script of the last n bytes of a message.
func (c *conn) message(m *frame, n int, on *queue) {
	peer := ""
	if a := c.nc.RemoteAddr(); a != nil {
		peer = a.String()
	}
	for k := len(m.data) - n + 1; k <= len(m.data) && !m.taken; k++ {
		whole := m.last && k == len(m.data)
		f := Frame{Conn: peer, Bytes: append([]byte(nil), m.data[:k]...), shape: m.shape, g: c.s.grammar}
		if st := c.s.step(f, whole); st != nil {
			m.taken = true
			c.act(st, f, on)
		}
	}
	if m.last && !m.taken {
		on.put(m.data)
	}
}

// act carries a step out, at once or after its pause.
func (c *conn) act(st *Step, f Frame, on *queue) {
	do := func() {
		pass, write := c.s.carryOut(st, f)
		on.put(pass)
		c.toClient.put(write)
		if st.End {
			c.toClient.last()
		}
	}
	if st.Pause == 0 {
		do()
		return
	}
	if !c.toClient.hold() {
		c.end()
		return
	}
	c.wg.Go(func() {
		defer c.toClient.release()
		t := time.NewTimer(st.Pause)
		defer t.Stop()
		select {
		case <-t.C:
			do()
		case <-c.done:
		}
	})
}

// write writes what a queue gets, until its end; then it half-closes.
func (c *conn) write(to net.Conn, q *queue) {
	for {
		b, last := q.take()
		if len(b) > 0 {
			_ = to.SetWriteDeadline(time.Now().Add(writeLimit))
			if _, err := to.Write(b); err != nil {
				c.end()
				return
			}
			continue
		}
		if last {
			break
		}
		select {
		case <-q.wake:
		case <-c.done:
			return
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		c.end()
	}
	if to != c.nc {
		return
	}
	// What the client still sends is read by the other goroutine meanwhile, so that no
	// reset destroys the last words.
	t := time.NewTimer(writeLimit)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.done:
	case <-q.quiet:
	}
}
