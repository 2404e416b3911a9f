package proxy_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
)

const ms = time.Millisecond

// stage is a session of which the first frames of the exchange are played, and
// then all the time that follows begins at zero.
type stage struct {
	*bed
	cl, sv   *peer
	from, to *peer
	f        sent
	carried  [2]string
	start    time.Duration
}

// onStage sets up a rule on a frame of the exchange, in memory.
func onStage(t *testing.T, rule faults.Rule, target int) *stage {
	f := exchange[target]
	rule.ID, rule.Trigger = "the rule", faults.Trigger{Dir: f.dir, Op: f.op, Nth: 1}
	s := &stage{bed: newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, rule)}), f: f}
	s.cl, s.sv = s.connect()
	s.carried = play(s.cl, s.sv, exchange[:target])
	s.from, s.to = s.cl, s.sv
	if f.dir == s2c {
		s.from, s.to = s.sv, s.cl
	}
	synctest.Wait()
	s.start = time.Since(s.began)
	return s
}

// wantParts compares what the receiver has read since the start, and when.
func (s *stage) wantParts(what string, want ...part) {
	s.t.Helper()
	_, parts, _ := s.to.now()
	var got []part
	n := 0
	for _, p := range parts {
		if n >= len(s.carried[s.f.dir]) {
			got = append(got, part{p.data, p.at - s.start})
		}
		n += len(p.data)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: the receiver read %+v, wanted %+v", what, got, want)
	}
}

// wantFired checks that the rule fired once, at k and at a time since the start.
func (s *stage) wantFired(ev []history.Event, k int, at time.Duration) {
	s.t.Helper()
	fired := ofKind(ev, history.Fired)
	if len(fired) != 1 {
		s.t.Fatalf("%d firings", len(fired))
	}
	if e := fired[0]; e.Session != 1 || e.Dir != s.f.dir || e.Frame.Op != s.f.op || e.Frame.Nth != 1 || e.Off != k ||
		e.Rule != "the rule" || e.At-s.start != at {
		s.t.Errorf("fired: %+v of %s, wanted byte %d, %v", e, e.Frame, k, at)
	}
}

// wantAllDelivered checks that everything received was delivered.
func (s *stage) wantAllDelivered(ev []history.Event) {
	s.t.Helper()
	for k, w := range checkRecord(s.t, ev) {
		if string(w.received) != string(w.delivered) {
			s.t.Errorf("%s: %q received, %q delivered", k.dir, w.received, w.delivered)
		}
	}
}

// TestSplit: k bytes at once, the rest and all behind it after the pause; the
// other direction goes on.
func TestSplit(t *testing.T) {
	for _, pause := range []time.Duration{0, 70 * ms} {
		for target, f := range exchange[:len(exchange)-2] {
			n := len(f.data)
			for _, k := range []int{1, n / 2, n - 1} {
				synctest.Test(t, func(t *testing.T) {
					rule, took := faults.Rule{Fault: fault(t, "split"), At: k}, 50*ms
					if pause > 0 {
						rule.Args, took = faults.Args{"pause": pause}, pause
					}
					s := onStage(t, rule, target)
					behind, back := next(target, f.dir), next(target, f.dir.Opposite())
					s.from.send(f.data)
					synctest.Wait()
					s.to.send(back)
					time.Sleep(took - 20*ms)
					s.from.send(behind)
					s.from.closeWrite()
					synctest.Wait()
					name := fmt.Sprintf("%s.%s@%d, %v", f.dir, f.op, k, took)
					s.wantParts(name, part{f.data[:k], 0})
					s.from.wantGot(name+": the other direction", s.carried[f.dir.Opposite()]+back, "")
					<-s.to.ended
					s.wantParts(name, part{f.data[:k], 0}, part{f.data[k:] + behind, took})
					ev := s.stop()
					s.wantFired(ev, k, 0)
					s.wantAllDelivered(ev)
				})
			}
		}
	}
}

// TestSplitOutside: a frame that is not longer than the offset is not split.
func TestSplitOutside(t *testing.T) {
	for over := range 3 {
		synctest.Test(t, func(t *testing.T) {
			s := onStage(t, faults.Rule{Fault: fault(t, "split"), At: len(acquired) + over}, 3)
			s.from.send(acquired + released)
			synctest.Wait()
			s.from.send("\n")
			synctest.Wait()
			s.wantParts("at and over the end", part{acquired + released, 0}, part{"\n", 0})
			if f := ofKind(s.stop(), history.Fired); len(f) > 0 {
				t.Errorf("fired: %+v", f)
			}
		})
	}
}

// TestSplitAcrossReads: the offset counts in the frame, however it comes in.
func TestSplitAcrossReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onStage(t, faults.Rule{Fault: fault(t, "split"), At: 5}, 3)
		for i := range len(acquired) {
			s.from.send(acquired[i : i+1])
			synctest.Wait()
		}
		s.wantParts("before", part{acquired[:1], 0}, part{acquired[1:2], 0}, part{acquired[2:3], 0}, part{acquired[3:4], 0}, part{acquired[4:5], 0})
		time.Sleep(50 * ms)
		synctest.Wait()
		if got, parts, _ := s.to.now(); got != s.carried[s2c]+acquired || parts[len(parts)-1].at-s.start != 50*ms {
			t.Errorf("got %+v", parts)
		}
		ev := s.stop()
		s.wantFired(ev, 5, 0)
		s.wantAllDelivered(ev)
	})
}

// TestHold: the frame and all behind it come later, in order, and so does the
// end; it is seen at once.
func TestHold(t *testing.T) {
	for _, c := range []struct {
		most, open, took time.Duration
	}{
		{0, 0, 3500 * ms},
		{2 * time.Second, 0, 2 * time.Second},
		{2 * time.Second, time.Second, time.Second},
		{2 * time.Second, 3 * time.Second, 2 * time.Second},
	} {
		for target, f := range exchange[:len(exchange)-2] {
			synctest.Test(t, func(t *testing.T) {
				rule := faults.Rule{Fault: fault(t, "hold")}
				if c.most > 0 {
					rule.Args = faults.Args{"most": c.most}
				}
				s := onStage(t, rule, target)
				if c.open > 0 {
					time.AfterFunc(c.open, func() { s.px.OpenGate(faults.GateHold) })
				}
				behind, back := next(target, f.dir), next(target, f.dir.Opposite())
				s.from.send(f.data[:1])
				synctest.Wait()
				s.from.send(f.data[1:], behind)
				synctest.Wait()
				time.Sleep(100 * ms)
				s.from.send("\n")
				s.from.closeWrite()
				s.to.send(back)
				synctest.Wait()
				name := fmt.Sprintf("%s.%s, %v", f.dir, f.op, c)
				s.wantParts(name)
				s.from.wantGot(name+": the other direction", s.carried[f.dir.Opposite()]+back, "")
				if seen := s.events(history.EndSeen); len(seen) != 1 || seen[0].How != history.FIN || seen[0].At-s.start != 100*ms {
					t.Errorf("%s: ends seen while held: %+v", name, seen)
				}
				<-s.to.ended
				s.wantParts(name, part{f.data + behind + "\n", c.took})
				ev := s.stop()
				s.wantFired(ev, 0, 0)
				s.wantAllDelivered(ev)
				if e := ofKind(ev, history.EndSent); e[0].How != history.FIN || e[0].Cause != history.CauseForwarded || e[0].At-s.start != c.took {
					t.Errorf("%s: the first end sent is %+v", name, e[0])
				}
			})
		}
	}
}

// TestGateStaysOpen: a gate that is open holds nothing, and may be opened again.
func TestGateStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onStage(t, faults.Rule{Fault: fault(t, "hold")}, 3)
		s.px.OpenGate("another")
		s.px.OpenGate(faults.GateHold)
		s.px.OpenGate(faults.GateHold)
		s.from.send(acquired)
		synctest.Wait()
		s.wantParts("open", part{acquired, 0})
		s.wantFired(s.stop(), 0, 0)
	})
}

// TestHoldsInARow: a hold behind a hold begins when the first is over.
func TestHoldsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "first", Fault: fault(t, "hold"), Args: faults.Args{"most": time.Second}, Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
			faults.Rule{ID: "second", Fault: fault(t, "split"), At: 4, Args: faults.Args{"pause": time.Second}, Trigger: faults.Trigger{Dir: s2c, Op: "R"}},
			faults.Rule{ID: "third", Fault: fault(t, "truncate-rst"), At: 2, Trigger: faults.Trigger{Dir: s2c, Op: "T"}},
		)})
		cl, sv := b.connect()
		late := frame(s2c, "T", "k", 1)
		sv.send(greeting + acquired + released + late + "\n")
		sv.closeWrite()
		cl.wantAll("client", greeting+acquired+released+late[:2], history.RST)
		synctest.Wait()
		_, parts, _ := cl.now()
		if want := []part{
			{greeting, 0}, {acquired, time.Second}, {released[:4], time.Second}, {released[4:], 2 * time.Second}, {late[:2], 2 * time.Second},
		}; !slices.Equal(join(parts), join(want)) {
			t.Errorf("read %+v, wanted %+v", parts, want)
		}
		ev := b.stop()
		fired := ofKind(ev, history.Fired)
		for i, want := range []history.Event{{Rule: "first", At: 0, Off: 0}, {Rule: "second", At: time.Second, Off: 4}, {Rule: "third", At: 2 * time.Second, Off: 2}} {
			if i >= len(fired) || fired[i].Rule != want.Rule || fired[i].At != want.At || fired[i].Off != want.Off {
				t.Errorf("fired: %+v", fired)
			}
		}
		wantEnds(t, ev, "server fin seen", "client rst sent by fault", "server rst sent by fault")
	})
}

// join puts parts of one moment together.
func join(parts []part) []part {
	var out []part
	for _, p := range parts {
		if n := len(out); n > 0 && out[n-1].at == p.at {
			out[n-1].data += p.data
		} else {
			out = append(out, p)
		}
	}
	return out
}

// TestHoldsBehindNothing: what is still held at the end is not delivered, and
// what was queued behind it does not fire: by the teardown, by a cut, and when a
// peer has reset.
func TestHoldsBehindNothing(t *testing.T) {
	set := []faults.Rule{
		{ID: "first", Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
		{ID: "second", Trigger: faults.Trigger{Dir: s2c, Op: "R"}},
		{ID: "cut", Trigger: faults.Trigger{Dir: c2s, Op: "A"}},
	}
	for name, end := range map[string]func(b *bed, cl *peer){
		"teardown": func(*bed, *peer) {},
		"cut": func(_ *bed, cl *peer) {
			cl.send(auth + acquire)
			synctest.Wait()
		},
		"reset": func(_ *bed, cl *peer) {
			cl.reset()
			synctest.Wait()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			set[0].Fault, set[1].Fault, set[2].Fault = fault(t, "hold"), fault(t, "hold"), fault(t, "truncate-fin")
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, set...)})
			cl, sv := b.connect()
			sv.send(greeting + acquired + released)
			synctest.Wait()
			end(b, cl)
			ev := b.stop()
			if took := time.Since(b.began); took != 0 {
				t.Errorf("%s: the end took %v", name, took)
			}
			<-cl.ended
			if got, _, _ := cl.now(); got != greeting {
				t.Errorf("%s: the client got %q", name, got)
			}
			var fired []string
			for _, e := range ofKind(ev, history.Fired) {
				fired = append(fired, e.Rule)
			}
			want := []string{"first"}
			if name == "cut" {
				want = append(want, "cut")
			}
			if !slices.Equal(fired, want) {
				t.Errorf("%s: fired %q, wanted %q", name, fired, want)
			}
		})
	}
}

// TestSplitOverTCP: both parts come over real sockets too.
func TestSplitOverTCP(t *testing.T) {
	for _, dir := range []frames.Direction{c2s, s2c} {
		b := newBed(t, tcp, proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
			ID: "split", Fault: fault(t, "split"), At: 7, Args: faults.Args{"pause": 5 * ms}, Trigger: faults.Trigger{Dir: dir, Op: "A"},
		})})
		cl, sv := b.connect()
		play(cl, sv, exchange)
		ev := b.stop()
		for k, w := range checkRecord(t, ev) {
			if string(w.received) != string(w.delivered) {
				t.Errorf("%s: %q received, %q delivered", k.dir, w.received, w.delivered)
			}
		}
		if f := ofKind(ev, history.Fired); len(f) != 1 || f[0].Dir != dir || f[0].Off != 7 {
			t.Errorf("fired: %+v", f)
		}
		var at []time.Duration
		for _, e := range ofKind(ev, history.WriteBegun) {
			if e.Dir == dir && e.Frame.Op == "A" {
				at = append(at, e.At)
			}
		}
		if len(at) != 2 || at[1]-at[0] < 5*ms {
			t.Errorf("parts were written at %v", at)
		}
	}
}
