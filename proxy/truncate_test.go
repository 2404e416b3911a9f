package proxy_test

import (
	"fmt"
	"net"
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

// sent is a frame and the way it goes.
type sent struct {
	dir  frames.Direction
	op   string
	data string
}

// exchange is a whole talk. The frames under test are all but the last two,
// which are what follows them in either direction.
var exchange = []sent{
	{s2c, "greeting", greeting},
	{c2s, "auth", auth},
	{c2s, "A", acquire},
	{s2c, "A", acquired},
	{c2s, "R", release},
	{s2c, "R", released},
}

// places are the offsets at which every fault is tried in a frame of n bytes.
func places(n int) []int { return []int{0, 1, n / 2, n - 1, n} }

// play has the peers send the first frames of the exchange, each one when the
// one before has arrived. It returns what each direction then has carried.
func play(cl, sv *peer, frames []sent) (carried [2]string) {
	peers := [2]*peer{c2s: sv, s2c: cl} // by the direction in which they receive
	for _, f := range frames {
		carried[f.dir] += f.data
		peers[f.dir.Opposite()].send(f.data)
		peers[f.dir].wait(len(carried[f.dir]))
	}
	return carried
}

// next finds the frame of the exchange that follows target in a direction.
func next(target int, dir frames.Direction) string {
	for _, f := range exchange[target+1:] {
		if f.dir == dir {
			return f.data
		}
	}
	panic("nothing follows")
}

// TestTruncate cuts every frame of an exchange at each place with each end.
func TestTruncate(t *testing.T) {
	for _, id := range []string{"truncate-fin", "truncate-rst", "truncate-silence"} {
		for target, f := range exchange[:len(exchange)-2] {
			for _, k := range places(len(f.data)) {
				name := fmt.Sprintf("%s/%s.%s@%d", id, f.dir, f.op, k)
				t.Run(name+"/tcp", func(t *testing.T) { truncate(t, tcp, id, target, k) })
				t.Run(name+"/memory", func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { truncate(t, inMemory(0), id, target, k) })
				})
			}
		}
	}
}

func truncate(t *testing.T, tr transport, id string, target, k int) {
	f := exchange[target]
	b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
		ID: "the rule", Fault: fault(t, id), At: k, Trigger: faults.Trigger{Dir: f.dir, Op: f.op, Nth: 1},
	})})
	cl, sv := b.connect()
	carried := play(cl, sv, exchange[:target])
	from, to := cl, sv
	if f.dir == s2c {
		from, to = sv, cl
	}
	from.send(f.data)
	b.waitKind(history.Fired)
	how := map[string]string{"truncate-fin": history.FIN, "truncate-rst": history.RST}[id]
	late := [2]string{}
	if how != history.RST {
		// What still comes in is read, and both ends are seen.
		late[f.dir], late[f.dir.Opposite()] = next(target, f.dir), next(target, f.dir.Opposite())
		from.send(late[f.dir])
		to.send(late[f.dir.Opposite()])
		from.closeWrite()
		b.waitEndSeen(history.Receiver(f.dir.Opposite()), history.FIN)
		to.closeWrite()
		b.waitEndSeen(history.Receiver(f.dir), history.FIN)
	}
	if how != "" {
		<-from.ended
		<-to.ended
	}
	to.wait(len(carried[f.dir]) + k)
	from.wantGot("sender", carried[f.dir.Opposite()], how)
	to.wantGot("receiver", carried[f.dir]+f.data[:k], how)
	ev := b.stop()
	from.wait(1 << 20)
	to.wait(1 << 20)
	if how == "" {
		how = history.RST // of the teardown: silence until then
	}
	from.wantGot("sender", carried[f.dir.Opposite()], how)
	to.wantGot("receiver", carried[f.dir]+f.data[:k], how)
	wantTruncated(t, ev, id, f, k, carried, late)
}

// wantTruncated checks the record of a truncation.
func wantTruncated(t *testing.T, ev []history.Event, id string, f sent, k int, carried, late [2]string) {
	t.Helper()
	fired := ofKind(ev, history.Fired)
	if len(fired) != 1 {
		t.Fatalf("%d firings", len(fired))
	}
	e := fired[0]
	if e.Session != 1 || e.Dir != f.dir || e.Frame.Dir != f.dir || e.Frame.Op != f.op || e.Frame.Nth != 1 || e.Off != k || e.Rule != "the rule" || e.Fault != id {
		t.Errorf("fired: %+v of %s", e, e.Frame)
	}
	if want := uint64(strings.Count(carried[f.dir], "\n") - strings.Count(carried[f.dir], "\x0A\x0A")); e.Frame.Seq != want {
		t.Errorf("fired on frame %d, not %d", e.Frame.Seq, want)
	}
	ws := checkRecord(t, ev)
	for _, dir := range []frames.Direction{c2s, s2c} {
		came, passed := carried[dir]+late[dir], carried[dir]
		if dir == f.dir {
			came, passed = carried[dir]+f.data+late[dir], carried[dir]+f.data[:k]
		}
		w := ws[wireKey{1, dir}]
		if !w.is(came, passed) {
			t.Errorf("%s: recorded: %+v; wanted %q and %q", dir, w, came, passed)
		}
	}
	sender, receiver := string(history.Receiver(f.dir.Opposite())), string(history.Receiver(f.dir))
	seen := []string{sender + " fin seen", receiver + " fin seen"}
	switch id {
	case "truncate-fin":
		wantEnds(t, ev, append([]string{"client fin sent by fault", "server fin sent by fault"}, seen...)...)
	case "truncate-rst":
		wantEnds(t, ev, "client rst sent by fault", "server rst sent by fault")
	case "truncate-silence":
		wantEnds(t, ev, append(seen, "client rst sent by teardown", "server rst sent by teardown")...)
	}
}

// TestNoReplyAfterTheLastBytes: what answers the last bytes before a cut is not
// delivered, however fast it comes.
func TestNoReplyAfterTheLastBytes(t *testing.T) {
	held := faults.Rule{ID: "held", Fault: fault(t, "hold"), Trigger: faults.Trigger{Dir: c2s, Op: "A", SessionNth: 1}}
	for _, behindHold := range []bool{false, true} {
		for _, id := range []string{"truncate-fin", "truncate-rst", "truncate-silence"} {
			synctest.Test(t, func(t *testing.T) {
				var reply func()
				tr := inMemory(0)
				tr.hook = func(dir frames.Direction, c net.Conn) net.Conn {
					h := &hooked{Conn: c.(*memnet.Conn)}
					if dir == c2s {
						h.afterWrite = func(int) { reply() }
					}
					return h
				}
				set := []faults.Rule{{ID: "cut", Fault: fault(t, id), At: len(release), Trigger: faults.Trigger{Dir: c2s, Op: "R"}}}
				if behindHold {
					set = append(set, held)
				}
				b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, set...)})
				cl, sv := b.connect()
				up := auth + acquire + release
				replied := false
				reply = func() { // in the proxy's write, before it returns
					synctest.Wait()
					if got, _, _ := sv.now(); got != up || replied {
						return
					}
					replied = true
					sv.send(greeting)
					synctest.Wait()
				}
				cl.send(up)
				b.waitFor(1, "cut", func(e history.Event) bool { return e.Kind == history.Fired && e.Rule == "cut" })
				synctest.Wait()
				if got, _, _ := cl.now(); got != "" {
					t.Errorf("%s: the client got %q", id, got)
				}
				if got, _, _ := sv.now(); got != up || !replied {
					t.Errorf("%s: the server got %q, replied: %v", id, got, replied)
				}
				w := checkRecord(t, b.stop())[wireKey{1, s2c}]
				if !w.is(greeting, "") {
					t.Errorf("%s: recorded: %+v", id, w)
				}
			})
		}
	}
}

// TestCutWhileWriting: a write in the other direction that is under way at a cut
// is broken off and counted as far as it went, and is no sign of a reset.
func TestCutWhileWriting(t *testing.T) {
	for _, id := range []string{"truncate-fin", "truncate-silence"} {
		synctest.Test(t, func(t *testing.T) {
			const size = 16
			b := newBed(t, inMemory(size), proxy.Config{Grammar: grammar, Rules: rules(t, faults.Rule{
				ID: "cut", Fault: fault(t, id), At: 1, Trigger: faults.Trigger{Dir: c2s, Op: "A"},
			})})
			c, err := b.tr.dial(t.Context(), "tcp", b.addr) // reads nothing yet
			must(t, err)
			s, err := b.up.Accept()
			must(t, err)
			sv := b.newPeer(s)
			go func() { _, _ = sv.Conn.Write([]byte(greeting + acquired)) }()
			synctest.Wait()
			go func() { _, _ = c.Write([]byte(auth + acquire)) }()
			synctest.Wait()
			b.waitKind(history.Fired)
			synctest.Wait()
			how := map[string]string{"truncate-fin": history.FIN}[id]
			cl := b.newPeer(c)
			synctest.Wait()
			cl.wantGot("client", greeting[:size], how)
			sv.wantGot("server", auth+acquire[:1], how)
			ev := b.stop()
			if seen := ofKind(ev, history.EndSeen); len(seen) > 0 {
				t.Errorf("%s: ends seen: %+v", id, seen)
			}
			if w := checkRecord(t, ev)[wireKey{1, s2c}]; !w.is(greeting+acquired, greeting[:size]) {
				t.Errorf("%s: recorded: %+v", id, w)
			}
		})
	}
}

// TestOneCutASession: what comes in after a cut fires nothing, in either direction.
func TestOneCutASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "up", Fault: fault(t, "truncate-silence"), At: 3, Trigger: faults.Trigger{Dir: c2s, Op: "A"}},
			faults.Rule{ID: "down", Fault: fault(t, "truncate-rst"), At: 3, Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
			faults.Rule{ID: "split", Fault: fault(t, "split"), At: 3, Trigger: faults.Trigger{Dir: s2c, Op: "R"}},
			faults.Rule{ID: "hold", Fault: fault(t, "hold"), Trigger: faults.Trigger{Dir: c2s, Op: "R"}},
		)})
		cl, sv := b.connect()
		sv.send(greeting, acquired[:2]) // a rule waits for its offset in this one
		synctest.Wait()
		cl.send(auth, acquire, acquire, release)
		synctest.Wait()
		sv.send(acquired[2:], acquired, released)
		synctest.Wait()
		cl.wantGot("client", greeting+acquired[:2], "")
		sv.wantGot("server", auth+acquire[:3], "")
		ev := b.stop()
		if f := ofKind(ev, history.Fired); len(f) != 1 || f[0].Rule != "up" {
			t.Errorf("fired: %+v", f)
		}
		if w := checkRecord(t, ev)[wireKey{1, s2c}]; !bare && string(w.received) != greeting+acquired+acquired+released {
			t.Errorf("received %q", w.received)
		}
	})
}

// TestCutsMeet: of two cuts at one moment one acts, and its record is true.
func TestCutsMeet(t *testing.T) {
	for range 100 {
		b := newBed(t, tcp, proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "up", Fault: fault(t, "truncate-fin"), At: 5, Trigger: faults.Trigger{Dir: c2s, Op: "A"}},
			faults.Rule{ID: "down", Fault: fault(t, "truncate-rst"), At: 5, Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
		)})
		cl, sv := b.connect()
		play(cl, sv, exchange[:2])
		go func() { _, _ = cl.Write([]byte(acquire)) }()
		_, _ = sv.Write([]byte(acquired)) // the session may have been reset by then
		<-cl.ended
		ev := b.stop()
		if f := ofKind(ev, history.Fired); len(f) != 1 {
			t.Fatalf("fired: %+v", f)
		}
		got, _, _ := cl.now()
		if w := checkRecord(t, ev)[wireKey{1, s2c}]; !bare && !strings.HasPrefix(string(w.delivered), got) {
			t.Fatalf("delivered %q, the client got %q", w.delivered, got)
		}
	}
}

// TestSessionsEnd: a session whose peers have ended closes both connections by
// itself, whatever is held; one after a cut too.
func TestSessionsEnd(t *testing.T) {
	set := []faults.Rule{
		{ID: "hold", Fault: fault(t, "hold"), Args: faults.Args{"most": 10 * time.Minute}, Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
		{ID: "fin", Fault: fault(t, "truncate-fin"), Trigger: faults.Trigger{Dir: s2c, Op: "R"}},
		{ID: "rst", Fault: fault(t, "truncate-rst"), Trigger: faults.Trigger{Dir: s2c, Op: "T"}},
	}
	for name, end := range map[string]func(cl, sv *peer){
		"two FINs":      func(cl, sv *peer) { cl.closeWrite(); sv.closeWrite() },
		"client resets": func(cl, sv *peer) { cl.reset() },
		"server resets": func(cl, sv *peer) { sv.reset() },
		"client resets, frames are held": func(cl, sv *peer) {
			sv.send(acquired, acquired, released)
			synctest.Wait()
			cl.reset()
		},
		"cut with FIN": func(cl, sv *peer) { sv.send(released); cl.closeWrite(); sv.closeWrite() },
		"cut with RST": func(cl, sv *peer) { sv.send(frame(s2c, "T", "k", 1)) },
		"cut with FIN, then resets": func(cl, sv *peer) {
			sv.send(released)
			synctest.Wait()
			cl.reset()
			sv.reset()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			closed := make(chan string, 10)
			tr := inMemory(0)
			tr.hook = func(dir frames.Direction, c net.Conn) net.Conn {
				return &closing{c.(*memnet.Conn), dir.String(), closed}
			}
			b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, set...)})
			cl, sv := b.connect()
			play(cl, sv, exchange[:1])
			end(cl, sv)
			synctest.Wait()
			both := map[string]bool{}
			for range len(closed) {
				both[<-closed] = true
			}
			if len(both) != 2 {
				t.Errorf("%s: closed: %v", name, both)
			}
			if b.tearable() {
				t.Errorf("%s: the session lives on", name)
			}
			b.stop()
		})
	}
}

// tearable tells whether the teardown still finds a session.
func (b *bed) tearable() bool {
	before, _ := b.rec.Events(0)
	b.px.RecordAcked()
	after, _ := b.rec.Events(len(before))
	return len(after) > 0
}

type closing struct {
	*memnet.Conn
	to     string
	closed chan<- string
}

func (c *closing) Close() error {
	c.closed <- c.to
	return c.Conn.Close()
}
