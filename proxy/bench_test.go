package proxy_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"tornwire/faults"
	"tornwire/proxy"
)

// BenchmarkEcho compares the round trip of a frame through the proxy with that
// through two bare copy loops, and reports the ratio too.
func BenchmarkEcho(b *testing.B) {
	never, err := faults.NewSet(faults.Rule{
		ID: "never", Fault: faults.All()[0], Trigger: faults.Trigger{Dir: c2s, Op: "A", Session: 2},
	})
	if err != nil {
		b.Fatal(err)
	}
	var plain time.Duration
	for _, c := range []struct {
		name  string
		serve func(ctx context.Context, l net.Listener, upstream string)
	}{
		{"copy", copyLoops},
		{"proxy", func(ctx context.Context, l net.Listener, upstream string) {
			_ = proxy.New(proxy.Config{Grammar: grammar, Upstream: upstream}).Serve(ctx, l, "")
		}},
		{"proxy with a rule", func(ctx context.Context, l net.Listener, upstream string) {
			_ = proxy.New(proxy.Config{Grammar: grammar, Upstream: upstream, Rules: never}).Serve(ctx, l, "")
		}},
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

// echo measures b.N round trips to a server that sends back what it gets.
func echo(b *testing.B, serve func(context.Context, net.Listener, string)) time.Duration {
	up, err := tcp.listen()
	if err != nil {
		b.Fatal(err)
	}
	l, err := tcp.listen()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(ctx, l, up.Addr().String())
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	s, err := up.Accept()
	if err != nil {
		b.Fatal(err)
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		_, _ = io.Copy(s, s)
	}()
	first, msg, buf := []byte(auth), []byte(acquire), make([]byte, 100)
	round := func(m []byte) {
		if _, err := c.Write(m); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf[:len(m)]); err != nil {
			b.Fatal(err)
		}
	}
	round(first)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		round(msg)
	}
	b.StopTimer()
	each := b.Elapsed() / time.Duration(b.N)
	_ = c.Close()
	cancel()
	_ = l.Close()
	<-served
	_ = s.Close()
	<-echoed
	_ = up.Close()
	return each
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
	never := faults.Rule{ID: "never", Fault: fault(t, "split"), At: 1, Trigger: faults.Trigger{Dir: c2s, Op: "A", Session: 2}}
	for _, set := range []*faults.Set{nil, rules(t, never)} {
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
			t.Errorf("%d rules: %v allocations a frame", set.Len(), n)
		}
		cancel()
		must(t, <-served)
		for _, x := range []io.Closer{c, s, up} {
			_ = x.Close()
		}
	}
}
