package api

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/proxy"
	"tornwire/scenarios"
)

const everything = `{"id":"third-grant","dir":"s2c","op":"A","session":2,"nth":3,"session_nth":1,"client":"p","client_nth":4,"from":"127.0.0.0/8",` +
	`"where":{"key":"order-*","token":"170"},"chance":0.5,"after":"gate","window":{"from":"1s","to":"30s"},"skip":1,"times":2,` +
	`"fault":{"type":"truncate-rst","at":13,"args":{"after":"1s"}},"signal":"gate2","ttl":"1h0m0s"}`

// TestReadRule: every field arrives where it belongs, and is told as it was given.
func TestReadRule(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	r, err := readRule([]byte(everything), "", "p", g)
	if err != nil {
		t.Fatal(err)
	}
	cut, _ := faults.ByID("truncate-rst")
	want := faults.Rule{
		ID: "third-grant",
		Trigger: faults.Trigger{
			Dir: frames.ServerToClient, Op: "A", Session: 2, Nth: 3, SessionNth: 1, Client: "p", ClientNth: 4,
			From: netip.MustParsePrefix("127.0.0.0/8"), Where: map[string]string{"key": "order-*", "token": "170"},
			Chance: 0.5, After: "gate", Begin: time.Second, End: 30 * time.Second,
		},
		Fault: cut, At: 13, Args: faults.Args{"after": time.Second}, Skip: 1, Times: 2, Signal: "gate2", TTL: time.Hour,
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("read %+v\nwant %+v", r, want)
	}
	out, err := json.Marshal(viewRule(proxy.RuleState{Rule: r, Matched: 5, Fired: 1, Bytes: 25, Left: time.Minute}))
	if err != nil {
		t.Fatal(err)
	}
	if told := strings.TrimSuffix(everything, "}") + `,"matched":5,"fired":1,"bytes":25,"left":"1m0s"}`; string(out) != told {
		t.Errorf("told %s\nwant %s", out, told)
	}

	r, err = readRule([]byte(`{"id":"i","dir":"c2s","op":"A","from":"10.1.2.3","fault":{"type":"inject-stray","at":0,"until":null},"inject_hex":"520a"}`), "i", "p", g)
	if err != nil || r.TTL != scenarios.DefaultTTL || string(r.Inject) != "R\n" || r.Trigger.From.String() != "10.1.2.3/32" {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = readRule([]byte(`{"id":"o","op":"open","fault":{"type":"accept-rst"}}`), "", "p", nil)
	if err != nil || r.Trigger.Dir != frames.ClientToServer {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = readRule([]byte(`{"id":"watch","dir":"c2s","op":"A","ttl":"24h"}`), "", "p", g); err != nil || r.Fault != nil || r.TTL != scenarios.MaxTTL {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRuleErrors: each field that is wrong, told by its path; what is wrong apart
// from it stays untold.
func TestRuleErrors(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	rule := func(fields string) string { return `{"id":"r","dir":"s2c","op":"A"` + fields + `}` }
	fault := func(fields string) string { return rule(`,"fault":{` + fields + `}`) }
	long := strings.Repeat("x", MaxName+1)
	for body, want := range map[string]string{
		`{"dir":"s2c","op":"A"}`:                     "id: id is empty",
		`{"id":"a/b","dir":"s2c","op":"A"}`:          "id: id has '/' in it, which no name may have",
		`{"id":"` + long + `","dir":"s2c","op":"A"}`: "id: id has 129 bytes, over 128",
		`{"id":"r","op":"A"}`:                        "dir: dir is missing: c2s or s2c",
		`{"id":"r","dir":"s2d","op":"T"}`:            `dir: dir is "s2d", not c2s or s2c`,
		`{"id":"r","dir":1,"op":"A"}`:                "dir: dir is 1, not a string",
		`{"id":"r","dir":"s2c"}`:                     "op: op is missing",
		`{"id":"r","dir":"c2s","op":"T"}`:            "op: the grammar has no T in c2s; it has auth, A, R, keepalive",
		rule(`,"session":-1`):                        "session: session is -1, not a whole number from 0 to 4294967295",
		rule(`,"nth":1.5`):                           "nth: nth is 1.5, not a whole number from 0 to 4294967295",
		rule(`,"session_nth":"1"`):                   `session_nth: session_nth is "1", not a whole number from 0 to 4294967295`,
		rule(`,"client_nth":4294967296`):             "client_nth: client_nth is 4294967296, not a whole number from 0 to 4294967295",
		rule(`,"client":"q"`):                        `client: client is "q"; the only one of this proxy is its name, "p"`,
		rule(`,"from":"10.0.0.0/33"`):                `from: from is "10.0.0.0/33", not an address or a prefix such as 10.0.0.0/8`,
		rule(`,"where":{"ky":"x"}`):                  `where.ky: s2c.A has no "ky"; it has owner, token, key`,
		rule(`,"where":{"token":"x"}`):               `where.token: "x" is no number, nor a range such as 5..9`,
		rule(`,"where":{"token":17}`):                "where.token: where.token is 17, not a string",
		rule(`,"where":[]`):                          "where: where is [], not an object",
		rule(`,"chance":0`):                          "chance: chance is 0, not over 0 and up to 1",
		rule(`,"chance":1.01`):                       "chance: chance is 1.01, not over 0 and up to 1",
		rule(`,"after":"a/b"`):                       "after: after has '/' in it, which no name may have",
		rule(`,"window":{"from":"2s","to":"1s"}`):    "window: the window is from 2s to 1s: it never is",
		rule(`,"window":{"form":"2s"}`):              "window.form: window.form is no field that there is; did you mean from?",
		rule(`,"window":{"to":5}`):                   `window.to: window.to is 5, not a duration with its unit, such as "250ms"`,
		rule(`,"skip":-1`):                           "skip: skip is -1, not a whole number from 0 to 4294967295",
		rule(`,"signal":"` + long + `"`):             "signal: signal has 129 bytes, over 128",
		rule(`,"ttl":"0s"`):                          "ttl: ttl is 0s, not over 0s and up to 24h0m0s",
		rule(`,"ttl":"-1s"`):                         "ttl: ttl is -1s, not over 0s and up to 24h0m0s",
		rule(`,"ttl":"24h0m0.001s"`):                 "ttl: ttl is 24h0m0.001s, not over 0s and up to 24h0m0s",
		rule(`,"inject_hex":"4"`):                    "inject_hex: inject_hex is not an even number of hexadecimal digits",
		rule(`,"inject_hex":"4c"`):                   "fault.type: there is no fault, but an offset, an argument, a gate or bytes for one",
		rule(`,"fault":"drop"`):                      `fault: fault is "drop", not an object`,
		rule(`,"tiems":1`):                           "tiems: tiems is no field that there is; did you mean times?",
		fault(`"at":1`):                              `fault.type: fault.type is missing; "tornwire list faults" shows what there is`,
		fault(`"type":"trunkate-rst"`):               `fault.type: fault.type is "trunkate-rst", and there is no such fault; did you mean truncate-rst?; "tornwire list faults" shows what there is`,
		fault(`"type":"drop","at":-1`):               `fault.at: fault.at is -1, not a whole number from 0 to 4294967295, or "n"`,
		fault(`"type":"drop","at":"m"`):              `fault.at: fault.at is "m", not a whole number from 0 to 4294967295, or "n"`,
		fault(`"type":"drop","at":"n"`):              "fault.at: fault drop acts at 0, not at n",
		fault(`"type":"drop","at":1`):                "fault.at: fault drop acts at 0, not at 1",
		fault(`"type":"delay","args":{"by":"11m"}`):  "fault.args.by: fault delay: by is 11m0s, not over 0s and up to 10m0s",
		fault(`"type":"delay","args":{"by":250}`):    `fault.args.by: fault.args.by is 250, not a duration with its unit, such as "250ms"`,
		fault(`"type":"delay","args":{"for":"1s"}`):  `fault.args.for: fault delay has no argument "for"`,
		fault(`"type":"delay","until":"g"`):          "fault.until: fault delay waits for no gate",
		fault(`"type":"delay","after":"1s"`):         "fault.after: fault.after is no field that there is",
		`{"id":"r","dir":"s2x","op":"A","ttl":1,"fault":{"type":"drop","at":3}}`: `dir: dir is "s2x", not c2s or s2c; ttl: ttl is 1, not a duration with its unit, such as "250ms"; ` +
			"fault.at: fault drop acts at 0, not at 3",
	} {
		_, err := readRule([]byte(body), "", "p", g)
		if got := told(err); got != want {
			t.Errorf("%s:\n got %s\nwant %s", body, got, want)
		}
	}
	_, err := readRule([]byte(rule("")), "", "p", nil)
	if got, want := told(err), `op: op is "A", and the proxy has no grammar: only open is possible`; got != want {
		t.Errorf("without a grammar: %s, want %s", got, want)
	}
	_, err = readRule([]byte(rule("")), "q", "p", g)
	if got, want := told(err), `id: id is "r", and the path names "q"`; got != want {
		t.Errorf("another id: %s, want %s", got, want)
	}
}

// told is every problem of an error with its field.
func told(err error) string {
	if err == nil {
		return "none"
	}
	e := asError(err)
	if len(e.Problems) == 0 {
		return e.Field + ": " + e.Message
	}
	var list []string
	for _, p := range e.Problems {
		list = append(list, p.Field+": "+p.Reason)
	}
	return strings.Join(list, "; ")
}

// TestRuleRoutes: rules come, change and go.
func TestRuleRoutes(t *testing.T) {
	const (
		watch    = `{"id":"w","dir":"c2s","op":"A","ttl":"10m0s","matched":0,"fired":0,"bytes":0,"left":"LEFT"}`
		drop     = `{"id":"w","dir":"c2s","op":"R","fault":{"type":"drop","at":0},"ttl":"10m0s","matched":0,"fired":0,"bytes":0,"left":"LEFT"}`
		noProxy  = `{"error":"proxy not found","status":404}`
		noRule   = `{"error":"rule not found","status":404}`
		thatRule = `{"id":"w","dir":"c2s","op":"A"}`
	)
	for _, v1 := range []string{"", "/v1"} {
		b := newBed(t)
		b.must(201, "POST", "/proxies", `{"name":"p","upstream":"127.0.0.1:1","grammar":"ticketing","enabled":false}`)
		rules := v1 + "/proxies/p/rules"
		b.run([]step{
			{"GET", rules, "", 200, "[]"},
			{"POST", rules, thatRule, 201, watch},
			{"POST", rules, thatRule, 409, `{"error":"rule already exists","status":409}`},
			{"GET", rules, "", 200, "[" + watch + "]"},
			{"GET", rules + "/w", "", 200, watch},
			{"GET", rules + "/x", "", 404, noRule},
			{"PUT", rules + "/w", `{"dir":"c2s","op":"R","fault":{"type":"drop"}}`, 200, drop},
			{"PUT", rules + "/w", `{"dir":"c2s","op":"R","fault":{"type":"dorp"}}`, 400, `{"error":"bad request body: fault.type is \"dorp\", and there is no such fault; did you mean drop?; \"tornwire list faults\" shows what there is","status":400,"field":"fault.type"}`},
			{"GET", rules + "/w", "", 200, drop},
			{"PUT", rules + "/x", `{"dir":"c2s","op":"R"}`, 404, noRule},
			{"PATCH", rules + "/w", `{}`, 405, `{"error":"PATCH is not possible here, only DELETE, GET, PUT","status":405}`},
			{"PUT", rules + "/w", `{"dir":"c2s","op":"R","fault":{"type":"duplicate","at":"n"}}`, 200, strings.Replace(drop, `"drop","at":0`, `"duplicate","at":"n"`, 1)},
			{"DELETE", rules + "/w", "", 204, ""},
			{"DELETE", rules + "/w", "", 404, noRule},
			{"GET", v1 + "/proxies/q/rules", "", 404, noProxy},
			{"GET", v1 + "/proxies/q/rules/w", "", 404, noProxy},
			{"POST", v1 + "/proxies/q/rules", thatRule, 404, noProxy},
			{"PUT", v1 + "/proxies/q/rules/w", thatRule, 404, noProxy},
			{"DELETE", v1 + "/proxies/q/rules/w", "", 404, noProxy},
			{"POST", rules, `{"id":"w 1%","dir":"c2s","op":"A"}`, 201, strings.Replace(watch, `"w"`, `"w 1%"`, 1)},
			{"GET", rules + "/w%201%25", "", 200, strings.Replace(watch, `"w"`, `"w 1%"`, 1)},
			{"POST", "/reset", "", 204, ""},
			{"GET", rules, "", 200, "[]"},
		})
	}
}

// TestRemaining: what is left of a rule that goes on elsewhere.
func TestRemaining(t *testing.T) {
	rule := func(skip, times int, begin, end, ttl time.Duration) faults.Rule {
		return faults.Rule{Skip: skip, Times: times, TTL: ttl, Trigger: faults.Trigger{Begin: begin, End: end}}
	}
	for _, test := range []struct {
		was            faults.Rule
		matched, fired int64
		left           time.Duration
		want           faults.Rule
		ok             bool
	}{
		{rule(0, 0, 0, 0, 10), 5, 5, 4, rule(0, 0, 0, 0, 4), true},
		{rule(3, 2, 0, 0, 10), 2, 0, 10, rule(1, 2, 0, 0, 10), true},
		{rule(3, 2, 0, 0, 10), 4, 1, 10, rule(0, 1, 0, 0, 10), true},
		{rule(0, 2, 0, 0, 10), 2, 2, 10, faults.Rule{}, false},
		{rule(0, 0, 5, 9, 10), 0, 0, 8, rule(0, 0, 3, 7, 8), true},
		{rule(0, 0, 1, 9, 10), 0, 0, 2, rule(0, 0, 0, 1, 2), true},
		{rule(0, 0, 0, 9, 10), 0, 0, 1, faults.Rule{}, false},
	} {
		got, ok := remaining(proxy.RuleState{Rule: test.was, Matched: test.matched, Fired: test.fired, Left: test.left})
		if ok != test.ok || ok && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v after %d, %d, %d: %+v %v, want %+v", test.was, test.matched, test.fired, test.left, got, ok, test.want)
		}
	}
}

// FuzzRule: no body is too much, and a rule that was taken is told so that it can
// be given again.
func FuzzRule(f *testing.F) {
	for _, seed := range []string{everything, `{"id":"o","op":"open","fault":{"type":"refuse","until":"g"}}`, `{"id":"x","dir":"c2s","op":"A","fault":{"type":"inject-stray","at":0},"inject_hex":"520a"}`, `{"a":[[[[`} {
		f.Add(seed)
	}
	g := frames.MustBuiltin("ticketing")
	f.Fuzz(func(t *testing.T, body string) {
		r, err := readRule([]byte(body), "", "p", g)
		if err != nil {
			return
		}
		out, err := json.Marshal(viewRule(proxy.RuleState{Rule: r}))
		if err != nil {
			t.Fatal(err)
		}
		const end = `,"matched":0,"fired":0,"bytes":0,"left":"0s"}`
		again, err := readRule([]byte(strings.TrimSuffix(string(out), end)+"}"), "", "p", g)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		for _, r := range []*faults.Rule{&r, &again} {
			if len(r.Args) == 0 {
				r.Args = nil
			}
			if len(r.Trigger.Where) == 0 {
				r.Trigger.Where = nil
			}
			if len(r.Inject) == 0 {
				r.Inject = nil
			}
		}
		if !reflect.DeepEqual(r, again) {
			t.Errorf("%+v\nbecame %+v", r, again)
		}
	})
}

// TestRuleOfFamily: a family stands for the first of its faults, and the rule says which.
func TestRuleOfFamily(t *testing.T) {
	g := frames.MustBuiltin("ticketing")
	for rule, want := range map[string]string{
		`"dir":"c2s","op":"A","fault":{"type":"truncate","at":2}`:                   "truncate-fin",
		`"dir":"s2c","op":"A","fault":{"type":"inject","at":"n"},"inject_hex":"0a"`: "inject-keepalive",
		`"dir":"c2s","op":"A","fault":{"type":"byzantine","at":"n"}`:                "duplicate",
		`"op":"open","fault":{"type":"accept"}`:                                     "accept-rst",
	} {
		r, err := readRule([]byte(`{"id":"i",`+rule+`}`), "", "p", g)
		if err != nil || r.Fault == nil || r.Fault.ID != want {
			t.Errorf("%s: %+v, %v; wanted %s", rule, r.Fault, err, want)
		}
	}
}
