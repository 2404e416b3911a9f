package proxy_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// onOpen is a rule on connections.
func onOpen(t *testing.T, id string, trigger faults.Trigger) faults.Rule {
	trigger.Op = faults.OpOpen
	return faults.Rule{ID: "the rule", Fault: fault(t, id), Trigger: trigger}
}

// opens lists the firings on connections: session:frame client fault.
func opens(ev []history.Event) string {
	var out []string
	for _, e := range ofKind(ev, history.Fired) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d:%s %s", e.Session, e.Frame, e.Client)))
		if e.Off != 0 || e.Dir != c2s || e.Rule != "the rule" || e.Fault == "" {
			out = append(out, fmt.Sprintf("%+v", e))
		}
	}
	return strings.Join(out, ", ")
}

// wantTalk has a whole exchange pass over a new session.
func (b *bed) wantTalk(addr string) {
	b.t.Helper()
	cl, sv := b.connectTo(addr)
	play(cl, sv, exchange)
	cl.wantGot("client", greeting+acquired+released, "")
	sv.wantGot("server", auth+acquire+release, "")
}

// TestTurnedAway: a connection that is accepted and ended is a session without a
// server; the next one is served.
func TestTurnedAway(t *testing.T) {
	for id, how := range map[string]string{"accept-rst": history.RST, "accept-fin": history.FIN} {
		for nth := 1; nth <= 2; nth++ {
			onEach(t, func(t *testing.T, tr transport) {
				b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, onOpen(t, id, faults.Trigger{Nth: nth}))})
				for range nth - 1 {
					b.wantTalk(b.addr)
				}
				c, err := b.tryDial(b.addr)
				if err != nil && (how == history.FIN || !errors.Is(err, syscall.ECONNRESET)) {
					t.Fatal(err)
				}
				var cl *peer
				if err == nil { // an RST right after the accept can make the connect itself fail
					cl = b.newPeer(c)
					cl.wantAll("client", "", strings.Replace(how, history.RST, tr.rst(), 1))
				}
				want := []string{fmt.Sprintf("client %s sent by fault", how)}
				sent := ""
				switch {
				case how == history.FIN && tr.secure(): // the client had no time to shake hands
					_ = cl.Close()
					b.waitEndSeen(history.ClientSide, history.FIN)
					want = append(want, "client fin seen")
				case how == history.FIN:
					sent = auth + acquire
					// What the client still sends, and its end, are seen.
					cl.send(auth, acquire)
					cl.closeWrite()
					b.waitEndSeen(history.ClientSide, history.FIN)
					want = append(want, "client fin seen")
				}
				b.wantTalk(b.addr)
				ev := b.stop()
				if got := opens(ev); got != fmt.Sprintf("%d:c2s.open.%d", nth, nth) {
					t.Errorf("%s: fired %s", id, got)
				}
				if n := len(ofKind(ev, history.ServerDialed)); n != nth {
					t.Errorf("%s: %d sessions reached the server", id, n)
				}
				own := slices.DeleteFunc(ev, func(e history.Event) bool { return e.Session != nth })
				wantEnds(t, own, want...)
				if w := checkRecord(t, own)[wireKey{nth, c2s}]; !w.is(sent, "") {
					t.Errorf("%s: recorded: %+v", id, w)
				}
			})
		}
	}
}

// TestTurnedAwayStays: a client that does not go is reset by the teardown, which
// does not wait for it, and is not kept.
func TestTurnedAwayStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := proxy.Config{Grammar: grammar, Rules: rules(t, onOpen(t, "accept-fin", faults.Trigger{}))}
		cfg.Keep = func(net.Conn) { t.Error("kept") }
		b := newBed(t, inMemory(0), cfg)
		cl := b.dial(b.addr)
		cl.send(auth)
		time.Sleep(time.Hour)
		cl.wantGot("client", "", history.FIN)
		wantEnds(t, b.stop(), "client fin sent by fault", "client rst sent by teardown")
		if _, err := cl.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the client can still write: %v", err)
		}
	})
}

// TestTurnedAwayLater: the FIN comes after a while; a rule that has gone by then lets
// the client in.
func TestTurnedAwayLater(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rule := onOpen(t, "accept-fin", faults.Trigger{Session: 1})
			rule.Args = faults.Args{"after": time.Second}
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
			cl := b.dial(b.addr)
			time.Sleep(time.Second - 1)
			synctest.Wait()
			cl.wantGot("client", "", "")
			if n := len(b.events(history.ServerDialed)); n > 0 {
				t.Errorf("%d dials", n)
			}
			if gone {
				b.px.Disarm(rule.ID)
				c, err := b.up.Accept()
				must(t, err)
				b.newPeer(c).send(greeting)
				b.dialed++
				synctest.Wait()
				cl.wantGot("client", greeting, "")
				b.stop()
				return
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			cl.wantGot("client", "", history.FIN)
			wantEnds(t, b.stop(), "client fin sent by fault", "client rst sent by teardown")
		})
	}
}

// TestSlowAccept: nothing is read from the connection for a while, and the server
// hears nothing; then all goes on.
func TestSlowAccept(t *testing.T) {
	for _, pause := range []time.Duration{0, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			rule, took := onOpen(t, "slow-accept", faults.Trigger{Session: 1}), 500*ms
			if pause > 0 {
				rule.Args, took = faults.Args{"pause": pause}, pause
			}
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
			cl := b.dial(b.addr)
			cl.send(auth, acquire)
			time.Sleep(took - 1)
			synctest.Wait()
			if n := len(b.events(history.Received)) + len(b.events(history.ServerDialed)); n > 0 {
				t.Errorf("%d things happened", n)
			}
			c, err := b.up.Accept()
			must(t, err)
			sv := b.newPeer(c)
			sv.send(greeting)
			synctest.Wait()
			sv.wantGot("server", auth+acquire, "")
			cl.wantGot("client", greeting, "")
			for _, p := range []*peer{sv, cl} {
				if _, parts, _ := p.now(); len(parts) == 0 || parts[0].at != took {
					t.Errorf("read %+v, wanted it at %v", parts, took)
				}
			}
			b.dialed++
			b.wantTalk(b.addr) // at once
			if time.Since(b.began) != took {
				t.Errorf("the second session took until %v", time.Since(b.began))
			}
			ev := b.stop()
			if got := opens(ev); got != "1:c2s.open.1" || ofKind(ev, history.Fired)[0].At != 0 {
				t.Errorf("fired %s", got)
			}
		})
	}
}

// TestSlowAcceptEnds: the teardown does not wait.
func TestSlowAcceptEnds(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		rule := onOpen(t, "slow-accept", faults.Trigger{})
		rule.Args = faults.Args{"pause": time.Minute}
		b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
		cl := b.dial(b.addr)
		b.waitKind(history.Fired)
		wantEnds(t, b.stop(), "client rst sent by teardown")
		cl.wantAll("client", "", tr.rst())
	})
}

// TestSlowAcceptOverTCP: a real socket waits in the same way.
func TestSlowAcceptOverTCP(t *testing.T) {
	rule := onOpen(t, "slow-accept", faults.Trigger{ClientNth: 1})
	rule.Args = faults.Args{"pause": 20 * ms}
	b := newBed(t, tcp, proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
	b.wantTalk(b.addr)
	ev := b.stop()
	if d := ofKind(ev, history.ServerDialed); d[0].At-ofKind(ev, history.Fired)[0].At < 20*ms {
		t.Errorf("dialled at %v", d[0].At)
	}
}

// TestEarlyConnection: a connection that was made before it could be refused is
// reset, and is no session.
func TestEarlyConnection(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		l, err := tr.listen()
		must(t, err)
		b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, onOpen(t, "refuse", faults.Trigger{Client: "c2", ClientNth: 1}))})
		cl := b.dial(l.Addr().String())
		end := b.serve(l, "c2")
		cl.wantAll("client", "", history.RST)
		end()
		must(t, <-b.served)
		if ev := b.stop(); len(ofKind(ev, history.SessionOpened)) > 0 || opens(ev) != "0:c2s.open.1 c2" {
			t.Errorf("fired %s", opens(ev))
		}
	})
}

// TestClientTriggers: frames are counted for each client over its sessions.
func TestClientTriggers(t *testing.T) {
	for _, c := range []struct {
		trigger faults.Trigger
		want    string // session:frame, in order
	}{
		{faults.Trigger{Client: "c2"}, "2:A.2 4:A.4 2:A.6 4:A.8"},
		{faults.Trigger{Client: "c3"}, ""},
		{faults.Trigger{ClientNth: 2}, "3:A.3 4:A.4"},
		{faults.Trigger{Client: "c2", ClientNth: 3}, "2:A.6"},
		{faults.Trigger{Client: "c2", Nth: 2}, "2:A.2"},
		{faults.Trigger{Client: "c2", Nth: 3}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.trigger.Op = "A"
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{ID: "r", Fault: fault(t, "drop"), Trigger: c.trigger})})
			other := b.listen()
			endOther := b.serve(other, "c2")
			var clients []*peer
			for i := range 4 {
				cl, _ := b.connectTo([]string{b.addr, other.Addr().String()}[i%2])
				cl.send(auth)
				clients = append(clients, cl)
			}
			for range 2 {
				for _, cl := range clients {
					cl.send(acquire)
					synctest.Wait()
				}
			}
			endOther()
			must(t, <-b.served)
			var got []string
			for _, e := range ofKind(b.stop(), history.Fired) {
				got = append(got, fmt.Sprintf("%d:%s.%d", e.Session, e.Frame.Op, e.Frame.Nth))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%+v fired at %q, wanted %q", c.trigger, strings.Join(got, " "), c.want)
			}
		})
	}
}

// lateListener returns from Accept when it was closed.
type lateListener struct {
	net.Listener
	closed chan struct{}
}

func (l *lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	<-l.closed
	return c, err
}

func (l *lateListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return l.Listener.Close()
}

// TestAcceptedTooLate: a connection that is accepted while the refusal begins is
// reset too.
func TestAcceptedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, onOpen(t, "refuse", faults.Trigger{Client: "c2", Nth: 2}))})
		l := &lateListener{b.listen(), make(chan struct{})}
		end := b.serve(l, "c2")
		cl := b.dial(l.Addr().String())
		synctest.Wait()
		b.connect()
		cl.wantAll("client", "", history.RST)
		end()
		must(t, <-b.served)
		if ev := b.stop(); len(ofKind(ev, history.SessionOpened)) != 1 || opens(ev) != "0:c2s.open.2 c2" {
			t.Errorf("fired %s", opens(ev))
		}
	})
}
