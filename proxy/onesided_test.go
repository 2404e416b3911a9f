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

// oneSided are the cuts of which one peer, or one direction, is told nothing:
// how the client and the server are ended.
var oneSided = []struct {
	id             string
	client, server string
}{
	{"truncate-fin-client", history.FIN, ""},
	{"truncate-fin-server", "", history.FIN},
	{"truncate-rst-client", history.RST, ""},
	{"truncate-rst-server", "", history.RST},
	{"stall", "", ""},
}

// TestOneSided cuts every frame of an exchange at each place in these ways.
func TestOneSided(t *testing.T) {
	for _, c := range oneSided {
		for target, f := range talk[:len(talk)-2] {
			at := places(len(f.data))
			slices.Sort(at)
			for _, k := range slices.Compact(at) {
				t.Run(fmt.Sprintf("%s/%s.%s@%d", c.id, f.dir, f.op, k), func(t *testing.T) {
					how := [2]string{c2s: c.server, s2c: c.client}
					cutOneSide(t, tcp, c.id, target, k, how)
					synctest.Test(t, func(t *testing.T) { cutOneSide(t, inMemory(0), c.id, target, k, how) })
				})
			}
		}
	}
}

// cutOneSide expects the end how[dir] at the receiver of each direction.
func cutOneSide(t *testing.T, tr transport, id string, target, k int, how [2]string) {
	f := talk[target]
	b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
		ID: "the rule", Fault: fault(t, id), At: k, Trigger: faults.Trigger{Dir: f.dir, Op: f.op, Nth: 1},
	})})
	cl, sv := b.connect()
	carried := play(cl, sv, talk[:target])
	to := [2]*peer{c2s: sv, s2c: cl}
	back := f.dir.Opposite()
	to[back].send(f.data)
	b.waitKind(history.Fired)
	want := carried // what each direction delivers
	want[f.dir] += f.data[:k]
	if id == "stall" {
		want[back] += follows(target, back)
	}
	// Whoever was not reset is read to the end, and its end is seen.
	came := carried
	came[f.dir] += f.data
	for _, dir := range []frames.Direction{f.dir, back} {
		sender := to[dir.Opposite()]
		if how[dir.Opposite()] == history.RST {
			<-sender.ended
			continue
		}
		late := follows(target, dir)
		came[dir] += late
		sender.send(late)
		if id == "stall" && dir == back {
			to[back].wait(len(want[back]))
		}
		sender.closeWrite()
		b.waitEndSeen(history.Receiver(dir.Opposite()), history.FIN)
	}
	if id == "stall" {
		how[back] = history.FIN // the other direction lives on, and its end is passed on
	}
	for dir, p := range to {
		p.wait(len(want[dir]))
		if how[dir] != "" {
			<-p.ended
		}
		p.wantGot(string(history.Receiver(frames.Direction(dir))), want[dir], how[dir])
	}
	ev := b.stop()
	for dir, p := range to {
		if how[dir] == "" {
			how[dir] = history.RST // of the teardown, not before
		}
		p.wantAll(string(history.Receiver(frames.Direction(dir))), want[dir], how[dir])
	}
	fired := ofKind(ev, history.Fired)
	if e := fired[0]; len(fired) != 1 || e.Session != 1 || e.Dir != f.dir || e.Frame.String() != fmt.Sprintf("%s.%s.1", f.dir, f.op) || e.Off != k || e.Fault != id {
		t.Errorf("fired: %+v of %s", fired, e.Frame)
	}
	ws := checkRecord(t, ev)
	for dir := range want {
		w := ws[wireKey{1, frames.Direction(dir)}]
		if !w.is(came[dir], want[dir]) {
			t.Errorf("%s: recorded: %+v; wanted %q and %q", frames.Direction(dir), w, came[dir], want[dir])
		}
	}
}

// TestStalledReset: the reset of a stalled sender is seen, not passed on; that of
// the receiver is passed on.
func TestStalledReset(t *testing.T) {
	for _, byReceiver := range []bool{false, true} {
		onEach(t, func(t *testing.T, tr transport) {
			b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
				ID: "r", Fault: fault(t, "stall"), At: 3, Trigger: faults.Trigger{Dir: s2c, Op: "A"},
			})})
			cl, sv := b.connect()
			sv.send(greeting + acquired)
			cl.wait(len(greeting) + 3)
			b.waitKind(history.Fired)
			if byReceiver {
				cl.reset()
				sv.wantAll("server", "", tr.rst())
				wantEnds(t, b.stop(), tr.ends("client rst seen", "server rst sent by forwarded")...)
				return
			}
			sv.reset()
			b.waitEndSeen(history.ServerSide, tr.rst())
			cl.wantGot("client", greeting+acquired[:3], "")
			wantEnds(t, b.stop(), tr.ends("server rst seen", "client rst sent by teardown", "server rst sent by teardown")...)
			cl.wantAll("client", greeting+acquired[:3], tr.rst())
		})
	}
}

// TestAfter: the ends come that much later than the last byte; meanwhile nothing
// is delivered, and both peers are read.
func TestAfter(t *testing.T) {
	for _, c := range []struct{ id, client, server string }{
		{"truncate-fin", history.FIN, history.FIN},
		{"truncate-rst", history.RST, history.RST},
		{"truncate-fin-client", history.FIN, ""},
		{"truncate-fin-server", "", history.FIN},
		{"truncate-rst-client", history.RST, ""},
		{"truncate-rst-server", "", history.RST},
	} {
		for _, held := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
					faults.Rule{ID: "cut", Fault: fault(t, c.id), At: 4, Args: faults.Args{"after": time.Second}, Trigger: faults.Trigger{Dir: c2s, Op: "R"}},
					faults.Rule{ID: "held", Fault: fault(t, "hold"), Args: faults.Args{"most": 2 * time.Second}, Trigger: faults.Trigger{Dir: c2s, Op: "A"}},
				)})
				cl, sv := b.connect()
				cut, up := time.Duration(0), auth+release
				if held {
					cut, up = 2*time.Second, auth+acquire+release
				}
				cl.send(up)
				time.Sleep(cut + 999*ms)
				synctest.Wait()
				sv.send(greeting)
				cl.send("\n")
				synctest.Wait()
				sv.wantGot(c.id+": server before", up[:len(up)-len(release)+4], "")
				cl.wantGot(c.id+": client before", "", "")
				time.Sleep(ms)
				synctest.Wait()
				sv.wantGot(c.id+": server", up[:len(up)-len(release)+4], c.server)
				cl.wantGot(c.id+": client", "", c.client)
				ev := b.stop()
				for _, e := range ofKind(ev, history.EndSent) {
					if e.Cause == history.CauseFault && e.At != cut+time.Second {
						t.Errorf("%s: %+v", c.id, e)
					}
				}
				if fired := ofKind(ev, history.Fired); fired[len(fired)-1].At != cut || fired[len(fired)-1].Rule != "cut" {
					t.Errorf("%s: fired %+v", c.id, fired)
				}
				ws := checkRecord(t, ev)
				if up, down := ws[wireKey{1, c2s}].received, ws[wireKey{1, s2c}].received; !bare && (up[len(up)-1] != '\n' || string(down) != greeting) {
					t.Errorf("%s: received %q and %q", c.id, up, down)
				}
			})
		}
	}
}

// TestAfterTearDown: the teardown does not wait for a late end, and ends both
// peers itself; peers that end before do not call it off.
func TestAfterTearDown(t *testing.T) {
	late := faults.Rule{ID: "r", Args: faults.Args{"after": time.Minute}, Trigger: faults.Trigger{Dir: c2s, Op: "auth"}}
	synctest.Test(t, func(t *testing.T) {
		late.Fault = fault(t, "truncate-fin")
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, late)})
		cl, sv := b.connect()
		cl.send(auth)
		synctest.Wait()
		wantEnds(t, b.stop(), "client rst sent by teardown", "server rst sent by teardown")
		if took := time.Since(b.began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		cl.wantAll("client", "", history.RST)
		sv.wantAll("server", "", history.RST)
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, late)})
		cl, sv := b.connect()
		cl.send(auth)
		synctest.Wait()
		cl.closeWrite()
		synctest.Wait()
		sv.closeWrite()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		cl.wantGot("client", "", "")
		cl.wantAll("client", "", history.FIN)
		sv.wantAll("server", "", history.FIN)
		if took := time.Since(b.began); took != time.Minute {
			t.Errorf("the end took %v", took)
		}
		synctest.Wait()
		if b.tearable() {
			t.Error("the session lives on")
		}
		wantEnds(t, b.stop(), "client fin seen", "server fin seen", "client fin sent by fault", "server fin sent by fault")
	})
}
