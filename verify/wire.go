package verify

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"tornwire/frames"
)

// wireLimit bounds each step of a connection of the tool's own.
const wireLimit = 5 * time.Second

// wire is a connection of the tool's own to a server, frame by frame.
type wire struct {
	conn     net.Conn
	g        *frames.Grammar
	dec      *frames.Decoder
	rest     []byte
	buf      [readSize]byte
	greeting int // bytes of the server's line
}

// said is a frame of the server.
type said struct {
	shape *frames.Shape
	bytes []byte
}

func (s said) is(op string) bool { return s.shape.Kind == frames.Message && s.shape.Op == op }

func (s said) key() string { return string(s.shape.TailOf(s.bytes)) }

func (s said) field(name string) uint64 {
	v, _ := s.shape.Uint(s.bytes, name)
	return v
}

// dialWire connects and does the preface.
func dialWire(ctx context.Context, dial Dial, g *frames.Grammar, addr, secret string) (*wire, error) {
	ctx, cancel := context.WithTimeout(ctx, wireLimit)
	defer cancel()
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, g: g, dec: g.Decoder(frames.ServerToClient)}
	line, err := w.read(ctx, wireLimit)
	if err == nil {
		err = w.authenticate(line, secret)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the preface: %w", err)
	}
	return w, nil
}

func (w *wire) authenticate(line said, secret string) error {
	if line.shape.Op != opGreeting {
		return fmt.Errorf("the server began with %q", line.bytes)
	}
	w.greeting = len(line.bytes)
	_, nonce, ok := strings.Cut(line.key(), " ")
	if !ok {
		return fmt.Errorf("the server's line %q is not an id, a space and a nonce", line.key())
	}
	sum := sha256.Sum256([]byte(secret + nonce))
	b, err := w.g.MustShape(frames.ClientToServer, opAuth).Append(nil, base64.RawURLEncoding.AppendEncode(nil, sum[:]))
	if err != nil {
		return err
	}
	return w.write(b)
}

func (w *wire) write(b []byte) error {
	_ = w.conn.SetWriteDeadline(time.Now().Add(wireLimit))
	_, err := w.conn.Write(b)
	return err
}

// send writes a request; values are by field name.
func (w *wire) send(op, key string, values map[string]uint64) error {
	s := w.g.MustShape(frames.ClientToServer, op)
	list := make([]uint64, len(s.Fields))
	for i, f := range s.Fields {
		list[i] = values[f.Name]
	}
	b, err := s.Append(nil, []byte(key), list...)
	if err != nil {
		return err
	}
	return w.write(b)
}

var errUnreadable = errors.New("what the server sent makes no frame")

// read returns the next frame other than a keep-alive.
func (w *wire) read(ctx context.Context, limit time.Duration) (said, error) {
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = w.conn.SetReadDeadline(time.Now().Add(limit))
	for {
		for len(w.rest) > 0 {
			var pc frames.Piece
			pc, w.rest = w.dec.Next(w.rest)
			switch {
			case pc.Kind == frames.Opaque:
				return said{}, errUnreadable
			case pc.Last && pc.Kind != frames.KeepAlive:
				return said{pc.Shape, append([]byte(nil), pc.Whole...)}, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return said{}, err
		}
		n, err := w.conn.Read(w.buf[:])
		if n == 0 && err != nil {
			return said{}, err
		}
		w.rest = w.buf[:n]
	}
}

// await reads until a frame is what is waited for, or a time has passed.
func (w *wire) await(ctx context.Context, limit time.Duration, wanted func(said) bool) (said, bool) {
	for until := time.Now().Add(limit); ; {
		f, err := w.read(ctx, time.Until(until))
		if err != nil {
			return said{}, false
		}
		if wanted(f) {
			return f, true
		}
	}
}

func (w *wire) close() { _ = w.conn.Close() }
