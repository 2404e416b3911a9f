package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// pairs are the faults that wait for a second frame, and whether they act even
// if none comes.
var pairs = []struct {
	id    string
	at    int
	alone bool
}{{"coalesce", 0, true}, {"reorder", 0, false}, {"splice", 5, false}}

// TestNoNextFrame: without a next frame, whole and in time, the frame goes out as
// it is: after the fault's time, or when the sender ends or can no longer be
// decoded.
func TestNoNextFrame(t *testing.T) {
	for _, p := range pairs {
		for _, c := range []struct {
			name   string
			behind string
			fin    bool
			most   time.Duration
			at     time.Duration // when the rest goes out
		}{
			{"nothing", "", false, 0, time.Second},
			{"nothing", "", false, 3 * time.Second, 3 * time.Second},
			{"end", "", true, 0, 100 * ms},
			{"part", released[:9], false, 0, time.Second},
			{"part and end", released[:9], true, 0, 100 * ms},
			{"opaque", "?" + released, false, 0, 100 * ms},
		} {
			synctest.Test(t, func(t *testing.T) {
				rule := faults.Rule{Fault: fault(t, p.id), At: p.at}
				if c.most > 0 {
					rule.Args = faults.Args{"most": c.most}
				}
				s := onStage(t, rule, 3)
				s.from.send(acquired)
				time.Sleep(100 * ms)
				s.from.send(c.behind)
				if c.fin {
					s.from.closeWrite()
				}
				synctest.Wait()
				var want []part
				if p.at > 0 {
					want = append(want, part{acquired[:p.at], 0})
				}
				time.Sleep(c.at - 100*ms - time.Nanosecond)
				if c.at > 100*ms {
					s.wantParts(p.id+", "+c.name+", before", want...)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				want = append(want, part{acquired[p.at:] + c.behind, c.at})
				s.wantJoined(p.id+", "+c.name, want)
				if _, _, how := s.to.now(); how != map[bool]string{true: history.FIN}[c.fin] {
					t.Errorf("%s, %s: the end is %q", p.id, c.name, how)
				}
				ev := s.stop()
				if fired := ofKind(ev, history.Fired); (len(fired) == 1) != p.alone || len(fired) > 1 {
					t.Errorf("%s, %s: %d firings", p.id, c.name, len(fired))
				}
				s.wantAllDelivered(ev)
			})
		}
	}
}

// wantJoined is wantParts where what comes at one moment is one part.
func (s *stage) wantJoined(what string, want []part) {
	s.t.Helper()
	_, parts, _ := s.to.now()
	n, skip := 0, 0
	for n < len(s.carried[s.f.dir]) {
		n += len(parts[skip].data)
		skip++
	}
	got := join(parts[skip:])
	for i := range got {
		got[i].at -= s.start
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: the receiver read %+v, wanted %+v", what, got, want)
	}
}

// TestSlowFrames: a frame that itself takes longer than the fault's time goes on
// as it comes, and so does a next frame that is not whole by then.
func TestSlowFrames(t *testing.T) {
	for _, p := range pairs {
		for cut, data := range map[int]string{9: acquired, len(acquired) + 9: acquired + released} {
			synctest.Test(t, func(t *testing.T) {
				s := onStage(t, faults.Rule{Fault: fault(t, p.id), At: p.at}, 3)
				s.from.send(data[:cut])
				time.Sleep(1500 * ms)
				s.from.send(data[cut:] + "\n")
				synctest.Wait()
				want := []part{{data[p.at:cut], time.Second}, {data[cut:] + "\n", 1500 * ms}}
				if p.at > 0 {
					want = append([]part{{data[:p.at], 0}}, want...)
				}
				s.wantJoined(fmt.Sprintf("%s cut at %d", p.id, cut), want)
				s.wantAllDelivered(s.stop())
			})
		}
	}
}

// TestPairsInARow: no rule acts on the second frame of a pair; the third is the
// first of the next pair.
func TestPairsInARow(t *testing.T) {
	a := func(n uint64) string { return frame(s2c, "A", "k", n, n) }
	for _, p := range pairs {
		for _, held := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				set := []faults.Rule{{ID: "pair", Fault: fault(t, p.id), At: p.at, Trigger: faults.Trigger{Dir: s2c, Op: "A"}}}
				if held {
					set = append(set, faults.Rule{ID: "hold", Fault: fault(t, "hold"), Trigger: faults.Trigger{Dir: s2c, Op: "greeting"}})
				}
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, set...)})
				cl, sv := b.connect()
				sv.send(greeting + a(1) + a(2) + a(3) + a(4) + released)
				time.Sleep(4 * time.Second)
				want := map[string]string{
					"coalesce": a(1) + a(2) + a(3) + a(4) + released,
					"reorder":  a(2) + a(1) + a(4) + a(3) + released,
					"splice":   a(1)[:5] + a(2)[5:] + a(3)[:5] + a(4)[5:] + released,
				}[p.id]
				cl.wantGot(p.id, greeting+want, "")
				ev := b.stop()
				n := 0
				for _, e := range ofKind(ev, history.Fired) {
					if e.Rule == "pair" {
						n++
						if e.Off != p.at || e.Frame.Nth != 2*n-1 {
							t.Errorf("%s: fired at %d of %s", p.id, e.Off, e.Frame)
						}
					}
				}
				if n != 2 {
					t.Errorf("%s: %d firings", p.id, n)
				}
				if w := checkRecord(t, ev)[wireKey{1, s2c}]; !bare && string(w.delivered) != greeting+want {
					t.Errorf("%s: %q is recorded as delivered", p.id, w.delivered)
				}
			})
		}
	}
}

// TestPairLost: what waits for a next frame is not delivered behind a cut in the
// other direction, nor at the teardown, and does not hold the session up.
func TestPairLost(t *testing.T) {
	for _, p := range pairs {
		for _, cut := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
					faults.Rule{ID: "pair", Fault: fault(t, p.id), At: p.at, Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
					faults.Rule{ID: "cut", Fault: fault(t, "truncate-fin"), Trigger: faults.Trigger{Dir: c2s, Op: "A"}},
				)})
				cl, sv := b.connect()
				sv.send(greeting + acquired + released[:4])
				synctest.Wait()
				if cut {
					cl.send(auth + acquire)
					synctest.Wait()
					sv.send(released[4:])
					synctest.Wait()
				}
				ev := b.stop()
				if took := time.Since(b.began); took != 0 {
					t.Errorf("%s: the end took %v", p.id, took)
				}
				<-cl.ended
				if got, _, _ := cl.now(); got != greeting+acquired[:p.at] {
					t.Errorf("%s: the client got %q", p.id, got)
				}
				for _, e := range ofKind(ev, history.Fired) {
					if e.Rule == "pair" && !p.alone {
						t.Errorf("%s fired", p.id)
					}
				}
			})
		}
	}
}

// TestDribbleTimes: one byte a pause; what is behind the frame follows its last
// byte; the sender's end is seen at once.
func TestDribbleTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onStage(t, faults.Rule{Fault: fault(t, "dribble"), Args: faults.Args{"pause": 7 * ms}}, 3)
		s.from.send(acquired[:3])
		time.Sleep(100 * ms)
		s.from.send(acquired[3:] + released)
		s.from.closeWrite()
		synctest.Wait()
		if seen := s.events(history.EndSeen); len(seen) != 1 || seen[0].At-s.start != 100*ms {
			t.Errorf("ends seen: %+v", seen)
		}
		<-s.to.ended
		var want []part
		for i := range len(acquired) {
			at := time.Duration(i) * 7 * ms
			if i >= 3 {
				at = 100*ms + time.Duration(i-2)*7*ms
			}
			want = append(want, part{acquired[i : i+1], at})
		}
		want[len(want)-1].data += released
		s.wantJoined("dribble", want)
		ev := s.stop()
		s.wantFired(ev, 0, 0)
		s.wantAllDelivered(ev)
	})
}

// TestDelayTimes: the frame goes out later, what comes in meanwhile with it, and
// what comes in afterwards at once.
func TestDelayTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onStage(t, faults.Rule{Fault: fault(t, "delay")}, 3)
		s.from.send(acquired)
		time.Sleep(200 * ms)
		s.from.send(released)
		time.Sleep(100 * ms)
		s.from.send("\n")
		synctest.Wait()
		s.wantParts("delay", part{acquired + released, 250 * ms}, part{"\n", 300 * ms})
		ev := s.stop()
		s.wantFired(ev, 0, 0)
		s.wantAllDelivered(ev)
	})
}

// TestGreetingGate: a greeting is held until its own gate opens.
func TestGreetingGate(t *testing.T) {
	for _, c := range []struct {
		gate string
		took time.Duration
	}{{faults.GateGreeting, time.Second}, {faults.GateHold, 3500 * ms}, {faults.GateOpen, 3500 * ms}} {
		synctest.Test(t, func(t *testing.T) {
			s := onStage(t, faults.Rule{Fault: fault(t, "hold-greeting")}, 0)
			s.from.send(greeting)
			time.Sleep(time.Second)
			s.px.OpenGate(c.gate)
			s.to.wait(len(greeting))
			s.wantParts(c.gate, part{greeting, c.took})
			s.wantFired(s.stop(), 0, 0)
		})
	}
}

// TestStepsAreBounded: steps that wait behind a hold are bounded too, even where
// their frames leave no byte.
func TestStepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const small = 1 << 10 // bytes that the network itself holds
		b := newBed(t, inMemory(small), proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "hold", Fault: fault(t, "hold"), Trigger: faults.Trigger{Dir: s2c, Op: "greeting"}},
			faults.Rule{ID: "drop", Fault: fault(t, "drop"), Trigger: faults.Trigger{Dir: s2c, Op: "keepalive"}},
		)})
		cl, sv := b.connect()
		const n = 20_000
		go sv.send(greeting + strings.Repeat("\n", n) + released)
		time.Sleep(time.Second)
		if got := len(b.events(history.Received)); got > proxy.QueueLimit/200+small {
			t.Errorf("%d frames are kept", got)
		}
		cl.wait(len(greeting + released))
		cl.wantGot("client", greeting+released, "")
		if got := len(ofKind(b.stop(), history.Fired)); got != n+1 {
			t.Errorf("%d firings", got)
		}
	})
}

// TestPairOver: a frame that comes when the wait for it is over is one like any
// other, and rules act on it.
func TestPairOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "pair", Fault: fault(t, "coalesce"), Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
			faults.Rule{ID: "drop", Fault: fault(t, "drop"), Trigger: faults.Trigger{Dir: s2c, Op: "R"}},
		)})
		cl, sv := b.connect()
		sv.send(greeting + acquired)
		time.Sleep(2 * time.Second)
		sv.send(released + acquired + released)
		synctest.Wait()
		cl.wantGot("client", greeting+acquired+acquired+released, "")
		var fired []string
		for _, e := range ofKind(b.stop(), history.Fired) {
			fired = append(fired, e.Rule+" "+e.Frame.String())
		}
		if got := strings.Join(fired, ", "); got != "pair s2c.A.1, drop s2c.R.1, pair s2c.A.2" {
			t.Errorf("fired: %s", got)
		}
	})
}
