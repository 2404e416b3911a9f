package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"tornwire/history"
)

// serving runs the command and returns the address that it printed, and what ends
// it and returns its error and log.
func serving(t *testing.T, args ...string) (addr string, stop func() (string, error)) {
	t.Helper()
	return running(t, serveCommand(), append([]string{"--api", "127.0.0.1:0"}, args...))
}

// do makes a request to the API, which has to answer with a status.
func do(t *testing.T, status int, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	r, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != status {
		t.Fatalf("%s %s: %d %s (%v), want %d", method, url, r.StatusCode, text, err, status)
	}
	return string(text)
}

// TestServeTears: a proxy from the command line, a rule from a request, a grant that
// is torn, and all of it in the log.
func TestServeTears(t *testing.T) {
	locks, stopLocks := lockserver(t)
	addr, stop := serving(t, "--proxy", "locks,127.0.0.1:0,"+locks+",ticketing", "--proxy", "plain,127.0.0.1:0,"+locks, "--seed", "5")
	var v map[string]struct{ Listen, Grammar string }
	if err := json.Unmarshal([]byte(do(t, 200, "GET", addr+"/proxies", "")), &v); err != nil || len(v) != 2 || v["locks"].Grammar != "ticketing" || v["plain"].Grammar != "" {
		t.Fatalf("%+v, %v", v, err)
	}
	if got, want := do(t, 200, "GET", addr+"/version", ""), `{"version":"2.12.0","tornwire":"`+Version()+"\"}\n"; got != want {
		t.Errorf("version %s, want %s", got, want)
	}
	do(t, 201, "POST", addr+"/proxies/locks/rules", `{"id":"cut","dir":"s2c","op":"A","fault":{"type":"truncate-fin","at":13}}`)
	want := "A\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00"
	if got := talk(t, v["locks"].Listen, "", "A\x00\x09\x00\x00\x00\x00\x00\x00\x00\x07k\n", -1); got != want {
		t.Errorf("reply %q, want %q", got, want)
	}
	log, err := stop()
	if err != nil {
		t.Errorf("it ended with %v", err)
	}
	if _, err := stopLocks(); err != nil {
		t.Error(err)
	}
	var said []string
	for _, line := range strings.Split(strings.TrimSpace(log), "\n") {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("log line %q: %v", line, err)
		}
		said = append(said, e["message"].(string))
		if e["message"] == "fired" && (e["proxy"] != "locks" || e["rule"] != "cut" || e["fault"] != "truncate-fin" || e["frame"] != "s2c.A.1" || e["offset"] != 13.0 || e["session"] != 1.0) {
			t.Errorf("fired as %s", line)
		}
		if e["message"] == "serving" && (e["api"] != addr || e["seed"] != 5.0) {
			t.Errorf("serving as %s", line)
		}
	}
	if got, want := strings.Join(said, ", "), "proxy created, proxy created, serving, rule armed, fired, proxy deleted, proxy deleted, stopped"; got != want {
		t.Errorf("the log says %s, want %s", got, want)
	}
}

func TestServeRefusesBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--api nowhere":     `--api "nowhere" is not HOST:PORT: address nowhere: missing port in address`,
		"--api 0.0.0.0:0":   `--api "0.0.0.0:0" is reached by other machines, and there is no password yet; choose a loopback address, or say --allow-remote`,
		"--api :0":          `--api ":0" is reached by other machines, and there is no password yet; choose a loopback address, or say --allow-remote`,
		"--log-level wran":  `there is no log level "wran"; did you mean warn?; levels are debug, info, warn, error`,
		"--proxy a,b":       `--proxy "a,b" is not NAME,LISTEN,UPSTREAM[,GRAMMAR]`,
		"--proxy a,b,c,d,e": `--proxy "a,b,c,d,e" is not NAME,LISTEN,UPSTREAM[,GRAMMAR]`,
		"--proxy p,127.0.0.1:0,a:1,tiketing --log-level x": "there is no log level \"x\"; levels are debug, info, warn, error\n" +
			`--proxy "p,127.0.0.1:0,a:1,tiketing": grammar is "tiketing", and there is no such grammar; did you mean ticketing?; there are ticketing, ticketing-v0`,
		"--proxy p,127.0.0.1:0,a:1 --proxy q,127.0.0.1:0,a:1 --proxy p,127.0.0.1:0,b:2": `--proxy "p,127.0.0.1:0,b:2": there is a proxy of this name already`,
		"--proxy ,127.0.0.1:0,x": `--proxy ",127.0.0.1:0,x": missing required field: name; upstream is no address: address "x": missing port in address; it is host:port or unix:/path`,
		"--api 127.0.0.1:99999":  `--api "127.0.0.1:99999" is not HOST:PORT: address 99999: invalid port`,
		"--api 127.0.0.1:nope":   `--api "127.0.0.1:nope" is not HOST:PORT: lookup tcp/nope: unknown port`,
		"--proxy p,127.0.0.1:0,": `--proxy "p,127.0.0.1:0,": missing required field: upstream`,
		"extra":                  `serve takes no argument, but got "extra"; see serve --help`,
	} {
		_, err := fails(strings.Fields(args))
		var usage usageError
		if !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", args, err, want)
		}
	}
}

// fails runs a command that must not get as far as to serve.
func fails(args []string) (string, error) {
	cmd := serveCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestServeTellsWhatItCannotHave(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, test := range []struct{ args, want string }{
		{"--api " + taken, "listen tcp " + taken + ": bind: address already in use; choose another address with --api"},
		{"--api 127.0.0.1:0 --proxy p,127.0.0.1:0,a:1 --proxy q," + taken + ",a:1", "--proxy q: listen tcp " + taken + ": bind: address already in use"},
	} {
		if out, err := fails(strings.Fields(test.args)); err == nil || err.Error() != test.want || out != "" {
			t.Errorf("%s: %v, want %s; stdout %q", test.args, err, test.want, out)
		}
	}
}

// TestServeWarnsOfStrangers: an address that others reach is served when asked for.
func TestServeWarnsOfStrangers(t *testing.T) {
	addr, stop := serving(t, "--api", "0.0.0.0:0", "--allow-remote", "--log-level", "warn")
	_, port, _ := net.SplitHostPort(addr)
	do(t, 200, "GET", "127.0.0.1:"+port+"/proxies", "")
	if log, err := stop(); err != nil || strings.Count(log, "\n") != 1 || !strings.Contains(log, `"level":"warn"`) || !strings.Contains(log, "anyone who reaches this address") {
		t.Errorf("error %v, log:\n%s", err, log)
	}
}

// TestEventLogNeverBlocks: what does not fit is counted, and the count is told.
func TestEventLogNeverBlocks(t *testing.T) {
	var b bytes.Buffer
	log := newEventLog(zerolog.New(&b), func(log zerolog.Logger, n int) { log.Info().Int("n", n).Msg("event") })
	for n := range loggedEventLimit + 3 {
		log.put(n)
	}
	log.start()()
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != loggedEventLimit+1 || lines[0] != `{"level":"warn","events":3,"message":"the log could not keep up; events are missing"}` ||
		lines[len(lines)-1] != `{"level":"info","n":4095,"message":"event"}` {
		t.Errorf("%d lines, from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
}

func TestWireLevel(t *testing.T) {
	for want, events := range map[zerolog.Level][]history.Event{
		zerolog.WarnLevel:  {{Kind: history.ServerDialed, Detail: "refused"}, {Kind: history.AcceptFailed}, {Kind: history.ServerLost}},
		zerolog.InfoLevel:  {{Kind: history.Fired}, {Kind: history.WentOpaque, Detail: "not a frame"}, {Kind: history.ServerBack}},
		zerolog.DebugLevel: {{Kind: history.ServerDialed}, {Kind: history.SessionOpened}},
	} {
		for _, e := range events {
			if got := wireLevel(&e); got != want {
				t.Errorf("%+v: %s, want %s", e, got, want)
			}
		}
	}
}

// TestWireMessage: a dial that has failed is not told in the words of one that has
// not.
func TestWireMessage(t *testing.T) {
	for detail, want := range map[string]string{
		"":        `{"level":"debug","proxy":"p","session":3,"message":"server dialed"}`,
		"refused": `{"level":"warn","proxy":"p","session":3,"detail":"refused","message":"server not reached"}`,
	} {
		var b bytes.Buffer
		logWire(zerolog.New(&b), wireEvent{"p", history.Event{Kind: history.ServerDialed, Session: 3, Detail: detail}})
		if got := strings.TrimSpace(b.String()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestWrongAddress: a host that is not known is no wrong form of an address.
func TestWrongAddress(t *testing.T) {
	for want, err := range map[string]error{
		`--api "x.example:1": the host has no address: lookup x.example: no such host`: &net.DNSError{Err: "no such host", Name: "x.example", IsNotFound: true},
		`--api "x.example:1" is not HOST:PORT: lookup tcp/1: unknown port`:             &net.DNSError{Err: "unknown port", Name: "tcp/1", IsNotFound: true},
		`--api "x.example:1" is not HOST:PORT: odd`:                                    errors.New("odd"),
	} {
		if got := wrongAddress("--api", "x.example:1", err); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestServeDebug: sessions and requests are in the log if asked for.
func TestServeDebug(t *testing.T) {
	locks, stopLocks := lockserver(t)
	addr, stop := serving(t, "--proxy", "locks,127.0.0.1:0,"+locks, "--log-level", "debug")
	var v struct{ Listen string }
	if err := json.Unmarshal([]byte(do(t, 200, "GET", addr+"/proxies/locks", "")), &v); err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", v.Listen)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(nc).ReadString('\n'); err != nil {
		t.Error(err)
	}
	_ = nc.Close()
	log, err := stop()
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{`"message":"session opened"`, `"message":"server dialed"`, `"path":"/proxies/locks","status":200`} {
		if !strings.Contains(log, want) {
			t.Errorf("%s is not in the log:\n%s", want, log)
		}
	}
	if _, err := stopLocks(); err != nil {
		t.Error(err)
	}
}
