package toxics

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tornwire/faults"
)

// TestWhole: whatever is sent, changed and ended, with toxics that lose nothing,
// what comes out is what was sent, in order, and the end behind it.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lists := rapid.SliceOfN(harmless(), 1, 4).Draw(rt, "lists")
		type action struct {
			wait time.Duration
			send int // bytes; 0 is a change
			list int
		}
		actions := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) action {
			return action{
				wait: time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 3, 50}).Draw(rt, "wait")) * time.Millisecond,
				send: rapid.SampledFrom([]int{0, 0, 1, 7, 300, 40000}).Draw(rt, "send"),
				list: rapid.IntRange(0, len(lists)-1).Draw(rt, "list"),
			}
		}), 1, 30).Draw(rt, "actions")
		late := rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(rt, "late")
		synctest.Test(t, func(t *testing.T) {
			p := lists[0].Open(1, s2c)
			tk := takeSlowly(p, late)
			want := []byte{}
			for _, a := range actions {
				time.Sleep(a.wait)
				if a.send == 0 {
					p.Change(lists[a.list])
					continue
				}
				b := make([]byte, a.send)
				for i := range b {
					b[i] = byte(len(want) + i + (len(want)+i)>>8)
				}
				want = append(want, b...)
				if !p.Send(b, nil) {
					rt.Fatal("Send was refused")
				}
			}
			p.End()
			p.Change(lists[0])
			<-tk.done
			if got := tk.data.String(); got != string(want) || !strings.HasSuffix(tk.text(), ":end") {
				rt.Fatalf("%d bytes came out of %d, and %s", len(got), len(want), tk.text())
			}
			// All is given back and over, without an Abandon: a goroutine that is left
			// would hang the bubble.
			if held := held(p); held != 0 {
				rt.Fatalf("%d bytes are still held", held)
			}
		})
	})
}

// harmless is a list of toxics that lose nothing.
func harmless() *rapid.Generator[*List] {
	some := []Spec{
		toxic("noop"), toxic("latency", "latency", 5, "jitter", 4), toxic("latency", "latency", 5, "jitter", 2),
		toxic("slow_close", "delay", 3), toxic("limit_data", "bytes", 1<<40), toxic("bandwidth", "rate", 500),
		toxic("slicer", "average_size", 90, "size_variation", 80), toxic("slicer", "average_size", 9, "size_variation", 8, "delay", 10),
	}
	return rapid.Custom(func(rt *rapid.T) *List {
		l := must(New(7))
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(some)-1), 0, 4).Draw(rt, "list") {
			if next, err := l.With(some[i]); err == nil {
				l = next
			}
		}
		return l
	})
}

func takeSlowly(p faults.Pipe, late time.Duration) *taker {
	tk := &taker{began: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(tk.done)
		for n := 0; ; n++ {
			if n < 100 {
				time.Sleep(late)
			}
			b, ok := p.Next()
			if !ok {
				tk.note("end" + string(p.Outcome()))
				return
			}
			tk.data.Write(b)
		}
	}()
	return tk
}

func held(p faults.Pipe) int {
	in := p.(*pipe)
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.held
}

func nodes(p faults.Pipe) int {
	in := p.(*pipe)
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.nodes)
}

// fill sends until there is no room, and returns what was sent.
func fill(p faults.Pipe, chunk int) []byte {
	quiet := make(chan struct{})
	close(quiet)
	var sent []byte
	for {
		b := bytes.Repeat([]byte{byte(len(sent) >> 10)}, chunk)
		if !p.Send(b, quiet) {
			return sent
		}
		sent = append(sent, b...)
	}
}

// TestFull: a pipe holds MaxHeld and not a chunk more; whoever sends waits, and
// goes on when there is room, or when there is nothing left to wait for.
func TestFull(t *testing.T) {
	for _, chunk := range []int{1, MaxChunk} {
		for _, l := range []*List{nil, must(New(1, toxic("latency", "latency", 600000))), must(New(1, toxic("noop")))} {
			synctest.Test(t, func(t *testing.T) {
				p := l.Open(1, s2c)
				sent := len(fill(p, chunk))
				synctest.Wait()
				sent += len(fill(p, chunk)) // what a toxic takes makes no room
				if most := MaxHeld / (chunk + ChunkCost) * chunk; sent != most {
					t.Errorf("it took %d bytes by %d, not %d", sent, chunk, most)
				}
				result := make(chan bool, 1)
				send := func(quiet chan struct{}) { result <- p.Send(make([]byte, chunk), quiet) }
				quiet := make(chan struct{})
				go send(quiet)
				synctest.Wait()
				if len(result) > 0 {
					t.Error("there was room for another chunk")
				}
				close(quiet)
				if <-result {
					t.Error("Send was true, and there was no room")
				}
				go send(nil)
				synctest.Wait()
				p.Next()
				if !<-result {
					t.Error("Send was false, and there was room")
				}
				go fill(p, chunk)
				synctest.Wait()
				go send(nil)
				synctest.Wait()
				p.Abandon()
				if <-result {
					t.Error("Send to an abandoned pipe was true")
				}
			})
		}
	}
}

// TestTake: a chunk of any size comes out in chunks of MaxChunk at most.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := must(New(1, toxic("noop"))).Open(1, s2c)
		data := bytes.Repeat([]byte("x"), 2*MaxChunk+1)
		p.Send(data, nil)
		p.Send(nil, nil)
		data[0] = 'y' // it took a copy
		p.End()
		if p.Send(data, nil) {
			t.Error("Send was true after End")
		}
		if b, _ := p.Next(); b[0] != 'x' {
			t.Error("it kept the sender's bytes, not a copy")
		}
		if got := play(p); got != fmt.Sprintf("0s:%d bytes 0s:x 0s:end", MaxChunk) {
			t.Error(got)
		}
		if _, ok := p.Next(); ok || p.Send([]byte("x"), nil) {
			t.Error("it goes on after it was over")
		}
	})
}

// TestChangeWhenFull: with every queue full and nobody taking, any change
// returns, and then everything comes out.
func TestChangeWhenFull(t *testing.T) {
	lists := []*List{
		must(New(1, toxic("slicer", "average_size", 100))),
		must(New(1, toxic("noop"), toxic("latency", "latency", 1000))),
		must(New(1, toxic("bandwidth", "rate", 100), toxic("slicer", "average_size", 300, "size_variation", 200, "delay", 5))),
		must(New(1)),
		must(New(1, toxic("limit_data", "bytes", 1<<40), toxic("slow_close", "delay", 1000))),
	}
	for i, from := range lists {
		for _, to := range lists[i+1:] {
			synctest.Test(t, func(t *testing.T) {
				p := from.Open(1, s2c)
				sent := fill(p, 5000)
				synctest.Wait()
				before := time.Now()
				p.Change(to)
				p.Change(from)
				synctest.Wait()
				p.Change(to)
				if time.Since(before) > 0 {
					t.Error("a change waited")
				}
				sent = append(sent, fill(p, 5000)...)
				p.End()
				tk := takeSlowly(p, 0)
				<-tk.done
				if tk.data.String() != string(sent) {
					t.Errorf("%d bytes came out of %d", tk.data.Len(), len(sent))
				}
			})
		}
	}
}

// TestBounded: slices do not pile up behind a slicer, however small they are.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := must(New(1, toxic("slicer", "average_size", 1), toxic("latency", "latency", 1000))).Open(1, s2c)
		defer p.Abandon()
		sent := make([]byte, MaxChunk)
		p.Send(sent, nil)
		synctest.Wait()
		check := func(where int) {
			in := p.(*pipe)
			in.mu.Lock()
			defer in.mu.Unlock()
			if n := len(in.at(where).chunks); n != MaxQueue {
				t.Errorf("%d slices wait at %d, not %d", n, where, MaxQueue)
			}
			if most := MaxChunk + where*(MaxQueue+2)*ChunkCost; in.held > most {
				t.Errorf("it holds %d, over %d", in.held, most)
			}
		}
		check(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		check(2)
		p.End()
		tk := takeSlowly(p, 0)
		<-tk.done
		if tk.data.String() != string(sent) {
			t.Errorf("%d bytes came out of %d", tk.data.Len(), len(sent))
		}
	})
}

// TestCutWhenFull: a stage that ends the connection with everything before it full
// and a sender waiting.
func TestCutWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := must(New(1, toxic("latency", "latency", 1000), toxic("limit_data", "bytes", 2500))).Open(1, s2c)
		fill(p, 1000)
		result := make(chan bool)
		go func() { result <- p.Send(make([]byte, MaxHeld), nil) }()
		tk := take(p)
		if <-result && time.Since(tk.began) != time.Second {
			t.Errorf("the sender waited %v", time.Since(tk.began))
		}
		<-tk.done
		if got := tk.text(); got != "1s:1000 bytes 1s:1000 bytes 1s:500 bytes 1s:endfin" {
			t.Error(got)
		}
		if p.Send([]byte("x"), nil) {
			t.Error("Send was true after the pipe was over")
		}
		if held := held(p); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
	})
}

// TestSwallowed: once a stage has ended the connection, what is sent is lost, as
// long as the end is on its way, and no stage can be put in.
func TestSwallowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(New(1, toxic("noop"), toxic("limit_data", "bytes", 1), toxic("latency", "latency", 1000)))
		p := l.Open(1, s2c)
		p.Send([]byte("ab"), nil)
		synctest.Wait()
		for range 3 {
			if !p.Send(make([]byte, MaxHeld), nil) {
				t.Error("Send was false before the pipe was over")
			}
		}
		p.End()
		p.Change(must(l.With(named("x", toxic("noop")))))
		if n := nodes(p); n != 1 {
			t.Errorf("there are %d nodes, not that of the latency alone", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if p.Send([]byte("x"), nil) {
			t.Error("Send was true when the end had come out")
		}
		if got := play(p); got != "0s:a 0s:endfin" {
			t.Error(got)
		}
	})
}

// TestAbandon: at any time, with any toxic, everything ends at once, and nothing
// comes out any more.
func TestAbandon(t *testing.T) {
	for _, s := range append(slices.Clone(every), Spec{Type: "noop"}) {
		inBubble(t, s.Type, func(t *testing.T) {
			p := must(New(1, s)).Open(1, s2c)
			for range 500 {
				p.Send(make([]byte, 1000), nil)
			}
			p.End()
			synctest.Wait()
			began := time.Now()
			p.Abandon()
			p.Abandon()
			p.Change(must(New(1, s)))
			p.End()
			if b, ok := p.Next(); ok || p.Outcome() != faults.NoEnd {
				t.Errorf("%q came out, and %s", b, p.Outcome())
			}
			if held := held(p); held != 0 {
				t.Errorf("%d bytes are still held", held)
			}
			if p.Send([]byte("x"), nil) || time.Since(began) > 0 {
				t.Error("it goes on")
			}
		})
	}
}

// every is a toxic of each type, in which it has something to do.
var every = []Spec{
	toxic("bandwidth", "rate", 2), toxic("latency", "latency", 600000, "jitter", 600000), toxic("limit_data", "bytes", 12345),
	toxic("noop"), toxic("reset_peer", "timeout", 600000), toxic("slicer", "average_size", 1, "delay", 600000000),
	toxic("slow_close", "delay", 600000), toxic("timeout", "timeout", 600000),
}

// TestAbandonWakes: who waits for bytes does not wait on.
func TestAbandonWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := must(New(1, toxic("noop"))).Open(1, s2c)
		tk := take(p)
		time.Sleep(time.Second)
		p.Abandon()
		<-tk.done
		if got := tk.text(); got != "1s:end" {
			t.Error(got)
		}
	})
}

// TestMoved: a stage that changes places is not let go on behind bytes that it
// has not seen.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, late := toxic("bandwidth", "rate", 1), toxic("latency", "latency", 1000)
		p := must(New(1, slow, late)).Open(1, s2c)
		got := play(p, at(0, strings.Repeat("a", 100)), at(0, strings.Repeat("b", 100)),
			change(150*time.Millisecond, must(New(1, late, slow))), at(150*time.Millisecond, "c"), end(time.Second))
		if want := "1.2s:100 bytes 1.3s:100 bytes 1.301s:c 1.301s:end"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestPutBack: a stage that is on its way out is not taken back; one like it
// starts anew.
func TestPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(New(1, toxic("latency", "latency", 1000)))
		p := l.Open(1, s2c)
		p.Send([]byte("a"), nil)
		synctest.Wait()
		in := p.(*pipe)
		in.mu.Lock()
		in.nodes[0].leaving = true // as a change leaves it, and its host not run yet
		in.mu.Unlock()
		p.Change(l)
		if got := play(p, at(0, "b"), end(0)); got != "0s:a 1s:b 1s:end" {
			t.Error(got)
		}
	})
}

// TestChangeUnderLoad: in real time, with senders, takers and changes at once.
func TestChangeUnderLoad(t *testing.T) {
	lists := []*List{
		must(New(1, toxic("noop"), toxic("slicer", "average_size", 100, "size_variation", 99))),
		must(New(1, toxic("latency", "latency", 1, "jitter", 1), toxic("noop"), toxic("limit_data", "bytes", 1<<40))),
		must(New(1)),
	}
	p := lists[0].Open(1, s2c)
	const chunks = 2000
	go func() {
		for i := range chunks {
			p.Send(bytes.Repeat([]byte{byte(i)}, 100), nil)
		}
		p.End()
	}()
	over := make(chan struct{})
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
				p.Change(lists[i%len(lists)])
				runtime.Gosched()
			}
		}
	}()
	n := 0
	for {
		b, ok := p.Next()
		if !ok {
			break
		}
		for _, c := range b {
			if c != byte(n/100) {
				t.Fatalf("byte %d is %d, not %d", n, c, byte(n/100))
			}
			n++
		}
	}
	close(over)
	<-changed
	if n != chunks*100 || p.Outcome() != faults.NoEnd {
		t.Errorf("%d bytes of %d, end %q", n, chunks*100, p.Outcome())
	}
}
