//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startLimit = 10 * time.Second // for the daemon to answer
	stopLimit  = 10 * time.Second // for a process to end when it is asked to
	callLimit  = 5 * time.Second  // for one call of the API
	logLimit   = 64 << 10         // bytes of the daemon's output that are kept, the first
)

// daemon is the process under test, known by its command line and its REST API.
type daemon struct {
	cmd   *exec.Cmd
	api   string // host:port
	http  *http.Client
	log   *head
	ended chan struct{}
	err   error // of its end; valid once ended is closed
}

// head keeps the first bytes that are written to it.
type head struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b.Write(p[:min(len(p), max(logLimit-h.b.Len(), 0))])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

// startDaemon starts a command and waits until its API answers. The words {api},
// {host} and {port} in it become the address.
func startDaemon(ctx context.Context, command []string, env ...string) (*daemon, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	api := l.Addr().String()
	host, port, _ := net.SplitHostPort(api)
	if err := l.Close(); err != nil {
		return nil, err
	}
	place := strings.NewReplacer("{api}", api, "{host}", host, "{port}", port)
	args := make([]string, 0, len(command))
	for _, word := range command {
		args = append(args, place.Replace(word))
	}
	d := &daemon{
		api: api, log: &head{}, ended: make(chan struct{}),
		// A kept connection would count among the descriptors.
		http: &http.Client{Timeout: callLimit, Transport: &http.Transport{DisableKeepAlives: true}},
		cmd:  exec.CommandContext(ctx, args[0], args[1:]...),
	}
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.WaitDelay = stopLimit
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(d.ended)
		d.err = d.cmd.Wait()
	}()
	if err := d.await(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", strings.Join(args, " "), err), d.stop())
	}
	return d, nil
}

// await returns when GET /version is answered.
func (d *daemon) await() error {
	deadline := time.Now().Add(startLimit)
	for {
		status, _, err := d.call(http.MethodGet, "/version", nil)
		if err == nil && status == http.StatusOK {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("GET /version has status %d", status)
		}
		if time.Now().After(deadline) {
			return err
		}
		select {
		case <-d.ended:
			return fmt.Errorf("it has ended: %v\n%s", d.err, d.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// call has a JSON body sent and returns what comes back.
func (d *daemon) call(method, path string, body any) (status int, answer []byte, err error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://"+d.api+path, in)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, logLimit))
	return resp.StatusCode, answer, err
}

// proxySpec is the body of POST /proxies, and what is read of its answer.
type proxySpec struct {
	Name     string `json:"name"`
	Listen   string `json:"listen"`
	Upstream string `json:"upstream"`
	Enabled  bool   `json:"enabled"`
	Grammar  string `json:"grammar,omitempty"`
}

// create makes a proxy and returns where it listens.
func (d *daemon) create(p proxySpec) (string, error) {
	status, answer, err := d.call(http.MethodPost, "/proxies", p)
	if err != nil {
		return "", err
	}
	var made proxySpec
	if status != http.StatusCreated {
		return "", fmt.Errorf("POST /proxies has status %d: %s", status, answer)
	}
	if err := json.Unmarshal(answer, &made); err != nil {
		return "", fmt.Errorf("POST /proxies: %w in %s", err, answer)
	}
	if _, port, err := net.SplitHostPort(made.Listen); err != nil || port == "0" {
		return "", fmt.Errorf("POST /proxies tells no address in %s", answer)
	}
	return made.Listen, nil
}

// alive tells why the daemon is not there any more.
func (d *daemon) alive() error {
	select {
	case <-d.ended:
		return fmt.Errorf("the daemon has ended: %v", d.err)
	default:
		return nil
	}
}

// stop asks the daemon to end, and ends it by force if it does not.
func (d *daemon) stop() error {
	select {
	case <-d.ended:
		return nil
	default:
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
		return nil
	case <-time.After(stopLimit):
	}
	_ = d.cmd.Process.Kill()
	<-d.ended
	return fmt.Errorf("the daemon did not end within %v of SIGTERM", stopLimit)
}
