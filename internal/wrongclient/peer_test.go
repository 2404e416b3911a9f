package wrongclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
	"tornwire/internal/memnet"
)

const (
	testKey   = "order-42"
	greetLine = "node-1 0123456789abcdef\n"
	trickyTok = 0x0A0A0A0A0A0A0A0A
)

// request is what the server got: a whole frame, or what there was of it when
// its session ended.
type request struct {
	session int
	op      string
	raw     []byte
	whole   bool
	at      time.Time
	shape   *frames.Shape
}

func (r request) uint(name string) uint64 {
	v, _ := r.shape.Uint(r.raw, name)
	return v
}

func (r request) key() string { return string(r.shape.TailOf(r.raw)) }

// cut ends the first session on which the frame comes, after at of its bytes.
type cut struct {
	dir frames.Direction
	op  string
	at  int
	end string // FIN, RST or silence
}

// peer is a server that does what its script says. It keeps the lock table of
// one client, so that a release can be answered.
type peer struct {
	t       *testing.T
	g       *frames.Grammar
	network *memnet.Network
	ctx     context.Context
	greet   func(*link)          // nil: the greeting at once
	script  func(*link, request) // nil: (*link).serve
	cut     *cut

	running sync.WaitGroup // sessions

	mu       sync.Mutex
	got      []request
	ended    map[int]time.Time // when the client was seen to end a session
	endErr   map[int]error     // and what a read said then
	dialled  []string
	sessions int
	token    uint64
	held     map[string]uint64
	grants   map[uint64]string // keys by token
}

// link is one session of the peer.
type link struct {
	p    *peer
	n    int // from 1
	addr string
	conn *memnet.Conn
}

// stage runs do in a bubble, with a client that has the defect and nodes on the
// addresses, and closes the client.
func stage(t *testing.T, dialect, defect string, do func(p *peer, c adapter.Client), setup func(p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := &peer{
			t: t, g: frames.MustBuiltin(dialect), network: memnet.New(memnet.Options{}), ctx: ctx,
			ended: map[int]time.Time{}, endErr: map[int]error{}, held: map[string]uint64{}, grants: map[uint64]string{}, token: 6,
		}
		if setup != nil {
			setup(p)
		}
		addrs := []string{"10.0.0.1:7000", "10.0.0.2:7000"}
		for _, a := range addrs {
			l, err := p.network.Listen("tcp", a)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go p.accept(l, a)
		}
		lib, err := WithDial(defect, func(ctx context.Context, network, addr string) (net.Conn, error) {
			p.mu.Lock()
			p.dialled = append(p.dialled, addr)
			p.mu.Unlock()
			return p.network.Dial(ctx, network, addr)
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := lib.Open(dialect, addrs, "s3cret")
		if err != nil {
			t.Fatal(err)
		}
		do(p, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		p.running.Wait()
	})
}

func (p *peer) accept(l net.Listener, addr string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.sessions++
		k := &link{p: p, n: p.sessions, addr: addr, conn: c.(*memnet.Conn)}
		p.mu.Unlock()
		p.running.Go(k.run)
	}
}

var errCut = errors.New("cut")

func (k *link) run() {
	stop := context.AfterFunc(k.p.ctx, func() { _ = k.conn.Close() })
	defer stop()
	defer k.conn.Close()
	if k.p.greet != nil {
		k.p.greet(k)
	} else if k.send("greeting", []byte(greetLine)) != nil {
		return
	}
	dec := k.p.g.Decoder(frames.ClientToServer)
	var b [1]byte
	for {
		if s, raw := dec.Pending(); s != nil && k.cutHere(frames.ClientToServer, s.Op, len(raw)) {
			k.note(request{op: s.Op, raw: raw, shape: s})
			return
		}
		if _, err := k.conn.Read(b[:]); err != nil {
			k.over(dec, err)
			return
		}
		pc, _ := dec.Next(b[:])
		if pc.Kind == frames.Opaque {
			k.p.t.Errorf("client sent garbage: %v", dec.Err())
			return
		}
		if !pc.Last {
			// Offset 0 of a frame is cut when its first byte shows which one it is.
			if pc.First && k.cutHere(frames.ClientToServer, pc.Shape.Op, 0) {
				return
			}
			continue
		}
		if pc.Shape.Op == frames.OpKeepAlive {
			continue
		}
		r := request{op: pc.Shape.Op, raw: bytes.Clone(pc.Whole), whole: true, shape: pc.Shape}
		k.note(r)
		if k.cutHere(frames.ClientToServer, pc.Shape.Op, len(pc.Whole)) {
			return
		}
		if pc.Kind == frames.Preface {
			if want := digest("s3cret", "0123456789abcdef"); r.key() != want {
				k.p.t.Errorf("digest is %s, not %s", r.key(), want)
			}
			continue
		}
		if k.p.script != nil {
			k.p.script(k, r)
		} else {
			k.serve(r)
		}
	}
}

// over notes that the client ended the session.
func (k *link) over(dec *frames.Decoder, err error) {
	if s, raw := dec.Pending(); s != nil {
		k.note(request{op: s.Op, raw: raw, shape: s})
	}
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	k.p.ended[k.n], k.p.endErr[k.n] = time.Now(), err
}

func (k *link) note(r request) {
	r.session, r.at, r.raw = k.n, time.Now(), bytes.Clone(r.raw)
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	k.p.got = append(k.p.got, r)
}

// cutHere fires the cut if it is for this place, and then plays it to its end.
func (k *link) cutHere(dir frames.Direction, op string, at int) bool {
	k.p.mu.Lock()
	c := k.p.cut
	fire := c != nil && c.dir == dir && c.op == op && c.at == at
	if fire {
		k.p.cut = nil
	}
	k.p.mu.Unlock()
	if fire {
		k.end(c.end)
	}
	return fire
}

// end ends the session in the given way, and reads what still comes.
func (k *link) end(how string) {
	switch how {
	case "FIN":
		_ = k.conn.CloseWrite()
	case "RST":
		_ = k.conn.Reset()
		return
	}
	_, _ = io.Copy(io.Discard, k.conn)
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	k.p.ended[k.n] = time.Now()
}

// send writes a frame, or the part before the cut.
func (k *link) send(op string, b []byte) error {
	k.p.mu.Lock()
	c := k.p.cut
	k.p.mu.Unlock()
	if c != nil && c.dir == frames.ServerToClient && c.op == op && c.at <= len(b) {
		_, _ = k.conn.Write(b[:c.at])
		k.cutHere(c.dir, op, c.at)
		return errCut
	}
	_, err := k.conn.Write(b)
	return err
}

// reply sends a frame made of fields by name.
func (k *link) reply(op, tail string, fields map[string]uint64) {
	b, err := encode(k.p.g.MustShape(frames.ServerToClient, op), tail, fields)
	if err != nil {
		k.p.t.Error(err)
		return
	}
	_ = k.send(op, b)
}

// serve answers as a lock server with one client does.
func (k *link) serve(r request) {
	if r.op == "A" {
		k.grant(r)
		return
	}
	k.p.mu.Lock()
	held, ok := k.p.held[r.key()]
	_, exact := r.shape.Field("token")
	ok = ok && (!exact || held == r.uint("token"))
	if ok {
		delete(k.p.held, r.key())
	}
	k.p.mu.Unlock()
	op := "N"
	if ok {
		op = "R"
	}
	k.reply(op, r.key(), map[string]uint64{"token": r.uint("token")})
}

func (k *link) grant(r request) {
	k.p.mu.Lock()
	k.p.token++
	token := k.p.token
	k.p.held[r.key()], k.p.grants[token] = token, r.key()
	k.p.mu.Unlock()
	k.reply("A", r.key(), map[string]uint64{"owner": r.uint("owner"), "token": token})
}

// requests returns what came with this op so far.
func (p *peer) requests(op string) []request {
	synctest.Wait()
	return p.requestsNow(op)
}

// requestsNow is requests without waiting, for a script.
func (p *peer) requestsNow(op string) []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rs []request
	for _, r := range p.got {
		if r.op == op {
			rs = append(rs, r)
		}
	}
	return rs
}

// endedAt is when the client ended the session, zero if it did not.
func (p *peer) endedAt(session int) time.Time {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended[session]
}

// endedBy is what told that the client ended the session, nil if it did not.
func (p *peer) endedBy(session int) error {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endErr[session]
}

// ended is how a call ended, and when.
type ended struct {
	adapter.Result
	at time.Duration // after its start
}

// begin starts an acquire (lease 30 s) and waits until all that follows from that
// has come to rest.
func (p *peer) begin(c adapter.Client, key string, wait time.Duration) <-chan ended {
	out, start := make(chan ended, 1), time.Now()
	go func() { out <- ended{c.Acquire(p.t.Context(), key, wait, 30*time.Second), time.Since(start)} }()
	synctest.Wait()
	return out
}

func (p *peer) dials() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.dialled...)
}
