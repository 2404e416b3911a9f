package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	c2s = frames.ClientToServer
	s2c = frames.ServerToClient

	patience = 20 * time.Second // how long a test over real sockets waits for anything
)

// bare has beds record ends, but no bytes: see TestUnrecorded.
var bare bool

var grammar = frames.MustBuiltin("ticketing")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bed is a proxy between a listener for clients and one of a server's.
type bed struct {
	t      *testing.T
	tr     transport
	began  time.Time
	rec    *history.Recorder
	px     *proxy.Proxy
	up     net.Listener
	addr   string
	end    context.CancelFunc
	served chan error
	dialed int // sessions that connect has opened
}

// newBed starts a proxy. What cfg leaves open is set: the upstream, the dial
// function and a recorder.
func newBed(t *testing.T, tr transport, cfg proxy.Config) *bed {
	t.Helper()
	b := &bed{t: t, tr: tr, began: time.Now(), rec: history.NewRecorder(), served: make(chan error, 1)}
	l, err := tr.listen()
	must(t, err)
	b.up, b.addr = b.listen(), l.Addr().String()
	upstream := tr.upstream(b.up)
	if tr.server != nil {
		b.up = wrapping{b.up, tr.server}
	}
	if tr.configure != nil {
		tr.configure(&cfg)
	}
	if tr.hook != nil {
		l = wrapping{l, func(c net.Conn) net.Conn { return tr.hook(s2c, c) }}
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := tr.dial(ctx, network, addr)
			if err == nil {
				c = tr.hook(c2s, c)
			}
			return c, err
		}
	}
	if tr.unrecorded {
		cfg.Observe = b.rec.Add
	} else {
		cfg.Recorder = b.rec
	}
	if cfg.Upstream == "" {
		cfg.Upstream = upstream
	}
	if cfg.Dial == nil {
		cfg.Dial = tr.dial
	}
	if cfg.Listen == nil {
		cfg.Listen = tr.again
	}
	b.px = proxy.New(cfg)
	if bare {
		b.px.RecordNoBytes()
	}
	b.end = b.serve(l, "c1")
	return b
}

// hooked is a connection in memory with calls before a read and after a write,
// and another view of errors.
type hooked struct {
	*memnet.Conn
	beforeRead func()
	afterWrite func(n int)
	readError  func(error) error
}

func (h *hooked) Read(p []byte) (int, error) {
	if h.beforeRead != nil {
		h.beforeRead()
	}
	n, err := h.Conn.Read(p)
	if err != nil && h.readError != nil {
		err = h.readError(err)
	}
	return n, err
}

func (h *hooked) Write(p []byte) (int, error) {
	n, err := h.Conn.Write(p)
	if h.afterWrite != nil {
		h.afterWrite(n)
	}
	return n, err
}

func (b *bed) listen() net.Listener {
	b.t.Helper()
	l, err := b.tr.listen()
	must(b.t, err)
	b.t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve has the proxy serve a listener; the function returned ends that.
func (b *bed) serve(l net.Listener, client string) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { b.served <- b.px.Serve(ctx, l, client) }()
	b.t.Cleanup(cancel)
	return cancel
}

// stop ends the proxy, waits for Serve and returns the record, checked.
func (b *bed) stop() []history.Event {
	b.t.Helper()
	b.end()
	if err := <-b.served; err != nil {
		b.t.Errorf("Serve: %v", err)
	}
	ev, _ := b.rec.Events(0)
	checkRecord(b.t, ev)
	return ev
}

// events returns what was recorded so far of a kind.
func (b *bed) events(kind history.Kind) []history.Event {
	ev, _ := b.rec.Events(0)
	return ofKind(ev, kind)
}

func ofKind(ev []history.Event, kind history.Kind) []history.Event {
	return slices.DeleteFunc(slices.Clone(ev), func(e history.Event) bool { return e.Kind != kind })
}

// waitFor waits until n events are recorded for which is holds.
func (b *bed) waitFor(n int, what string, is func(history.Event) bool) {
	b.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		ev, more := b.rec.Events(0)
		found := 0
		for _, e := range ev {
			if is(e) {
				found++
			}
		}
		if found >= n {
			return
		}
		select {
		case <-more:
		case <-limit.C:
			b.t.Fatalf("waited %v for %d × %s, saw %d in %d events", patience, n, what, found, len(ev))
		}
	}
}

func (b *bed) waitKind(kind history.Kind) {
	b.t.Helper()
	b.waitFor(1, string(kind), func(e history.Event) bool { return e.Kind == kind })
}

func (b *bed) waitEndSeen(side history.Side, how string) {
	b.t.Helper()
	b.waitFor(1, how+" seen from the "+string(side), func(e history.Event) bool {
		return e.Kind == history.EndSeen && e.Side == side && e.How == how
	})
}

// connect opens a session through the proxy and returns its two peers.
func (b *bed) connect() (cl, sv *peer) { return b.connectTo(b.addr) }

func (b *bed) connectTo(addr string) (cl, sv *peer) {
	b.t.Helper()
	cl = b.dial(addr)
	c, err := b.up.Accept()
	must(b.t, err)
	b.dialed++
	sv = b.newPeer(c) // over TLS nothing is dialled before it has shaken hands
	b.waitFor(b.dialed, "dial", func(e history.Event) bool { return e.Kind == history.ServerDialed })
	return cl, sv
}

func (b *bed) dial(addr string) *peer {
	b.t.Helper()
	c, err := b.tryDial(addr)
	must(b.t, err)
	return b.newPeer(c)
}

func (b *bed) tryDial(addr string) (net.Conn, error) {
	c, err := b.tr.dial(context.Background(), "tcp", addr)
	if err == nil && b.tr.client != nil {
		c = b.tr.client(c)
	}
	return c, err
}

// part is what one read returned, and when.
type part struct {
	data string
	at   time.Duration
}

// peer is an end of a session that reads all the time.
type peer struct {
	net.Conn
	t     *testing.T
	began time.Time
	ended chan struct{}

	mu    sync.Mutex
	more  sync.Cond
	got   []byte
	parts []part
	how   string // FIN, RST or what else ended it; "" while it is open
}

func (b *bed) newPeer(c net.Conn) *peer {
	p := &peer{Conn: c, t: b.t, began: b.began, ended: make(chan struct{})}
	p.more.L = &p.mu
	if _, ok := c.(*memnet.Conn); !ok && !b.tr.virtual {
		must(b.t, c.SetDeadline(time.Now().Add(patience)))
	}
	b.t.Cleanup(func() {
		_ = c.Close()
		<-p.ended
	})
	go p.read()
	return p
}

func (p *peer) read() {
	defer close(p.ended)
	buf := make([]byte, 64<<10)
	for {
		n, err := p.Conn.Read(buf)
		p.mu.Lock()
		if n > 0 {
			p.got = append(p.got, buf[:n]...)
			p.parts = append(p.parts, part{string(buf[:n]), time.Since(p.began)})
		}
		switch {
		case errors.Is(err, io.EOF):
			p.how = history.FIN
		case errors.Is(err, syscall.ECONNRESET):
			p.how = history.RST
		case err != nil:
			p.how = err.Error()
		}
		p.more.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *peer) send(data ...string) {
	p.t.Helper()
	for _, d := range data {
		_, err := io.WriteString(p.Conn, d)
		must(p.t, err)
	}
}

func (p *peer) closeWrite() {
	p.t.Helper()
	must(p.t, p.Conn.(interface{ CloseWrite() error }).CloseWrite())
}

func (p *peer) reset() {
	p.t.Helper()
	if l, ok := p.Conn.(interface{ SetLinger(int) error }); ok {
		must(p.t, l.SetLinger(0))
	}
	must(p.t, p.Conn.Close())
}

// wait waits for n bytes in all, or the end.
func (p *peer) wait(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.got) < n && p.how == "" {
		p.more.Wait()
	}
}

func (p *peer) now() (got string, parts []part, how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.got), slices.Clone(p.parts), p.how
}

// wantGot compares all bytes so far and the end so far.
func (p *peer) wantGot(who, want, how string) {
	p.t.Helper()
	got, _, h := p.now()
	if got != want || h != how {
		p.t.Errorf("%s got %q, end %q; wanted %q, end %q", who, clip(got), h, clip(want), how)
	}
}

// wantAll waits for the end, then compares.
func (p *peer) wantAll(who, want, how string) {
	p.t.Helper()
	<-p.ended
	p.wantGot(who, want, how)
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}

// rules puts rules into a set.
func rules(t *testing.T, rs ...faults.Rule) *faults.Set {
	t.Helper()
	s, err := faults.NewSet(rs...)
	must(t, err)
	return s
}

func fault(t *testing.T, id string) *faults.Type {
	t.Helper()
	f, ok := faults.ByID(id)
	if !ok {
		t.Fatalf("no fault %s", id)
	}
	return f
}

// frame encodes a frame of the current dialect.
func frame(dir frames.Direction, op, tail string, values ...uint64) string {
	f, err := grammar.MustShape(dir, op).Append(nil, []byte(tail), values...)
	if err != nil {
		panic(err)
	}
	return string(f)
}

// An exchange of the current dialect; the token has newlines in it.
var (
	greeting = frame(s2c, "greeting", "node-1 0123456789abcdef")
	auth     = frame(c2s, "auth", "Zm9vYmFyYmF6")
	acquire  = frame(c2s, "A", "order-42", 5, 30, 7)
	acquired = frame(s2c, "A", "order-42", 7, 0x0A0A)
	release  = frame(c2s, "R", "order-42", 0x0A0A)
	released = frame(s2c, "R", "order-42", 0x0A0A)
)

// acknowledged waits until so many bytes of a client are said to be acknowledged, of as many:
// what was accepted is counted only behind its event.
func (b *bed) acknowledged(want int) {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		n := len(b.events(history.Acked))
		b.px.RecordAcked()
		got := b.events(history.Acked)[n:]
		switch {
		case len(got) > 0 && got[0].Dir == c2s && got[0].N == want && got[0].Total == want:
			return
		case time.Now().After(end):
			b.t.Fatalf("acknowledged: %+v, wanted %d", got, want)
		}
	}
}
