package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
)

// pieces cuts a frame at each of the places.
func pieces(f string, at ...int) []string {
	var out []string
	from := 0
	for _, k := range append(at, len(f)) {
		out = append(out, f[from:k])
		from = k
	}
	return out
}

// cuts lists a frame of n bytes whole, bytewise, and cut at every place and, if
// twice, at every two.
func cuts(n int, twice bool) [][]int {
	out := [][]int{nil}
	var all []int
	for i := 1; i < n; i++ {
		out, all = append(out, []int{i}), append(all, i)
		for j := i + 1; twice && j < n; j++ {
			out = append(out, []int{i, j})
		}
	}
	return append(out, all)
}

// onAcquire is a rule with conditions on requests.
func onAcquire(t *testing.T, id string, at int, where map[string]string) faults.Rule {
	return faults.Rule{ID: "the rule", Fault: fault(t, id), At: at, Trigger: faults.Trigger{Dir: c2s, Op: "A", Where: where}}
}

// TestHeldUntilKnown: a frame is held exactly until it is known whether the rule
// takes it, however it is cut into reads; what is before it and what goes the other
// way is not.
func TestHeldUntilKnown(t *testing.T) {
	n := len(acquire)
	for _, c := range []struct {
		where map[string]string
		known int // with so many bytes
		took  bool
	}{
		{map[string]string{"wait": "6"}, 2, false},
		{map[string]string{"wait": "5", "owner": "8"}, 11, false},
		{map[string]string{"key": "another*"}, n, false},
		{map[string]string{"owner": "7"}, 11, true},
		{map[string]string{"key": "order-*", "wait": "5"}, n, true},
	} {
		for _, at := range cuts(n, true) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
				must(t, b.px.Arm(onAcquire(t, "split", n-1, c.where)))
				cl, sv := b.connect()
				cl.send(auth)
				synctest.Wait()
				start := time.Since(b.began)
				want, shown, sent := []part{{release, start}}, 0, 0
				acted := time.Duration(-1) // when the fault did
				for i, p := range pieces(acquire, at...) {
					if i == 0 {
						sv.send(greeting)
						p = release + p
						sent -= len(release)
					}
					cl.send(p)
					synctest.Wait()
					if sent += len(p); sent >= c.known && shown < sent {
						stop := sent
						if c.took && sent == n { // the last byte waits for 50 ms
							stop--
						}
						if sent >= n-1 && acted < 0 {
							acted = time.Since(b.began)
						}
						if shown < stop {
							want = append(want, part{acquire[shown:stop], time.Since(b.began)})
						}
						shown = sent
					}
					time.Sleep(10 * ms)
				}
				if c.took {
					want = append(want, part{"\n", acted + 50*ms})
				}
				time.Sleep(time.Second)
				_, got, _ := sv.now()
				got = got[1:]
				if len(got) > 0 && len(got[0].data) > len(release) && want[1].at == start { // in one write with the one before it
					want[1].data, want = release+want[1].data, want[1:]
				}
				if !slices.Equal(got, want) {
					t.Errorf("%v, cut at %v: read %+v, wanted %+v", c.where, at, got, want)
				}
				if _, back, _ := cl.now(); !slices.Equal(back, []part{{greeting, start}}) {
					t.Errorf("%v, cut at %v: the other way %+v", c.where, at, back)
				}
				wantCounts(t, b.px, "the rule", map[bool]int64{true: 1}[c.took], n)
				b.stop()
			})
		}
	}
}

// wantCounts compares the counters of a rule that acted on every frame it matched,
// of size bytes each.
func wantCounts(t *testing.T, px *proxy.Proxy, id string, fired int64, size int) {
	t.Helper()
	r, ok := px.Rule(id)
	if !ok || r.Matched != fired || r.Fired != fired || r.Bytes != fired*int64(size) {
		t.Errorf("%s: armed %v, matched %d, fired %d, %d bytes; wanted %d of %d bytes", id, ok, r.Matched, r.Fired, r.Bytes, fired, size)
	}
}

// TestHeldFaults: a fault on a frame that was held acts at its offset, however the
// frame came in, and the record says so.
func TestHeldFaults(t *testing.T) {
	n := len(acquire)
	for _, d := range deliveries {
		typ := fault(t, d.id)
		if typ.Only != "" {
			continue
		}
		for _, k := range []int{0, 1, n / 2, n - 1, n} {
			if !typ.Range.Contains(k, n) {
				continue
			}
			for _, where := range []map[string]string{{"wait": "5"}, {"key": "*"}} {
				for _, at := range cuts(n, false) {
					synctest.Test(t, func(t *testing.T) { d.held(t, k, where, at) })
				}
			}
		}
	}
}

func (d deliver) held(t *testing.T, k int, where map[string]string, at []int) {
	rule := onAcquire(t, d.id, k, where)
	rule.Args, rule.Trigger.Nth = d.args, 1
	if rule.Fault.Injects != "" {
		rule.Inject = []byte(notice)
	}
	b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
	must(t, b.px.Arm(rule))
	cl, sv := b.connect()
	cl.send(auth)
	for _, p := range pieces(acquire, at...) {
		cl.send(p)
		synctest.Wait()
	}
	cl.send(release)
	cl.closeWrite()
	arrives, fires := d.want(acquire, release, k)
	what := fmt.Sprintf("%s@%d, %v, cut at %v", d.id, k, where, at)
	sv.wantAll(what, auth+arrives, history.FIN)
	sv.closeWrite()
	<-cl.ended
	if r, _ := b.px.Rule("the rule"); r.Matched != 1 || r.Fired != int64(fires) || r.Bytes != int64(len(acquire)) {
		t.Errorf("%s: matched %d, fired %d, %d bytes", what, r.Matched, r.Fired, r.Bytes)
	}
	ev := b.stop()
	w := checkRecord(t, ev)[wireKey{1, c2s}]
	if !w.is(auth+acquire+release, auth+arrives) {
		t.Errorf("%s: recorded: %+v", what, w)
	}
	fired := ofKind(ev, history.Fired)
	if len(fired) != fires || fires > 0 && (fired[0].Off != k || fired[0].Frame.String() != "c2s.A.1") {
		t.Errorf("%s: fired %+v", what, fired)
	}
	d.wantWrites(t, ev, sent{c2s, "A", acquire}, release, k)
}

// TestHeldCuts: a cut of a frame that was held delivers exactly k bytes, as soon as
// the frame is known and they are there.
func TestHeldCuts(t *testing.T) {
	n := len(acquire)
	for id, how := range map[string]string{"truncate-fin": history.FIN, "truncate-rst": history.RST, "stall": ""} {
		for _, k := range []int{0, 1, 2, n / 2, n - 1, n} {
			for _, at := range cuts(n, false) {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
					must(t, b.px.Arm(onAcquire(t, id, k, map[string]string{"owner": "7"})))
					cl, sv := b.connect()
					cl.send(auth)
					synctest.Wait()
					sent := 0
					for _, p := range pieces(acquire, at...) {
						_, _ = cl.Write([]byte(p)) // it may have been reset
						synctest.Wait()
						want, end := "", ""
						if sent += len(p); sent >= 11 {
							want = acquire[:min(sent, k)]
						}
						if sent >= max(11, k) {
							end = how
						}
						sv.wantGot(fmt.Sprintf("%s@%d, cut at %v, %d sent", id, k, at, sent), auth+want, end)
					}
					fired := ofKind(b.stop(), history.Fired)
					if len(fired) != 1 || fired[0].Off != k {
						t.Errorf("%s@%d, cut at %v: fired %+v", id, k, at, fired)
					}
				})
			}
		}
	}
}

// TestHeldEnds: what is held when the sender ends, or when the link can no longer be
// decoded, is delivered before that.
func TestHeldEnds(t *testing.T) {
	over := "A" + strings.Repeat("x", 11+193) // over the limit of the text
	onEach(t, func(t *testing.T, tr transport) {
		for _, c := range []struct {
			data string
			end  func(*peer)
			how  string
		}{
			{acquire[:1], (*peer).closeWrite, history.FIN},
			{acquire[:len(acquire)-1], (*peer).closeWrite, history.FIN},
			{acquire[:10], (*peer).reset, tr.rst()},
			{over, func(*peer) {}, ""},
			{over + acquire, (*peer).closeWrite, history.FIN},
		} {
			if c.how == history.RST && tr.unix { // a unix socket has none
				continue
			}
			b := newBed(t, tr, proxy.Config{Grammar: grammar})
			must(t, b.px.Arm(onAcquire(t, "truncate-silence", 0, map[string]string{"key": "*"})))
			cl, sv := b.connect()
			cl.send(auth)
			cl.send(strings.Split(c.data, "")...)
			b.waitReceived(len(auth + c.data))
			c.end(cl)
			sv.wait(len(auth + c.data))
			if c.how != "" {
				sv.wantAll("server", auth+c.data, c.how)
			} else {
				sv.wantGot("server", auth+c.data, "")
			}
			wantCounts(t, b.px, "the rule", 0, 0)
			b.stop()
		}
	})
}

// waitReceived waits until the proxy has read n bytes from the client.
func (b *bed) waitReceived(n int) {
	b.t.Helper()
	got := 0
	b.waitFor(1, fmt.Sprint("receipt of ", n, " bytes"), func(e history.Event) bool {
		if e.Seq == 1 {
			got = 0
		}
		if e.Kind == history.Received && e.Dir == c2s {
			got += e.N
		}
		return got >= n
	})
}

// TestHeldAndGone: when the rule that a frame is held for goes, the frame does not
// wait for its next byte. What the next rule does to it is done.
func TestHeldAndGone(t *testing.T) {
	part := acquire[:14]
	for name, c := range map[string]struct {
		goes func(*testing.T, *proxy.Proxy)
		next bool
	}{
		"disarmed":     {func(_ *testing.T, px *proxy.Proxy) { px.Disarm("the rule") }, false},
		"all disarmed": {func(_ *testing.T, px *proxy.Proxy) { px.DisarmAll() }, false},
		"rearmed": {func(t *testing.T, px *proxy.Proxy) {
			must(t, px.Rearm(onAcquire(t, "truncate-silence", 0, map[string]string{"key": "*"})))
		}, false},
		"gate shut": {func(_ *testing.T, px *proxy.Proxy) { px.ShutGate("g") }, false},
		"next acts": {func(_ *testing.T, px *proxy.Proxy) { px.Disarm("the rule") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, tr transport) {
				b := newBed(t, tr, proxy.Config{Grammar: grammar})
				must(t, b.px.OpenGate("g"))
				rule := onAcquire(t, "truncate-silence", 0, map[string]string{"key": "*"})
				rule.Trigger.After = "g"
				must(t, b.px.Arm(rule))
				want := part
				if c.next {
					must(t, b.px.Arm(faults.Rule{ID: "next", Fault: fault(t, "stall"), At: 3, Trigger: faults.Trigger{Dir: c2s, Op: "A"}}))
					want = part[:3]
				}
				cl, sv := b.connect()
				cl.send(auth, part)
				b.waitReceived(len(auth + part))
				sv.wait(len(auth))
				sv.wantGot("server", auth, "")
				c.goes(t, b.px)
				sv.wait(len(auth + want))
				cl.send(acquire[14:], release)
				if !c.next {
					want = acquire + release
				}
				sv.wait(len(auth + want))
				sv.wantGot("server", auth+want, "")
				b.stop()
			})
		})
	}
}

// TestHeldAsItGoes: the rule goes in the very moment in which a part of a frame comes.
func TestHeldAsItGoes(t *testing.T) {
	tr := inMemory(0)
	ld, end := newLoad(t, tr)
	c, err := tr.dial(t.Context(), "tcp", ld.addr)
	must(t, err)
	s, err := ld.up.Accept()
	must(t, err)
	must(t, s.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 100)
	carry := func(data string) {
		_, err := c.Write([]byte(data))
		must(t, err)
		if n, err := io.ReadFull(s, buf[:len(data)]); err != nil {
			t.Fatalf("%d of %d bytes came: %v", n, len(data), err)
		}
	}
	carry(auth)
	rule := onAcquire(t, "split", 1, map[string]string{"key": "another"})
	for i := range 1000 {
		must(t, ld.px.Arm(rule))
		var wg sync.WaitGroup
		wg.Go(func() {
			for range i % 100 {
				runtime.Gosched()
			}
			ld.px.Disarm(rule.ID)
		})
		carry(acquire[:9])
		carry(acquire[9:])
		wg.Wait()
	}
	_ = c.Close()
	_ = s.Close()
	end()
}

// TestHeldTTL: a frame is held no longer than its rule lives.
func TestHeldTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		rule := onAcquire(t, "truncate-silence", 0, map[string]string{"key": "*"})
		rule.TTL = 3 * time.Second
		must(t, b.px.Arm(rule))
		cl, sv := b.connect()
		cl.send(auth, acquire[:5])
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		sv.wantGot("server, before", auth, "")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		sv.wantGot("server", auth+acquire[:5], "")
		// The deadline that woke the reader is gone: the session lives on, both ways.
		cl.send(acquire[5:])
		sv.send(greeting)
		synctest.Wait()
		sv.wantGot("server", auth+acquire, "")
		cl.wantGot("client", greeting, "")
		b.stop()
	})
}

// TestHeldAndKept: a connection whose reader was roused is kept as any other.
func TestHeldAndKept(t *testing.T) {
	onEach(t, func(t *testing.T, tr transport) {
		kept := make(chan net.Conn, 1)
		b := newBed(t, tr, proxy.Config{Grammar: grammar, Keep: func(c net.Conn) { kept <- c }})
		must(t, b.px.Arm(onAcquire(t, "truncate-silence", 0, map[string]string{"key": "*"})))
		cl, sv := b.connect()
		cl.send(auth, acquire[:5])
		b.waitReceived(len(auth) + 5)
		b.px.DisarmAll()
		b.stop()
		c := <-kept
		defer c.Close()
		cl.send("x")
		if n, err := c.Read(make([]byte, 10)); n != 1 || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
		<-sv.ended
	})
}

// TestNoRule: what Arm and Rearm refuse.
func TestNoRule(t *testing.T) {
	px := proxy.New(proxy.Config{Grammar: grammar})
	rule := func(i int) faults.Rule {
		return faults.Rule{ID: fmt.Sprint(i), Trigger: faults.Trigger{Dir: frames.ClientToServer, Op: "A"}}
	}
	if err := px.Rearm(rule(0)); !errors.Is(err, proxy.ErrNoRule) {
		t.Errorf("rearmed: %v", err)
	}
	for i := range proxy.MaxRules {
		must(t, px.Arm(rule(i)))
	}
	var bad *faults.FieldError
	for _, c := range []struct {
		err, want error
	}{
		{px.Arm(rule(proxy.MaxRules)), proxy.ErrRules},
		{px.Arm(rule(7)), proxy.ErrRuleExists},
		{px.Rearm(rule(proxy.MaxRules)), proxy.ErrNoRule},
		{px.Rearm(rule(7)), nil},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, wanted %v", c.err, c.want)
		}
	}
	if err := px.Rearm(faults.Rule{ID: "7"}); !errors.As(err, &bad) || bad.Field != "op" {
		t.Errorf("rearmed: %v", err)
	}
	if n := len(px.Rules()); n != proxy.MaxRules {
		t.Errorf("%d rules", n)
	}
	if px.Rules()[7].Rule.ID != "7" || !px.Disarm("7") || px.Disarm("7") {
		t.Error("rule 7 was not disarmed once")
	}
	must(t, px.Arm(rule(proxy.MaxRules)))
	px.DisarmAll()
	if _, ok := px.Rule("8"); ok || len(px.Rules()) > 0 {
		t.Error("there are rules left")
	}
}
