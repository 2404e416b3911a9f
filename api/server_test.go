package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/internal/memnet"
)

const (
	browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)"
	noAgent = `{"error":"User agent not allowed","status":403}`
)

// TestGuards: what a page in somebody's browser can reach.
func TestGuards(t *testing.T) {
	b := newBed(t)
	b.must(201, "POST", "/proxies", `{"name":"p","upstream":"a:1","enabled":false}`)
	own := strings.TrimPrefix(b.url, "http://")
	_, port, _ := net.SplitHostPort(own)
	foreign := func(s string) string { return `{"error":"origin \"` + s + `\" is not this API's","status":403}` }
	unnamed := func(s string) string {
		return `{"error":"host \"` + s + `\" is neither an address nor localhost","status":403}`
	}
	const rules = "/v1/proxies/p/rules"
	for _, test := range []struct {
		path    string
		headers []string
		status  int
		answer  string
	}{
		{"/version", []string{browser}, 403, noAgent},
		{"/proxies", []string{browser}, 403, noAgent},
		{"/proxies/p/rules", []string{browser}, 403, noAgent},
		{"/proxies/p/rules", []string{"User-Agent: curl/8.0"}, 200, "[]"},
		{"/proxies/p/rules", []string{"Host: toxiproxy:8474", "Origin: http://x.example"}, 200, "[]"},
		{rules, []string{browser}, 200, "[]"},
		{rules, []string{browser, "Origin: http://" + own}, 200, "[]"},
		{rules, []string{browser, "Host: localhost:" + port, "Origin: http://localhost:" + port}, 200, "[]"},
		{rules, []string{"Host: LocalHost"}, 200, "[]"},
		{rules, []string{"Host: [::1]:8474"}, 200, "[]"},
		{rules, []string{"Host: 10.0.0.1"}, 200, "[]"},
		{rules, []string{"Host: localhost.x.example"}, 403, unnamed("localhost.x.example")},
		{rules, []string{"Host: 127.0.0.1.x.example:8474"}, 403, unnamed("127.0.0.1.x.example:8474")},
		{rules, []string{"Origin: http://x.example"}, 403, foreign("http://x.example")},
		{rules, []string{"Origin: https://" + own}, 403, foreign("https://" + own)},
		{rules, []string{"Origin: http://127.0.0.1:1"}, 403, foreign("http://127.0.0.1:1")},
		{rules, []string{"Origin: null"}, 403, foreign("null")},
		{rules, []string{"Origin: http://" + own, "Origin: http://x.example"}, 403, foreign("http://" + own + ", http://x.example")},
	} {
		status, text := b.ask("GET", test.path, "", test.headers...)
		if status != test.status || text != test.answer {
			t.Errorf("%s %q: %d %s, want %d %s", test.path, test.headers, status, text, test.status, test.answer)
		}
	}
}

// TestBodyLimit: a body of MaxBody bytes is read, one of a byte more is not.
func TestBodyLimit(t *testing.T) {
	b := newBed(t)
	body := `{"name":"p","upstream":"a:1","enabled":false}`
	body += strings.Repeat(" ", MaxBody-len(body))
	want := `{"error":"bad request body: more than 1048576 bytes","status":413}`
	if status, text := b.ask("POST", "/proxies", body+" "); status != http.StatusRequestEntityTooLarge || text != want {
		t.Errorf("one more: %d %s", status, text)
	}
	b.must(404, "GET", "/proxies/p", "")
	b.must(201, "POST", "/proxies", body)
	if status, text := b.ask("PATCH", "/proxies/p", body+" "); status != http.StatusRequestEntityTooLarge || text != want {
		t.Errorf("one more: %d %s", status, text)
	}
	b.must(200, "PATCH", "/proxies/p", body)
}

// TestHeaderLimit: net/http counts all lines of a header, and grants up to 8 KiB more.
func TestHeaderLimit(t *testing.T) {
	b := newBed(t)
	pad := func(n int) string { return "X-Pad: " + strings.Repeat("x", n) }
	if status, text := b.ask("GET", "/version", "", pad(MaxHeader-1<<10)); status != http.StatusOK {
		t.Errorf("%d %s for a header that is not too large", status, text)
	}
	r := b.answer("GET", "/version", "", pad(MaxHeader+8<<10))
	_ = r.Body.Close()
	if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d for a header that is too large", r.StatusCode)
	}
}

// dialled serves the API in a bubble and makes a connection to it.
func dialled(t *testing.T, opts memnet.Options) (net.Conn, func()) {
	n := memnet.New(opts)
	l, err := n.Listen("tcp", "10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, NewManager(Options{})) }()
	c, err := n.Dial(t.Context(), "tcp", "10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// TestTimes: who says nothing, or not all, or asks no more, is not waited for
// longer than is said.
func TestTimes(t *testing.T) {
	for _, test := range []struct {
		name, sends string
		answers     bool // the request is whole
		limit       time.Duration
	}{
		{"nothing", "", false, HeaderTimeout},
		{"half a header", "GET /version HTTP/1.1\r\nHost: x\r\n", false, HeaderTimeout},
		{"half a body", "POST /proxies HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", false, ReadTimeout},
		{"no second request", "GET /version HTTP/1.1\r\nHost: x\r\n\r\n", true, IdleTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, stop := dialled(t, memnet.Options{})
				defer stop()
				defer c.Close()
				begun := time.Now()
				if _, err := io.WriteString(c, test.sends); err != nil {
					t.Fatal(err)
				}
				r := bufio.NewReader(c)
				if test.answers {
					a, err := http.ReadResponse(r, nil)
					if err != nil || a.StatusCode != http.StatusOK {
						t.Fatalf("%v, %v", a, err)
					}
					_, _ = io.Copy(io.Discard, a.Body)
				}
				_, _ = io.Copy(io.Discard, r) // perhaps an error, then the end
				if took := time.Since(begun); took < test.limit || took > test.limit+time.Second {
					t.Errorf("it ended after %s, not %s", took, test.limit)
				}
			})
		})
	}
}

// TestWriteTime: who does not take the answer is not waited for.
func TestWriteTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := dialled(t, memnet.Options{Buffer: 64})
		defer stop()
		defer c.Close()
		if _, err := io.WriteString(c, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(WriteTimeout + time.Second)
		if got, _ := io.ReadAll(c); strings.Contains(string(got), "}") {
			t.Errorf("there is an answer after %s: %q", WriteTimeout, got)
		}
	})
}

// TestServeEnds: a request that is under way is waited for, but not for ever, and a
// listener that fails is an error.
func TestServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := dialled(t, memnet.Options{})
		if _, err := io.WriteString(c, "POST /proxies HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun := time.Now()
		stop()
		_, _ = io.ReadAll(c)
		if took := time.Since(begun); took != DrainTimeout {
			t.Errorf("it took %s to end, not %s", took, DrainTimeout)
		}
		_ = c.Close()
	})
	l := listenAny(t)
	_ = l.Close()
	if err := Serve(t.Context(), l, NewManager(Options{})); !errors.Is(err, net.ErrClosed) {
		t.Errorf("on a closed listener: %v", err)
	}
}

// TestErrors: an error that nobody thought of is told, too.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("odd"), `{500 odd}`},
		{fmt.Errorf("wrapped: %w", errProxyNotFound), `{404 proxy not found}`},
		{ruleError(errors.New("odd")), `{500 odd}`},
	} {
		e := asError(test.err)
		if got := fmt.Sprintf("{%d %s}", e.Status, e.Message); got != test.want {
			t.Errorf("%v: %s, want %s", test.err, got, test.want)
		}
	}
}
