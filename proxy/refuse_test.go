package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// wantRefused dials where nobody listens.
func (b *bed) wantRefused(addr string) {
	b.t.Helper()
	c, err := b.tr.dial(context.Background(), "tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !(b.tr.unix && errors.Is(err, fs.ErrNotExist)) {
		b.t.Errorf("dial: %v, wanted it refused", err)
	}
}

// TestRefuse: the first or the second connection is refused until the time has
// passed or the gate opens, and then made as the next one.
func TestRefuse(t *testing.T) {
	for _, gate := range []bool{false, true} {
		for nth := 1; nth <= 2; nth++ {
			onEach(t, func(t *testing.T, tr transport) {
				again := make(chan time.Time, 10)
				cfg := proxy.Config{Grammar: grammar, Listen: func(network, addr string) (net.Listener, error) {
					l, err := tr.again(network, addr)
					again <- time.Now()
					return l, err
				}}
				rule := onOpen(t, "refuse", faults.Trigger{Nth: nth})
				took := 50 * ms
				if gate {
					took = 10 * time.Minute
				}
				rule.Args = faults.Args{"most": took}
				cfg.Rules = rules(t, rule)
				b := newBed(t, tr, cfg)
				for range nth - 1 {
					b.wantTalk(b.addr)
				}
				b.waitKind(history.Fired)
				if gate {
					b.wantRefused(b.addr)
					b.wantRefused(b.addr)
					b.px.OpenGate(faults.GateOpen)
				}
				at := (<-again).Sub(b.began) - b.events(history.Fired)[0].At
				if gate && at > patience || !gate && at < took {
					t.Errorf("listens again after %v, not %v", at, took)
				}
				b.wantTalk(b.addr)
				ev := b.stop()
				if got := opens(ev); got != fmt.Sprintf("0:c2s.open.%d c1", nth) {
					t.Errorf("fired %s", got)
				}
				var sessions []int
				for _, e := range ofKind(ev, history.SessionOpened) {
					sessions = append(sessions, e.Session)
				}
				if !slices.Equal(sessions, []int{1, 2}[:nth]) || len(again) > 0 {
					t.Errorf("sessions %v", sessions)
				}
			})
		}
	}
}

// TestRefusals: which connections are refused, in virtual time, where two clients
// try in turn, c1 first, each until it is accepted twice.
func TestRefusals(t *testing.T) {
	n := func(nth int) faults.Trigger { return faults.Trigger{Nth: nth} }
	for _, c := range []struct {
		on    []faults.Trigger
		fired string
		at    string // when the four sessions were opened
	}{
		{nil, "", "c1 0s, c2 0s, c1 0s, c2 0s"},
		{[]faults.Trigger{n(5)}, "0:c2s.open.5 c1", "c1 0s, c2 0s, c1 0s, c2 0s"},
		{[]faults.Trigger{n(6)}, "", "c1 0s, c2 0s, c1 0s, c2 0s"},
		{[]faults.Trigger{n(1)}, "0:c2s.open.1 c1", "c1 500ms, c2 500ms, c1 500ms, c2 500ms"},
		{[]faults.Trigger{n(1), n(2), n(3)}, "0:c2s.open.1 c1, 0:c2s.open.2 c2, 0:c2s.open.3 c1", ""},
		{[]faults.Trigger{n(2)}, "0:c2s.open.2 c1", "c1 0s, c2 500ms, c1 500ms, c2 500ms"},
		{[]faults.Trigger{n(3)}, "0:c2s.open.3 c1", "c1 0s, c2 0s, c1 500ms, c2 500ms"},
		{[]faults.Trigger{{Session: 3}}, "0:c2s.open.3 c1", "c1 0s, c2 0s, c1 500ms, c2 500ms"},
		{[]faults.Trigger{{Client: "c2", ClientNth: 1}}, "0:c2s.open.1 c2", "c1 0s, c2 500ms, c1 500ms, c2 500ms"},
		{[]faults.Trigger{{Client: "c2", ClientNth: 2}}, "0:c2s.open.3 c2", "c1 0s, c2 0s, c1 0s, c2 500ms"},
		{[]faults.Trigger{{Client: "c1", ClientNth: 1}, {Client: "c1", ClientNth: 2}}, "0:c2s.open.1 c1, 0:c2s.open.2 c1", "c1 1s, c2 1s, c1 1s, c2 1s"},
		{[]faults.Trigger{{Client: "c2", Nth: 2}}, "0:c2s.open.2 c2", "c1 0s, c2 500ms, c1 500ms, c2 500ms"},
		{[]faults.Trigger{{Client: "c2", Nth: 4}}, "0:c2s.open.4 c2", "c1 0s, c2 0s, c1 0s, c2 500ms"},
		{
			[]faults.Trigger{{Client: "c1"}},
			"0:c2s.open.1 c1, 0:c2s.open.3 c1, 0:c2s.open.6 c1",
			"c1 500ms, c2 500ms, c1 1s, c2 1s",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var set []faults.Rule
			for _, tr := range c.on {
				set = append(set, onOpen(t, "refuse", tr))
			}
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, set...)})
			synctest.Wait()
			other := b.listen()
			endOther := b.serve(other, "c2")
			synctest.Wait()
			for _, addr := range []string{b.addr, other.Addr().String(), b.addr, other.Addr().String()} {
				b.persist(addr)
				synctest.Wait()
			}
			endOther()
			must(t, <-b.served)
			ev := b.stop()
			if got := opens(ev); c.at != "" && got != c.fired {
				t.Errorf("%+v: fired %s, wanted %s", c.on, got, c.fired)
			} else if c.at == "" && strings.Count(got, "open") != len(c.on) {
				t.Errorf("%+v: fired %s", c.on, got)
			}
			var at []string
			for _, e := range ofKind(ev, history.SessionOpened) {
				at = append(at, fmt.Sprintf("%s %s", e.Client, e.At.Truncate(10*ms)))
			}
			if got := strings.Join(at, ", "); c.at != "" && got != c.at {
				t.Errorf("%+v: opened at %s, wanted %s", c.on, got, c.at)
			}
		})
	}
}

// persist dials until somebody listens.
func (b *bed) persist(addr string) {
	for range 5000 {
		c, err := b.tr.dial(context.Background(), "tcp", addr)
		if err == nil {
			b.newPeer(c)
			return
		}
		time.Sleep(ms)
	}
	b.t.Error("nobody ever listens")
}

// TestRefuseEnds: the end of Serve does not wait for a refusal.
func TestRefuseEnds(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		rule := onOpen(t, "refuse", faults.Trigger{})
		rule.Args = faults.Args{"most": 10 * time.Minute}
		b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
		b.waitKind(history.Fired)
		began := time.Now()
		b.stop()
		if took := time.Since(began); took > patience {
			t.Errorf("it took %v", took)
		}
	})
}
