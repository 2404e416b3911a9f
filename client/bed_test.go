package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/client"
	"tornwire/frames"
	"tornwire/internal/memnet"
)

const (
	node1  = "10.0.0.1:700"
	node2  = "10.0.0.2:700"
	node3  = "10.0.0.3:700"
	secret = "s3cret"
	ms     = time.Millisecond
)

// bed is a client in a synctest bubble, with nodes whose every byte the test
// writes. At the end the client is closed; a goroutine left behind then is a
// deadlock of the bubble, which fails the test.
type bed struct {
	t       *testing.T
	g       *frames.Grammar
	c       *client.Client
	net     *memnet.Network
	nodes   map[string]net.Listener
	mu      sync.Mutex
	wires   []*wire
	dials   []string
	refuse  func(n int, addr string) bool // n counts dials from 1
	wrapper func(net.Conn) net.Conn
}

type option func(*client.Config)

func v0(c *client.Config) { c.Dialect = "ticketing-v0" }

func grace(d time.Duration) option { return func(c *client.Config) { c.ResponseGrace = d } }

func one(c *client.Config) { c.Addresses = c.Addresses[:1] }

func bubble(t *testing.T, f func(t *testing.T, b *bed), opts ...option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, net: memnet.New(memnet.Options{}), nodes: map[string]net.Listener{}}
		cfg := client.Config{Addresses: []string{node1, node2}, Secret: secret, Dial: b.dial}
		for _, o := range opts {
			o(&cfg)
		}
		var err error
		if b.c, err = client.New(cfg); err != nil {
			t.Fatal(err)
		}
		b.g = frames.MustBuiltin("ticketing")
		if cfg.Dialect != "" {
			b.g = frames.MustBuiltin(cfg.Dialect)
		}
		for _, a := range cfg.Addresses {
			l, err := b.net.Listen("tcp", a)
			if err != nil {
				t.Fatal(err)
			}
			b.nodes[a] = l
		}
		defer func() {
			_ = b.c.Close()
			for _, l := range b.nodes {
				_ = l.Close()
			}
			for _, w := range b.wires {
				_ = w.Close()
			}
		}()
		f(t, b)
	})
}

func (b *bed) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.mu.Lock()
	b.dials = append(b.dials, addr)
	n, refuse, wrapper := len(b.dials), b.refuse, b.wrapper
	b.mu.Unlock()
	if refuse != nil && refuse(n, addr) {
		return nil, errors.New("refused by the test")
	}
	conn, err := b.net.Dial(ctx, network, addr)
	if err == nil && wrapper != nil {
		conn = wrapper(conn)
	}
	return conn, err
}

func (b *bed) dialled() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.dials...)
}

// call is a running Acquire.
type call struct {
	b      *bed
	start  time.Time
	took   time.Duration
	out    chan client.Outcome
	cancel context.CancelFunc
}

func (b *bed) acquire(key string, wait, lease time.Duration) *call {
	ctx, cancel := context.WithCancel(b.t.Context())
	k := &call{b: b, start: time.Now(), out: make(chan client.Outcome, 1), cancel: cancel}
	go func() {
		defer cancel()
		out, err := b.c.Acquire(ctx, key, wait, lease)
		if err != nil {
			b.t.Error(err)
		}
		k.took = time.Since(k.start)
		k.out <- out
	}()
	return k
}

// end waits for the outcome, which must be of type T.
func end[T client.Outcome](k *call) T {
	k.b.t.Helper()
	select {
	case out := <-k.out:
		o, ok := out.(T)
		if !ok {
			var want T
			k.b.t.Fatalf("outcome is %v, not %T", out, want)
		}
		return o
	case <-time.After(10 * time.Minute):
		k.b.t.Fatal("the call never ended")
	}
	panic("unreachable")
}

// running fails if the call is over.
func (k *call) running() {
	k.b.t.Helper()
	synctest.Wait()
	select {
	case out := <-k.out:
		k.b.t.Fatalf("the call is over: %v", out)
	default:
	}
}

// wire is a node's end of a session.
type wire struct {
	*memnet.Conn
	b    *bed
	dec  *frames.Decoder
	rest []byte
}

// accept takes the next connection to a node, within ten minutes.
func (b *bed) accept(node string) *wire {
	b.t.Helper()
	w := b.accepted(node, 10*time.Minute)
	if w == nil {
		b.t.Fatalf("nobody connected to %s", node)
	}
	return w
}

func (b *bed) accepted(node string, within time.Duration) *wire {
	l := b.nodes[node].(*memnet.Listener)
	_ = l.SetDeadline(time.Now().Add(within))
	c, err := l.Accept()
	if err != nil {
		return nil
	}
	w := &wire{Conn: c.(*memnet.Conn), b: b, dec: b.g.Decoder(frames.ClientToServer)}
	b.wires = append(b.wires, w)
	return w
}

// nobody fails if a connection to any node comes within d.
func (b *bed) nobody(d time.Duration) {
	b.t.Helper()
	n := len(b.dialled())
	time.Sleep(d)
	if got := b.dialled(); len(got) != n {
		b.t.Fatalf("dialled %v", got[n:])
	}
}

// session accepts a connection and takes it through the preface.
func (b *bed) session(node string) *wire {
	b.t.Helper()
	w := b.accept(node)
	w.greet()
	return w
}

const nonce = "0123456789abcdef"

func (w *wire) greet() {
	w.b.t.Helper()
	w.raw("srv " + nonce + "\n")
	sum := sha256.Sum256([]byte(secret + nonce))
	if f := w.next(); f.tail != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.b.t.Fatalf("answer to the greeting is %q", f.tail)
	}
}

type frame struct {
	op, tail                  string
	wait, lease, owner, token uint64
}

// next reads one frame.
func (w *wire) next() frame {
	w.b.t.Helper()
	f, err := w.read(10 * time.Minute)
	if err != nil {
		w.b.t.Fatalf("reading a frame: %v", err)
	}
	return f
}

func (w *wire) read(within time.Duration) (frame, error) {
	_ = w.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, 256)
	for {
		for len(w.rest) > 0 {
			pc, rest := w.dec.Next(w.rest)
			w.rest = rest
			if pc.Kind == frames.Opaque {
				w.b.t.Fatal(w.dec.Err())
			}
			if !pc.Last || pc.Kind == frames.KeepAlive {
				continue
			}
			if err := pc.Shape.Check(pc.Whole); err != nil {
				w.b.t.Fatal(err)
			}
			f := frame{op: pc.Shape.Op, tail: string(pc.Shape.TailOf(pc.Whole))}
			f.wait, _ = pc.Shape.Uint(pc.Whole, "wait")
			f.lease, _ = pc.Shape.Uint(pc.Whole, "lease")
			f.owner, _ = pc.Shape.Uint(pc.Whole, "owner")
			f.token, _ = pc.Shape.Uint(pc.Whole, "token")
			return f, nil
		}
		n, err := w.Read(buf)
		if n == 0 && err != nil {
			return frame{}, err
		}
		w.rest = append([]byte(nil), buf[:n]...)
	}
}

// op reads one frame with that op.
func (w *wire) op(op string) frame {
	w.b.t.Helper()
	f := w.next()
	if f.op != op {
		w.b.t.Fatalf("frame is %+v, not %s", f, op)
	}
	return f
}

// send writes a frame. Values are those of the current dialect; v0 keeps the
// ones it has fields for.
func (w *wire) send(op, tail string, values ...uint64) {
	w.b.t.Helper()
	w.raw(string(w.encode(op, tail, values...)))
}

func (w *wire) encode(op, tail string, values ...uint64) []byte {
	w.b.t.Helper()
	s := w.b.g.MustShape(frames.ServerToClient, op)
	p, err := s.Append(nil, []byte(tail), values[len(values)-len(s.Fields):]...)
	if err != nil {
		w.b.t.Fatal(err)
	}
	return p
}

func (w *wire) raw(s string) {
	w.b.t.Helper()
	_ = w.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(w.Conn, s); err != nil {
		w.b.t.Fatalf("writing %q: %v", s, err)
	}
}

// closed waits until the client has ended its side with nothing more sent, and
// fails if that takes longer than d.
func (w *wire) closed(d time.Duration) {
	w.b.t.Helper()
	synctest.Wait()
	f, err := w.read(d + 1)
	if err == nil {
		w.b.t.Fatalf("frame %+v instead of the end", f)
	}
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		w.b.t.Fatalf("still open after %v", d)
	}
}

// quiet fails if the client sends a frame or ends within d.
func (w *wire) quiet(d time.Duration) {
	w.b.t.Helper()
	f, err := w.read(d)
	if ne := net.Error(nil); !errors.As(err, &ne) || !ne.Timeout() {
		w.b.t.Fatalf("frame %+v, error %v instead of nothing", f, err)
	}
}

// hold gets a ticket with the given token on a new session.
func (b *bed) hold(key string, lease time.Duration, token uint64) (*wire, *client.Ticket) {
	b.t.Helper()
	k := b.acquire(key, 10*time.Second, lease)
	w := b.session(node1)
	f := w.op("A")
	w.send("A", key, f.owner, token)
	return w, end[client.Acquired](k).Ticket
}

// release is a running Release.
func release(ctx context.Context, t *client.Ticket) chan client.ReleaseOutcome {
	ch := make(chan client.ReleaseOutcome, 1)
	go func() { ch <- t.Release(ctx) }()
	return ch
}

func ended[T client.ReleaseOutcome](b *bed, ch chan client.ReleaseOutcome) T {
	b.t.Helper()
	out := <-ch
	o, ok := out.(T)
	if !ok {
		var want T
		b.t.Fatalf("release is %v, not %T", out, want)
	}
	return o
}

func is(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("cause is %v, not %v", err, target)
	}
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is %v, not %v", what, got, want)
	}
}

// CloseWrite and Reset of a wire, for tables.
func (w *wire) CloseWrite() error { return w.Conn.CloseWrite() }

func (w *wire) Reset() error { return w.Conn.Reset() }
