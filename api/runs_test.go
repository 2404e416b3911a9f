package api

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
	"tornwire/scenarios"
)

// ask makes a request of a handler, and reads the answer.
func ask(t *testing.T, h http.Handler, method, path, body string, into any) (status int, text string) {
	t.Helper()
	req := httptest.NewRequest(method, "http://127.0.0.1:8474"+path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: content type %q", method, path, got)
	}
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	return w.Code, strings.TrimSpace(w.Body.String())
}

// TestRuns: a scenario is found, started, told step by step and judged by REST.
func TestRuns(t *testing.T) {
	t.Parallel()
	m := NewManager(Options{})
	defer m.Close()
	h := NewHandler(m)
	var list []ScenarioView
	if code, _ := ask(t, h, "GET", "/v1/scenarios", "", &list); code != 200 || len(list) != len(scenarios.Library()) {
		t.Errorf("%d, %d scenarios", code, len(list))
	}
	var one ScenarioView
	if code, _ := ask(t, h, "GET", "/v1/scenarios/exact-release", "", &one); code != 200 || one.Clause != "3.16" || !strings.Contains(one.Source, "[[steps]]") {
		t.Errorf("%d, %+v", code, one)
	}
	body, err := json.Marshal(map[string]any{"source": one.Source, "paused": true, "seed": 7, "timeout": "20s"})
	if err != nil {
		t.Fatal(err)
	}
	var v RunView
	if code, text := ask(t, h, "POST", "/v1/runs", string(body), &v); code != 201 || v.ID != "1" || v.Scenario != "exact-release" || v.Of != one.Steps || v.Outcome != nil {
		t.Fatalf("%d, %s", code, text)
	}
	await := func(holds func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !holds(); {
			if time.Now().After(end) {
				t.Fatalf("%+v", v)
			}
			v = RunView{}
			ask(t, h, "GET", "/v1/runs/1", "", &v)
		}
	}
	await(func() bool { return v.State == scenarios.Paused && len(v.Addresses["c1"]) == 1 })
	if code, text := ask(t, h, "POST", "/v1/runs/1/advance", "", nil); code != 200 {
		t.Errorf("%d, %s", code, text)
	}
	await(func() bool { return v.State == scenarios.Paused && v.Step == 1 })
	if len(v.Steps) != 1 || v.Steps[0].Do != "acquire" || v.Steps[0].Name != "order" {
		t.Errorf("%+v", v)
	}
	if code, text := ask(t, h, "POST", "/v1/runs/1/resume", "", nil); code != 200 {
		t.Errorf("%d, %s", code, text)
	}
	await(func() bool { return v.State == scenarios.Done })
	if v.Outcome == nil || v.Outcome.Verdict != checker.Inconclusive && (v.Outcome.ExitCode != 0 || len(v.Outcome.Expect) != 3 || !v.Outcome.Expect[0].Met) {
		t.Errorf("%+v", v.Outcome)
	}
	if code, text := ask(t, h, "POST", "/v1/runs/1/pause", "", nil); code != 409 || text != `{"error":"the run is over","status":409}` {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := ask(t, h, "POST", "/v1/runs", `{"story":{"name":"n","about":"a","steps":[{"pause":"30s"}]}}`, &v); code != 201 {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := ask(t, h, "DELETE", "/v1/runs/2", "", &v); code != 200 || v.State != scenarios.Done || v.Outcome.Verdict != checker.Inconclusive {
		t.Errorf("%d, %s", code, text)
	}
	var all []RunView
	if code, _ := ask(t, h, "GET", "/v1/runs", "", &all); code != 200 || len(all) != 2 {
		t.Errorf("%d, %d runs", code, len(all))
	}
}

// TestRunErrors: what is wrong is told with its field, and nothing is started.
func TestRunErrors(t *testing.T) {
	t.Parallel()
	m := NewManager(Options{})
	defer m.Close()
	h := NewHandler(m)
	for _, x := range []struct{ method, path, body, want string }{
		{"GET", "/v1/scenarios/nothing", "", `{"error":"scenario not found","status":404}`},
		{"GET", "/v1/runs/1", "", `{"error":"run not found","status":404}`},
		{"DELETE", "/v1/runs/1", "", `{"error":"run not found","status":404}`},
		{"POST", "/v1/runs/1/advance", "", `{"error":"run not found","status":404}`},
		{"PUT", "/v1/runs", "", `{"error":"PUT is not possible here, only GET, POST","status":405}`},
		{"POST", "/v1/runs", "", `{"error":"bad request body: EOF","status":400}`},
		{"POST", "/v1/runs", "{}", `{"error":"bad request body: scenario is one of three: the name of a scenario, its TOML in source, or its object in story; there are 0","status":400,"field":"scenario"}`},
		{"POST", "/v1/runs", `{"scenario":"torn-grant","source":""}`, `{"error":"bad request body: scenario is one of three: the name of a scenario, its TOML in source, or its object in story; there are 2","status":400,"field":"scenario"}`},
		{"POST", "/v1/runs", `{"scenario":"torn-grant","pause":true}`, `{"error":"bad request body: pause is no field that there is; did you mean paused?","status":400,"field":"pause"}`},
		{"POST", "/v1/runs", `{"scenario":"torn-grant","timeout":"1ms"}`, `{"error":"bad request body: timeout is 1ms, not 1s to 30m0s","status":400,"field":"timeout"}`},
		{"POST", "/v1/runs", `{"scenario":"torn-grant","seed":-1}`, `{"error":"bad request body: seed is -1, not a whole number from 0 to 18446744073709551615","status":400,"field":"seed"}`},
		{"POST", "/v1/runs", `{"source":"name = 1"}`, `{"error":"bad request body: source is not right: source:1: about is missing: one sentence that says what the scenario shows; source is not right: source:1: name is 1, not a string; source is not right: source:1: steps is empty, and no client is a command: nothing would happen","status":400,"field":"source","problems":[{"field":"source","error":"source is not right: source:1: about is missing: one sentence that says what the scenario shows"},{"field":"source","error":"source is not right: source:1: name is 1, not a string"},{"field":"source","error":"source is not right: source:1: steps is empty, and no client is a command: nothing would happen"}]}`},
		{"POST", "/v1/runs", `{"story":{"name":"n","about":"a","clients":[{"name":"x","kind":"command"}]}}`, `{"error":"client x is a program, and a daemon starts none: tornwire run does","status":400}`},
	} {
		if _, got := ask(t, h, x.method, x.path, x.body, nil); got != x.want {
			t.Errorf("%s %s %s:\n got %s\nwant %s", x.method, x.path, x.body, got, x.want)
		}
	}
	if _, got := ask(t, h, "POST", "/v1/runs", `{"scenario":"torn-grnt"}`, nil); !strings.HasPrefix(got, `{"error":"bad request body: scenario is \"torn-grnt\", and there is no such scenario; did you mean torn-grant?; there are `) {
		t.Error(got)
	}
	if len(m.runs.List()) > 0 {
		t.Error("a run was started")
	}
	const story = `{"story":{"name":"n","about":"a","clients":[{"name":"x","kind":"anyone"}],"steps":[{"await":"it","when":{"event":"entered","within":"1m"}}]}}`
	if code, text := ask(t, h, "POST", "/v1/runs", story, nil); code != 201 {
		t.Fatal(text)
	}
	for _, x := range []struct{ body, want string }{
		{"{}", `{"error":"bad request body: event is \"\", and there is no such event; there are call, outcome, enter, exit, release, released, cancel; call is missing: the name of a call, which the witness chooses","status":400,"field":"event","problems":[{"field":"event","error":"event is \"\", and there is no such event; there are call, outcome, enter, exit, release, released, cancel"},{"field":"call","error":"call is missing: the name of a call, which the witness chooses"}]}`},
		{`{"event":"call","call":"a","key":"k","wait":"1s"}`, `{"error":"bad request body: lease is missing: call needs it","status":400,"field":"lease"}`},
		{`{"event":"enter","call":"a","key":"k"}`, `{"error":"bad request body: key does not belong to enter","status":400,"field":"key"}`},
		{`{"event":"outcome","call":"a","outcome":"won"}`, `{"error":"bad request body: outcome is \"won\", and there is no such outcome; there are acquired, timeout, busy, indeterminate, unsent, error","status":400,"field":"outcome"}`},
		{`{"event":"outcome","call":"a","outcome":"acquired"}`, `{"error":"bad request body: token belongs to acquired, and to nothing else","status":400,"field":"token"}`},
		{`{"event":"outcome","call":"a","outcome":"acquired","token":"x"}`, `{"error":"bad request body: token is \"x\", not a number from 1 to 18446744073709551615, or one as text such as \"0xff\"","status":400,"field":"token"}`},
	} {
		if _, got := ask(t, h, "POST", "/v1/runs/1/witness", x.body, nil); got != x.want {
			t.Errorf("%s:\n got %s\nwant %s", x.body, got, x.want)
		}
	}
	say := func(body, want string) {
		t.Helper()
		var got string
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			if _, got = ask(t, h, "POST", "/v1/runs/1/witness", body, nil); !strings.Contains(got, "the run has not begun") {
				break
			}
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", body, got, want)
		}
	}
	say(`{"event":"call","call":"a","key":"k","wait":"1s","lease":"5s"}`, `{"findings":[]}`)
	say(`{"event":"call","call":"a","key":"k","wait":"1s","lease":"5s"}`, `{"error":"call \"a\" has been told of already","status":409}`)
}

// TestRunEvents: the record of a run comes as it grows, and goes on behind the last event that
// was had; it ends with the run.
func TestRunEvents(t *testing.T) {
	t.Parallel()
	m := NewManager(Options{})
	defer m.Close()
	srv := httptest.NewServer(NewHandler(m))
	defer srv.Close()
	h := srv.Config.Handler
	if code, text := ask(t, h, "POST", "/v1/runs", `{"scenario":"torn-grant"}`, nil); code != 201 {
		t.Fatal(text)
	}
	read := func(last string) (ids, kinds []string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v1/runs/1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Last-Event-ID", last)
		r, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if got := r.Header.Get("Content-Type"); r.StatusCode != 200 || got != "text/event-stream" {
			t.Fatalf("%d, %q", r.StatusCode, got)
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
			for _, line := range strings.Split(block, "\n") {
				if id, ok := strings.CutPrefix(line, "id: "); ok {
					ids = append(ids, id)
				}
				if kind, ok := strings.CutPrefix(line, "event: "); ok {
					kinds = append(kinds, kind)
				}
				if data, ok := strings.CutPrefix(line, "data: "); ok && !json.Valid([]byte(data)) {
					t.Errorf("%q is no JSON", data)
				}
			}
		}
		return ids, kinds
	}
	ids, kinds := read("")
	if len(ids) < 10 || kinds[0] != "record" || kinds[len(kinds)-1] != "end" {
		t.Fatalf("%v, %v", ids, kinds)
	}
	again, kinds := read(ids[4])
	if len(again) != len(ids)-5 || again[0] != ids[5] || kinds[len(kinds)-1] != "end" {
		t.Errorf("%v behind %s of %v", again, ids[4], ids)
	}
	for _, x := range []struct{ method, path, last, want string }{
		{"GET", "/v1/runs/2/events", "", `{"error":"run not found","status":404}`},
		{"POST", "/v1/runs/1/events", "", `{"error":"POST is not possible here, only GET","status":405}`},
		{"GET", "/v1/runs/1/events", "x", `{"error":"Last-Event-ID is \"x\", and no id of these events","status":400}`},
	} {
		req := httptest.NewRequest(x.method, "http://127.0.0.1:8474"+x.path, nil)
		req.Header.Set("Last-Event-ID", x.last)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if got := strings.TrimSpace(w.Body.String()); got != x.want {
			t.Errorf("%s %s: got %s, want %s", x.method, x.path, got, x.want)
		}
	}
	m.streams.Store(MaxStreams)
	if _, got := ask(t, h, "GET", "/v1/runs/1/events", "", nil); !strings.HasPrefix(got, `{"error":"32 streams are open`) {
		t.Error(got)
	}
}

// TestSlowReader: who does not read is let go when a run ends, and holds no run up.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	m := NewManager(Options{})
	srv := httptest.NewServer(NewHandler(m))
	if code, text := ask(t, srv.Config.Handler, "POST", "/v1/runs", `{"scenario":"immediate"}`, nil); code != 201 {
		t.Fatal(text)
	}
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /v1/runs/1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for m.streams.Load() == 0 {
		runtime.Gosched()
	}
	m.Close() // stops the run, which ends the stream
	for m.streams.Load() > 0 {
		runtime.Gosched()
	}
	srv.Close()
}
