package history_test

import (
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/history"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestRecorderStamps: numbers count from 1, times from the start of the case, and
// what the caller had put there is overwritten.
func TestRecorderStamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := history.NewRecorder()
		for call := range 3 {
			time.Sleep(time.Second)
			r.Add(history.Event{Seq: 99, At: -1, Kind: history.CallAsked, Call: call + 1})
		}
		time.Sleep(time.Second)
		got, _ := r.Events(0)
		var want []history.Event
		for i := 1; i <= 3; i++ {
			want = append(want, history.Event{Seq: uint64(i), At: time.Duration(i) * time.Second, Kind: history.CallAsked, Call: i})
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, not %+v", got, want)
		}
		if r.Since() != 4*time.Second {
			t.Errorf("%v since the start", r.Since())
		}
	})
}

func TestRecorderEventsFrom(t *testing.T) {
	r := history.NewRecorder()
	for call := 1; call <= 3; call++ {
		r.Add(history.Event{Call: call})
	}
	for from, want := range map[int][]int{-1: {1, 2, 3}, 0: {1, 2, 3}, 1: {2, 3}, 2: {3}, 3: nil, 4: nil} {
		events, _ := r.Events(from)
		var got []int
		for _, e := range events {
			got = append(got, e.Call)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("from %d: calls %v, not %v", from, got, want)
		}
	}
	events, _ := r.Events(0)
	_ = append(events, history.Event{Call: 77})
	r.Add(history.Event{Call: 4})
	if again, _ := r.Events(0); len(events) != 3 || again[3].Call != 4 {
		t.Error("what is appended to the events gets into the record")
	}
}

// TestRecorderNotifies: the channel closes at the next event, for everybody who
// waits, and not before.
func TestRecorderNotifies(t *testing.T) {
	r := history.NewRecorder()
	_, a := r.Events(0)
	_, b := r.Events(0)
	if isClosed(a) || isClosed(b) {
		t.Fatal("told of an event before there was one")
	}
	r.Add(history.Event{})
	if !isClosed(a) || !isClosed(b) {
		t.Fatal("not told of an event")
	}
	events, c := r.Events(0)
	if len(events) != 1 || isClosed(c) {
		t.Fatalf("%d events, told of another: %v", len(events), isClosed(c))
	}
	if r.Add(history.Event{}); !isClosed(c) {
		t.Fatal("not told of the second event")
	}
}

// TestRecorderConcurrently has several writers and a reader that follows: it sees
// every event once, in order, with times that never go back, and each writer's
// events in the order in which they were added.
func TestRecorderConcurrently(t *testing.T) {
	const writers, each = 8, 500
	r := history.NewRecorder()
	var wg sync.WaitGroup
	for w := 1; w <= writers; w++ {
		wg.Go(func() {
			for i := 1; i <= each; i++ {
				r.Add(history.Event{Session: w, N: i})
			}
		})
	}
	var all []history.Event
	for len(all) < writers*each {
		events, more := r.Events(len(all))
		if len(events) == 0 {
			<-more
		}
		all = append(all, events...)
	}
	wg.Wait()
	last := map[int]int{}
	for i, e := range all {
		if e.Seq != uint64(i+1) || i > 0 && e.At < all[i-1].At {
			t.Fatalf("event %d has number %d and time %v", i, e.Seq, e.At)
		}
		if last[e.Session]++; e.N != last[e.Session] {
			t.Fatalf("event %d of writer %d came as its %d", e.N, e.Session, last[e.Session])
		}
	}
}

// TestRecorderLimit adds up to MaxEvents and past it.
func TestRecorderLimit(t *testing.T) {
	r := history.NewRecorder()
	for range history.MaxEvents {
		r.Add(history.Event{})
	}
	last, more := r.Events(history.MaxEvents - 1)
	if len(last) != 1 || last[0].Seq != history.MaxEvents || r.Full() || isClosed(more) {
		t.Fatalf("at the limit: %+v, full %v", last, r.Full())
	}
	r.Add(history.Event{})
	if !r.Full() || !isClosed(more) {
		t.Fatalf("one past the limit: full %v, told %v", r.Full(), isClosed(more))
	}
	_, more = r.Events(history.MaxEvents)
	r.Add(history.Event{})
	last, _ = r.Events(history.MaxEvents - 1)
	if len(last) != 1 || last[0].Seq != history.MaxEvents || !r.Full() || isClosed(more) {
		t.Fatalf("two past the limit: %+v, full %v, told again %v", last, r.Full(), isClosed(more))
	}
}

func TestNilRecorder(t *testing.T) {
	var r *history.Recorder
	r.Add(history.Event{Kind: history.Entered})
	if events, more := r.Events(0); events != nil || more != nil || r.Full() || r.Since() != 0 {
		t.Error("a nil recorder keeps something")
	}
}

// What another recorder gave up is used again, and not written to by it.
func TestTake(t *testing.T) {
	r := history.NewRecorder()
	r.Add(history.Event{Kind: history.Entered})
	all := r.Take()
	r.Add(history.Event{Kind: history.Left})
	if ev, _ := r.Events(0); len(all) != 1 || len(ev) != 0 {
		t.Errorf("took %d events and left %d", len(all), len(ev))
	}
	next := history.NewRecorderIn(all)
	next.Add(history.Event{Kind: history.Frozen})
	if ev, _ := next.Events(0); len(ev) != 1 || ev[0].Kind != history.Frozen || ev[0].Seq != 1 || &ev[0] != &all[0] {
		t.Errorf("the next has %v", ev)
	}
}
