package toxics

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"tornwire/faults"
)

func at(d time.Duration, send string) step { return step{at: d, send: send} }
func end(d time.Duration) step             { return step{at: d, end: true} }

func change(d time.Duration, l *List) step { return step{at: d, change: l} }

// TestToxics: what each toxic does, and when.
func TestToxics(t *testing.T) {
	const sec, msec = time.Second, time.Millisecond
	none := must(New(1))
	tests := []struct {
		name  string
		specs []Spec
		steps []step
		want  string
	}{
		{"nothing", nil, []step{at(0, "a"), at(sec, "b"), end(2 * sec)}, "0s:a 1s:b 2s:end"},
		{"noop", []Spec{toxic("noop")}, []step{at(0, "a"), at(sec, "b"), end(2 * sec)}, "0s:a 1s:b 2s:end"},
		{"the other direction", []Spec{{Type: "timeout", Stream: Upstream, Toxicity: 1}}, []step{at(0, "a"), end(sec)}, "0s:a 1s:end"},
		{"never", []Spec{{Type: "timeout"}}, []step{at(0, "a"), end(sec)}, "0s:a 1s:end"},

		{
			"latency",
			[]Spec{toxic("latency", "latency", 1000)},
			[]step{at(0, "a"), at(10*msec, "b"), end(20 * msec)},
			"1s:a 1.01s:b 1.01s:end",
		},
		{
			"latency of a burst",
			[]Spec{toxic("latency", "latency", 1000)},
			[]step{at(0, "a"), at(0, "b"), at(0, "c")},
			"1s:a 1s:b 1s:c",
		},
		{
			"two latencies",
			[]Spec{named("x", toxic("latency", "latency", 1000)), named("y", toxic("latency", "latency", 500))},
			[]step{at(0, "a"), at(0, "b"), end(sec)},
			"1.5s:a 1.5s:b 1.5s:end",
		},
		{
			"a jitter over the latency",
			[]Spec{toxic("latency", "latency", 0, "jitter", 1000)},
			[]step{at(0, "a"), at(2*sec, "b"), at(4*sec, "c"), at(6*sec, "d"), end(8 * sec)},
			"731ms:a 2.676s:b 4.576s:c 6.654s:d 8s:end",
		},
		{
			"latency removed",
			[]Spec{toxic("latency", "latency", 1000)},
			[]step{at(0, "a"), at(0, "b"), change(300*msec, none), at(400*msec, "c"), end(500 * msec)},
			"300ms:a 300ms:b 400ms:c 500ms:end",
		},
		{
			"latency changed",
			[]Spec{toxic("latency", "latency", 1000)},
			[]step{at(0, "a"), at(0, "b"), change(300*msec, must(New(1, toxic("latency", "latency", 50)))), at(400*msec, "c"), end(400 * msec)},
			"300ms:a 300ms:b 450ms:c 450ms:end",
		},
		{
			"latency kept",
			[]Spec{toxic("latency", "latency", 1000)},
			[]step{at(0, "a"), change(300*msec, must(New(1, toxic("noop"), toxic("latency", "latency", 1000)))), at(400*msec, "c"), end(400 * msec)},
			"1s:a 1.4s:c 1.4s:end",
		},
		{
			"latency of another seed",
			[]Spec{toxic("latency", "latency", 1000)},
			[]step{at(0, "a"), change(300*msec, must(New(2, toxic("latency", "latency", 1000))))},
			"300ms:a",
		},

		{
			"bandwidth",
			[]Spec{toxic("bandwidth", "rate", 1)},
			[]step{at(0, strings.Repeat("x", 250)), end(0)},
			"100ms:100 bytes 200ms:100 bytes 250ms:50 bytes 250ms:end",
		},
		{
			"bandwidth removed",
			[]Spec{toxic("bandwidth", "rate", 1)},
			[]step{at(0, strings.Repeat("x", 250)), at(0, "a"), change(150*msec, none), end(160 * msec)},
			"100ms:100 bytes 150ms:150 bytes 150ms:a 160ms:end",
		},

		{
			"bandwidth removed as a portion is due",
			[]Spec{toxic("bandwidth", "rate", 1)},
			[]step{at(0, strings.Repeat("x", 350)), at(0, "a"), change(200*msec, none), end(sec)},
			"100ms:100 bytes 200ms:100 bytes 200ms:150 bytes 200ms:a 1s:end",
		},
		{
			"bandwidth after a pause",
			[]Spec{toxic("bandwidth", "rate", 2)},
			[]step{at(0, "aa"), at(0, "bbbb"), at(sec, "cc"), end(sec)},
			"1ms:aa 3ms:bbbb 1.001s:cc 1.001s:end",
		},

		{"slow_close", []Spec{toxic("slow_close", "delay", 700)}, []step{at(0, "a"), end(sec)}, "0s:a 1.7s:end"},
		{"slow_close removed", []Spec{toxic("slow_close", "delay", 700)}, []step{end(sec), change(1200*msec, none)}, "1.2s:end"},
		{"slow_close too late", nil, []step{end(sec), change(1200*msec, must(New(1, toxic("slow_close", "delay", 700))))}, "1s:end"},
		{
			"slow_close behind a latency",
			[]Spec{toxic("latency", "latency", 1000)},
			[]step{at(0, "a"), end(0), change(500*msec, must(New(1, toxic("latency", "latency", 1000), toxic("slow_close", "delay", 700))))},
			"1s:a 1.7s:end",
		},

		{"timeout", []Spec{toxic("timeout", "timeout", 500)}, []step{at(100*msec, "a")}, "600ms:endfin"},
		{"timeout without a byte", []Spec{toxic("timeout", "timeout", 500)}, nil, "500ms:endfin"},
		{"timeout and a byte at once", []Spec{toxic("timeout", "timeout", 500)}, []step{at(500*msec, "a")}, "500ms:endfin"},
		{"timeout and the sender's end", []Spec{toxic("timeout", "timeout", 500)}, []step{at(100*msec, "a"), end(200 * msec)}, "200ms:end"},
		{"timeout 0", []Spec{toxic("timeout")}, []step{at(0, "a"), end(30 * time.Minute)}, "30m0s:end"},
		{
			"timeout removed",
			[]Spec{toxic("timeout", "timeout", 500)},
			[]step{at(0, "a"), change(100*msec, none), at(100*msec, "b"), end(time.Minute)},
			"100ms:b 1m0s:end",
		},
		{"timeout 0 removed", []Spec{toxic("timeout")}, []step{at(0, "a"), change(100*msec, none), at(100*msec, "b")}, "100ms:b"},
		{
			"timeout behind a latency",
			[]Spec{toxic("latency", "latency", 300), toxic("timeout", "timeout", 500)},
			[]step{at(100*msec, "a")},
			"900ms:endfin",
		},
		{
			"timeout before a latency",
			[]Spec{toxic("timeout", "timeout", 500), toxic("latency", "latency", 300)},
			[]step{at(100*msec, "a")},
			"600ms:endfin",
		},
		{
			"timeout before a slow_close",
			[]Spec{toxic("timeout", "timeout", 500), toxic("slow_close", "delay", 300)},
			nil, "800ms:endfin",
		},

		{"reset_peer", []Spec{toxic("reset_peer", "timeout", 500)}, []step{at(100*msec, "a"), at(200*msec, "b")}, "600ms:endrst"},
		{"reset_peer at once", []Spec{toxic("reset_peer")}, []step{at(100*msec, "a")}, "100ms:endrst"},
		{"reset_peer without a byte", []Spec{toxic("reset_peer")}, nil, ""},
		{"reset_peer and the sender's end", []Spec{toxic("reset_peer", "timeout", 500)}, []step{end(100 * msec)}, "600ms:endrst"},
		{
			"reset_peer removed",
			[]Spec{toxic("reset_peer", "timeout", 500)},
			[]step{at(0, "a"), change(100*msec, none), at(100*msec, "b"), end(time.Second)},
			"100ms:b 1s:end",
		},
		{
			"reset_peer removed behind the end",
			[]Spec{toxic("reset_peer", "timeout", 500)},
			[]step{at(0, "a"), end(50 * msec), change(100*msec, none)},
			"100ms:end",
		},
		{
			"reset_peer before a latency",
			[]Spec{toxic("limit_data", "bytes", 3), toxic("latency", "latency", 1000), toxic("reset_peer")},
			[]step{at(0, "abcd")},
			"1s:endrst",
		},

		{
			"slicer",
			[]Spec{toxic("slicer", "average_size", 2, "delay", 1000)},
			[]step{at(0, "abcdefgh"), at(0, "ij"), end(0)},
			"0s:ab 1ms:cd 2ms:ef 3ms:gh 4ms:ij 5ms:end",
		},
		{
			"slicer removed",
			[]Spec{toxic("slicer", "average_size", 2, "delay", 1000)},
			[]step{at(0, "abcdefgh"), at(0, "ij"), change(1500*time.Microsecond, none), end(sec)},
			"0s:ab 1ms:cd 1.5ms:efgh 1.5ms:ij 1s:end",
		},
		{
			"slicer removed as a slice is due",
			[]Spec{toxic("slicer", "average_size", 2, "delay", 1000)},
			[]step{at(0, "abcdefgh"), at(0, "ij"), change(2*msec, none), end(sec)},
			"0s:ab 1ms:cd 2ms:ef 2ms:gh 2ms:ij 1s:end",
		},
		{
			"slicer with a variation",
			[]Spec{toxic("slicer", "average_size", 4, "size_variation", 3)},
			[]step{at(0, "abcdefghijklmnopqrst"), end(0)},
			"0s:abc 0s:defghi 0s:jklmno 0s:pqrst 0s:end",
		},

		{"limit_data", []Spec{toxic("limit_data", "bytes", 5)}, []step{at(0, "abc"), at(sec, "defg")}, "0s:abc 1s:de 1s:endfin"},
		{"limit_data just reached", []Spec{toxic("limit_data", "bytes", 3)}, []step{at(0, "abc"), end(sec)}, "0s:abc 0s:endfin"},
		{"limit_data not reached", []Spec{toxic("limit_data", "bytes", 5)}, []step{at(0, "abc"), end(sec)}, "0s:abc 1s:end"},
		{"limit_data 0", []Spec{toxic("limit_data")}, []step{at(sec, "a")}, "1s:endfin"},
		{
			"limit_data changed",
			[]Spec{toxic("limit_data", "bytes", 5)},
			[]step{at(0, "abc"), change(sec, must(New(1, toxic("limit_data", "bytes", 6)))), at(sec, "defg")},
			"0s:abc 1s:def 1s:endfin",
		},
		{
			"limit_data anew",
			[]Spec{toxic("limit_data", "bytes", 5)},
			[]step{at(0, "abc"), change(0, none), change(sec, must(New(1, toxic("limit_data", "bytes", 5)))), at(sec, "defg")},
			"0s:abc 1s:defg",
		},
		{
			"limit_data kept",
			[]Spec{toxic("limit_data", "bytes", 5)},
			[]step{at(0, "abc"), change(sec, must(New(1, toxic("limit_data", "bytes", 5), toxic("noop")))), at(sec, "defg")},
			"0s:abc 1s:de 1s:endfin",
		},
		{
			"limit_data before a latency",
			[]Spec{toxic("limit_data", "bytes", 3), toxic("latency", "latency", 1000)},
			[]step{at(0, "abcd"), at(500*msec, "e"), change(600*msec, must(New(1, toxic("latency", "latency", 1000), toxic("noop"))))},
			"1s:abc 1s:endfin",
		},
		{
			"limit_data behind a latency",
			[]Spec{toxic("latency", "latency", 1000), toxic("limit_data", "bytes", 3)},
			[]step{at(0, "abcd"), at(500*msec, "e")},
			"1s:abc 1s:endfin",
		},
	}
	for _, test := range tests {
		inBubble(t, test.name, func(t *testing.T) {
			p := must(New(1, test.specs...)).Open(1, s2c)
			if got := play(p, test.steps...); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestLikeToxiproxy: what is made here comes out as from toxiproxy's own, where
// that does not draw lots.
func TestLikeToxiproxy(t *testing.T) {
	tests := []struct {
		spec Spec
		own  toxics.Toxic
	}{
		{toxic("bandwidth", "rate", 1), &toxics.BandwidthToxic{Rate: 1}},
		{toxic("bandwidth", "rate", 7), &toxics.BandwidthToxic{Rate: 7}},
		{toxic("bandwidth", "rate", MaxRate), &toxics.BandwidthToxic{Rate: MaxRate}},
		{toxic("latency", "latency", 70), &toxics.LatencyToxic{Latency: 70}},
		{toxic("latency"), &toxics.LatencyToxic{}},
		{toxic("slicer", "average_size", 30), &toxics.SlicerToxic{AverageSize: 30}},
		{toxic("slicer", "average_size", 13, "delay", 700), &toxics.SlicerToxic{AverageSize: 13, Delay: 700}},
		{toxic("timeout", "timeout", 333), &toxics.TimeoutToxic{Timeout: 333}},
		{toxic("timeout"), &toxics.TimeoutToxic{}},
	}
	var steps []step
	for i, r := 0, rand.New(rand.NewPCG(3, 4)); i < 40; i++ {
		send := strings.Repeat("x", 1+r.IntN(300))
		steps = append(steps, at(time.Duration(i/2*i/2)*time.Millisecond, send))
	}
	steps = append(steps, end(410*time.Millisecond))
	for _, test := range tests {
		inBubble(t, test.spec.Type, func(t *testing.T) {
			ours := play(must(New(1, test.spec)).Open(1, s2c), steps...)
			theirs := must(New(1, test.spec))
			kind := *theirs.stages[0].kind
			kind.build = func(Attributes, *rand.Rand) toxics.Toxic { return test.own }
			theirs.stages[0].kind = &kind
			if theirs := play(theirs.Open(1, s2c), steps...); theirs != ours || ours == "" {
				t.Errorf("ours   %s\ntheirs %s", ours, theirs)
			}
			synctest.Wait()
		})
	}
}

// TestTies: an interrupt, or an end, in the moment in which a timeout is over does
// not matter, whichever of the two is seen first.
func TestTies(t *testing.T) {
	for range 100 {
		in := make(chan *stream.StreamChunk, 1)
		interrupted := func() *toxics.ToxicStub {
			stub := toxics.NewToxicStub(in, make(chan *stream.StreamChunk))
			stub.Interrupt = make(chan struct{}, 1)
			stub.Interrupt <- struct{}{}
			return stub
		}
		for _, fed := range []bool{false, true} {
			stub := interrupted()
			if fed {
				<-stub.Interrupt
				in <- nil
			}
			over := &timeout{timeout: 1}
			if over.Pipe(stub); over.ended() != faults.FIN || !stub.Closed() {
				t.Fatalf("a timeout that was over ended in %q", over.ended())
			}
			if fed {
				select {
				case <-in:
				default:
				}
			}
		}
	}
}

// TestBandwidthCatchesUp: what a stage is late with, by the machine or because of
// who takes, does not lower the rate.
func TestBandwidthCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := make(chan *stream.StreamChunk, 3), make(chan *stream.StreamChunk)
		began := time.Now()
		for range 3 {
			in <- &stream.StreamChunk{Data: make([]byte, 100), Timestamp: began}
		}
		close(in)
		go (&bandwidth{rate: 1}).Pipe(toxics.NewToxicStub(in, out))
		time.Sleep(150 * time.Millisecond)
		<-out
		<-out
		if d := time.Since(began); d != 200*time.Millisecond {
			t.Errorf("200 bytes took %v", d)
		}
		<-out
		if d := time.Since(began); d != 300*time.Millisecond {
			t.Errorf("300 bytes took %v", d)
		}
		<-out
	})
}
