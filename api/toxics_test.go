package api

import (
	"fmt"
	"strings"
	"testing"

	"tornwire/faults/toxics"
)

// TestToxicRoutes: what toxiproxy's clients do with toxics, with the answers that
// they know.
func TestToxicRoutes(t *testing.T) {
	const (
		t1      = "/proxies/p/toxics"
		slow    = `{"attributes":{"jitter":0,"latency":20},"name":"latency_downstream","type":"latency","stream":"downstream","toxicity":1}`
		slower  = `{"attributes":{"jitter":5,"latency":20},"name":"latency_downstream","type":"latency","stream":"downstream","toxicity":0.5}`
		cut     = `{"attributes":{"bytes":7},"name":"a b","type":"limit_data","stream":"upstream","toxicity":1}`
		noProxy = `{"error":"proxy not found","status":404}`
		noToxic = `{"error":"toxic not found","status":404}`
	)
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"a:1","enabled":false}`)
	b.run([]step{
		{"GET", t1, "", 200, `[]`},
		{"POST", t1, `{"type":"latency","attributes":{"latency":20}}`, 200, slow},
		{"POST", t1, `{"type":"latency","attributes":{"latency":20}}`, 409, `{"error":"toxic already exists","status":409}`},
		{"POST", t1, `{"name":"a b","type":"limit_data","stream":"upstream","toxicity":1.0,"attributes":{"bytes":7}}`, 200, cut},
		{"GET", t1, "", 200, "[" + cut + "," + slow + "]"},
		{"GET", t1 + "/a%20b", "", 200, cut},
		{"GET", "/proxies/p", "", 200, `{"name":"p","listen":"127.0.0.1:0","upstream":"a:1","enabled":false,"toxics":[` + cut + "," + slow + `]}`},
		{"PATCH", t1 + "/latency_downstream", `{"toxicity":0.5,"attributes":{"jitter":5}}`, 200, slower},
		{"POST", t1 + "/latency_downstream", slower, 200, slower},
		{"PATCH", t1 + "/latency_downstream", `{"toxicity":2}`, 400, `{"error":"bad request body: toxicity is 2, not 0 to 1","status":400,"field":"toxicity"}`},
		{"PATCH", t1 + "/latency_downstream", `{"name":"other"}`, 400, `{"error":"bad request body: name is \"latency_downstream\" and cannot be changed to \"other\"","status":400,"field":"name"}`},
		{"GET", t1 + "/latency_downstream", "", 200, slower},
		{"PATCH", "/proxies/p", `{"seed":9}`, 200, `{"name":"p","listen":"127.0.0.1:0","upstream":"a:1","enabled":false,"toxics":[` + cut + "," + slower + `],"seed":9}`},
		{"GET", t1 + "/x", "", 404, noToxic},
		{"PATCH", t1 + "/x", `{}`, 404, noToxic},
		{"DELETE", t1 + "/x", "", 404, noToxic},
		{"DELETE", t1 + "/latency_downstream", "", 204, ""},
		{"GET", t1, "", 200, "[" + cut + "]"},
		{"PUT", t1, "", 405, `{"error":"PUT is not possible here, only GET, POST","status":405}`},
		{"GET", "/proxies/q/toxics", "", 404, noProxy},
		{"POST", "/proxies/q/toxics", `{"type":"noop"}`, 404, noProxy},
		{"GET", "/proxies/q/toxics/x", "", 404, noProxy},
		{"PATCH", "/proxies/q/toxics/x", `{}`, 404, noProxy},
		{"DELETE", "/proxies/q/toxics/x", "", 404, noProxy},
		{"GET", "/v1/proxies/p/toxics", "", 404, `{"error":"there is nothing here","status":404}`},
		{"DELETE", "/proxies/p", "", 204, ""},
		{"POST", "/proxies", `{"name":"p","upstream":"a:1","enabled":false,"toxics":[` + cut + `]}`, 201, `{"name":"p","listen":"127.0.0.1:0","upstream":"a:1","enabled":false,"toxics":[` + cut + `]}`},
	})
}

// TestToxicErrors: what toxiproxy would take, and be the worse for, is refused.
func TestToxicErrors(t *testing.T) {
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"a:1","enabled":false}`)
	for body, want := range map[string]string{
		``:                              `{"error":"bad request body: EOF","status":400}`,
		`{"type":"noop"}{}`:             `{"error":"bad request body: there is more behind the object","status":400}`,
		`{"type":"noop","name":"a/b"}`:  `{"error":"bad request body: name has '/' in it, which no name may have","status":400,"field":"name"}`,
		`{"type":"noop","type":"noop"}`: `{"error":"bad request body: type is there twice","status":400,"field":"type"}`,
		`{"type":"noop","attributes":{"a":1,"a":2}}`:      `{"error":"bad request body: attributes.a is there twice","status":400,"field":"attributes.a"}`,
		`{"type":"noop","stream":"up"}`:                   `{"error":"stream was invalid, can be either upstream or downstream","status":400,"field":"stream","problems":[{"field":"stream","error":"stream \"up\" is neither upstream nor downstream"}]}`,
		`{"type":"noop","toxicity":-0.1}`:                 `{"error":"bad request body: toxicity is -0.1, not 0 to 1","status":400,"field":"toxicity"}`,
		`{"type":"bandwidth","attributes":{"rate":0}}`:    fmt.Sprintf(`{"error":"bad request body: attributes.rate is 0, not 1 to %d","status":400,"field":"attributes.rate"}`, toxics.MaxRate),
		`{"type":"latency","attributes":{"latency":1.5}}`: `{"error":"bad request body: attributes.latency is 1.5, not a whole number in digits","status":400,"field":"attributes.latency"}`,
	} {
		if status, text := b.ask("POST", "/proxies/p/toxics", body); status != 400 || text != want {
			t.Errorf("%s:\n got %d %s\nwant %s", body, status, text, want)
		}
	}
	for body, want := range map[string]string{
		`{}`:                          `{"error":"invalid toxic type","status":400,"field":"type",`,
		`{"type":"latncy"}`:           `{"error":"invalid toxic type","status":400,"field":"type",`,
		`{"type":"noop","toxcity":1}`: `{"error":"bad request body: field \"toxcity\" is none of `,
		`{"type":"latency","attributes":{"latncy":1}}`: `{"error":"bad request body: attributes.latncy is none of `,
	} {
		if status, text := b.ask("POST", "/proxies/p/toxics", body); status != 400 || !strings.HasPrefix(text, want) {
			t.Errorf("%s:\n got %d %s\nwant %s", body, status, text, want)
		}
	}
	if got := b.must(400, "POST", "/proxies/p/toxics", `{"type":"noop","toxcity":1}`); !strings.HasSuffix(got, `"field":"toxcity"}`) {
		t.Errorf("the field of %s", got)
	}
	for i := range toxics.MaxStages {
		b.must(200, "POST", "/proxies/p/toxics", fmt.Sprintf(`{"type":"noop","name":"n%d"}`, i))
	}
	if got := b.must(422, "POST", "/proxies/p/toxics", `{"type":"noop"}`); got != `{"error":"there are 32 toxics, and no more are possible","status":422}` {
		t.Errorf("one more: %s", got)
	}
}

// TestToxicActs: a toxic acts on sessions that are there, goes on after another
// upstream, and reset removes it.
func TestToxicActs(t *testing.T) {
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+speaker(t, "one")+`","toxics":[{"type":"limit_data","attributes":{"bytes":2}}]}`)
	limited := func(want string) {
		t.Helper()
		c := line(t, b.listen("p"), want[:2])
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d more bytes, %v", n, err)
		}
	}
	limited("one")
	b.must(200, "PATCH", "/proxies/p", `{"upstream":"`+speaker(t, "two")+`"}`)
	limited("two")
	b.must(204, "POST", "/reset", "")
	c := line(t, b.listen("p"), "two")
	c.alive()
	b.must(200, "POST", "/proxies/p/toxics", `{"type":"reset_peer","stream":"upstream"}`)
	c.send("x") // what comes in makes it act
	c.over()
	b.must(204, "DELETE", "/proxies/p/toxics/reset_peer_upstream", "")
	line(t, b.listen("p"), "two").alive()
}
