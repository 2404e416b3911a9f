package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/internal/memnet"
)

// crowd is an API in a bubble, and connections to it.
type crowd struct {
	t   *testing.T
	net *memnet.Network
	all []net.Conn
}

// dial makes a connection that sends something, a millisecond after the last.
func (c *crowd) dial(sends string) *bufio.Reader {
	c.t.Helper()
	nc, err := c.net.Dial(c.t.Context(), "tcp", "10.0.0.1:80")
	if err != nil {
		c.t.Fatal(err)
	}
	c.all = append(c.all, nc)
	if _, err := io.WriteString(nc, sends); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	time.Sleep(time.Millisecond)
	return bufio.NewReader(nc)
}

// answer reads the answer to a request, which has to be there at once.
func (c *crowd) answer(r *bufio.Reader) (int, string) {
	c.t.Helper()
	begun := time.Now()
	a, err := http.ReadResponse(r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	if took := time.Since(begun); err != nil || took > 0 {
		c.t.Errorf("after %s: %v", took, err)
	}
	return a.StatusCode, string(text)
}

func crowded(t *testing.T, do func(c *crowd)) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, net: memnet.New(memnet.Options{})}
		l, err := c.net.Listen("tcp", "10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Serve(ctx, l, NewManager(Options{})) }()
		do(c)
		for _, nc := range c.all {
			_ = nc.Close()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

const (
	askVersion = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
	halfBody   = "POST /proxies HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
)

// TestCrowd: connections on which nothing happens, whatever they have sent, keep
// nobody out; the one that is idle the longest goes, and no other.
func TestCrowd(t *testing.T) {
	for name, sends := range map[string]string{"idle": askVersion, "silent": "", "half a header": "GET / HTTP/1.1\r\n"} {
		crowded(t, func(c *crowd) {
			c.t.Log(name)
			first := c.dial(askVersion)
			second := c.dial(sends)
			for range MaxConns - 2 {
				c.dial(sends)
			}
			// The first is asked again, and is no longer the one that was idle the longest.
			c.answer(first)
			if _, err := io.WriteString(c.all[0], askVersion); err != nil {
				t.Fatal(err)
			}
			if status, text := c.answer(first); status != http.StatusOK {
				t.Errorf("%s: %d %s to the first", name, status, text)
			}
			if status, text := c.answer(c.dial(askVersion)); status != http.StatusOK {
				t.Errorf("%s: %d %s to one more", name, status, text)
			}
			begun := time.Now()
			_, _ = io.Copy(io.Discard, second)
			if took := time.Since(begun); took > 0 {
				t.Errorf("%s: the second ended after %s", name, took)
			}
			if _, err := io.WriteString(c.all[0], askVersion); err != nil {
				t.Fatal(err)
			}
			if status, text := c.answer(first); status != http.StatusOK {
				t.Errorf("%s: %d %s to the first, later", name, status, text)
			}
		})
	}
}

// TestCrowdOfRequests: where all connections have a request, one more is told so at
// once, and has a place again when one has ended.
func TestCrowdOfRequests(t *testing.T) {
	crowded(t, func(c *crowd) {
		var first *bufio.Reader
		for i := range MaxConns {
			if r := c.dial(halfBody); i == 0 {
				first = r
			}
		}
		status, text := c.answer(c.dial(""))
		if status != http.StatusServiceUnavailable || !strings.HasPrefix(text, `{"error":"there are too many requests`) || !strings.HasSuffix(text, "}") {
			t.Errorf("%d %s to one more", status, text)
		}
		if _, err := io.WriteString(c.all[0], "12345678"); err != nil {
			t.Fatal(err)
		}
		if status, text := c.answer(first); status != http.StatusBadRequest {
			t.Errorf("%d %s to the first", status, text)
		}
		if status, text := c.answer(c.dial(askVersion)); status != http.StatusOK {
			t.Errorf("%d %s to one more", status, text)
		}
	})
}
