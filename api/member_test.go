package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tornwire/history"
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

// alive wants the connection to be open, with nothing to read.
func (c *client) alive() {
	c.t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var n int
	var seen error
	_ = raw.Read(func(fd uintptr) bool {
		n, _, seen = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	if !errors.Is(seen, syscall.EAGAIN) {
		c.t.Errorf("the session has %d bytes, %v", n, seen)
	}
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
	d, err := b.m.find("p")
	if err != nil {
		t.Fatal(err)
	}
	old := d.path()
	b.must(200, "PATCH", "/proxies/p", `{"dial_timeout":"1s"}`)
	if len(old.Rules()) > 0 {
		t.Error("rules stay armed on a data path that is no longer there, until their time is over")
	}
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

// TestRulesGoOnAsAsked: a rule is shown as it was asked for, with all that it did, after
// any number of changes of the data path; one in its place is new.
func TestRulesGoOnAsAsked(t *testing.T) {
	b := newBed(t)
	up := lockServer(t, server.Config{})
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"`+up+`","grammar":"ticketing"}`)
	b.must(201, "POST", "/proxies/p/rules", `{"id":"r","dir":"s2c","op":"A","skip":1,"times":4,"ttl":"1h","window":{"from":"0s","to":"59m"}}`)
	acquire := func(owner, token byte) {
		t.Helper()
		c := connect(t, b.listen("p"))
		c.acquire(owner, string([]byte{'a' + owner}))
		c.gets(grant(owner, token, string([]byte{'a' + owner})))
		_ = c.Close()
	}
	var owner byte
	for i, timeout := range []string{"1s", "2s", "3s"} {
		for range 2 - min(i, 1) { // 2, 1 and 1
			owner++
			acquire(owner, owner)
		}
		b.must(200, "PATCH", "/proxies/p", `{"dial_timeout":"`+timeout+`"}`)
		s, err := b.m.Rule("p", "r")
		if err != nil {
			t.Fatal(err)
		}
		v := viewRule(s)
		n := int64(owner)
		if v.Skip != 1 || v.Times != 4 || v.TTL != "1h0m0s" || v.Window.To != "59m0s" || v.Matched != n || v.Fired != n-1 || v.Bytes != 19*(n-1) || s.Left >= time.Hour {
			t.Errorf("after change %d: %+v, window %+v", i+1, v, v.Window)
		}
	}
	owner++
	acquire(owner, owner)
	b.must(200, "PATCH", "/proxies/p", `{"dial_timeout":"4s"}`)
	b.must(404, "GET", "/proxies/p/rules/r", "") // it has taken its four
	b.must(201, "POST", "/proxies/p/rules", `{"id":"r","dir":"s2c","op":"A","times":2}`)
	b.must(200, "PATCH", "/proxies/p", `{"dial_timeout":"5s"}`)
	b.must(200, "PUT", "/proxies/p/rules/r", `{"dir":"s2c","op":"A","times":3,"ttl":"2m"}`)
	if got := b.must(200, "GET", "/proxies/p/rules/r", ""); !strings.Contains(got, `"times":3`) || !strings.Contains(got, `"ttl":"2m0s"`) {
		t.Errorf("in its place: %s", got)
	}
}

// TestNoWayBack: where neither the new nor the old listener can be had, that is
// told, and so it is where a listener fails before it is known.
func TestNoWayBack(t *testing.T) {
	m := NewManager(Options{})
	defer m.Close()
	if _, err := m.Create(Settings{Name: "p", Upstream: "a:1"}); err != nil {
		t.Fatal(err)
	}
	d, err := m.find("p")
	if err != nil {
		t.Fatal(err)
	}
	l := listenAny(t)
	defer l.Close()
	taken := Settings{Name: "p", Upstream: "a:1", Listen: l.Addr().String()}
	want := "listen tcp " + taken.Listen + ": bind: address already in use"
	if _, err := d.replace(taken, taken, nil, d.path()); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
	if v := d.view(); v.Enabled || v.Problem != want {
		t.Errorf("it is %+v", v)
	}
	r := &run{addr: taken.Listen, cancel: func() {}, done: make(chan struct{}), problem: "why"}
	close(r.done)
	d.put(taken, d.path(), r)
	if v := d.view(); v.Enabled || v.Problem != "why" {
		t.Errorf("it is %+v", v)
	}
}

// TestSeed: the dice of a rule follow the proxy's seed, or the manager's.
func TestSeed(t *testing.T) {
	b := newBed(t)
	up := lockServer(t, server.Config{})
	throws := func(name, more string) string {
		b.must(201, "POST", "/proxies", `{"name":"`+name+`","upstream":"`+up+`","grammar":"ticketing"`+more+`}`)
		b.must(201, "POST", "/proxies/"+name+"/rules", `{"id":"r","dir":"s2c","op":"greeting","chance":0.5}`)
		var out strings.Builder
		for range 20 {
			_ = connect(t, b.listen(name)).Close()
			s, err := b.m.Rule(name, "r")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(&out, s.Fired, " ")
		}
		return out.String()
	}
	one, other, manager := throws("one", `,"seed":7`), throws("other", `,"seed":8`), throws("manager", "")
	if one != manager || one == other {
		t.Errorf("seed 7: %s\nseed 8: %s\nthe manager's, 7: %s", one, other, manager)
	}
}

// TestTakenPort: a proxy whose port somebody took during a refusal stays enabled, and
// listens again when the port is free.
func TestTakenPort(t *testing.T) {
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
	b.until(func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.events, func(e history.Event) bool { return e.Kind == history.AcceptFailed })
	})
	_ = thief.Close()
	b.until(func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	line(t, addr, "one")
	if got := b.must(200, "GET", "/proxies/p", ""); !strings.Contains(got, `"enabled":true`) || strings.Contains(got, "problem") {
		t.Errorf("it is %s", got)
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
