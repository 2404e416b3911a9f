package proxy_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// TestArmedTriggers: which requests of three sessions, at two listeners, a rule acts
// on that is armed. Request i of session s has the key "s-i", waits i, and is sent
// at i seconds.
func TestArmedTriggers(t *testing.T) {
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	where := func(pairs ...string) map[string]string {
		w := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			w[pairs[i]] = pairs[i+1]
		}
		return w
	}
	for _, c := range []struct {
		rule    faults.Rule
		want    []int // numbers of the requests
		matched int   // if not each that was taken
	}{
		{rule: faults.Rule{}, want: all},
		{rule: faults.Rule{Trigger: faults.Trigger{Client: "c2"}}, want: []int{3, 6, 9, 12}},
		{rule: faults.Rule{Trigger: faults.Trigger{Client: "c1", ClientNth: 3}}, want: []int{4}},
		{rule: faults.Rule{Trigger: faults.Trigger{Client: "c2", Nth: 4}}},
		{rule: faults.Rule{Trigger: faults.Trigger{SessionNth: 2}}, want: []int{4, 5, 6}},
		{rule: faults.Rule{Trigger: faults.Trigger{Session: 2}, Skip: 1, Times: 2}, want: []int{5, 8}, matched: 3},
		{rule: faults.Rule{Trigger: faults.Trigger{From: netip.MustParsePrefix("127.0.0.0/8")}}, want: all},
		{rule: faults.Rule{Trigger: faults.Trigger{From: netip.MustParsePrefix("::ffff:127.0.0.1/128")}}, want: all},
		{rule: faults.Rule{Trigger: faults.Trigger{From: netip.MustParsePrefix("10.0.0.0/8")}}},
		{rule: faults.Rule{Trigger: faults.Trigger{From: netip.MustParsePrefix("::/0")}}},
		{rule: faults.Rule{Trigger: faults.Trigger{Where: where("key", "2-*")}}, want: []int{2, 5, 8, 11}},
		{rule: faults.Rule{Trigger: faults.Trigger{Where: where("wait", "1..2")}}, want: []int{4, 5, 6, 7, 8, 9}},
		{rule: faults.Rule{Trigger: faults.Trigger{Session: 3, Where: where("wait", "0x1", "key", "?-1")}}, want: []int{6}},
		{rule: faults.Rule{Trigger: faults.Trigger{Where: where("wait", "1", "key", "?-2")}}},
		{rule: faults.Rule{Trigger: faults.Trigger{Begin: time.Second}}, want: all[3:]},
		{rule: faults.Rule{Trigger: faults.Trigger{Begin: time.Second, End: 3 * time.Second}}, want: []int{4, 5, 6, 7, 8, 9}},
		{rule: faults.Rule{Trigger: faults.Trigger{Begin: time.Second + 1, End: 3*time.Second + 1}}, want: []int{7, 8, 9, 10, 11, 12}},
		{rule: faults.Rule{Trigger: faults.Trigger{End: time.Second}}, want: []int{1, 2, 3}},
		{rule: faults.Rule{TTL: 2500 * ms}, want: all[:9]},
		{rule: faults.Rule{Skip: 5}, want: all[5:], matched: 12},
		{rule: faults.Rule{Skip: 12}, matched: 12},
		{rule: faults.Rule{Times: 3}, want: all[:3]},
		{rule: faults.Rule{Skip: 2, Times: 2, Trigger: faults.Trigger{Where: where("key", "*-*")}}, want: []int{3, 4}, matched: 4},
		{rule: faults.Rule{Trigger: faults.Trigger{Chance: 1}}, want: all},
		{rule: faults.Rule{Trigger: faults.Trigger{Chance: 1e-9}}, matched: 12},
		{rule: faults.Rule{Trigger: faults.Trigger{After: "g"}}, want: []int{7, 8, 9}}, // it is open from 1.5 s to 2.5 s
		{rule: faults.Rule{Trigger: faults.Trigger{After: "never"}}},
	} {
		c.rule.ID, c.rule.Fault = "the rule", fault(t, "hold")
		c.rule.Trigger.Dir, c.rule.Trigger.Op = c2s, "A"
		if c.matched == 0 {
			c.matched = len(c.want)
		}
		for _, tr := range []transport{inMemory(0), unrecorded(inMemory(0))} {
			synctest.Test(t, func(t *testing.T) {
				got, r := threeSessions(t, tr, c.rule, 0)
				if !slices.Equal(got, c.want) {
					t.Errorf("%+v: acted on %v, wanted %v", c.rule.Trigger, got, c.want)
				}
				// A rule that is disarmed has no counters any longer.
				size := len(frame(c2s, "A", "1-0", 0, 30, 7))
				if c.rule.TTL == 0 && (int(r.Matched) != c.matched || int(r.Fired) != len(c.want) || int(r.Bytes) != size*len(c.want) || r.Left != 0) {
					t.Errorf("%+v: matched %d, fired %d, %d bytes, left %s", c.rule.Trigger, r.Matched, r.Fired, r.Bytes, r.Left)
				}
			})
		}
	}
}

// TestCountedBefore: frames that passed before a rule was armed count, those of
// sessions that have ended too.
func TestCountedBefore(t *testing.T) {
	for _, c := range []struct {
		trigger faults.Trigger
		want    []int
	}{
		{faults.Trigger{Nth: 11}, []int{11}},
		{faults.Trigger{Nth: 6}, nil},
		{faults.Trigger{SessionNth: 4}, []int{10, 11, 12}},
		{faults.Trigger{Client: "c1", ClientNth: 6}, []int{8}},
		{faults.Trigger{Client: "c2", ClientNth: 4}, []int{12}},
	} {
		c.trigger.Dir, c.trigger.Op = c2s, "A"
		for _, tr := range []transport{inMemory(0), unrecorded(inMemory(0))} {
			synctest.Test(t, func(t *testing.T) {
				got, _ := threeSessions(t, tr, faults.Rule{ID: "the rule", Fault: fault(t, "hold"), Trigger: c.trigger}, 2)
				if !slices.Equal(got, c.want) {
					t.Errorf("%+v: acted on %v, wanted %v", c.trigger, got, c.want)
				}
			})
		}
	}
}

// TestEndedSessionCounts: so do those of a session that has ended.
func TestEndedSessionCounts(t *testing.T) {
	for _, tr := range []transport{inMemory(0), unrecorded(inMemory(0))} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, tr, proxy.Config{Grammar: grammar})
			cl, sv := b.connect()
			cl.send(auth, acquire, acquire[:3])
			synctest.Wait()
			cl.send(acquire[3:])
			cl.closeWrite()
			sv.wantAll("server", auth+acquire+acquire, history.FIN)
			sv.closeWrite()
			cl.wantAll("client", "", history.FIN)
			synctest.Wait()
			must(t, b.px.Arm(faults.Rule{ID: "third", Fault: fault(t, "drop"), Trigger: faults.Trigger{Dir: c2s, Op: "A", Nth: 3}}))
			cl, sv = b.connect()
			cl.send(auth, acquire, acquire)
			synctest.Wait()
			sv.wantGot("server", auth+acquire, "")
			wantCounts(t, b.px, "third", 1, len(acquire))
			b.stop()
		})
	}
}

// threeSessions has each session send a request each second, and arms a rule before
// a round.
func threeSessions(t *testing.T, tr transport, rule faults.Rule, round int) (acted []int, r proxy.RuleState) {
	b := newBed(t, tr, proxy.Config{Grammar: grammar})
	must(t, b.px.OpenGate(faults.GateHold))
	other := b.listen()
	endOther := b.serve(other, "c2")
	var clients []*peer
	for _, addr := range []string{b.addr, b.addr, other.Addr().String()} {
		cl, _ := b.connectTo(addr)
		cl.send(auth)
		clients = append(clients, cl)
	}
	synctest.Wait()
	time.AfterFunc(1500*ms, func() { must(t, b.px.OpenGate("g")) })
	time.AfterFunc(2500*ms, func() { b.px.ShutGate("g") })
	for i := range 4 {
		if i == round {
			must(t, b.px.Arm(rule))
		}
		for s, cl := range clients {
			cl.send(frame(c2s, "A", fmt.Sprintf("%d-%d", s+1, i), uint64(i), 30, 7))
			synctest.Wait()
		}
		time.Sleep(time.Second)
	}
	r, _ = b.px.Rule("the rule")
	endOther()
	must(t, <-b.served)
	for _, e := range ofKind(b.stop(), history.Fired) {
		acted = append(acted, e.Frame.Nth)
	}
	return acted, r
}

// TestRendezvous: each of two frames is held until the other has come, whichever is
// first.
func TestRendezvous(t *testing.T) {
	for _, first := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
			for i, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
				must(t, b.px.Arm(faults.Rule{
					ID: names[0], Fault: fault(t, "hold"), Args: faults.Args{"most": time.Minute}, Signal: names[0], Until: names[1],
					Trigger: faults.Trigger{Dir: c2s, Op: "A", Session: i + 1},
				}))
			}
			var cls, svs []*peer
			for range 2 {
				cl, sv := b.connect()
				cl.send(auth)
				cls, svs = append(cls, cl), append(svs, sv)
			}
			synctest.Wait()
			cls[first].send(acquire)
			time.Sleep(time.Second)
			svs[first].wantGot("the first, alone", auth, "")
			cls[1-first].send(acquire)
			synctest.Wait()
			for i, sv := range svs {
				sv.wantGot(fmt.Sprint("server ", i), auth+acquire, "")
			}
			b.stop()
		})
	}
}

// TestAfterSignal: a rule acts once another has, and a rule without a fault signals
// too.
func TestAfterSignal(t *testing.T) {
	for _, id := range []string{"", "drop"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
			first := faults.Rule{ID: "first", Signal: "seen", Trigger: faults.Trigger{Dir: s2c, Op: "A"}}
			if id != "" {
				first.Fault = fault(t, id)
			}
			must(t, b.px.Arm(first))
			must(t, b.px.Arm(faults.Rule{ID: "second", Fault: fault(t, "drop"), Trigger: faults.Trigger{Dir: c2s, Op: "R", After: "seen"}}))
			cl, sv := b.connect()
			cl.send(auth, release)
			sv.send(greeting)
			synctest.Wait()
			sv.wantGot("before", auth+release, "")
			sv.send(acquired)
			synctest.Wait()
			cl.send(release, acquire)
			synctest.Wait()
			sv.wantGot("after", auth+release+acquire, "")
			wantCounts(t, b.px, "first", 1, len(acquired))
			wantCounts(t, b.px, "second", 1, len(release))
			b.stop()
		})
	}
}

// TestWatching: a rule without a fault changes nothing, makes no event, and counts
// all bytes of the frames it takes, also where a later rule holds or takes them.
func TestWatching(t *testing.T) {
	for _, at := range cuts(len(acquire), false) {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
			watch := func(id string, where map[string]string) faults.Rule {
				return faults.Rule{ID: id, Trigger: faults.Trigger{Dir: c2s, Op: "A", Where: where}}
			}
			must(t, b.px.Arm(watch("any", nil)))
			must(t, b.px.Arm(watch("owner", map[string]string{"owner": "7"})))
			must(t, b.px.Arm(onAcquire(t, "split", 1, map[string]string{"key": "order-*"})))
			must(t, b.px.Arm(watch("behind", nil))) // the frame is taken before
			cl, sv := b.connect()
			cl.send(auth)
			for _, p := range pieces(acquire, at...) {
				cl.send(p)
				synctest.Wait()
			}
			cl.send(acquire[:5]) // of a second one, which ends early
			cl.closeWrite()
			sv.wantAll("server", auth+acquire+acquire[:5], history.FIN)
			for id, want := range map[string][3]int64{
				"any": {2, 2, int64(len(acquire) + 5)}, "owner": {1, 1, int64(len(acquire))}, "the rule": {1, 1, int64(len(acquire))}, "behind": {},
			} {
				if r, _ := b.px.Rule(id); r.Matched != want[0] || r.Fired != want[1] || r.Bytes != want[2] {
					t.Errorf("cut at %v, %s: matched %d, fired %d, %d bytes; wanted %v", at, id, r.Matched, r.Fired, r.Bytes, want)
				}
			}
			if n := len(ofKind(b.stop(), history.Fired)); n != 1 {
				t.Errorf("%d firings", n)
			}
		})
	}
}

// TestTTL: what is left falls, and at the end the rule goes and what it holds goes
// on; a rule of the configuration too. Another in its place has its own time.
func TestTTL(t *testing.T) {
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			rule := faults.Rule{
				ID: "r", Fault: fault(t, "hold"), Args: faults.Args{"most": time.Minute}, TTL: 10 * time.Second,
				Trigger: faults.Trigger{Dir: c2s, Op: "A"},
			}
			cfg := proxy.Config{Grammar: grammar}
			if early {
				cfg.Rules = rules(t, rule)
			}
			b := newBed(t, inMemory(0), cfg)
			if !early {
				must(t, b.px.Arm(rule))
			}
			left := func(want time.Duration) {
				t.Helper()
				if r, ok := b.px.Rule("r"); r.Left != want || ok != (want > 0) {
					t.Errorf("armed %v, left %s, wanted %s", ok, r.Left, want)
				}
			}
			left(10 * time.Second)
			time.Sleep(4 * time.Second)
			left(6 * time.Second)
			must(t, b.px.Rearm(rule))
			left(10 * time.Second)
			cl, sv := b.connect()
			cl.send(auth, acquire)
			time.Sleep(10*time.Second - 1)
			left(1)
			sv.wantGot("held", auth, "")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			left(0)
			sv.wantGot("server", auth+acquire, "")
			b.stop()
		})
	}
}

// TestObserve: the observer is shown, once each and in order, the events that its
// documentation names, with a recorder and without.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []history.Event
		b := newBed(t, inMemory(0), proxy.Config{
			Grammar: grammar, Observe: func(e history.Event) { seen = append(seen, e) }, // in turn: the test waits in between
			Rules: rules(t, faults.Rule{ID: "r", Fault: fault(t, "corrupt"), Trigger: faults.Trigger{Dir: c2s, Op: "A", Chance: 0.9999}}),
		})
		cl, sv := b.connect()
		cl.send(auth, acquire)
		synctest.Wait()
		sv.send(greeting + "?")
		synctest.Wait()
		kinds := map[history.Kind]bool{history.SessionOpened: true, history.ServerDialed: true, history.Fired: true, history.WentOpaque: true}
		var want []string
		for _, e := range b.stop() {
			if kinds[e.Kind] {
				delete(kinds, e.Kind)
				want = append(want, fmt.Sprint(e.Kind, e.Session, e.Dir, e.Frame, e.Rule, e.Fault, e.Draw, e.Peer, e.Detail))
			}
		}
		var got []string
		for _, e := range seen {
			got = append(got, fmt.Sprint(e.Kind, e.Session, e.Dir, e.Frame, e.Rule, e.Fault, e.Draw, e.Peer, e.Detail))
		}
		if !slices.Equal(got, want) || len(kinds) > 0 {
			t.Errorf("seen %q, recorded %q, never %v", got, want, slices.Collect(maps.Keys(kinds)))
		}
	})
}

// TestGateLimit: gates that are open or that a rule names are kept, up to the limit;
// the others are forgotten when there are too many.
func TestGateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		rule := onAcquire(t, "hold", 0, nil)
		rule.Until, rule.Signal, rule.Args = "wanted", "held", faults.Args{"most": time.Minute}
		must(t, b.px.Arm(rule))
		cl, sv := b.connect()
		cl.send(auth, acquire)
		synctest.Wait()
		must(t, b.px.OpenGate(strings.Repeat("x", faults.MaxName)))
		if err := b.px.OpenGate(strings.Repeat("x", faults.MaxName+1)); err == nil {
			t.Error("a gate has a name over the limit")
		}
		for i := range 3 * proxy.MaxGates { // shut ones are forgotten
			must(t, b.px.OpenGate(fmt.Sprint(i)))
			b.px.ShutGate(fmt.Sprint(i))
		}
		for i := range proxy.MaxGates - 3 {
			must(t, b.px.OpenGate(fmt.Sprint("open ", i)))
		}
		second := faults.Rule{ID: "second", Trigger: faults.Trigger{Dir: c2s, Op: "R"}, Signal: "one more"}
		for _, err := range []error{b.px.OpenGate("one more"), b.px.Arm(second)} {
			if !errors.Is(err, proxy.ErrGates) {
				t.Errorf("one past the limit: %v", err)
			}
		}
		must(t, b.px.OpenGate("open 7"))
		b.px.ShutGate("open 7")
		third := faults.Rule{ID: "third", Trigger: faults.Trigger{Dir: c2s, Op: "R", After: "another"}, Signal: "open 7"}
		if err := b.px.Arm(third); !errors.Is(err, proxy.ErrGates) { // it needs both
			t.Errorf("one gate that is shut and one past the limit: %v", err)
		}
		must(t, b.px.Arm(second))
		sv.wantGot("held", auth, "")
		must(t, b.px.OpenGate("wanted")) // the frame still waits for this one
		synctest.Wait()
		sv.wantGot("server", auth+acquire, "")
		b.px.ShutGates() // what the two rules name stays: three gates
		for i := range proxy.MaxGates - 3 {
			must(t, b.px.OpenGate(fmt.Sprint("again ", i)))
		}
		if err := b.px.OpenGate("and one more"); !errors.Is(err, proxy.ErrGates) {
			t.Errorf("one past the limit: %v", err)
		}
		b.stop()
	})
}
