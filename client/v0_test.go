package client_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/client"
)

// §1.3: the frames of the old dialect, and waits beyond a byte.
func TestV0Exchange(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 1000*time.Second, 300500*ms)
		w := b.session(node1)
		a := w.op("A")
		same(t, "wait", a.wait, 1000)
		same(t, "lease", a.lease, 301)
		w.send("A", "k", 0, 10)
		tk := end[client.Acquired](k).Ticket
		same(t, "token", tk.Token(), 10)
		_, ok := tk.Owner()
		same(t, "has owner", ok, false)
		ch := release(t.Context(), tk)
		same(t, "key", w.op("R").tail, "k")
		w.send("R", "k")
		ended[client.Released](b, ch)
		k = b.acquire("k", 100000*time.Second, time.Second)
		same(t, "clamped wait", w.op("A").wait, 65535)
		w.send("T", "k")
		end[client.TimedOut](k)
	}, v0)
}

// §1.3: wait 0 would wait for ever, and no wait is ever rounded to it.
func TestV0Waits(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		_, err := b.c.Acquire(t.Context(), "k", 0, time.Second)
		is(t, err, client.ErrInvalid)
		k := b.acquire("k", ms, time.Second)
		w := b.session(node1)
		same(t, "wait", w.op("A").wait, 1)
		end[client.Indeterminate](k)
		w.closed(0)
	}, v0)
}

// One acquire of a key at a time on a session: nothing else tells replies apart.
func TestV0KeyHasItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, _, _, _, _ := b.shared("k", "l")
		b.mu.Lock()
		b.refuse = func(int, string) bool { return true }
		b.mu.Unlock()
		k := b.acquire("k", 5*time.Second, time.Second)
		w.quiet(2 * time.Second)
		w.send("T", "k")
		same(t, "key", w.op("A").tail, "k")
		w.send("T", "k")
		end[client.TimedOut](k)
	}, v0)
}

// So it is for two that wait to be written together.
func TestV0KeyHasItsSessionWhileWriting(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.wrapper = func(c net.Conn) net.Conn { return slowWriter{c} }
		w, _, _, _, _ := b.shared("l", "m") // m is still being written
		b.refuse = func(int, string) bool { return true }
		k1 := b.acquire("k", 9*time.Second, time.Second)
		k2 := b.acquire("k", 9*time.Second, time.Second)
		w.op("A")
		w.quiet(3 * time.Second)
		w.send("T", "k")
		w.op("A")
		w.send("T", "k")
		end[client.TimedOut](k1)
		end[client.TimedOut](k2)
	}, v0)
}

// A release by key is sent once and never repeated.
func TestV0ReleaseOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 5)
		ch := release(t.Context(), tk)
		w.op("R")
		_ = w.Close()
		ended[client.ReleaseIndeterminate](b, ch)
		ended[client.ReleaseIndeterminate](b, release(t.Context(), tk))
		b.nobody(70 * time.Second)
	}, v0)
}

// It is not sent from the send of the acquire + lease on.
func TestV0NoReleaseAfterLease(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 10*time.Second, 3*time.Second)
		w := b.session(node1)
		w.op("A")
		time.Sleep(2 * time.Second)
		w.send("A", "k", 0, 4)
		tk := end[client.Acquired](k).Ticket
		time.Sleep(time.Second)
		is(t, ended[client.ReleaseIndeterminate](b, release(t.Context(), tk)).Cause, client.ErrLeaseOver)
		w.quiet(10 * time.Second)
		b.nobody(10 * time.Second)
	}, v0)
}

// With its session gone, a release goes over the lane, while the lease lasts.
func TestV0ReleaseOnLane(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 3*time.Second, 5)
		_ = w.Close()
		synctest.Wait()
		ch := release(t.Context(), tk)
		lane := b.session(node1)
		lane.op("R")
		lane.send("N", "k")
		ended[client.NotHeld](b, ch)

		w, tk = b.hold("k", 3*time.Second, 6)
		_ = w.Close()
		_ = lane.Close()
		synctest.Wait()
		ch = release(t.Context(), tk)
		lane = b.accept(node1)
		is(t, ended[client.ReleaseIndeterminate](b, ch).Cause, client.ErrLeaseOver)
		lane.closed(0)
	}, v0, one)
}

// A grant nobody waits for closes; a release by key could end another's grant.
func TestV0UnmatchedGrant(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 10*time.Second, 3*time.Second)
		w := b.session(node1)
		w.op("A")
		w.send("A", "l", 0, 4)
		is(t, end[client.Indeterminate](k).Cause, client.ErrMismatch)
		w.closed(0)
		b.nobody(300 * time.Second)
	}, v0)
}

// A duplicated grant does not count for the next call on the key.
func TestV0DuplicatedGrant(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("k", 60*time.Second, 5)
		ch := release(t.Context(), tk)
		w.op("R")
		w.send("R", "k")
		ended[client.Released](b, ch)
		k := b.acquire("k", 10*time.Second, 3*time.Second)
		w.op("A")
		w.send("A", "k", 0, 5)
		end[client.Indeterminate](k)
		w.closed(0)
	}, v0)
}

// A known token of a late grant is released while that is safe.
func TestV0LateGrant(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", time.Second, 3*time.Second)
		w := b.session(node1)
		w.op("A")
		time.Sleep(1500 * ms)
		w.send("A", "k", 0, 4)
		end[client.Indeterminate](k)
		w.op("R")
		w.send("R", "k")
		w.quiet(time.Second)

		k = b.acquire("k", 4*time.Second, 3*time.Second)
		w.op("A")
		time.Sleep(5 * time.Second)
		w.send("A", "k", 0, 5)
		end[client.Indeterminate](k)
		w.quiet(10 * time.Second)
		b.nobody(time.Second)
	}, v0, grace(2*time.Second))
}

// M and E close here, too.
func TestV0Notices(t *testing.T) {
	for _, op := range []string{"M", "E"} {
		bubble(t, func(t *testing.T, b *bed) {
			k := b.acquire("k", 10*time.Second, 3*time.Second)
			w := b.session(node1)
			w.op("A")
			w.send(op, "no_leader")
			end[client.Indeterminate](k)
			w.closed(0)
		}, v0)
	}
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 10*time.Second, 3*time.Second)
		w := b.session(node1)
		w.op("A")
		w.raw("B12345678k\n") // no frame of this dialect
		is(t, end[client.Indeterminate](k).Cause, client.ErrProtocol)
		w.closed(0)
	}, v0)
}
