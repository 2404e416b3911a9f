// Package adapters_test talks to the adapters of this folder as verify does:
// over the stdin and stdout of their processes.
package adapters_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/server"
)

const (
	initLimit   = 60 * time.Second // go run may compile
	answerLimit = 10 * time.Second
	endLimit    = 5 * time.Second
)

// need skips the test, but not where everything must be there.
func need(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// serve runs a lock server and returns it with its address.
func serve(t *testing.T, dialect, secret string) (*server.Server, string) {
	t.Helper()
	srv, err := server.New(server.Config{Dialect: dialect, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return srv, l.Addr().String()
}

// process is a running adapter.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed at the end of its stdout
	stderr bytes.Buffer
	early  []adapter.Response // read while another answer was waited for
}

// start runs an adapter whose source is the file given. Looking at that makes go
// test run again when it has changed.
func start(t *testing.T, source, dir, name string, args ...string) *process {
	t.Helper()
	if _, err := os.ReadFile(source); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(name, args...), lines: make(chan string, 1000)}
	p.cmd.Dir = dir
	p.cmd.WaitDelay = endLimit // a killed go run leaves its child at the pipes
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.in.Close() // an adapter whose test failed half-way ends by itself
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("stderr of the adapter: %s", p.stderr.String())
		}
	})
	return p
}

func (p *process) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("send %s: %v", line, err)
	}
}

// await returns the next answer with that id; others are kept.
func (p *process) await(id uint64, limit time.Duration) adapter.Response {
	p.t.Helper()
	for i, r := range p.early {
		if *r.ID == id {
			p.early = append(p.early[:i], p.early[i+1:]...)
			return r
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case text, ok := <-p.lines:
			var r adapter.Response
			if err := json.Unmarshal([]byte(text), &r); !ok || err != nil || r.ID == nil {
				p.t.Fatalf("waiting for answer %d: got %q (open: %v): %v", id, text, ok, err)
			}
			if *r.ID == id {
				return r
			}
			p.early = append(p.early, r)
		case <-timer.C:
			p.t.Fatalf("no answer to %d within %v", id, limit)
		}
	}
}

// ask sends a request with that id and checks type and outcome of its answer.
func (p *process) ask(id uint64, rest, want string) adapter.Response {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"id":%d,%s}`, id, rest))
	return p.expect(id, want)
}

func (p *process) expect(id uint64, want string) adapter.Response {
	p.t.Helper()
	limit := answerLimit
	if want == adapter.TypeInitOK {
		limit = initLimit
	}
	r := p.await(id, limit)
	if got := strings.TrimSpace(r.Type + " " + r.Outcome); got != want {
		p.t.Fatalf("answer to %d: %q (detail %q, raw %q), want %q", id, got, r.Detail, r.Raw, want)
	}
	return r
}

// end closes stdin and waits for exit code 0 with nothing more on stdout.
func (p *process) end() {
	p.t.Helper()
	_ = p.in.Close()
	timer := time.AfterFunc(endLimit, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	for text := range p.lines {
		p.t.Errorf("after the end: %s", text)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the adapter ended with %v", err)
	}
	if len(p.early) > 0 {
		p.t.Errorf("answers nobody asked for: %+v", p.early)
	}
}

func TestSaroTicketing(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("node")
	need(t, err == nil, "node is needed: %v", err)
	_, err = os.Stat("saro-ticketing/node_modules/saro-ticketing")
	need(t, !errors.Is(err, os.ErrNotExist), "run npm ci in adapters/saro-ticketing first: %v", err)
	srv, addr := serve(t, "ticketing-v0", "s3cret")
	p := start(t, "saro-ticketing/adapter.mjs", "saro-ticketing", "node", "adapter.mjs")

	r := p.ask(0, `"type":"init","version":1,"dialect":"ticketing"`, "init_ok")
	if r.Client != "saro-ticketing 0.1.0" || fmt.Sprint(r.Dialects, r.Features, r.Outcomes) != "[ticketing-v0] [] [acquired timeout error]" {
		t.Errorf("init_ok %+v", r)
	}
	p.ask(1, fmt.Sprintf(`"type":"open","client":"c","addresses":[%q],"secret":"s3cret"`, addr), "error")
	p.ask(2, `"type":"init","version":2,"dialect":"ticketing-v0"`, "error")
	p.ask(3, `"type":"init","version":1,"dialect":"ticketing-v0"`, "init_ok")
	p.send(`{"id":4,"type":"open","client":"nobody","addresses":["127.0.0.1:1"],"secret":""}`)
	p.ask(5, fmt.Sprintf(`"type":"open","client":"c","addresses":[%q],"secret":"s3cret"`, addr), "open_ok")
	p.ask(6, `"type":"ping"`, "pong")

	p.ask(7, `"type":"acquire","client":"c","key":"order-42","wait":5,"lease":30`, "started")
	checkToken(t, srv, "order-42", p.expect(7, "result acquired"))
	p.ask(8, `"type":"acquire","client":"c","key":"order-42","wait":1,"lease":30`, "started")
	p.ask(9, "\"type\":\"acquire\",\"client\":\"c\",\"key\":\"a\u2028b\",\"wait\":5,\"lease\":30", "started")
	p.expect(9, "result acquired") // while 8 waits; the key is one that line readers of node split
	if r := p.expect(8, "result timeout"); !strings.HasPrefix(r.Raw, "TicketError timeout: ") {
		t.Errorf("raw %q", r.Raw)
	}
	p.ask(10, `"type":"release","client":"c","call":7`, "result released")
	if _, held := srv.Holder("order-42"); held {
		t.Error("the key is held after its release")
	}
	p.ask(11, `"type":"release","client":"c","call":7`, "result not_held")
	p.ask(12, `"type":"release","client":"c","call":8`, "result error")
	p.ask(13, `"type":"release","client":"nobody","call":9`, "result error")
	p.ask(14, `"type":"cancel","call":7`, "unsupported")
	p.ask(15, `"type":"close","client":"c"`, "unsupported")
	p.ask(16, `"type":"dance"`, "unsupported")
	p.ask(17, `"type":"acquire","client":"c","key":"k","wait":-1,"lease":30`, "result error")
	p.ask(18, `"type":"acquire","client":"d","key":"k","wait":1,"lease":30`, "result error")
	p.ask(19, `"type":"acquire","client":"c","key":"with space","wait":1,"lease":30`, "started")
	if r := p.expect(19, "result error"); !strings.HasPrefix(r.Raw, "TicketError invalid_input: ") {
		t.Errorf("raw %q", r.Raw)
	}
	p.send("not json")
	p.send(strings.Repeat(" ", 3*adapter.MaxLine) + `{"type":"ping","id":99}`)

	p.expect(4, "open_ok")
	p.ask(20, `"type":"acquire","client":"nobody","key":"k","wait":1,"lease":30`, "started")
	if r := p.expect(20, "result error"); !strings.HasPrefix(r.Raw, "TicketError not_connected: ") {
		t.Errorf("raw %q", r.Raw)
	}
	p.end()
	if n := strings.Count(p.stderr.String(), "\n"); n != 2 {
		t.Errorf("stderr should tell of two lines that were no requests: %s", p.stderr.String())
	}
}

func checkToken(t *testing.T, srv *server.Server, key string, r adapter.Response) {
	t.Helper()
	g, held := srv.Holder(key)
	if !held || strconv.FormatUint(g.Token, 10) != r.Token {
		t.Errorf("acquired with token %q, the server says %+v, held %v", r.Token, g, held)
	}
}
