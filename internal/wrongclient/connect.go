package wrongclient

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"tornwire/frames"
)

// digest is the client's preface line (spec/ticketing.md §1.1).
func digest(secret, nonce string) string {
	sum := sha256.Sum256([]byte(secret + nonce))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// connect makes the connection of a fresh session. It is up then, or over.
func (s *session) connect(ctx context.Context) {
	if e, ok := s.dial(ctx); !ok {
		s.close(e)
		return
	}
	s.greet(ctx)
	s.keepAlive()
}

func (s *session) dial(ctx context.Context) (end, bool) {
	n, at := s.c.nextNode()
	if !sleep(ctx, at) {
		return endOf(ctx), false
	}
	limited, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := s.c.dialer(limited, "tcp", n.addr)
	if err != nil {
		s.c.backOff(n, firstPause)
		return endOfError(err), false
	}
	s.c.mu.Lock()
	s.c.last = n
	s.c.mu.Unlock()
	s.mu.Lock()
	over := s.over
	if !over {
		s.conn, s.node = conn, n
	}
	s.mu.Unlock()
	if over {
		_ = conn.Close()
	}
	return end{endCancel, errClosed.Error()}, !over && s.c.start(s.read)
}

// greet waits for the greeting and answers it. The session ends if ctx is over
// first.
func (s *session) greet(ctx context.Context) {
	select {
	case nonce := <-s.greeting:
		line, err := encode(s.c.auth, digest(s.c.secret, nonce), nil)
		if err != nil {
			s.close(end{endFrame, err.Error()})
			return
		}
		s.write(ctx, line)
	case <-s.done:
	case <-ctx.Done():
		s.close(endOf(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.isUp = true
		close(s.up)
	}
}

// encode makes a frame from its fields by name.
func encode(s *frames.Shape, tail string, fields map[string]uint64) ([]byte, error) {
	values := make([]uint64, len(s.Fields))
	for i, f := range s.Fields {
		values[i] = fields[f.Name]
	}
	return s.Append(nil, []byte(tail), values...)
}

// sleep waits until t; it is false if ctx is over first.
func sleep(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
