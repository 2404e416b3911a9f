package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tornwire/proxy"
	"tornwire/server"
)

// line is a connection through a proxy to a server that says its name.
func line(t *testing.T, addr, want string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{TCPConn: nc.(*net.TCPConn), t: t}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
	return c
}

// alive wants the connection to be open.
func (c *client) alive() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
		c.t.Errorf("the session has ended: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// over wants the proxy to have reset the connection.
func (c *client) over() {
	c.t.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Errorf("the session has %v, wanted a reset", err)
	}
}

// refused wants nobody to listen.
func refused(t *testing.T, addr string) {
	t.Helper()
	if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling %s: %v, wanted a refusal", addr, err)
		if err == nil {
			_ = c.Close()
		}
	}
}

// speaker is a server that says a word to everybody, and then nothing.
func speaker(t *testing.T, word string) string {
	t.Helper()
	l := listenAny(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, word)
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func TestDisableAndDelete(t *testing.T) {
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+speaker(t, "one")+`"}`)
	addr := b.listen("p")
	c := line(t, addr, "one")
	b.must(200, "POST", "/proxies/p", `{"enabled":false}`)
	c.over()
	refused(t, addr)
	b.must(200, "POST", "/proxies/p", `{"enabled":true}`)
	if got := b.listen("p"); got != addr {
		t.Errorf("it listens on %s, not on %s again", got, addr)
	}
	c = line(t, addr, "one")
	b.must(200, "POST", "/proxies/p", `{"enabled":true,"listen":"`+addr+`"}`)
	b.must(204, "POST", "/reset", "")
	c.alive()
	b.must(204, "DELETE", "/proxies/p", "")
	c.over()
	refused(t, addr)
}

// TestUpdateMoves: another address or upstream ends the sessions; what cannot be had
// changes nothing.
func TestUpdateMoves(t *testing.T) {
	b := newBed(t)
	one, two := speaker(t, "one"), speaker(t, "two")
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+one+`"}`)
	addr := b.listen("p")

	c := line(t, addr, "one")
	taken := listenAny(t)
	defer taken.Close()
	before := b.must(200, "GET", "/proxies/p", "")
	b.must(500, "POST", "/proxies/p", `{"listen":"`+taken.Addr().String()+`","upstream":"`+two+`"}`)
	b.must(400, "POST", "/proxies/p", `{"listen":"127.0.0.1:0","upstream":"nowhere"}`)
	if after := b.must(200, "GET", "/proxies/p", ""); after != before {
		t.Errorf("after a change that was refused: %s, before: %s", after, before)
	}
	c.alive()
	line(t, addr, "one")

	b.must(200, "POST", "/proxies/p", `{"listen":"127.0.0.1:0"}`)
	c.over()
	refused(t, addr)
	addr = b.listen("p")
	c = line(t, addr, "one")
	b.must(200, "POST", "/proxies/p", `{"upstream":"`+two+`"}`)
	c.over()
	if got := b.listen("p"); got != addr {
		t.Errorf("another upstream moved it to %s", got)
	}
	line(t, addr, "two")
}

// TestSamePort: where an address covers that of the old listener, that one has to go
// before the new one can come.
func TestSamePort(t *testing.T) {
	b := newBed(t)
	up := speaker(t, "one")
	for range 10 { // a stranger may take the port on another address meanwhile
		free, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(free.Addr().String())
		_ = free.Close()
		addr := "127.0.0.1:" + port
		b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+up+`","listen":"`+addr+`"}`)
		status, text := b.ask("POST", "/proxies/p", `{"listen":"0.0.0.0:`+port+`"}`)
		line(t, addr, "one")
		if status == 200 {
			b.must(500, "POST", "/proxies/p", `{"listen":"192.0.2.1:`+port+`"}`)
			line(t, addr, "one")
			return
		}
		if status != 500 || !strings.Contains(text, "address already in use") {
			t.Fatalf("%d %s", status, text)
		}
		b.must(204, "DELETE", "/proxies/p", "")
	}
	t.Error("no port could be had")
}

// TestReplaceFails: where the old listener had to go first and the new one does not
// come, the old one comes again; if it cannot either, that is told.
func TestReplaceFails(t *testing.T) {
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+speaker(t, "one")+`"}`)
	addr := b.listen("p")
	_, port, _ := net.SplitHostPort(addr)
	other, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("no second loopback address: %v", err)
	}
	defer other.Close()
	b.must(500, "POST", "/proxies/p", `{"listen":"0.0.0.0:`+port+`"}`)
	line(t, addr, "one")
	if got := b.must(200, "GET", "/proxies/p", ""); !strings.Contains(got, `"enabled":true`) || strings.Contains(got, "problem") {
		t.Errorf("it is %s", got)
	}
}

// TestRulesGoOn: rules and gates outlast a change of the data path, and a rule that
// does not go with it forbids the change.
func TestRulesGoOn(t *testing.T) {
	b := newBed(t)
	up := lockServer(t, server.Config{})
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+up+`","grammar":"ticketing"}`)
	b.must(201, "POST", "/proxies/p/rules", `{"id":"spent","dir":"s2c","op":"greeting","times":1}`)
	b.must(201, "POST", "/proxies/p/rules", `{"id":"cut","dir":"s2c","op":"A","after":"g","where":{"key":"b"},"fault":{"type":"truncate-fin","at":5}}`)
	b.must(204, "PUT", "/proxies/p/gates/g", "")
	c := connect(t, b.listen("p"))
	c.acquire(1, "a")
	c.gets(grant(1, 1, "a"))

	if got := b.must(400, "PATCH", "/proxies/p", `{"grammar":""}`); got != `{"error":"rule cut does not go with that: op is \"A\", and the proxy has no grammar: only open is possible","status":400}` {
		t.Errorf("without a grammar: %s", got)
	}
	c.acquire(2, "c")
	c.gets(grant(2, 2, "c"))
	b.must(200, "PATCH", "/proxies/p", `{"dial_timeout":"1s"}`)
	rules := steady(b.must(200, "GET", "/proxies/p/rules", ""))
	if strings.Contains(rules, "spent") || !strings.Contains(rules, `"cut"`) || !strings.Contains(rules, `"fired":0`) {
		t.Errorf("rules %s", rules)
	}
	c = connect(t, b.listen("p"))
	c.acquire(3, "b")
	c.gets("A\x00\x00\x00\x00")
	if err := c.ends(); err != nil {
		t.Errorf("it ended with %v, not a FIN", err)
	}
	// Reset forgets them all, and shuts the gate.
	b.must(204, "POST", "/reset", "")
	b.must(201, "POST", "/proxies/p/rules", `{"id":"cut","dir":"s2c","op":"A","after":"g","fault":{"type":"drop"}}`)
	c = connect(t, b.listen("p"))
	c.acquire(4, "d")
	c.gets(grant(4, 4, "d"))
}

// TestStopsByItself: a proxy whose listener cannot come again after a refusal says
// so, and can be enabled when it can.
func TestStopsByItself(t *testing.T) {
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+speaker(t, "one")+`"}`)
	addr := b.listen("p")
	b.must(201, "POST", "/proxies/p/rules", `{"id":"r","op":"open","times":1,"fault":{"type":"refuse","until":"g","args":{"most":"1m"}}}`)
	var thief net.Listener
	b.until(func() (ok bool) {
		var err error
		thief, err = net.Listen("tcp", addr)
		return err == nil
	})
	b.must(204, "PUT", "/proxies/p/gates/g", "")
	b.until(func() bool { return strings.Contains(b.must(200, "GET", "/proxies/p", ""), `"enabled":false`) })
	if got := b.must(200, "GET", "/proxies/p", ""); !strings.Contains(got, `"problem":"listen again on `+addr) {
		t.Errorf("it is %s", got)
	}
	b.must(500, "POST", "/proxies/p", `{"enabled":true}`)
	_ = thief.Close()
	if got := b.must(200, "POST", "/proxies/p", `{"enabled":true}`); strings.Contains(got, "problem") {
		t.Errorf("it is %s", got)
	}
	line(t, addr, "one")
}

// TestTurns: changes of one proxy wait for each other, and not for ever.
func TestTurns(t *testing.T) {
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"a:1","enabled":false}`)
	b.must(201, "POST", "/proxies", `{"name":"q","upstream":"a:1","enabled":false}`)
	d, err := b.m.find("p")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 20 { // the turn must not come by chance either
		if err := b.m.Delete(ctx, "p"); err != errBusy {
			t.Fatalf("try %d: %v", i, err)
		}
	}
	b.must(200, "GET", "/proxies/p", "")
	b.must(200, "GET", "/proxies/p/rules", "")
	b.must(204, "DELETE", "/proxies/q", "")
	// Who waited while the proxy went finds none.
	got := make(chan error)
	go func() {
		_, err := b.m.Update(t.Context(), "p", func(*Settings) error { return nil })
		got <- err
	}()
	d.end()
	d.unlock()
	if err := <-got; err != errProxyNotFound {
		t.Errorf("after its end: %v", err)
	}
}

// TestTogether: many clients change proxies and rules while sessions go on; each is
// answered, and nothing is torn.
func TestTogether(t *testing.T) {
	b := newBed(t)
	up := lockServer(t, server.Config{})
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+up+`","grammar":"ticketing"}`)
	c := connect(t, b.listen("p"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				id := fmt.Sprintf("r%d-%d", i, j)
				own := fmt.Sprintf("q%d-%d", i, j)
				for _, s := range []step{
					{"POST", "/proxies/p/rules", `{"id":"` + id + `","dir":"c2s","op":"A","where":{"key":"never"},"fault":{"type":"drop"}}`, 201, ""},
					{"PUT", "/proxies/p/rules/" + id, `{"dir":"s2c","op":"A","where":{"token":"0"},"fault":{"type":"delay"}}`, 200, ""},
					{"POST", "/proxies", `{"name":"` + own + `","upstream":"` + up + `"}`, 201, ""},
					{"GET", "/proxies", "", 200, ""},
					{"DELETE", "/proxies/" + own, "", 204, ""},
					{"DELETE", "/proxies/p/rules/" + id, "", 204, ""},
				} {
					begun := time.Now()
					status, text := b.ask(s.method, s.path, s.body)
					if took := time.Since(begun); status != s.status || took > 2*time.Second {
						t.Errorf("%s %s: %d %s after %s", s.method, s.path, status, text, took)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	defer func() { <-done }()
	for i := 1; ; i++ {
		n, key := byte(i), fmt.Sprintf("k%d", i)
		c.acquire(n, key)
		reply := make([]byte, len(grant(n, 0, key)))
		if _, err := io.ReadFull(c.r, reply); err != nil {
			t.Fatal(err)
		}
		if got := string(reply[:9]) + string(reply[17:]); got != grant(n, 0, key)[:9]+key+"\n" {
			t.Fatalf("reply %q to the acquire of %s", reply, key)
		}
		select {
		case <-done:
			if got := b.must(200, "GET", "/proxies/p/rules", ""); got != "[]" {
				t.Errorf("rules are left: %s", got)
			}
			return
		default:
		}
	}
}

// TestClose: a manager that was closed takes nothing more, and has nothing left.
func TestClose(t *testing.T) {
	m := NewManager(Options{})
	v, err := m.Create(Settings{Name: "p", Upstream: speaker(t, "one"), Enabled: true})
	if err != nil {
		t.Fatal(err)
	}
	c := line(t, v.Listen, "one")
	m.Close()
	c.over()
	refused(t, v.Listen)
	if _, err := m.Create(Settings{Name: "q", Upstream: "a:1"}); err != errClosed {
		t.Errorf("after the end: %v", err)
	}
	if _, err := m.Rules("p"); err != errProxyNotFound {
		t.Errorf("after the end: %v", err)
	}
	m.Close()
}

func TestLimitsOfManager(t *testing.T) {
	m := NewManager(Options{})
	defer m.Close()
	ctx := t.Context()
	for i := range MaxProxies {
		if _, err := m.Create(Settings{Name: fmt.Sprint(i), Upstream: "a:1"}); err != nil {
			t.Fatalf("proxy %d: %v", i+1, err)
		}
	}
	full := func(what string, err error, want string) {
		t.Helper()
		if e := asError(err); e.Status != http.StatusUnprocessableEntity || e.Message != want {
			t.Errorf("one more %s: %v", what, err)
		}
	}
	_, err := m.Create(Settings{Name: "x", Upstream: "a:1"})
	full("proxy", err, "there are 1000 proxies, and no more are possible")
	if err := m.Delete(ctx, "0"); err != nil {
		t.Error(err)
	}
	if _, err := m.Create(Settings{Name: strings.Repeat("x", MaxName), Upstream: strings.Repeat("a", MaxAddress-2) + ":1"}); err != nil {
		t.Errorf("in the place of one that went: %v", err)
	}

	for i := range proxy.MaxRules {
		r, err := readRule([]byte(`{"op":"open","ttl":"24h"}`), fmt.Sprint("r", i), "1", nil)
		if err == nil {
			_, err = m.Arm(ctx, "1", r)
		}
		if err != nil {
			t.Fatalf("rule %d: %v", i+1, err)
		}
	}
	r, _ := readRule([]byte(`{"op":"open"}`), "x", "1", nil)
	_, err = m.Arm(ctx, "1", r)
	full("rule", err, "there are 1000 rules, and no more are possible")

	for i := range MaxGates {
		if err := m.Gate(ctx, "2", fmt.Sprint("g", i), i%2 == 0); err != nil {
			t.Fatalf("gate %d: %v", i+1, err)
		}
	}
	const more = "4096 gates were used on this proxy, and no more are possible; use a name again"
	full("gate", m.Gate(ctx, "2", "x", true), more)
	full("gate", m.Gate(ctx, "2", "x", false), more)
	r.Signal = "x"
	_, err = m.Arm(ctx, "2", r)
	full("signal", err, more)
	r.Signal = "g7"
	if _, err := m.Arm(ctx, "2", r); err != nil {
		t.Error(err)
	}
	if err := m.Gate(ctx, "2", "g7", true); err != nil {
		t.Error(err)
	}
}
