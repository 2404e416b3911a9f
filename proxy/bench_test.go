package proxy_test

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"tornwire/faults"
	"tornwire/proxy"
)

// BenchmarkEcho compares the round trip of a frame through the proxy with that
// through two bare copy loops, and reports the ratio too.
func BenchmarkEcho(b *testing.B) {
	sets := idleSets(b)
	through := func(name string) func(context.Context, net.Listener, string) {
		return func(ctx context.Context, l net.Listener, upstream string) {
			_ = proxy.New(proxy.Config{Grammar: grammar, Upstream: upstream, Rules: sets[name]}).Serve(ctx, l, "")
		}
	}
	var plain time.Duration
	for _, c := range []struct {
		name  string
		serve func(ctx context.Context, l net.Listener, upstream string)
	}{
		{"copy", copyLoops},
		{"proxy", through("no rule")},
		{"proxy with a rule", through("another session")},
		{"proxy with 1000 rules", through("other ops")},
		{"proxy with a condition", through("condition")},
	} {
		b.Run(c.name, func(b *testing.B) {
			each := echo(b, c.serve)
			if c.name == "copy" {
				plain = each
			} else if plain > 0 {
				b.ReportMetric(float64(each)/float64(plain), "×copy")
			}
		})
	}
}

// idleSets are rules that look at requests, or not even that, and take none.
func idleSets(tb testing.TB) map[string]*faults.Set {
	rule := func(op string, trigger faults.Trigger) faults.Rule {
		f, _ := faults.ByID("split")
		trigger.Dir, trigger.Op = c2s, op
		return faults.Rule{Fault: f, At: 1, Trigger: trigger}
	}
	many := make([]faults.Rule, proxy.MaxRules)
	for i := range many {
		many[i] = rule("R", faults.Trigger{})
	}
	out := map[string]*faults.Set{}
	for name, list := range map[string][]faults.Rule{
		"no rule":         nil,
		"another session": {rule("A", faults.Trigger{Session: 2})},
		"other ops":       many,
		"condition":       {rule("A", faults.Trigger{Where: map[string]string{"key": "another-*", "owner": "0..100"}})},
		"number":          {rule("A", faults.Trigger{Nth: 1 << 40})},
		"after":           {rule("A", faults.Trigger{After: "never"})},
	} {
		set, err := faults.NewSet(list...)
		if err != nil {
			tb.Fatal(err)
		}
		out[name] = set
	}
	return out
}

// echo measures b.N round trips to a server that sends back what it gets.
func echo(b *testing.B, serve func(context.Context, net.Listener, string)) time.Duration {
	round, stop := trips(b, serve)
	defer stop()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		round()
	}
	b.StopTimer()
	return b.Elapsed() / time.Duration(b.N)
}

// trips opens a connection to a server that sends back what it gets.
func trips(tb testing.TB, serve func(context.Context, net.Listener, string)) (round, stop func()) {
	ok := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	up, err := tcp.listen()
	ok(err)
	l, err := tcp.listen()
	ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { serve(ctx, l, up.Addr().String()) })
	c, err := net.Dial("tcp", l.Addr().String())
	ok(err)
	s, err := up.Accept()
	ok(err)
	wg.Go(func() { _, _ = io.Copy(s, s) })
	buf := make([]byte, 100)
	send := func(m []byte) {
		_, err := c.Write(m)
		ok(err)
		_, err = io.ReadFull(c, buf[:len(m)])
		ok(err)
	}
	send([]byte(auth))
	msg := []byte(acquire)
	return func() { send(msg) }, func() {
		cancel()
		for _, x := range []io.Closer{c, l, s, up} {
			_ = x.Close()
		}
		wg.Wait()
	}
}

// BenchmarkArmed compares the round trip where rules are armed that take no frame
// with one where none is. Both are measured in turn, so that both meet what else
// the machine does.
func BenchmarkArmed(b *testing.B) {
	sets := idleSets(b)
	serve := func(name string) func(context.Context, net.Listener, string) {
		return func(ctx context.Context, l net.Listener, upstream string) {
			_ = proxy.New(proxy.Config{Grammar: grammar, Upstream: upstream, Rules: sets[name]}).Serve(ctx, l, "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		if name == "no rule" {
			continue
		}
		b.Run(name, func(b *testing.B) {
			var rounds [2]func()
			for i, n := range []string{"no rule", name} {
				var stop func()
				rounds[i], stop = trips(b, serve(n))
				defer stop()
			}
			var took [2]time.Duration
			b.ResetTimer()
			for range (b.N + 49) / 50 {
				for i, round := range rounds {
					began := time.Now()
					for range 50 {
						round()
					}
					took[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(took[1])/float64(took[0]), "×unarmed")
		})
	}
}

// copyLoops serves one connection as a proxy that looks at nothing does.
func copyLoops(_ context.Context, l net.Listener, upstream string) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	s, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		go func() {
			buf := make([]byte, proxy.ReadSize)
			for {
				n, err := way[0].Read(buf)
				if _, werr := way[1].Write(buf[:n]); err != nil || werr != nil {
					break
				}
			}
			_ = c.Close()
			_ = s.Close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}

// TestNothingAllocated: without a recorder a frame costs no memory, also where a
// rule looks at it.
func TestNothingAllocated(t *testing.T) {
	for name, set := range idleSets(t) {
		up, err := tcp.listen()
		must(t, err)
		l, err := tcp.listen()
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- proxy.New(proxy.Config{Grammar: grammar, Upstream: up.Addr().String(), Rules: set}).Serve(ctx, l, "")
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		s, err := up.Accept()
		must(t, err)
		msg, buf := []byte(acquire), make([]byte, 100)
		round := func() {
			_, err := c.Write(msg)
			must(t, err)
			_, err = io.ReadFull(s, buf[:len(msg)])
			must(t, err)
		}
		_, err = c.Write([]byte(auth))
		must(t, err)
		_, err = io.ReadFull(s, buf[:len(auth)])
		must(t, err)
		if n := testing.AllocsPerRun(200, round); n > 0 {
			t.Errorf("%s: %v allocations a frame", name, n)
		}
		cancel()
		must(t, <-served)
		for _, x := range []io.Closer{c, s, up} {
			_ = x.Close()
		}
	}
}
