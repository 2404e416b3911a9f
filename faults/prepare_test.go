package faults_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/faults"
	"tornwire/frames"
)

// problems lists the problems in an error as "field: reason".
func problems(t *testing.T, err error) []string {
	t.Helper()
	var out []string
	var walk func(error)
	walk = func(err error) {
		var f *faults.FieldError
		switch joined, ok := err.(interface{ Unwrap() []error }); {
		case err == nil:
		case ok:
			for _, e := range joined.Unwrap() {
				walk(e)
			}
		case errors.As(err, &f):
			out = append(out, f.Field+": "+f.Reason)
		default:
			t.Errorf("%v is of no field", err)
		}
	}
	walk(err)
	return out
}

// TestPrepareErrors: each problem of a rule with its field, all of them at once.
func TestPrepareErrors(t *testing.T) {
	hold, refuse := byID(t, "hold"), byID(t, "refuse")
	on := func(edit func(*faults.Rule)) faults.Rule {
		r := faults.Rule{ID: "r", Fault: hold, Trigger: faults.Trigger{Dir: c2s, Op: "A"}}
		edit(&r)
		return r
	}
	open := func(edit func(*faults.Rule)) faults.Rule {
		r := faults.Rule{ID: "r", Fault: refuse, Trigger: faults.Trigger{Dir: c2s, Op: "open"}}
		edit(&r)
		return r
	}
	where := func(name, p string) faults.Rule {
		return on(func(r *faults.Rule) { r.Trigger.Where = map[string]string{name: p} })
	}
	long := strings.Repeat("x", faults.MaxName)
	acquire := frames.MustBuiltin("ticketing").MustShape(c2s, "A")
	farthest := acquire.Size(acquire.Limit)
	for _, c := range []struct {
		rule faults.Rule
		want []string
	}{
		{on(func(*faults.Rule) {}), nil},
		{open(func(*faults.Rule) {}), nil},
		{on(func(r *faults.Rule) { r.Trigger.Op = "" }), []string{"op: op is missing"}},
		{on(func(r *faults.Rule) { r.Trigger.Dir = 2 }), []string{"dir: direction 2 is neither c2s nor s2c"}},
		{on(func(r *faults.Rule) { r.Trigger.Op = "Z" }), []string{"op: the grammar has no Z in c2s; it has auth, A, R, keepalive"}},
		{on(func(r *faults.Rule) { r.Trigger.Op = "M" }), []string{"op: the grammar has no M in c2s; it has auth, A, R, keepalive"}},
		{on(func(r *faults.Rule) { r.Trigger.Op = "open" }), []string{"op: fault hold acts on a frame, and open is a connection"}},
		{on(func(r *faults.Rule) { r.Fault = refuse }), []string{"op: fault refuse is meant for open, not for A"}},
		{on(func(r *faults.Rule) { r.Trigger.Session = -1 }), []string{"session: session is -1, not 0 or more"}},
		{on(func(r *faults.Rule) { r.Trigger.Nth = -2 }), []string{"nth: nth is -2, not 0 or more"}},
		{on(func(r *faults.Rule) { r.Trigger.SessionNth = -3 }), []string{"session_nth: session_nth is -3, not 0 or more"}},
		{on(func(r *faults.Rule) { r.Trigger.ClientNth = -4 }), []string{"client_nth: client_nth is -4, not 0 or more"}},
		{on(func(r *faults.Rule) { r.Trigger.Chance = 1 }), nil},
		{on(func(r *faults.Rule) { r.Trigger.Chance = 1.5 }), []string{"chance: chance is 1.5, not over 0 up to 1"}},
		{on(func(r *faults.Rule) { r.Trigger.Chance = -0.5 }), []string{"chance: chance is -0.5, not over 0 up to 1"}},
		{on(func(r *faults.Rule) { r.Trigger.Chance = math.NaN() }), []string{"chance: chance is NaN, not over 0 up to 1"}},
		{on(func(r *faults.Rule) { r.Trigger.Begin = time.Second }), nil},
		{on(func(r *faults.Rule) { r.Trigger.Begin, r.Trigger.End = time.Second, 2*time.Second }), nil},
		{on(func(r *faults.Rule) { r.Trigger.Begin, r.Trigger.End = time.Second, time.Second }), []string{"window: the window is from 1s to 1s: it never is"}},
		{on(func(r *faults.Rule) { r.Trigger.Begin = -1 }), []string{"window: the window is from -1ns to 0s: it never is"}},
		{on(func(r *faults.Rule) { r.Trigger.End = -1 }), []string{"window: the window is from 0s to -1ns: it never is"}},
		{on(func(r *faults.Rule) { r.Trigger.From = netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 33) }), []string{"from: from is no prefix of addresses"}},
		{on(func(r *faults.Rule) { r.Skip = -1 }), []string{"times: skip -1 and times 0: neither may be under 0"}},
		{on(func(r *faults.Rule) { r.Times = -1 }), []string{"times: skip 0 and times -1: neither may be under 0"}},
		{on(func(r *faults.Rule) { r.TTL = -time.Second }), []string{"ttl: ttl is -1s, not 0s or more"}},
		{on(func(r *faults.Rule) { r.ID, r.Signal, r.Trigger.After, r.Until = long, long, long, long }), nil},
		{on(func(r *faults.Rule) { r.ID = long + "x" }), []string{"id: id has 257 bytes, not up to 256"}},
		{on(func(r *faults.Rule) { r.Signal = long + "x" }), []string{"signal: signal has 257 bytes, not up to 256"}},
		{on(func(r *faults.Rule) { r.Trigger.After = long + "x" }), []string{"after: after has 257 bytes, not up to 256"}},
		{on(func(r *faults.Rule) { r.Until = long + "x" }), []string{"fault.until: fault.until has 257 bytes, not up to 256"}},
		{on(func(r *faults.Rule) { r.TTL, r.Trigger.Begin = time.Second, time.Second }), []string{"window: the window begins after 1s, when the rule is no longer armed"}},
		{on(func(r *faults.Rule) { r.Fault, r.At = byID(t, "stall"), farthest+1 }), []string{fmt.Sprintf("fault.at: c2s.A has at most %d bytes, and the fault is to act behind %d", farthest, farthest+1)}},
		{on(func(r *faults.Rule) { r.Fault, r.At = byID(t, "stall"), farthest }), nil},
		{on(func(r *faults.Rule) { r.Fault, r.At = byID(t, "stall"), faults.FrameEnd }), nil},
		{on(func(r *faults.Rule) { r.At = 1 }), []string{"fault.at: fault hold acts at 0, not at 1"}},
		{on(func(r *faults.Rule) { r.Args = faults.Args{"by": 1} }), []string{`fault.args.by: fault hold has no argument "by"`}},
		{on(func(r *faults.Rule) { r.Args = faults.Args{"most": 0} }), []string{"fault.args.most: fault hold: most is 0s, not over 0s and up to 10m0s"}},
		{on(func(r *faults.Rule) { r.Inject = []byte("x") }), []string{"inject_hex: fault hold injects nothing, and there are 1 bytes to inject"}},
		{on(func(r *faults.Rule) { r.Fault = byID(t, "inject-error") }), []string{"inject_hex: fault inject-error has 0 bytes of error to inject, not 1 to 4096"}},
		{on(func(r *faults.Rule) { r.Fault, r.Until = byID(t, "delay"), "u" }), []string{"fault.until: fault delay waits for no gate"}},
		{on(func(r *faults.Rule) { r.Fault, r.Until = byID(t, "truncate-rst"), "u" }), []string{"fault.until: fault truncate-rst waits for no gate"}},
		{on(func(r *faults.Rule) { r.Fault = nil }), nil},
		{on(func(r *faults.Rule) { r.Fault, r.At = nil, 1 }), []string{"fault.type: there is no fault, but an offset, an argument, a gate or bytes for one"}},
		{on(func(r *faults.Rule) { r.Fault, r.Until = nil, "u" }), []string{"fault.type: there is no fault, but an offset, an argument, a gate or bytes for one"}},
		{where("key", strings.Repeat("x", faults.MaxPattern)), nil},
		{where("key", strings.Repeat("x", faults.MaxPattern+1)), []string{"where.key: the pattern has 1025 bytes, not up to 1024"}},
		{where("wait", "255"), nil},
		{where("wait", "256"), []string{"where.wait: 256 is over 255, the most that wait holds"}},
		{where("wait", "0..256"), nil},
		{where("wait", "9..5"), []string{`where.wait: "9..5" is no number, nor a range such as 5..9`}},
		{where("wait", "-1"), []string{`where.wait: "-1" is no number, nor a range such as 5..9`}},
		{where("wait", "*"), []string{`where.wait: "*" is no number, nor a range such as 5..9`}},
		{where("wait", ""), []string{`where.wait: "" is no number, nor a range such as 5..9`}},
		{where("wait", "1_0"), []string{`where.wait: "1_0" is no number, nor a range such as 5..9`}},
		{where("wait", "1.."), []string{`where.wait: "1.." is no number, nor a range such as 5..9`}},
		{where("owner", "0x10000000000000000"), []string{`where.owner: "0x10000000000000000" is no number, nor a range such as 5..9`}},
		{where("token", "1"), []string{`where.token: c2s.A has no "token"; it has wait, lease, owner, key`}},
		{where("", "1"), []string{`where.: c2s.A has no ""; it has wait, lease, owner, key`}},
		{
			faults.Rule{Fault: byID(t, "drop"), Trigger: faults.Trigger{Dir: s2c, Op: "keepalive", Where: map[string]string{"key": "x"}}},
			[]string{`where.key: s2c.keepalive has no "key"; it has nothing that a condition can name`},
		},
		{open(func(r *faults.Rule) { r.Trigger.Dir = s2c }), []string{"dir: a connection is c2s, not s2c"}},
		{open(func(r *faults.Rule) { r.Trigger.SessionNth = 2 }), []string{"session_nth: a connection is the first of its session, not number 2"}},
		{open(func(r *faults.Rule) { r.Trigger.Where = map[string]string{"key": "x"} }), []string{"where: a connection has no fields"}},
		{open(func(r *faults.Rule) { r.Trigger.From = netip.MustParsePrefix("10.0.0.0/8") }), []string{"from: who connects is not known before the connection is refused"}},
		{open(func(r *faults.Rule) {
			r.Fault, r.Trigger.From = byID(t, "accept-fin"), netip.MustParsePrefix("10.0.0.0/8")
		}), nil},
		{open(func(r *faults.Rule) { r.Trigger.End = time.Second }), []string{"window: fault refuse begins when the rule is armed, and has no window"}},
		{open(func(r *faults.Rule) { r.Skip = 1 }), []string{"skip: fault refuse counts no connections that pass; use nth"}},
		{open(func(r *faults.Rule) { r.Until = "u" }), nil},
		{
			on(func(r *faults.Rule) {
				r.Trigger = faults.Trigger{Op: "A", Nth: -1, Chance: 2, End: -1, Where: map[string]string{"wait": "x", "token": "1", "key": "*"}}
				r.TTL, r.At, r.Args, r.Signal = -1, 1, faults.Args{"by": 1, "most": -1}, long+"x"
			}),
			[]string{
				"chance: chance is 2, not over 0 up to 1", "fault.args.by: fault hold has no argument \"by\"",
				"fault.args.most: fault hold: most is -1ns, not over 0s and up to 10m0s", "fault.at: fault hold acts at 0, not at 1",
				"nth: nth is -1, not 0 or more", "signal: signal has 257 bytes, not up to 256", "ttl: ttl is -1ns, not 0s or more",
				`where.token: c2s.A has no "token"; it has wait, lease, owner, key`, `where.wait: "x" is no number, nor a range such as 5..9`,
				"window: the window is from 0s to -1ns: it never is",
			},
		},
		{
			open(func(r *faults.Rule) {
				r.Trigger = faults.Trigger{Dir: s2c, Op: "open", Nth: -1, SessionNth: 3, End: 1, From: netip.MustParsePrefix("::/0"), Where: map[string]string{"x": "y"}}
			}),
			[]string{
				"dir: a connection is c2s, not s2c", "from: who connects is not known before the connection is refused", "nth: nth is -1, not 0 or more",
				"session_nth: a connection is the first of its session, not number 3", "where: a connection has no fields",
				"window: fault refuse begins when the rule is armed, and has no window",
			},
		},
		{
			on(func(r *faults.Rule) { r.Trigger = faults.Trigger{Session: -1}; r.TTL = -1 }),
			[]string{"op: op is missing", "session: session is -1, not 0 or more", "ttl: ttl is -1ns, not 0s or more"},
		},
	} {
		r, err := c.rule.Prepare(grammar)
		got := problems(t, err)
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%+v:\n%q, wanted\n%q", c.rule.Trigger, got, c.want)
		}
		if (r == nil) != (err != nil) {
			t.Errorf("%+v: a rule %v and %v", c.rule.Trigger, r, err)
		}
	}
}

// TestPrepareOnTrust: without a grammar nobody knows which ops and fields there are.
func TestPrepareOnTrust(t *testing.T) {
	r := faults.Rule{Trigger: faults.Trigger{Op: "whatever", Where: map[string]string{"x": "y"}}}
	if _, err := r.Prepare(nil); err != nil {
		t.Error(err)
	}
	if _, err := r.Prepare(grammar); err == nil {
		t.Error("the grammar has it")
	}
}

// TestUntil: the rule's gate takes the place of the fault's, in this rule alone.
func TestUntil(t *testing.T) {
	r, err := faults.Rule{Fault: byID(t, "hold"), Until: "mine", Trigger: faults.Trigger{Op: "A"}}.Prepare(grammar)
	if err != nil || r.Steps()[0].Name != "mine" {
		t.Errorf("%v, %+v", err, r)
	}
	if r, _ = (faults.Rule{Fault: byID(t, "hold"), Trigger: faults.Trigger{Op: "A"}}).Prepare(grammar); r.Steps()[0].Name != faults.GateHold {
		t.Errorf("another rule waits for %s", r.Steps()[0].Name)
	}
}

// TestFrom: addresses are compared in one form, without zones; no address is in no
// prefix.
func TestFrom(t *testing.T) {
	for _, c := range []struct {
		prefix, addr string
		want         bool
	}{
		{"", "", true},
		{"", "10.1.2.3", true},
		{"10.0.0.0/8", "10.1.2.3", true},
		{"10.0.0.0/8", "11.1.2.3", false},
		{"10.0.0.0/8", "::ffff:10.1.2.3", true},
		{"10.0.0.0/8", "::ffff:11.1.2.3", false},
		{"10.0.0.0/8", "", false},
		{"10.9.9.9/8", "10.1.2.3", true},
		{"0.0.0.0/0", "10.1.2.3", true},
		{"0.0.0.0/0", "2001:db8::1", false},
		{"0.0.0.0/0", "", false},
		{"::ffff:10.0.0.0/104", "10.1.2.3", true},
		{"::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true},
		{"::ffff:10.0.0.0/104", "11.1.2.3", false},
		{"2001:db8::/32", "2001:db8::1", true},
		{"2001:db8::/32", "2001:db9::1", false},
		{"2001:db8::/32", "10.1.2.3", false},
		{"::/0", "2001:db8::1", true},
		{"::/0", "10.1.2.3", false},
		{"fe80::/10", "fe80::1%eth0", true},
	} {
		trigger := faults.Trigger{Dir: c2s, Op: "A"}
		f := faults.Frame{Dir: c2s, Op: "A"}
		if c.prefix != "" {
			trigger.From = netip.MustParsePrefix(c.prefix)
		}
		if c.addr != "" {
			f.From = netip.MustParseAddr(c.addr)
		}
		r, err := faults.Rule{Trigger: trigger}.Prepare(grammar)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Trigger.Applies(f); got != c.want {
			t.Errorf("%q in %q: %v", c.addr, c.prefix, got)
		}
	}
}
