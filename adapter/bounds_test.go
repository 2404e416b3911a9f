package adapter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func grant() Result { return Result{Outcome: "acquired", Ticket: fakeTicket{lib: newFake()}} }

func openBook(t *testing.T, names ...string) *book {
	t.Helper()
	b := newBook()
	for _, name := range names {
		if err := b.reserve(name); err != nil {
			t.Fatal(err)
		}
		b.opened(name, &fakeClient{})
	}
	return b
}

func (b *book) take(t *testing.T, id uint64, name string, res Result) {
	t.Helper()
	if err := b.begin(id, name, func() {}); err != nil {
		t.Fatal(err)
	}
	b.finish(id, res)
}

func TestBookForgetsCallsWithoutTicket(t *testing.T) {
	b := openBook(t, "c")
	for id := range uint64(10) {
		b.take(t, id, "c", Result{Outcome: "timeout"})
	}
	if len(b.calls) != 0 {
		t.Errorf("%d calls kept", len(b.calls))
	}
}

func TestBookKeepsHeldAndBoundsSpentTickets(t *testing.T) {
	b := openBook(t, "held", "c")
	b.take(t, 0, "held", grant())
	const n = 3 * maxSpent
	for id := uint64(1); id <= n; id++ {
		b.take(t, id, "c", grant())
		for range 2 {
			if _, err := b.ticket(id, "c"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := maxSpent + 1; len(b.calls) != want || len(b.spent) != maxSpent {
		t.Errorf("%d calls and %d spent kept, want %d and %d", len(b.calls), len(b.spent), want, maxSpent)
	}
	if n := len(b.clients["c"].held); n != 0 {
		t.Errorf("%d released tickets kept as held", n)
	}
	if _, err := b.ticket(0, "held"); err != nil {
		t.Errorf("a held ticket was forgotten: %v", err)
	}
	for id, kept := range map[uint64]bool{n: true, n - maxSpent + 2: true, n - maxSpent: false} {
		if _, err := b.ticket(id, "c"); (err == nil) != kept {
			t.Errorf("ticket %d: %v, kept should be %v", id, err, kept)
		}
	}
}

func TestBookBoundsTicketsOfClosedClients(t *testing.T) {
	b := newBook()
	const n = 2 * maxSpent
	for id := uint64(1); id <= n; id++ {
		name := fmt.Sprint(id)
		if err := b.reserve(name); err != nil {
			t.Fatal(err)
		}
		b.opened(name, &fakeClient{})
		if id%2 == 0 { // one that is still running when its client is closed
			if err := b.begin(id, name, func() {}); err != nil {
				t.Fatal(err)
			}
			b.closed(name)
			b.finish(id, grant())
		} else {
			b.take(t, id, name, grant())
			b.closed(name)
		}
	}
	if len(b.calls) != maxSpent || len(b.clients) != 0 {
		t.Errorf("%d calls kept, want %d; %d clients, want none", len(b.calls), maxSpent, len(b.clients))
	}
	if _, err := b.ticket(n, fmt.Sprint(n)); err != nil {
		t.Error(err)
	}
}

func TestBookLimits(t *testing.T) {
	b := openBook(t, "c")
	for id := range uint64(maxCalls - 1) {
		b.calls[id] = nil
	}
	if err := b.begin(maxCalls-1, "c", func() {}); err != nil {
		t.Error(err)
	}
	if err := b.begin(maxCalls, "c", func() {}); err == nil {
		t.Errorf("call %d was taken", maxCalls+1)
	}
	for i := range maxClients - 2 {
		b.clients[fmt.Sprint(i)] = nil
	}
	if err := b.reserve("the last"); err != nil {
		t.Error(err)
	}
	if err := b.reserve("one more"); err == nil {
		t.Errorf("client %d was taken", maxClients+1)
	}
}

func TestSpawnLimit(t *testing.T) {
	s := &session{}
	s.running.Store(maxRunning - 1)
	if err := s.spawn(func() {}); err != nil {
		t.Error(err)
	}
	s.work.Wait()
	s.running.Store(maxRunning)
	if err := s.spawn(func() { t.Error("ran") }); err == nil {
		t.Errorf("call %d was run", maxRunning+1)
	}
	s.work.Wait()
	if n := s.running.Load(); n != maxRunning {
		t.Errorf("%d running, want %d", n, maxRunning)
	}
}

// gate lets nothing through until it is opened.
type gate struct {
	open   chan struct{}
	writes int
	got    bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	g.writes++
	return g.got.Write(p)
}

func TestWriterBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		w := newWriter(g)
		go w.run()
		w.answer(TypePong, 0)
		synctest.Wait() // it is in its first Write
		for id := range uint64(1000) {
			w.answer(TypePong, id+1)
		}
		close(g.open)
		if err := w.finish(time.Second); err != nil {
			t.Error(err)
		}
		if n := strings.Count(g.got.String(), "\n"); n != 1001 || g.writes != 2 {
			t.Errorf("%d lines in %d writes, want 1001 in 2", n, g.writes)
		}
		w.answer(TypePong, 1) // late answers go nowhere
		if len(w.queue) != 0 {
			t.Error("queued after finish")
		}
	})
}

func TestWriterQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		w := newWriter(g)
		go w.run()
		w.answer(TypePong, 0)
		synctest.Wait()
		w.queue = make([]byte, maxQueued-100)
		w.answer(TypePong, 1)
		select {
		case <-w.failed:
			t.Error("failed within the limit")
		default:
		}
		w.unsupported(2, strings.Repeat("x", 100))
		<-w.failed
		close(g.open)
		if err := w.finish(time.Second); err == nil || !strings.Contains(err.Error(), "does not read") {
			t.Errorf("err = %v", err)
		}
	})
}

func TestOverlongInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		lib.info.Outcomes = []string{strings.Repeat("x", MaxLine)}
		s := startRaw(t, lib)
		s.send(`{"type":"init","id":0,"version":1,"dialect":"ticketing"}`)
		if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "limit 65536") {
			t.Errorf("err = %v", err)
		}
	})
}

// instant is a library that never waits but for a cancel.
type instant struct{}

func (instant) Info() Info {
	return Info{Client: "i", Dialects: []string{"d"}, Features: []string{"cancel", "close"}}
}

func (instant) Open(string, []string, string) (Client, error) { return instant{}, nil }

func (instant) Acquire(ctx context.Context, key string, _, _ time.Duration) Result {
	if key == "block" {
		<-ctx.Done()
	}
	return Result{Outcome: "acquired", Ticket: instant{}}
}

func (instant) Release(context.Context) Result { return Result{Outcome: "released"} }

func (instant) Close() error { return nil }

func FuzzServe(f *testing.F) {
	const begin = `{"type":"init","id":0,"version":1,"dialect":"d"}
{"type":"open","id":1,"client":"c","addresses":["h:1"]}
`
	f.Add([]byte(`{"type":"acquire","id":2,"client":"c","key":"block","wait":5,"lease":30}` + "\n" +
		`{"type":"cancel","id":3,"call":2}` + "\n" + `{"type":"release","id":4,"client":"c","call":2}` + "\n" +
		`{"type":"close","id":5,"client":"c"}` + "\n" + `{"type":"ping","id":6}`))
	f.Add([]byte("{\"id\":1\n\n\xff{}\n{\"type\":\"acquire\",\"id\":2,\"wait\":-1}\nnull\n[]\n\"\n"))
	f.Add([]byte(`{"type":"open","id":1,"client":"c","addresses":null}` + "\r\n" + `{"type":"init","id":18446744073709551615,"version":1,"dialect":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		in := io.MultiReader(strings.NewReader(begin), bytes.NewReader(data))
		if err := serve(t.Context(), in, &out, io.Discard, instant{}); err != nil {
			t.Fatal(err)
		}
		requests := bytes.Count(data, []byte("\n")) + 3
		lines := strings.SplitAfter(out.String(), "\n")
		for _, text := range lines[:len(lines)-1] {
			r := decode(t, text)
			if r.ID == nil || len(text) > MaxLine {
				t.Fatalf("answer %.200s", text)
			}
			if r.Type == TypeStarted {
				requests++
			}
		}
		if lines[len(lines)-1] != "" || len(lines)-1 > requests {
			t.Fatalf("%d answers to %d requests", len(lines)-1, requests)
		}
	})
}
