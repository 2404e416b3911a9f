package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tornwire/frames"
	"tornwire/internal/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	current = "ticketing"
	v0      = "ticketing-v0"
	address = "127.0.0.1:7070"
)

// harness is a server in a bubble, with everything its table told.
type harness struct {
	*Server
	t   *testing.T
	net *memnet.Network

	mu     sync.Mutex
	events []Event
}

// inBubble runs f against a server on an in-memory network.
func inBubble(t *testing.T, cfg Config, f func(h *harness)) {
	t.Helper()
	inBubbleWith(t, cfg, memnet.Options{}, f)
}

func inBubbleWith(t *testing.T, cfg Config, opts memnet.Options, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, net: memnet.New(opts)}
		cfg.OnEvent = func(e Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		h.Server = s
		l, err := h.net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l) }()
		f(h)
		stop := time.Now()
		cancel()
		if err := <-ended; err != nil || since(stop) != 0 {
			t.Errorf("Serve: %v, %d ms after it was to end", err, since(stop))
		}
		if n := s.conns.Load(); n != 0 {
			t.Errorf("%d connections left after Serve", n)
		}
	})
}

// told returns the events since the last call, one short word list each.
func (h *harness) told() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	var words []string
	for _, e := range h.events {
		w := string(e.Kind) + " " + e.Key
		if e.How != "" {
			w += " " + e.How
		}
		if e.Token != 0 {
			w += fmt.Sprint(" token=", e.Token)
		}
		if e.HasOwner {
			w += fmt.Sprint(" owner=", e.Owner)
		}
		words = append(words, w)
	}
	h.events = nil
	return words
}

func (h *harness) wantTold(want ...string) {
	h.t.Helper()
	if got := h.told(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		h.t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantHolder checks whose token holds a key; 0 is nobody's.
func (h *harness) wantHolder(key string, token uint64) {
	h.t.Helper()
	g, ok := h.Holder(key)
	if g.Token != token || ok != (token != 0) {
		h.t.Errorf("holder of %s is token %d (%v), want %d", key, g.Token, ok, token)
	}
}

// peer is a hand-driven client.
type peer struct {
	t    *testing.T
	nc   net.Conn
	g    *frames.Grammar
	dec  *frames.Decoder
	rest []byte
}

func newPeer(t *testing.T, nc net.Conn, dialect string) *peer {
	g := frames.MustBuiltin(dialect)
	return &peer{t: t, nc: nc, g: g, dec: g.Decoder(frames.ServerToClient)}
}

// dialRaw connects and stops there.
func (h *harness) dialRaw() *peer {
	h.t.Helper()
	nc, err := h.net.Dial(context.Background(), "tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = nc.Close() })
	return newPeer(h.t, nc, h.cfg.Dialect)
}

// dial connects and goes through the preface.
func (h *harness) dial() *peer {
	h.t.Helper()
	p := h.dialRaw()
	p.login(h.cfg.Secret)
	return p
}

func (p *peer) login(secret string) {
	p.t.Helper()
	id, nonce, ok := strings.Cut(p.next(), " ")
	if !ok || id == "" {
		p.t.Fatalf("greeting %q %q is not two words", id, nonce)
	}
	p.send(digest(secret, nonce) + "\n")
}

func digest(secret, nonce string) string {
	sum := sha256.Sum256([]byte(secret + nonce))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (p *peer) send(raw string) {
	p.t.Helper()
	if _, err := p.nc.Write([]byte(raw)); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

func (p *peer) frame(op, key string, values ...uint64) string {
	p.t.Helper()
	b, err := p.g.MustShape(frames.ClientToServer, op).Append(nil, []byte(key), values...)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// acquire sends an A; a v0 frame drops the owner.
func (p *peer) acquire(key string, wait, lease, owner uint64) {
	p.t.Helper()
	values := []uint64{wait, lease, owner}
	p.send(p.frame("A", key, values[:len(p.g.MustShape(frames.ClientToServer, "A").Fields)]...))
}

// release sends an R; a v0 frame drops the token.
func (p *peer) release(key string, token uint64) {
	p.t.Helper()
	values := []uint64{token}
	p.send(p.frame("R", key, values[:len(p.g.MustShape(frames.ClientToServer, "R").Fields)]...))
}

// next reads one frame and spells it: "A owner=1 token=2 key". An end of the
// connection is "FIN", "RST", or "nothing" if a read deadline passed.
func (p *peer) next() string {
	p.t.Helper()
	for {
		for len(p.rest) > 0 {
			var pc frames.Piece
			pc, p.rest = p.dec.Next(p.rest)
			if pc.Kind == frames.Opaque {
				p.t.Fatalf("undecodable: %v", p.dec.Err())
			}
			if !pc.Last {
				continue
			}
			if err := pc.Shape.Check(pc.Whole); err != nil {
				p.t.Fatal(err)
			}
			return spell(pc.Shape, pc.Whole)
		}
		buf := make([]byte, 512)
		n, err := p.nc.Read(buf)
		p.rest = buf[:n]
		switch {
		case n > 0 || err == nil:
		case err == io.EOF:
			return "FIN"
		case errors.Is(err, syscall.ECONNRESET):
			return "RST"
		case errors.Is(err, os.ErrDeadlineExceeded):
			return "nothing"
		default:
			p.t.Fatalf("read: %v", err)
		}
	}
}

func spell(s *frames.Shape, frame []byte) string {
	tail := string(s.TailOf(frame))
	if s.Kind == frames.Preface {
		return tail
	}
	w := s.Op
	for _, f := range s.Fields {
		v, _ := s.Uint(frame, f.Name)
		w += fmt.Sprintf(" %s=%d", f.Name, v)
	}
	return w + " " + tail
}

func (p *peer) want(words ...string) {
	p.t.Helper()
	for _, w := range words {
		if got := p.next(); got != w {
			p.t.Fatalf("got %q, want %q", got, w)
		}
	}
}

// quiet checks that nothing comes within d.
func (p *peer) quiet(d time.Duration) {
	p.t.Helper()
	_ = p.nc.SetReadDeadline(time.Now().Add(d))
	p.want("nothing")
	_ = p.nc.SetReadDeadline(time.Time{})
}

// fin half-closes.
func (p *peer) fin() { _ = p.nc.(interface{ CloseWrite() error }).CloseWrite() }

// since returns whole milliseconds of virtual time.
func since(t time.Time) int64 { return time.Since(t).Milliseconds() }
