package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tornwire/history"
	"tornwire/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is an API that is served, and what happened on its proxies.
type bed struct {
	t    *testing.T
	m    *Manager
	url  string
	http *http.Client

	mu     sync.Mutex
	events []history.Event
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, http: &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}}
	b.m = NewManager(Options{Version: "1.2.3", Seed: 7, Log: zerolog.Nop(), Observe: func(_ string, e history.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}})
	l := listenAny(t)
	b.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, b.m) }()
	t.Cleanup(func() {
		b.http.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return b
}

func listenAny(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask makes a request and returns the answer's status and body.
func (b *bed) ask(method, path, body string, header ...string) (int, string) {
	b.t.Helper()
	r := b.answer(method, path, body, header...)
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	_ = r.Body.Close()
	want := "application/json"
	if r.StatusCode == http.StatusNoContent {
		want = ""
	}
	if got := r.Header.Get("Content-Type"); got != want {
		b.t.Errorf("%s %s: content type %q", method, path, got)
	}
	return r.StatusCode, strings.TrimSuffix(string(text), "\n")
}

func (b *bed) answer(method, path, body string, header ...string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	r, err := b.http.Do(req)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// must makes a request that has to be answered with a status.
func (b *bed) must(status int, method, path, body string) string {
	b.t.Helper()
	got, text := b.ask(method, path, body)
	if got != status {
		b.t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, got, text, status)
	}
	return text
}

// changing is what differs from run to run in an answer.
var changing = regexp.MustCompile(`"(listen":"127\.0\.0\.1:[1-9][0-9]*|left":"9m59\.[0-9]+s)"`)

// steady puts words in the place of what differs from run to run.
func steady(text string) string {
	return changing.ReplaceAllStringFunc(text, func(s string) string {
		name, _, _ := strings.Cut(s, `":`)
		return name + `":"` + strings.ToUpper(name[1:]) + `"`
	})
}

// step is a request and its answer.
type step struct {
	method, path, body string
	status             int
	answer             string
}

func (b *bed) run(steps []step) {
	b.t.Helper()
	for i, s := range steps {
		status, text := b.ask(s.method, s.path, s.body)
		if got := steady(text); status != s.status || got != s.answer {
			b.t.Errorf("step %d, %s %s %s:\n got %d %s\nwant %d %s", i+1, s.method, s.path, s.body, status, got, s.status, s.answer)
		}
	}
}

// listen is where a proxy listens.
func (b *bed) listen(name string) string {
	b.t.Helper()
	v, err := b.m.View(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return v.Listen
}

// fired counts the events of rules.
func (b *bed) fired() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == history.Fired {
			n++
		}
	}
	return n
}

// lockServer is an embedded lock server on its own address.
func lockServer(t *testing.T, c server.Config) string {
	t.Helper()
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := listenAny(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("lock server: %v", err)
		}
	})
	return l.Addr().String()
}

// client is a connection of a lock client.
type client struct {
	*net.TCPConn
	t *testing.T
	r *bufio.Reader
}

// connect dials and goes through the preface.
func connect(t *testing.T, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{nc.(*net.TCPConn), t, bufio.NewReader(nc)}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	greeting, err := c.r.ReadString('\n')
	if err != nil {
		t.Fatalf("no greeting: %v", err)
	}
	_, nonce, _ := strings.Cut(strings.TrimSuffix(greeting, "\n"), " ")
	sum := sha256.Sum256([]byte(nonce))
	c.send(base64.RawURLEncoding.EncodeToString(sum[:]) + "\n")
	return c
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// acquire asks for a lock.
func (c *client) acquire(owner byte, key string) {
	c.t.Helper()
	c.send("A\x00\x09\x00\x00\x00\x00\x00\x00\x00" + string([]byte{owner}) + key + "\n")
}

// grant is the answer to acquire.
func grant(owner, token byte, key string) string {
	return "A\x00\x00\x00\x00\x00\x00\x00" + string([]byte{owner}) + "\x00\x00\x00\x00\x00\x00\x00" + string([]byte{token}) + key + "\n"
}

// gets wants exactly these bytes.
func (c *client) gets(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.r, got); err != nil || !bytes.Equal(got, []byte(want)) {
		c.t.Errorf("got %q (%v), want %q", got[:n], err, want)
	}
}

// ends wants no more bytes, and returns the error that ends the connection.
func (c *client) ends() error {
	c.t.Helper()
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 {
		c.t.Errorf("%q came too", rest)
	}
	return err
}

// until waits for what happens by itself.
func (b *bed) until(done func() bool) {
	b.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			b.t.Fatal("it does not happen")
		}
	}
}
