package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tornwire/proxy"
)

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

	const more = "there are 4096 gates that are open or that rules name, and no more are possible"
	for round := range 2 { // what is shut, or gone with a reset, leaves its place
		for i := range proxy.MaxGates {
			if err := m.Gate(ctx, "2", fmt.Sprint("g", round, ".", i), true); err != nil {
				t.Fatalf("gate %d: %v", i+1, err)
			}
		}
		full("gate", m.Gate(ctx, "2", "x", true), more)
		r.Signal = "x"
		_, err = m.Arm(ctx, "2", r)
		full("signal", err, more)
		for _, err := range []error{
			m.Gate(ctx, "2", "x", false), // it is shut already
			m.Gate(ctx, "2", fmt.Sprint("g", round, ".7"), true),
			m.Gate(ctx, "2", fmt.Sprint("g", round, ".7"), false),
			m.Gate(ctx, "2", "x", true),
			m.Gate(ctx, "2", "x", false),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := m.Arm(ctx, "2", r); err != nil {
			t.Error(err)
		}
		full("gate", m.Gate(ctx, "2", "y", true), more)
		if err := m.change(ctx, "2", func(d *member) error { return d.reset() }); err != nil {
			t.Error(err)
		}
	}
	for i := range 2 * proxy.MaxGates {
		if err := m.Gate(ctx, "2", fmt.Sprint("n", i), false); err != nil {
			t.Fatalf("gate %d that is shut: %v", i+1, err)
		}
	}
}
