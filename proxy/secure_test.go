package proxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

// half is a transport of which one peer speaks TLS.
func half(tr transport, side history.Side) transport {
	both := overTLS(tr)
	tr.client, tr.server = nil, nil
	if side == history.ClientSide {
		tr.client = both.client
		tr.configure = func(c *proxy.Config) { c.TLS = serverTLS() }
	} else {
		tr.server = both.server
		tr.configure = func(c *proxy.Config) { c.UpstreamTLS = trustingTLS() }
	}
	return tr
}

// TestHalfTLS: with TLS on one side only all crosses, and a FIN there is an
// orderly one here.
func TestHalfTLS(t *testing.T) {
	for _, side := range []history.Side{history.ClientSide, history.ServerSide} {
		for _, base := range []transport{tcp, overUnix(t)} {
			tr := half(base, side)
			if tr.unix && side == history.ServerSide {
				tr.configure = func(c *proxy.Config) { c.UpstreamTLS = clientTLS() }
			}
			b := newBed(t, tr, decoded())
			cl, sv := b.connect()
			play(cl, sv, exchange)
			cl.closeWrite()
			sv.wantAll("server", auth+acquire+release, history.FIN)
			sv.closeWrite()
			cl.wantAll("client", greeting+acquired+released, history.FIN)
			ev := b.stop()
			wantEnds(t, ev, "client fin seen", "server fin sent by forwarded", "server fin seen", "client fin sent by forwarded")
			for _, e := range ev {
				if e.Detail != "" {
					t.Errorf("%+v", e)
				}
			}
		}
	}
}

// truncate has a peer end with a FIN alone, or in the middle of a record.
func (p *peer) truncate(torn bool) {
	p.t.Helper()
	c := p.Conn.(*tlsPeer)
	must(p.t, c.Handshake())
	if torn {
		_, err := c.raw.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3}) // of 100 bytes of application data
		must(p.t, err)
	}
	must(p.t, c.truncate())
}

// TestTruncation: a FIN without close_notify reaches the other peer as one, behind
// what came before it; the other direction goes on. To plaintext it is a FIN.
func TestTruncation(t *testing.T) {
	inEach := func(t *testing.T, test func(*testing.T, transport)) {
		t.Run("tls", func(t *testing.T) { test(t, overTLS(tcp)) })
		t.Run("tls over unix", func(t *testing.T) {
			tr := overTLS(overUnix(t))
			tr.configure = func(c *proxy.Config) { c.TLS, c.UpstreamTLS = serverTLS(), clientTLS() }
			test(t, tr)
		})
		t.Run("tls in memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, overTLS(inMemory(0))) })
		})
	}
	for _, torn := range []bool{false, true} {
		for _, from := range []history.Side{history.ClientSide, history.ServerSide} {
			inEach(t, func(t *testing.T, tr transport) {
				b := newBed(t, tr, decoded())
				cl, sv := b.connect()
				play(cl, sv, exchange)
				if from == history.ClientSide {
					cl.truncate(torn)
					sv.wantAll("server", auth+acquire+release, errTruncated.Error())
					sv.send("\n")
					sv.closeWrite()
					cl.wantAll("client", greeting+acquired+released+"\n", history.FIN)
				} else {
					sv.truncate(torn)
					cl.wantAll("client", greeting+acquired+released, errTruncated.Error())
					cl.send("\n")
					cl.closeWrite()
					sv.wantAll("server", auth+acquire+release+"\n", history.FIN)
				}
				wantDetails(t, b.stop(), "no close_notify", "no close_notify", "", "")
			})
		}
	}
	b := newBed(t, half(tcp, history.ClientSide), decoded())
	cl, sv := b.connect()
	cl.truncate(false)
	sv.wantAll("server", "", history.FIN)
	wantDetails(t, b.stop(), "no close_notify", "")
}

// wantDetails compares what the record says of the ends before the teardown.
func wantDetails(t *testing.T, ev []history.Event, want ...string) {
	t.Helper()
	var got []string
	for _, e := range ev {
		if (e.Kind == history.EndSeen || e.Kind == history.EndSent) && e.Cause != history.CauseTeardown {
			got = append(got, e.Detail)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("details are %q, wanted %q", got, want)
	}
}

// TestUnreadTickets: a client that says something and leaves, and reads nothing
// behind its handshake, ends with a FIN: nothing unread makes a reset of it.
func TestUnreadTickets(t *testing.T) {
	tr := overTLS(tcp)
	left := make(chan struct{})
	tr.hook = func(dir frames.Direction, c net.Conn) net.Conn {
		if dir == s2c {
			return &lateConn{TCPConn: c.(*net.TCPConn), failed: left}
		}
		return c
	}
	b := newBed(t, tr, decoded())
	raw, err := tcp.dial(t.Context(), "tcp", b.addr)
	must(t, err)
	cfg := clientTLS()
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1) // it would like tickets
	c := tls.Client(&exact{Conn: raw}, cfg)
	said := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, auth)
		said <- err
	}()
	s, err := b.up.Accept()
	must(t, err)
	sv := b.newPeer(s)
	must(t, <-said)
	for !b.tearable() { // until the proxy's part of the handshake is over
		runtime.Gosched()
	}
	must(t, c.Close())
	close(left)
	sv.wantAll("server", auth, history.FIN)
	wantEnds(t, b.stop(), "client fin seen", "server fin sent by forwarded")
}

// exact reads no further than the record that it is in, as some libraries do.
type exact struct {
	net.Conn
	left int
}

func (e *exact) Read(p []byte) (n int, err error) {
	if e.left == 0 {
		n, err = io.ReadFull(e.Conn, p[:5])
		e.left = int(p[3])<<8 + int(p[4])
		return n, err
	}
	n, err = e.Conn.Read(p[:min(len(p), e.left)])
	e.left -= n
	return n, err
}

// TestSlowReceiver: behind what a receiver is slow to read, a FIN waits for as long
// as it takes, and is still an orderly one.
func TestSlowReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, overTLS(inMemory(200)), decoded())
		c, sv := b.connectUnread()
		down := greeting + strings.Repeat("\n", 200-22-len(greeting)) // a record that fills the buffer
		sv.send(down)
		sv.closeWrite()
		time.Sleep(time.Hour)
		cl := b.newPeer(c)
		cl.wantAll("client", down, history.FIN)
		b.stop()
	})
}

// connectUnread opens a session over TLS whose client does not read.
func (b *bed) connectUnread() (c *tlsPeer, sv *peer) {
	b.t.Helper()
	raw, err := b.tr.dial(b.t.Context(), "tcp", b.addr)
	must(b.t, err)
	c = newTLSPeer(raw, tls.Client, clientTLS())
	shaken := make(chan error, 1)
	go func() { shaken <- c.Handshake() }()
	s, err := b.up.Accept()
	must(b.t, err)
	sv = b.newPeer(s)
	must(b.t, <-shaken)
	return c, sv
}

// TestUnreadingReceiver: the end that a fault sends does not wait for long. Without
// room for a close_notify, or behind a record that was broken off, it is a FIN.
func TestUnreadingReceiver(t *testing.T) {
	for extra, limit := range map[int]time.Duration{-1: proxy.CloseLimit, 0: proxy.CloseLimit, 100: 0} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, overTLS(inMemory(300)), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
				ID: "cut", Fault: fault(t, "truncate-fin"), At: 3, Trigger: faults.Trigger{Dir: c2s, Op: "auth"},
			})})
			c, sv := b.connectUnread()
			down := greeting + strings.Repeat("\n", 300-22-len(greeting)+extra)
			sv.send(down)
			synctest.Wait()
			_, err := io.WriteString(c, auth)
			must(t, err)
			sv.wantAll("server", auth[:3], history.FIN)
			if took := time.Since(b.began); took != limit {
				t.Errorf("%d bytes over: the server's end came after %v, not %v", extra, took, limit)
			}
			cl := b.newPeer(c)
			want := down
			if extra > 0 {
				want = ""
			}
			cl.wantAll("client", want, errTruncated.Error())
			b.stop()
		})
	}
}

// TestUnreadingAtTheEnd: neither does the close of a silenced session.
func TestUnreadingAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, overTLS(inMemory(300)), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
			ID: "cut", Fault: fault(t, "truncate-silence"), At: 3, Trigger: faults.Trigger{Dir: c2s, Op: "auth"},
		})})
		c, sv := b.connectUnread()
		sv.send(greeting + strings.Repeat("\n", 300-22-len(greeting)))
		synctest.Wait()
		_, err := io.WriteString(c, auth)
		must(t, err)
		sv.wait(3)
		sv.closeWrite()
		must(t, c.CloseWrite())
		time.Sleep(proxy.SilentLimit + proxy.CloseLimit)
		synctest.Wait()
		sv.wantGot("server", auth[:3], history.FIN)
		if b.tearable() {
			t.Error("the session lives on")
		}
		b.newPeer(c).wait(300)
		b.stop()
	})
}

// records lists the lengths of the records in what was read, and what is left.
func records(data []byte) (whole, left int) {
	for len(data) >= 5 && len(data) >= 5+int(data[3])<<8+int(data[4]) {
		whole++
		data = data[5+int(data[3])<<8+int(data[4]):]
	}
	return whole, len(data)
}

// reading keeps what is read.
type reading struct {
	*memnet.Conn
	got []byte
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.got = append(r.got, p[:n]...)
	return n, err
}

// TestCutsAtRecords: whichever byte of a frame is cut at, its receiver has whole
// records only; and what came before the frame is in another record.
func TestCutsAtRecords(t *testing.T) {
	for _, id := range []string{"truncate-fin", "truncate-rst", "truncate-silence"} {
		for _, dir := range []frames.Direction{c2s, s2c} {
			data, before := acquire, auth
			if dir == s2c {
				data, before = acquired, greeting
			}
			for at := range len(data) + 1 {
				synctest.Test(t, func(t *testing.T) {
					var wires [2]*reading
					tr := overTLS(inMemory(0))
					tap := func(dir frames.Direction, side func(net.Conn) net.Conn) func(net.Conn) net.Conn {
						return func(c net.Conn) net.Conn {
							wires[dir] = &reading{Conn: c.(*memnet.Conn)}
							return side(wires[dir])
						}
					}
					tr.client, tr.server = tap(s2c, tr.client), tap(c2s, tr.server)
					b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
						ID: "cut", Fault: fault(t, id), At: at, Trigger: faults.Trigger{Dir: dir, Op: "A"},
					})})
					cl, sv := b.connect()
					from, to := cl, sv
					if dir == s2c {
						from, to = sv, cl
					}
					from.send(before + data + release)
					synctest.Wait()
					how := map[string]string{"truncate-fin": history.FIN, "truncate-rst": history.RST}[id]
					to.wantGot("receiver", before+data[:at], how)
					if _, left := records(wires[dir].got); left != 0 {
						t.Errorf("%s at %d: %d bytes of a record came", id, at, left)
					}
					_, parts, _ := to.now()
					var got []string
					for _, p := range parts {
						got = append(got, p.data)
					}
					if want := slices.DeleteFunc([]string{before, data[:at]}, func(s string) bool { return s == "" }); !slices.Equal(got, want) {
						t.Errorf("%s at %d: records of %q, wanted %q", id, at, got, want)
					}
					checkRecord(t, b.stop())
				})
			}
		}
	}
}

// TestAckedOverTLS: what counts as delivered is the plaintext of the records that
// were acknowledged whole.
func TestAckedOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, overTLS(inMemory(0)), proxy.Config{Grammar: grammar, ProxyHeader: true})
		cl := b.dial(b.addr)
		c, err := b.up.Accept()
		must(t, err)
		s := c.(*tlsPeer)
		_, err = io.CopyN(io.Discard, s.raw, 28) // the header, which does not count
		must(t, err)
		must(t, s.Handshake())
		var sizes []int
		for _, f := range []string{auth, acquire, strings.Repeat("\n", 1000), release} {
			cl.send(f)
			synctest.Wait()
			sizes = append(sizes, len(f))
		}
		acked := func() string {
			n := len(b.events(history.Acked))
			b.px.RecordAcked()
			for _, e := range b.events(history.Acked)[n:] {
				if e.Dir == c2s {
					return fmt.Sprintf("%d of %d", e.N, e.Total)
				}
			}
			return ""
		}
		total := 0
		for _, n := range sizes {
			total += n
		}
		want := 0
		check := func(when string) {
			t.Helper()
			if got, want := acked(), fmt.Sprintf("%d of %d", want, total); got != want {
				t.Errorf("%s: %s acknowledged, wanted %s", when, got, want)
			}
		}
		check("at first")
		for i, n := range sizes {
			record := int64(n + 22) // TLS 1.3, AES-GCM or ChaCha20: header, type and tag
			_, err := io.CopyN(io.Discard, s.raw, record-1)
			must(t, err)
			check(fmt.Sprintf("a byte before record %d ends", i))
			_, err = io.CopyN(io.Discard, s.raw, 1)
			must(t, err)
			want += n
			check(fmt.Sprintf("record %d", i))
		}
		_ = s.raw.Close()
		b.stop()
	})
}

// TestAckedOverTLSAndTCP: the kernel is asked, as without TLS.
func TestAckedOverTLSAndTCP(t *testing.T) {
	b := newBed(t, overTLS(tcp), decoded())
	cl, sv := b.connect()
	play(cl, sv, exchange)
	b.waitFor(1, "accepted release", func(e history.Event) bool {
		return e.Kind == history.WriteAccepted && e.Dir == c2s && e.Frame.Op == "R"
	})
	b.acknowledged(len(auth + acquire + release))
	b.stop()
}

// TestPassThrough: the TLS of others passes, with what they agree on and their ends.
func TestPassThrough(t *testing.T) {
	tr := overTLS(tcp)
	tr.configure = nil
	b := newBed(t, tr, proxy.Config{})
	cl, sv := b.connect()
	play(cl, sv, exchange)
	cl.truncate(false)
	sv.wantAll("server", auth+acquire+release, errTruncated.Error())
	sv.closeWrite()
	cl.wantAll("client", greeting+acquired+released, history.FIN)
	b.stop()
}
