package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// TestTriggers: which of the frames of three sessions a rule acts on.
func TestTriggers(t *testing.T) {
	for _, c := range []struct {
		trigger faults.Trigger
		want    string // session:frame, in order
	}{
		{faults.Trigger{Dir: c2s, Op: "A"}, "1:A.1 2:A.2 3:A.3 1:A.4 2:A.5 3:A.6"},
		{faults.Trigger{Dir: c2s, Op: "A", Nth: 1}, "1:A.1"},
		{faults.Trigger{Dir: c2s, Op: "A", Nth: 5}, "2:A.5"},
		{faults.Trigger{Dir: c2s, Op: "A", Nth: 7}, ""},
		{faults.Trigger{Dir: c2s, Op: "A", Session: 3}, "3:A.3 3:A.6"},
		{faults.Trigger{Dir: c2s, Op: "A", SessionNth: 2}, "1:A.4 2:A.5 3:A.6"},
		{faults.Trigger{Dir: c2s, Op: "A", Session: 2, SessionNth: 2}, "2:A.5"},
		{faults.Trigger{Dir: c2s, Op: "A", Session: 2, Nth: 4}, ""},
		{faults.Trigger{Dir: s2c, Op: "A"}, ""},
		{faults.Trigger{Dir: c2s, Op: "R"}, ""},
		{faults.Trigger{Dir: c2s, Op: "auth", Session: 2}, "2:auth.1"}, // preface lines are named within their session
		{faults.Trigger{Dir: c2s, Op: "auth", Nth: 3}, "3:auth.1"},
		{faults.Trigger{Dir: c2s, Op: "keepalive", Nth: 2}, "2:keepalive.2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := fault(t, "hold")
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{ID: "r", Fault: f, Trigger: c.trigger})})
			b.px.OpenGate(faults.GateHold)
			var clients []*peer
			for range 3 {
				cl, _ := b.connect()
				synctest.Wait()
				clients = append(clients, cl)
			}
			for _, what := range []string{auth, acquire, acquire, "\n"} {
				for _, cl := range clients {
					cl.send(what)
					synctest.Wait()
				}
			}
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

// TestSessionNumbers: sessions are numbered over all listeners in accept order,
// and belong to the client of theirs.
func TestSessionNumbers(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
			ID: "r", Fault: fault(t, "truncate-rst"), At: 4, Trigger: faults.Trigger{Dir: c2s, Op: "auth", Session: 3},
		})})
		other := b.listen()
		endOther := b.serve(other, "c2")
		addrs := []string{b.addr, other.Addr().String(), b.addr, other.Addr().String()}
		var want []string
		for i, a := range addrs {
			cl, sv := b.connectTo(a)
			cl.send(auth)
			if i == 2 {
				sv.wantAll("server of session 3", auth[:4], tr.rst())
			} else {
				sv.wait(len(auth))
				sv.wantGot("server", auth, "")
			}
			want = append(want, fmt.Sprintf("%d %s %s", i+1, []string{"c1", "c2"}[i%2], cl.LocalAddr()))
		}
		endOther()
		must(t, <-b.served)
		var got []string
		for _, e := range ofKind(b.stop(), history.SessionOpened) {
			got = append(got, fmt.Sprintf("%d %s %s", e.Session, e.Client, e.Peer))
		}
		if !slices.Equal(got, want) {
			t.Errorf("sessions %q, wanted %q", got, want)
		}
	})
}

// TestFirstRuleActs: one rule acts on a frame, the first that matches.
func TestFirstRuleActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := faults.Trigger{Dir: c2s, Op: "A"}
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "second frame", Fault: fault(t, "truncate-silence"), At: 2, Trigger: faults.Trigger{Dir: c2s, Op: "A", Nth: 2}},
			faults.Rule{ID: "any", Fault: fault(t, "split"), At: 1, Trigger: on},
			faults.Rule{ID: "never", Fault: fault(t, "split"), At: 2, Trigger: on},
		)})
		cl, sv := b.connect()
		cl.send(auth, acquire, acquire, acquire)
		sv.wait(len(auth+acquire) + 2)
		synctest.Wait()
		sv.wantGot("server", auth+acquire+acquire[:2], "")
		var got []string
		for _, e := range ofKind(b.stop(), history.Fired) {
			got = append(got, e.Rule)
		}
		if !slices.Equal(got, []string{"any", "second frame"}) {
			t.Errorf("fired: %q", got)
		}
	})
}
