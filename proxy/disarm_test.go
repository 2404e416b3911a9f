package proxy_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// goes are the ways in which a rule goes.
var goes = map[string]func(*testing.T, *proxy.Proxy){
	"disarmed": func(t *testing.T, px *proxy.Proxy) {
		if !px.Disarm("the rule") {
			t.Error("it is not armed")
		}
	},
	"rearmed": func(t *testing.T, px *proxy.Proxy) {
		must(t, px.Rearm(faults.Rule{ID: "the rule", Trigger: faults.Trigger{Dir: c2s, Op: "R"}}))
	},
}

// TestGoneWaitsEnd: what a rule holds back goes on in the moment in which it goes.
func TestGoneWaitsEnd(t *testing.T) {
	long := 40 * time.Second
	n := len(acquire)
	for _, c := range []struct {
		id   string
		at   int
		args faults.Args
		held string // what has come while the rule was armed
		want string // in all
	}{
		{"delay", 0, faults.Args{"by": long}, "", acquire},
		{"hold", 0, faults.Args{"most": long}, "", acquire},
		{"split", 7, faults.Args{"pause": long}, acquire[:7], acquire},
		{"dribble", 0, faults.Args{"pause": long}, acquire[:1], acquire},
		{"coalesce", 0, faults.Args{"most": long}, "", acquire},
		{"reorder", 0, faults.Args{"most": long}, "", acquire},
		{"splice", 7, faults.Args{"most": long}, acquire[:7], acquire},
		{"inject-notice", 0, faults.Args{"pause": long}, notice, notice + acquire},
		{"inject-notice", n, nil, acquire + notice, acquire + notice},
	} {
		for name, goes := range goes {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
				rule := onAcquire(t, c.id, c.at, nil)
				if rule.Args = c.args; rule.Fault.Injects != "" {
					rule.Inject = []byte(notice)
				}
				must(t, b.px.Arm(rule))
				cl, sv := b.connect()
				cl.send(auth, acquire, release[:5]) // the next one is under way
				time.Sleep(time.Second)
				held := c.held
				if c.held == c.want {
					held += release[:5]
				}
				sv.wantGot(c.id+" held", auth+held, "")
				goes(t, b.px)
				synctest.Wait()
				sv.wantGot(c.id+" "+name, auth+c.want+release[:5], "")
				cl.send(release[5:], acquire)
				synctest.Wait()
				sv.wantGot(c.id+" later", auth+c.want+release+acquire, "")
				b.stop()
			})
		}
	}
}

// TestGoneOpenings: the same of rules on the greeting and on the connection.
func TestGoneOpenings(t *testing.T) {
	for name, goes := range goes {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
			must(t, b.px.Arm(faults.Rule{ID: "the rule", Fault: fault(t, "hold-greeting"), Trigger: faults.Trigger{Dir: s2c, Op: "greeting"}}))
			cl, sv := b.connect()
			sv.send(greeting)
			time.Sleep(time.Second)
			cl.wantGot("held", "", "")
			goes(t, b.px)
			synctest.Wait()
			cl.wantGot(name, greeting, "")
			b.px.DisarmAll()

			rule := onOpen(t, "slow-accept", faults.Trigger{})
			rule.Args = faults.Args{"pause": 40 * time.Second}
			must(t, b.px.Arm(rule))
			cl = b.dial(b.addr)
			cl.send(auth)
			time.Sleep(time.Second)
			if n := len(b.events(history.ServerDialed)); n != 1 {
				t.Errorf("the server was dialled %d times", n)
			}
			goes(t, b.px)
			synctest.Wait()
			if n := len(b.events(history.ServerDialed)); n != 2 {
				t.Errorf("%s: the server was dialled %d times", name, n)
			}
			c, err := b.up.Accept()
			must(t, err)
			b.newPeer(c)
			b.dialed++
			b.px.DisarmAll()

			rule = onOpen(t, "refuse", faults.Trigger{})
			rule.Args = faults.Args{"most": 40 * time.Second}
			must(t, b.px.Arm(rule))
			b.wantRefused(b.addr)
			time.Sleep(time.Second)
			b.wantRefused(b.addr)
			goes(t, b.px)
			synctest.Wait()
			b.wantTalk(b.addr)
			b.stop()
		})
	}
}

// TestGoneDoesNothing: what a rule was still to do when it went is not done: to a
// frame under way, and to one behind what another rule holds.
func TestGoneDoesNothing(t *testing.T) {
	n := len(acquire)
	for _, c := range []struct {
		id string
		at int
	}{
		{"truncate-fin", n - 1},
		{"truncate-rst", n},
		{"truncate-silence", n - 1},
		{"stall", n - 1},
		{"split", n - 1},
		{"duplicate", n},
		{"corrupt", n - 1},
		{"inject-notice", n},
		{"splice", n - 1},
		// What begins with the frame's first byte can only be behind a hold.
		{"delay", 0},
		{"hold", 0},
		{"dribble", 0},
		{"coalesce", 0},
		{"reorder", 0},
		{"inject-notice", 0},
	} {
		for _, behind := range []bool{false, true} {
			if !behind && c.at == 0 || behind && c.id == "corrupt" { // a bit is inverted when it comes
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
				rule := onAcquire(t, c.id, c.at, nil)
				rule.Trigger.Nth = 1
				if rule.Fault.Injects != "" {
					rule.Inject = []byte(notice)
				}
				must(t, b.px.Arm(rule))
				if behind {
					must(t, b.px.Arm(faults.Rule{
						ID: "hold", Fault: fault(t, "hold"), Args: faults.Args{"most": time.Minute}, Until: "g", Trigger: faults.Trigger{Dir: c2s, Op: "R"},
					}))
				}
				cl, sv := b.connect()
				cl.send(auth)
				want := acquire + acquire
				if behind {
					cl.send(release, acquire)
					want = release + want
				} else {
					cl.send(acquire[:n-2])
				}
				synctest.Wait()
				b.px.Disarm("the rule")
				if behind {
					must(t, b.px.OpenGate("g"))
				} else {
					cl.send(acquire[n-2:])
				}
				before := time.Since(b.began)
				cl.send(acquire)
				synctest.Wait()
				sv.wantGot(c.id, auth+want, "")
				if took := time.Since(b.began) - before; took != 0 {
					t.Errorf("%s took %s", c.id, took)
				}
				cl.closeWrite()
				sv.wantAll(c.id, auth+want, history.FIN)
				fired := slices.DeleteFunc(ofKind(b.stop(), history.Fired), func(e history.Event) bool { return e.Rule == "hold" })
				if len(fired) > 0 {
					t.Errorf("%s: fired %+v", c.id, fired)
				}
			})
		}
	}
}

// TestRefuseAgain: a rule that refuses connections rests after a refusal until one
// was let in; one that is armed later does not.
func TestRefuseAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		synctest.Wait() // it is served
		rule := onOpen(t, "refuse", faults.Trigger{})
		rule.Args = faults.Args{"most": 10 * time.Second}
		must(t, b.px.Arm(rule))
		b.wantRefused(b.addr)
		time.Sleep(2 * time.Second)
		rule.Args = faults.Args{"most": time.Second}
		must(t, b.px.Rearm(rule)) // as if it were new: for a second from now
		synctest.Wait()
		time.Sleep(time.Second - 1)
		b.wantRefused(b.addr)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		b.wantTalk(b.addr) // it rests for this one
		synctest.Wait()
		b.wantRefused(b.addr)
		time.Sleep(time.Second)
		synctest.Wait()
		must(t, b.px.Rearm(rule))
		synctest.Wait()
		b.wantRefused(b.addr)
		if r, _ := b.px.Rule("the rule"); r.Fired != 1 || r.Matched != 1 {
			t.Errorf("fired %d, matched %d", r.Fired, r.Matched)
		}
		b.stop()
	})
}

// TestRefuseNext: a rule that refuses has its turn when the one before it has gone,
// or lets the connection pass.
func TestRefuseNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		synctest.Wait() // it is served
		first := onOpen(t, "slow-accept", faults.Trigger{})
		first.ID, first.Skip = "first", 1
		refuse := onOpen(t, "refuse", faults.Trigger{})
		refuse.Args = faults.Args{"most": time.Second}
		must(t, b.px.Arm(first))
		must(t, b.px.Arm(refuse))
		b.wantRefused(b.addr) // the first lets one pass
		time.Sleep(time.Second)
		synctest.Wait()
		b.wantTalk(b.addr)    // both do
		b.wantTalk(b.addr)    // slowly
		b.px.Disarm("first")  // then nothing is before it
		b.wantRefused(b.addr) // at once
		b.stop()
	})
}

// TestRefuseCounts: a connection that the dice spare has matched all the same.
func TestRefuseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar})
		must(t, b.px.Arm(onOpen(t, "refuse", faults.Trigger{Chance: 1e-9})))
		for range 3 {
			b.wantTalk(b.addr)
		}
		if r, _ := b.px.Rule("the rule"); r.Matched != 3 || r.Fired != 0 {
			t.Errorf("matched %d, fired %d", r.Matched, r.Fired)
		}
		b.stop()
	})
}
