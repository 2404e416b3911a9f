package api

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"tornwire/server"

	"tornwire/internal/strict"
)

// TestProxyRoutes: what toxiproxy's clients do with proxies, with the answers that
// they know.
func TestProxyRoutes(t *testing.T) {
	const (
		p       = `{"name":"p","listen":"LISTEN","upstream":"127.0.0.1:7070","enabled":true,"toxics":[]}`
		off     = `{"name":"p","listen":"LISTEN","upstream":"127.0.0.1:7070","enabled":false,"toxics":[]}`
		unknown = `{"error":"proxy not found","status":404}`
	)
	newBed(t).run([]step{
		{"GET", "/version", "", 200, `{"version":"2.12.0","tornwire":"1.2.3"}`},
		{"GET", "/proxies", "", 200, `{}`},
		{"POST", "/proxies", `{"name":"p","listen":"127.0.0.1:0","upstream":"127.0.0.1:7070","enabled":true,"toxics":null}`, 201, p},
		{"POST", "/proxies", `{"name":"p","upstream":"127.0.0.1:7070"}`, 409, `{"error":"proxy already exists","status":409}`},
		{"GET", "/proxies", "", 200, `{"p":` + p + `}`},
		{"GET", "/proxies/p", "", 200, p},
		{"GET", "/proxies/q", "", 404, unknown},
		{"POST", "/proxies/p", `{"enabled":false}`, 200, off},
		{"PATCH", "/proxies/p", `{}`, 200, off},
		{"POST", "/reset", "", 204, ""},
		{"PATCH", "/proxies/p", `{"name":"p","toxics":[{"name":"what the client knows"}]}`, 200, p},
		{"POST", "/proxies/q", `{}`, 404, unknown},
		{
			"PATCH", "/proxies/p", `{"grammar":"ticketing","unreachable":"close","dial_timeout":"250ms","proxy_header":true,"seed":18446744073709551615}`, 200,
			p[:len(p)-1] + `,"grammar":"ticketing","unreachable":"close","dial_timeout":"250ms","proxy_header":true,"seed":18446744073709551615}`,
		},
		{"DELETE", "/proxies/p", "", 204, ""},
		{"DELETE", "/proxies/p", "", 404, unknown},
		{"POST", "/proxies", `{"name":"ä b%","upstream":"[::1]:1","enabled":false}`, 201, `{"name":"ä b%","listen":"127.0.0.1:0","upstream":"[::1]:1","enabled":false,"toxics":[]}`},
		{"GET", "/proxies/%C3%A4%20b%25", "", 200, `{"name":"ä b%","listen":"127.0.0.1:0","upstream":"[::1]:1","enabled":false,"toxics":[]}`},
		{"GET", "/populate", "", 404, `{"error":"there is nothing here","status":404}`},
		{"GET", "/proxies/", "", 404, `{"error":"there is nothing here","status":404}`},
		{"GET", "/proxies/p/", "", 404, `{"error":"there is nothing here","status":404}`},
		{"GET", "//version", "", 404, `{"error":"there is nothing here","status":404}`},
		{"PUT", "/proxies", "", 405, `{"error":"PUT is not possible here, only GET, POST","status":405}`},
		{"POST", "/version", "", 405, `{"error":"POST is not possible here, only GET","status":405}`},
	})
}

// TestProxyErrors: every way in which a body can be wrong.
func TestProxyErrors(t *testing.T) {
	one := func(field, text string) string {
		return `{"error":"` + text + `","status":400,"field":"` + field + `"}`
	}
	bad := func(field, text string) string { return one(field, "bad request body: "+text) }
	several := func(texts ...string) string {
		var list []string
		for _, text := range texts {
			field, _, _ := strings.Cut(strings.TrimPrefix(text, strict.MissingText), " ")
			list = append(list, `{"field":"`+field+`","error":"`+text+`"}`)
		}
		return `{"error":"bad request body: ` + strings.Join(texts, "; ") + `","status":400,"field":"name","problems":[` + strings.Join(list, ",") + `]}`
	}
	long := strings.Repeat("n", MaxName+1)
	b := newBed(t)
	for body, want := range map[string]string{
		``:                    `{"error":"bad request body: EOF","status":400}`,
		`{`:                   `{"error":"bad request body: unexpected EOF","status":400}`,
		`{"name":"p"} x`:      `{"error":"bad request body: there is more behind the object","status":400}`,
		`[]`:                  `{"error":"bad request body: [] is not an object","status":400}`,
		"{\"name\":\"\xff\"}": `{"error":"bad request body: it is not UTF-8","status":400}`,
		`{}`: `{"error":"missing required field: name","status":400,"field":"name",` +
			`"problems":[{"field":"name","error":"missing required field: name"},{"field":"upstream","error":"missing required field: upstream"}]}`,
		`{"upstream":"x","grammar":"zz"}`: several("missing required field: name", `upstream is no address: address \"x\": missing port in address; it is host:port or unix:/path`,
			`grammar is \"zz\", and there is no such grammar; there are ticketing, ticketing-v0`),
		`{"name":"p"}`: one("upstream", "missing required field: upstream"),
		`{"name":"p","upstream":"a:1","Enabled":true}`:                             bad("Enabled", "Enabled is no field that there is; did you mean enabled?"),
		`{"name":"p","upstream":"a:1","name":"p"}`:                                 bad("name", "name is there twice"),
		`{"name":"p","upstream":"a:1","enabled":1}`:                                bad("enabled", "enabled is 1, not true or false"),
		`{"name":"p","upstream":"a:1","seed":-1}`:                                  bad("seed", "seed is -1, not a whole number from 0 to 18446744073709551615"),
		`{"name":"p","upstream":"a:1","grammar":"ticket"}`:                         bad("grammar", `grammar is \"ticket\", and there is no such grammar; did you mean ticketing?; there are ticketing, ticketing-v0`),
		`{"name":"p","upstream":"a:1","unreachable":"rst"}`:                        bad("unreachable", `unreachable is \"rst\", and there is no such word; did you mean reset?; there are reset, refuse, close, hold`),
		`{"name":"p","upstream":"a:1","dial_timeout":"0s"}`:                        bad("dial_timeout", "dial_timeout is 0s, not over 0s and up to 10s"),
		`{"name":"p","upstream":"a:1","dial_timeout":"10.001s"}`:                   bad("dial_timeout", "dial_timeout is 10.001s, not over 0s and up to 10s"),
		`{"name":"p","upstream":"a:1","dial_timeout":"-1s"}`:                       bad("dial_timeout", "dial_timeout is -1s, not over 0s and up to 10s"),
		`{"name":"p","upstream":"a:1","dial_timeout":"5"}`:                         bad("dial_timeout", `dial_timeout is \"5\", not a duration with its unit, such as \"250ms\"`),
		`{"name":"p","upstream":"a:1","dial_timeout":5}`:                           bad("dial_timeout", `dial_timeout is 5, not a duration with its unit, such as \"250ms\"`),
		`{"name":"a/b","upstream":"a:1"}`:                                          bad("name", "name has '/' in it, which no name may have"),
		`{"name":"a\u0000","upstream":"a:1"}`:                                      bad("name", `name has '\\x00' in it, which no name may have`),
		`{"name":"..","upstream":"a:1"}`:                                           bad("name", "name is .., which no path can name"),
		`{"name":" p","upstream":"a:1"}`:                                           bad("name", "name begins or ends with a space"),
		`{"name":"` + long + `","upstream":"a:1"}`:                                 bad("name", "name has 129 bytes, over 128"),
		`{"name":"p","upstream":"a:1","toxics":{}}`:                                bad("toxics", "toxics is {}, not a list"),
		`{"name":"p","upstream":"a:1","toxics":[1]}`:                               bad("toxics", "toxics has 1, not an object"),
		`{"name":"p","upstream":"a:1","toxics":[{"type":"noop","type":"noop"}]}`:   bad("toxics.0.type", "toxics.0.type is there twice"),
		`{"name":"p","upstream":"a:1","toxics":[{"type":"noop","name":"a/b"}]}`:    bad("toxics.0.name", "toxics.0.name has '/' in it, which no name may have"),
		`{"name":"p","upstream":"a:1","toxics":[{"type":"noop"},{"type":"noop"}]}`: bad("toxics", `toxics cannot be: toxic 2: name \"noop_downstream\": there is such a toxic already`),
		`{"name":5,"listen":"x","grammer":""}`: several("name is 5, not a string", "grammer is no field that there is; did you mean grammar?",
			`listen is no address: address \"x\": missing port in address; it is host:port or unix:/path`, "missing required field: upstream"),
	} {
		status, text := b.ask("POST", "/proxies", body)
		if status != 400 || text != want {
			t.Errorf("%s:\n got %d %s\nwant %s", body, status, text, want)
		}
	}
	for _, address := range []string{"", "nowhere", "a:b:1", "a:65536", "a:-1", strings.Repeat("a", MaxAddress) + ":1"} {
		if address != "" {
			status, text := b.ask("POST", "/proxies", `{"name":"p","upstream":"a:1","listen":"`+address+`"}`)
			if status != 400 || !strings.HasPrefix(text, `{"error":"bad request body: listen `) || !strings.HasSuffix(text, `,"status":400,"field":"listen"}`) {
				t.Errorf("listen %.20q: %d %s", address, status, text)
			}
		}
	}
	if status, text := b.ask("POST", "/proxies", `{"name":"p","upstream":"127.0.0.1:0"}`); status != 400 ||
		text != bad("upstream", `upstream is \"127.0.0.1:0\", which has no port to connect to`) {
		t.Errorf("%d %s", status, text)
	}
	if got := b.must(200, "GET", "/proxies", ""); got != "{}" {
		t.Errorf("there is %s", got)
	}
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"a:1","enabled":false}`)
	if status, text := b.ask("PATCH", "/proxies/p", `{"name":"q","enabled":true}`); status != 400 ||
		text != bad("name", `name is \"q\"; the name \"p\" cannot be changed`) {
		t.Errorf("%d %s", status, text)
	}
	if got := b.must(200, "GET", "/proxies/p", ""); !strings.Contains(got, `"enabled":false`) {
		t.Errorf("a refused change was half done: %s", got)
	}
}

// TestListenErrors: an address that cannot be had is told as toxiproxy does.
func TestListenErrors(t *testing.T) {
	b := newBed(t)
	l := listenAny(t)
	defer l.Close()
	want := `{"error":"listen tcp ` + l.Addr().String() + `: bind: address already in use","status":500,"field":"listen"}`
	body := `{"name":"p","upstream":"127.0.0.1:1","listen":"` + l.Addr().String() + `"}`
	if status, text := b.ask("POST", "/proxies", body); status != 500 || text != want {
		t.Errorf("%d %s, want %s", status, text, want)
	}
	b.must(404, "GET", "/proxies/p", "")
	b.must(201, "POST", "/proxies", strings.Replace(body, `"name"`, `"enabled":false,"name"`, 1))
	if status, text := b.ask("POST", "/reset", ""); status != 500 || text != want {
		t.Errorf("reset: %d %s, want %s", status, text, want)
	}
}

// TestStory: a grant is torn at byte 13 with nothing but requests.
func TestStory(t *testing.T) {
	b := newBed(t)
	up := lockServer(t, server.Config{})
	b.must(201, "POST", "/proxies", `{"name":"locks","upstream":"`+up+`","grammar":"ticketing"}`)
	b.must(201, "POST", "/proxies/locks/rules", `{"id":"cut","dir":"s2c","op":"A","fault":{"type":"truncate-rst","at":13}}`)

	c := connect(t, b.listen("locks"))
	c.acquire(7, "order-1")
	c.gets(grant(7, 1, "order-1")[:13])
	if err := c.ends(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it ended with %v, not a reset", err)
	}
	want := `[{"id":"cut","dir":"s2c","op":"A","fault":{"type":"truncate-rst","at":13},"ttl":"10m0s","matched":1,"fired":1,"bytes":25,"left":"LEFT"}]`
	if got := steady(b.must(200, "GET", "/v1/proxies/locks/rules", "")); got != want {
		t.Errorf("rules %s, want %s", got, want)
	}
	if b.fired() != 1 {
		t.Errorf("%d firings were observed", b.fired())
	}

	b.must(204, "DELETE", "/proxies/locks/rules/cut", "")
	c = connect(t, b.listen("locks"))
	c.acquire(8, "order-2")
	c.gets(grant(8, 2, "order-2"))
	if b.fired() != 1 {
		t.Errorf("%d firings were observed", b.fired())
	}
}

// TestGates: a grant is held until a gate opens.
func TestGates(t *testing.T) {
	b := newBed(t)
	up := lockServer(t, server.Config{})
	b.must(201, "POST", "/proxies", `{"name":"locks","upstream":"`+up+`","grammar":"ticketing"}`)
	b.must(201, "POST", "/proxies/locks/rules", `{"id":"hold","dir":"s2c","op":"A","fault":{"type":"hold","until":"go","args":{"most":"5m"}}}`)
	b.must(201, "POST", "/proxies/locks/rules", `{"id":"cut","dir":"c2s","op":"A","after":"go","fault":{"type":"truncate-fin","at":0}}`)
	c := connect(t, b.listen("locks"))
	c.acquire(7, "k")
	b.until(func() bool { return b.fired() == 1 })
	b.must(204, "PUT", "/v1/proxies/locks/gates/go", "")
	c.gets(grant(7, 1, "k"))
	c.acquire(8, "l")
	if err := c.ends(); err != nil {
		t.Errorf("it ended with %v, not a FIN", err)
	}
	b.must(204, "DELETE", "/proxies/locks/gates/go", "")
	c = connect(t, b.listen("locks"))
	c.acquire(9, "m")
	b.until(func() bool { return b.fired() == 3 })
	b.must(204, "DELETE", "/proxies/locks/rules/hold", "")
	c.gets(grant(9, 2, "m"))

	b.run([]step{
		{"PUT", "/proxies/locks/gates/a%2Fb", "", 400, `{"error":"the gate's name has '/' in it, which no name may have","status":400}`},
		{"PUT", "/proxies/other/gates/go", "", 404, `{"error":"proxy not found","status":404}`},
		{"GET", "/proxies/locks/gates/go", "", 405, `{"error":"GET is not possible here, only DELETE, PUT","status":405}`},
	})
}

// TestAllow: what is possible is told in the header too.
func TestAllow(t *testing.T) {
	r := newBed(t).answer("PUT", "/proxies/p", "")
	_ = r.Body.Close()
	if got := r.Header.Get("Allow"); r.StatusCode != http.StatusMethodNotAllowed || got != "DELETE, GET, PATCH, POST" {
		t.Errorf("%d, %q", r.StatusCode, got)
	}
}
