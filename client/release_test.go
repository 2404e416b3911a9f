package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/client"
)

// §3.16: a release names the exact token, on the session that granted it.
func TestRelease(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 1<<63+5)
		ch := release(t.Context(), tk)
		r := w.op("R")
		same(t, "token", r.token, 1<<63+5)
		same(t, "key", r.tail, "k")
		w.send("R", "k", r.token)
		ended[client.Released](b, ch)
		ended[client.Released](b, release(t.Context(), tk)) // remembered
		w.quiet(time.Second)
	})
}

// §3.7: N is an outcome, not an error; after the lease, too, it is asked for.
func TestReleaseNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", time.Second, 5)
		time.Sleep(10 * time.Second)
		ch := release(t.Context(), tk)
		w.send("N", "k", w.op("R").token)
		ended[client.NotHeld](b, ch)
	})
}

// §3.16: unanswered for 5 s the release is Indeterminate and closes its
// session; it goes on behind, and may be asked for again.
func TestReleaseUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 5)
		start := time.Now()
		ch := release(t.Context(), tk)
		w.op("R")
		is(t, ended[client.ReleaseIndeterminate](b, ch).Cause, client.ErrUnanswered)
		same(t, "time", time.Since(start), 5*time.Second)
		w.closed(0)
		ch = release(t.Context(), tk)
		lane := b.session(node1)
		lane.send("R", "k", lane.op("R").token)
		ended[client.Released](b, ch)
	})
}

// §3.16, §3.17: an end proves nothing; the release is repeated on the lane, and
// N is then no longer "not held".
func TestReleaseRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 5)
		ch := release(t.Context(), tk)
		w.op("R")
		_ = w.Close()
		lane := b.session(node1)
		lane.send("N", "k", lane.op("R").token)
		same(t, "over", ended[client.ReleaseIndeterminate](b, ch).Over, true)
	})
}

// §3.17: a closed session is not a release.
func TestCloseIsNoRelease(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 5)
		b.mu.Lock()
		b.refuse = func(int, string) bool { return true }
		b.mu.Unlock()
		ch := release(t.Context(), tk)
		w.op("R")
		_ = w.CloseWrite()
		is(t, ended[client.ReleaseIndeterminate](b, ch).Cause, client.ErrUnanswered)
	})
}

// A response for another token, key or op is none.
func TestReleaseMismatch(t *testing.T) {
	for _, f := range []frame{{op: "R", tail: "k", token: 6}, {op: "N", tail: "l", token: 5}, {op: "T", tail: "k", owner: 5}} {
		bubble(t, func(t *testing.T, b *bed) {
			w, tk := b.hold("k", 60*time.Second, 5)
			ch := release(t.Context(), tk)
			w.op("R")
			w.send(f.op, f.tail, f.token+f.owner)
			w.closed(0)
			lane := b.session(node1)
			lane.send("R", "k", lane.op("R").token)
			ended[client.Released](b, ch)
		})
	}
}

// A release is sent even if its ctx is over, and ctx ends only the waiting.
func TestReleaseCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 5)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		is(t, ended[client.ReleaseIndeterminate](b, release(ctx, tk)).Cause, context.Canceled)
		w.send("R", "k", w.op("R").token)
		synctest.Wait()
		ended[client.Released](b, release(t.Context(), tk))
		w.quiet(time.Second)
	})
}

// Concurrent releases of a ticket are one.
func TestReleaseTogether(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 5)
		ch1, ch2 := release(t.Context(), tk), release(t.Context(), tk)
		w.send("R", "k", w.op("R").token)
		ended[client.Released](b, ch1)
		ended[client.Released](b, ch2)
		w.quiet(time.Second)
	})
}

// A node that is not the leader sends the release on.
func TestReleaseMoved(t *testing.T) {
	for _, op := range []string{"M", "E"} {
		bubble(t, func(t *testing.T, b *bed) {
			w, tk := b.hold("k", 60*time.Second, 5)
			ch := release(t.Context(), tk)
			w.op("R")
			if op == "M" {
				w.send("M", node2)
			} else {
				w.send("E", "not_active")
			}
			w.closed(0)
			lane := b.session(node2)
			lane.send("R", "k", lane.op("R").token)
			ended[client.Released](b, ch)
		})
	}
}

// §3.14: acquires cannot starve the lane.
func TestLaneIsReserved(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("held", 120*time.Second, 5)
		_ = w.Close()
		for range 1030 { // more than all sessions take
			b.acquire("k", 60*time.Second, time.Second)
		}
		synctest.Wait()
		ch := release(t.Context(), tk)
		found := false
		for !found {
			w := b.session(node1)
			f, err := w.read(100 * ms)
			found = err == nil && f.op == "R"
			if found {
				w.send("R", "held", f.token)
			}
		}
		ended[client.Released](b, ch)
	}, one)
}

// The zero Ticket does nothing.
func TestZeroTicket(t *testing.T) {
	var tk client.Ticket
	is(t, tk.Release(t.Context()).(client.ReleaseIndeterminate).Cause, client.ErrInvalid)
	if _, ok := tk.Owner(); ok {
		t.Fatal("the zero ticket has an owner")
	}
}
