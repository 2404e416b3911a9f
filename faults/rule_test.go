package faults_test

import (
	"strings"
	"testing"
	"time"

	"tornwire/faults"
	"tornwire/frames"
)

const (
	c2s = frames.ClientToServer
	s2c = frames.ServerToClient
)

func byID(t *testing.T, id string) *faults.Type {
	t.Helper()
	f, ok := faults.ByID(id)
	if !ok {
		t.Fatalf("no fault %s", id)
	}
	return f
}

func TestTrigger(t *testing.T) {
	f := faults.Frame{Dir: s2c, Op: "A", Session: 2, Nth: 5, SessionNth: 3, Client: "c", ClientNth: 4}
	for _, c := range []struct {
		faults.Trigger
		want bool
	}{
		{faults.Trigger{Dir: s2c, Op: "A"}, true},
		{faults.Trigger{Dir: c2s, Op: "A"}, false},
		{faults.Trigger{Dir: s2c, Op: "a"}, false},
		{faults.Trigger{Dir: s2c}, false},
		{faults.Trigger{Dir: s2c, Op: "A", Session: 2}, true},
		{faults.Trigger{Dir: s2c, Op: "A", Session: 1}, false},
		{faults.Trigger{Dir: s2c, Op: "A", Nth: 5}, true},
		{faults.Trigger{Dir: s2c, Op: "A", Nth: 3}, false},
		{faults.Trigger{Dir: s2c, Op: "A", SessionNth: 3}, true},
		{faults.Trigger{Dir: s2c, Op: "A", SessionNth: 5}, false},
		{faults.Trigger{Dir: s2c, Op: "A", Session: 2, Nth: 5, SessionNth: 3}, true},
		{faults.Trigger{Dir: s2c, Op: "A", Session: 2, Nth: 5, SessionNth: 4}, false},
		{faults.Trigger{Dir: s2c, Op: "A", Client: "c"}, true},
		{faults.Trigger{Dir: s2c, Op: "A", Client: "d"}, false},
		{faults.Trigger{Dir: s2c, Op: "A", ClientNth: 4}, true},
		{faults.Trigger{Dir: s2c, Op: "A", ClientNth: 5}, false},
		{faults.Trigger{Dir: s2c, Op: "A", Client: "c", ClientNth: 4, Nth: 5}, true},
	} {
		if got := c.Applies(f); got != c.want {
			t.Errorf("%+v matches: %v", c.Trigger, got)
		}
	}
}

func TestSet(t *testing.T) {
	var none *faults.Set
	if none.Rules() != nil || none.Len() != 0 {
		t.Error("a nil set has a rule")
	}
	set, err := faults.NewSet(
		faults.Rule{ID: "one", Fault: byID(t, "split"), At: 1, Trigger: faults.Trigger{Op: "A", Nth: 2}},
		faults.Rule{ID: "two", Fault: byID(t, "hold"), Trigger: faults.Trigger{Op: "A"}},
	)
	if err != nil || set.Len() != 2 {
		t.Fatalf("%v, %d rules", err, set.Len())
	}
	for i, want := range []string{"one", "two"} {
		if r := set.Rules()[i]; r.ID != want || len(r.Steps()) == 0 {
			t.Errorf("rule %d is %+v", i, r)
		}
	}
}

func TestNewSetErrors(t *testing.T) {
	on := faults.Trigger{Op: "A"}
	opens := faults.Trigger{Op: "open"}
	after := func(d time.Duration) faults.Args { return faults.Args{"after": d} }
	for _, c := range []struct {
		rule faults.Rule
		want string // "" if it is right
	}{
		{faults.Rule{Fault: byID(t, "hold"), Trigger: faults.Trigger{Op: "A", ClientNth: -1}}, `rule "r": client_nth is -1, not 0 or more`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: opens}, `rule "r": fault hold acts on a frame, and open is a connection`},
		{faults.Rule{Fault: byID(t, "refuse"), Trigger: on}, `rule "r": fault refuse is meant for open, not for A`},
		{faults.Rule{Fault: byID(t, "refuse"), Trigger: opens}, ""},
		{faults.Rule{Fault: byID(t, "refuse"), Trigger: faults.Trigger{Op: "open", SessionNth: 1}}, ""},
		{faults.Rule{Fault: byID(t, "refuse"), Trigger: faults.Trigger{Op: "open", SessionNth: 2}}, `rule "r": a connection is the first of its session, not number 2`},
		{faults.Rule{Fault: byID(t, "accept-fin"), Trigger: faults.Trigger{Dir: s2c, Op: "open"}}, `rule "r": a connection is c2s, not s2c`},
		{faults.Rule{Fault: byID(t, "accept-rst"), Trigger: faults.Trigger{Op: "greeting"}}, `rule "r": fault accept-rst is meant for open`},
		{faults.Rule{Fault: byID(t, "slow-accept"), At: 1, Trigger: opens}, `rule "r": fault slow-accept acts at 0, not at 1`},
		{faults.Rule{Fault: byID(t, "hold-greeting"), Trigger: on}, `rule "r": fault hold-greeting is meant for greeting, not for A`},
		{faults.Rule{Fault: byID(t, "hold-greeting"), Trigger: faults.Trigger{Dir: s2c, Op: "greeting"}}, ""},
		{faults.Rule{Fault: byID(t, "drop"), At: 1, Trigger: on}, `rule "r": fault drop acts at 0, not at 1`},
		{faults.Rule{Fault: byID(t, "duplicate"), Trigger: on}, `rule "r": fault duplicate acts at n, not at 0`},
		{faults.Rule{Fault: byID(t, "duplicate"), At: 1, Trigger: on}, ""},
		{faults.Rule{Fault: byID(t, "corrupt"), At: -1, Trigger: on}, `rule "r": fault corrupt acts at 0…n−1, not at -1`},
		{faults.Rule{Fault: byID(t, "corrupt"), At: 0, Trigger: on}, ""},
		{faults.Rule{Fault: byID(t, "corrupt"), At: 9, Trigger: on, Inject: []byte("x")}, `rule "r": fault corrupt injects nothing, and there are 1 bytes`},
		{faults.Rule{Fault: byID(t, "inject-stray"), Trigger: on}, `rule "r": fault inject-stray has 0 bytes of stray to inject, not 1 to 4096`},
		{faults.Rule{Fault: byID(t, "inject-stray"), At: 7, Trigger: on, Inject: make([]byte, faults.MaxInject)}, ""},
		{faults.Rule{Fault: byID(t, "inject-stray"), Trigger: on, Inject: make([]byte, faults.MaxInject+1)}, `rule "r": fault inject-stray has 4097 bytes`},
		{faults.Rule{Fault: byID(t, "truncate-fin-client"), Trigger: on, Args: after(0)}, ""},
		{faults.Rule{Fault: byID(t, "truncate-rst"), Trigger: on, Args: after(time.Minute)}, ""},
		{faults.Rule{Fault: byID(t, "truncate-rst"), Trigger: on, Args: after(time.Minute + 1)}, `rule "r": fault truncate-rst: after is 1m0.000000001s, not 0s or more and up to 1m0s`},
		{faults.Rule{Fault: byID(t, "truncate-fin"), Trigger: on, Args: after(-1)}, `rule "r": fault truncate-fin: after is -1ns`},
		{faults.Rule{Fault: byID(t, "truncate-silence"), Trigger: on, Args: after(1)}, `rule "r": fault truncate-silence has no argument "after"`},
		{faults.Rule{Trigger: on}, `rule "r" has no fault`},
		{faults.Rule{Fault: byID(t, "hold")}, `rule "r": op is missing`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: faults.Trigger{Op: "A", Nth: -1}}, `rule "r": nth is -1, not 0 or more`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: faults.Trigger{Op: "A", Session: -1}}, `rule "r": session is -1, not 0 or more`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: faults.Trigger{Op: "A", SessionNth: -1}}, `rule "r": session_nth is -1, not 0 or more`},
		{faults.Rule{Fault: byID(t, "truncate-fin"), At: -1, Trigger: on}, `rule "r": fault truncate-fin acts at 0…n, not at -1`},
		{faults.Rule{Fault: byID(t, "truncate-fin"), At: 0, Trigger: on}, ""},
		{faults.Rule{Fault: byID(t, "truncate-fin"), At: 1000, Trigger: on}, ""},
		{faults.Rule{Fault: byID(t, "split"), At: 0, Trigger: on}, `rule "r": fault split acts at 1…n−1, not at 0`},
		{faults.Rule{Fault: byID(t, "split"), At: 1, Trigger: on}, ""},
		{faults.Rule{Fault: byID(t, "hold"), At: 1, Trigger: on}, `rule "r": fault hold acts at 0, not at 1`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: on, Args: faults.Args{"pause": time.Second}}, `rule "r": fault hold has no argument "pause"`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: on, Args: faults.Args{"most": 0}}, `rule "r": fault hold: most is 0s, not over 0s and up to 10m0s`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: on, Args: faults.Args{"most": -time.Second}}, `rule "r": fault hold: most is -1s`},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: on, Args: faults.Args{"most": 10 * time.Minute}}, ""},
		{faults.Rule{Fault: byID(t, "hold"), Trigger: on, Args: faults.Args{"most": 10*time.Minute + 1}}, `rule "r": fault hold: most is 10m0.000000001s`},
		{faults.Rule{Fault: byID(t, "split"), At: 1, Trigger: on, Args: faults.Args{"pause": time.Minute + 1}}, `rule "r": fault split: pause`},
	} {
		c.rule.ID = "r"
		set, err := faults.NewSet(faults.Rule{ID: "right", Fault: byID(t, "hold"), Trigger: on}, c.rule)
		if c.want == "" && (err != nil || set.Len() != 2) {
			t.Errorf("%+v: %v", c.rule, err)
		}
		if c.want != "" && (set != nil || err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%+v: %v, wanted %s", c.rule, err, c.want)
		}
	}
}

// TestSetIsImmutable: changing what a set was made of does not change the set.
func TestSetIsImmutable(t *testing.T) {
	args, inject := faults.Args{"most": time.Second}, []byte("x")
	list := []faults.Rule{
		{ID: "r", Fault: byID(t, "hold"), Trigger: faults.Trigger{Op: "A"}, Args: args},
		{ID: "i", Fault: byID(t, "inject-error"), Trigger: faults.Trigger{Op: "T"}, Inject: inject},
	}
	set, err := faults.NewSet(list...)
	if err != nil {
		t.Fatal(err)
	}
	list[0].Trigger.Op, args["most"], inject[0] = "R", time.Minute, 'y'
	if r := set.Rules()[0]; r.Trigger.Op != "A" || r.Steps()[0].For != time.Second || r.Args["most"] != time.Second {
		t.Errorf("%+v", r)
	}
	if r := set.Rules()[1]; string(r.Inject) != "x" {
		t.Errorf("%+v", r)
	}
}
