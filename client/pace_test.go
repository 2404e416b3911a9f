package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tornwire/client"
)

// Reconnects are paced, whatever ends the connections.
func TestReconnectsArePaced(t *testing.T) {
	for name, serve := range map[string]func(w *wire){
		"accept and end":   func(w *wire) { _ = w.Close() },
		"accept and reset": func(w *wire) { _ = w.Reset() },
		"greet and end":    func(w *wire) { w.raw("srv n\n"); _ = w.Close() },
		"answer and end": func(w *wire) {
			w.greet()
			w.send("B", "k", w.op("A").owner)
			synctest.Wait()
			_ = w.Close()
		},
		"not active": func(w *wire) { w.greet(); w.op("A"); w.send("E", "not_active") },
		"moved":      func(w *wire) { w.greet(); w.op("A"); w.send("M", "") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bed) {
				stop := make(chan struct{})
				defer close(stop)
				go func() { // an application that tries again at once
					for {
						select {
						case <-stop:
							return
						default:
							_, _ = b.c.Acquire(t.Context(), "k", 5*time.Second, time.Second)
						}
					}
				}()
				n := 0
				for start := time.Now(); time.Since(start) < 10*time.Second; {
					if w := b.accepted(node1, 10*time.Second); w != nil {
						n++
						serve(w)
					}
				}
				if n < 3 || n > 70 {
					t.Fatalf("%d connections in 10 s", n)
				}
				_ = b.c.Close()
			}, one)
		})
	}
}

// Calls have sessions of their own up to the limit, and share beyond it.
func TestSpread(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		var calls []*call
		for range 100 {
			calls = append(calls, b.acquire("k", 60*time.Second, time.Second))
		}
		var ws []*wire
		for w := b.accepted(node1, 5*time.Second); w != nil; w = b.accepted(node1, 5*time.Second) {
			w.greet()
			ws = append(ws, w)
		}
		same(t, "sessions", len(ws), 64)
		answered := 0
		for _, w := range ws {
			for {
				f, err := w.read(ms)
				if err != nil {
					break
				}
				w.send("B", "k", f.owner)
				answered++
			}
		}
		same(t, "requests", answered, 100)
		for _, k := range calls {
			end[client.Busy](k)
		}
	})
}
