package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAllProblems: what is wrong with a scenario is told at once, each with its line.
func TestAllProblems(t *testing.T) {
	t.Parallel()
	_, err := Parse("bad.toml", []byte(`name = "Bad name"
colour = "red"
about = 5
clause = "4.1"
dialect = "tiketing"
seed = -1
timeout = "2h"

[server]
kind = "cluster"
nodes = 1
address = "a:1"

[[proxies]]
name = "p"
node = 7
listen = "nowhere"

[[clients]]
name = "c1"
kind = "refernce"
proxies = ["q"]

[[clients]]
name = "c1"
command = ["x"]

[[rules]]
id = "cut"
dir = "s2c"
op = "Q"
fault = { type = "trunkate-fin", at = 3 }
armed = false

[[rules]]
id = "cut"
dir = "c2s"
op = "A"
after = "never"
fault = { type = "hold-greeting", at = 2 }

[[steps]]
acquire = "a"
settle = "a"

[[steps]]
dance = "a"

[[steps]]
acquire = "a"
key = "has space"
wait = "300s"

[[steps]]
settle = "b"

[[steps]]
when = { frame = "s2c.Z", event = "graned", within = "9m" }
arm = "cutt"

[[steps]]
free = "k"

[[expect]]
finding = "one-atempt"
count = "3..1"

[[expect]]
call = "zz"

[[expect]]
verdict = "splendid"
`))
	var got []string
	for _, p := range strings.Split(err.Error(), "\n") {
		got = append(got, strings.TrimPrefix(p, "bad.toml:"))
	}
	want, readErr := os.ReadFile(filepath.Join("testdata", "bad.txt"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	if text := strings.Join(got, "\n") + "\n"; text != string(want) {
		t.Errorf("the problems are\n%s", text)
	}
}

// TestOneProblem: each of these has one problem, and this line and text.
func TestOneProblem(t *testing.T) {
	t.Parallel()
	const call = "[[steps]]\nacquire = \"a\"\nkey = \"k\"\nwait = \"1s\"\nlease = \"5s\"\n"
	const rule = "[[rules]]\nid = \"r\"\ndir = \"s2c\"\nop = \"A\"\nfault = { type = \"drop\" }\n"
	for text, want := range map[string]string{
		"":                                   `1: steps is empty, and no client is a command: nothing would happen`,
		"[[steps]\n":                         "4: expected end of table array name delimiter ']'",
		"x = 1979-05-27\n" + call:            "3: x is a date, a time or no finite number, which nothing here can be",
		"seed = inf\n" + call:                "3: seed is a date",
		call + call:                          `9: steps.1.acquire is "a", as a call before it`,
		call + "[[steps]]\nlead = \"n1\"\n":  "9: steps.1.lead needs a cluster, and this server's kind is embedded",
		call + "[[steps]]\nfree = \"k\"\n":   `9: steps.1.free is "k", and no step before it holds or takes that`,
		call + "[[steps]]\nawait = \"x\"\n":  `9: steps.1.await has no when: nothing is waited for`,
		call + "[[steps]]\npause = \"5m\"\n": "1: timeout is 1m0s, and the steps pause for 5m0s",
		call + "[[steps]]\ngate = \"g\"\n":   `9: steps.1.gate is "g", and no rule names that gate`,
		call + "[[steps]]\ncancel = \"a\"\nkey = \"k\"\n":                                                                    "10: steps.1.key is for acquire, and this step does cancel",
		call + "[[steps]]\nsettle = \"a\"\n[[steps]]\ncancel = \"a\"\n":                                                      `11: steps.2.cancel is "a", which is over: a step before it has settled it`,
		call + "[[steps]]\nrelease = \"a\"\n[[steps]]\nenter = \"a\"\n":                                                      `11: steps.2.enter is "a", which a step before it has released`,
		call + "[[steps]]\nwhen = { fired = \"r\" }\nsettle = \"a\"\n":                                                       `9: steps.1.when.fired is "r", and there is no such rule`,
		call + "[[steps]]\nwhen = { event = \"entered\", call = \"b\" }\nsettle = \"a\"\n":                                   `9: steps.1.when.call is "b", and no step before it acquires that`,
		call + "[[steps]]\nwhen = { }\nsettle = \"a\"\n":                                                                     "9: steps.1.when is a condition without one of frame, event, fired, after",
		call + "[[steps]]\nwhen = { frame = \"s2c\" }\nsettle = \"a\"\n":                                                     `9: steps.1.when.frame is "s2c", not a frame such as s2c.A or s2c.A.1`,
		call + "[[steps]]\nwhen = { frame = \"s2c.A.1\", count = 2 }\nsettle = \"a\"\n":                                      "9: steps.1.when.count is 2, and s2c.A.1 is one frame",
		rule + "armed = false\n" + call:                                                                                      "8: rules.0.armed is false, and no step arms the rule",
		rule + "nth = 1\n" + call + "[[expect]]\nfired = \"r\"\ncount = \"2\"\n":                                             `15: expect.0.fired is "r" at least 2 times, and the rule acts 1 times at most`,
		rule + call + "[[steps]]\narm = \"r\"\n":                                                                             `14: steps.1.arm is "r", which is armed already`,
		rule + "after = \"never\"\n" + call:                                                                                  `8: rules.0.after is the gate "never", which neither a step nor a rule opens: the rule never acts`,
		call + "[[expect]]\nfinding = \"one-attempt\"\n[[expect]]\nno_finding = \"*\"\n":                                     "11: expect.1.no_finding is any, and another expectation wants a finding",
		call + "[[expect]]\ncall = \"a\"\noutcomes = [\"won\"]\n":                                                            `10: expect.0.outcomes is "won", and there is no such outcome`,
		"[[clients]]\nname = \"x\"\nkind = \"anyone\"\n" + call:                                                              "6: steps.0.client asks client x for something, which is whoever connects: it does what it wants",
		"[server]\nkind = \"upstream\"\n" + call:                                                                             "3: server.address is missing: where the upstream is, HOST:PORT",
		"[server]\nkind = \"upstream\"\naddress = \"a:1\"\n[[steps]]\nhold = \"k\"\n":                                        "7: steps.0.hold needs a server of the tool's own, and this one is an upstream",
		"dialect = \"ticketing-v0\"\n[[steps]]\nacquire = \"a\"\nkey = \"k\"\nwait = \"0s\"\nlease = \"5s\"\n":               "7: steps.0.wait is 0s, which dialect ticketing-v0 has no word for",
		"[[proxies]]\nname = \"p\"\nlisten = \"127.0.0.1:7\"\n[[clients]]\nname = \"a\"\n[[clients]]\nname = \"b\"\n" + call: "5: proxies.0.listen is one address for a and b",
	} {
		_, err := Parse("f", []byte("name = \"n\"\nabout = \"a\"\n"+text))
		if err == nil || !strings.HasPrefix(err.Error(), "f:"+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %v\nwant f:%s", text, err, want)
		}
	}
	if _, err := Parse("f", make([]byte, MaxSource+1)); err == nil || err.Error() != "f: it has 1048577 bytes, over 1048576" {
		t.Error(err)
	}
	if _, err := ParseJSON([]byte(`{"name":"n","about":"a","steps":[{"acquire":"a","key":"k","wait":"1s"}]}`)); err == nil || err.Error() != `steps.0.lease is missing: a time such as "2s"` {
		t.Error(err)
	}
	if s, err := ParseJSON([]byte(`{"name":"n","about":"a","steps":[{"acquire":"a","key":"k","wait":"1s","lease":"5s"}]}`)); err != nil || s.Steps[0].Client != "c1" || s.Proxies[0].Name != "n1" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestLinesOfKeys: the lines of keys are those in the text, however they are written.
func TestLinesOfKeys(t *testing.T) {
	t.Parallel()
	got := linesOf("a = 1 # x = 2\n\n[t] # [u]\nb.c = \"\"\"\n[[no]]\nd = 1\n\"\"\"\ne = [\n  1, # ]\n  { f = '#', \"g\" = 2 },\n]\n[[r]]\nx = 1\n[r.s]\ny = 1\n[[r]]\nx = '''\nz = 1'''\n[[r.n]]\nq = 1\n'k.l' = 3\r\n")
	for path, line := range map[string]int{
		"a": 1, "t": 3, "t.b": 4, "t.b.c": 4, "t.e": 8, "t.e.0": 9, "t.e.1": 10, "t.e.1.f": 10, "t.e.1.g": 10,
		"r": 12, "r.0": 12, "r.0.x": 13, "r.0.s": 14, "r.0.s.y": 15, "r.1": 16, "r.1.x": 17, "r.1.n": 19, "r.1.n.0": 19, "r.1.n.0.q": 20, "r.1.n.0.k.l": 21,
	} {
		if got[path] != line {
			t.Errorf("%s is in line %d, not %d", path, got[path], line)
		}
	}
	if len(got) != 20 {
		t.Errorf("%d paths: %v", len(got), got)
	}
}

// FuzzParse: no text makes it panic or hang, and what is read is in its limits.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("library/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("[[\"\n='")
	f.Add("a = {b = [\"\"\"")
	f.Fuzz(func(t *testing.T, text string) {
		linesOf(text)
		s, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		if len(s.Steps) > MaxSteps || len(s.Clients) > MaxClients || len(s.Rules) > MaxRules || len(s.Expect) > MaxExpects || s.Timeout > MaxTimeout || len(s.Clients) == 0 || len(s.Proxies) == 0 {
			t.Errorf("%+v", s)
		}
	})
}
