package client_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"tornwire/client"
)

// §1, §3.1: a grant counts with its newline, and fixed fields go by count.
func TestGrantedWhole(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 5*time.Second, 30*time.Second)
		w := b.session(node1)
		f := w.op("A")
		same(t, "wait", f.wait, 5)
		same(t, "lease", f.lease, 30)
		token := uint64(0x0a0a0a0a0a0a0a0a)
		p := string(w.encode("A", "k", f.owner, token))
		w.raw("\n\n" + p[:3])
		time.Sleep(300 * ms)
		w.raw(p[3 : len(p)-1])
		time.Sleep(300 * ms)
		k.running()
		w.raw("\n")
		tk := end[client.Acquired](k).Ticket
		same(t, "token", tk.Token(), token)
		same(t, "key", tk.Key(), "k")
		owner, ok := tk.Owner()
		same(t, "owner", owner, f.owner)
		same(t, "has owner", ok, true)
		by, sure := tk.Expires()
		same(t, "expiry", by.Sub(k.start), 30*time.Second)
		same(t, "expiry is sure", sure, true)
	})
}

// §3.1, §3.2: without a complete answer the call is Indeterminate for ever, and
// nothing is sent again, on no session.
func TestNoAnswerIsIndeterminate(t *testing.T) {
	ends := map[string]func(w *wire){
		"fin":     func(w *wire) { _ = w.CloseWrite() },
		"close":   func(w *wire) { _ = w.Close() },
		"rst":     func(w *wire) { _ = w.Reset() },
		"silence": func(*wire) {},
	}
	for name, f := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bed) {
				k := b.acquire("k", 3*time.Second, 2*time.Second)
				w := b.session(node1)
				a := w.op("A")
				p := w.encode("A", "k", a.owner, 7)
				w.raw(string(p[:len(p)-1]))
				f(w)
				o := end[client.Indeterminate](k)
				same(t, "until", o.UntilAtMost.Sub(k.start), 5*time.Second)
				b.nobody(10 * time.Second)
			})
		})
	}
}

// §3.1: whatever a write says, its bytes may have been sent, even none.
func TestFailedWriteIsIndeterminate(t *testing.T) {
	for _, n := range []int{0, 1, 13} {
		bubble(t, func(t *testing.T, b *bed) {
			b.wrapper = func(c net.Conn) net.Conn { return &badWriter{Conn: c, n: n} }
			k := b.acquire("k", 3*time.Second, 2*time.Second)
			b.session(node1)
			is(t, end[client.Indeterminate](k).Cause, io.ErrNoProgress)
			b.nobody(10 * time.Second)
		})
	}
}

// badWriter fails the second write after n bytes.
type badWriter struct {
	net.Conn
	writes, n int
}

func (c *badWriter) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.n])
	return n, io.ErrNoProgress
}

// §3.2: while nothing was sent, other addresses are tried with the same deadline.
func TestUnsentIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.refuse = func(n int, _ string) bool { return n == 1 }
		k := b.acquire("k", 10*time.Second, 2*time.Second)
		w2 := b.accept(node2)
		time.Sleep(1500 * ms)
		_ = w2.Close()
		w1 := b.session(node1)
		a := w1.op("A")
		same(t, "wait", a.wait, 9)
		w1.send("B", "k", a.owner)
		end[client.Busy](k)
	})
}

// §3.2: an attempt that never leaves the client ends as Unsent, at the deadline.
func TestUnsentAtDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.refuse = func(int, string) bool { return true }
		k := b.acquire("k", 2500*ms, time.Second)
		is(t, end[client.Unsent](k).Cause, client.ErrDeadline)
		same(t, "time", k.took, 2500*ms)
		if n := len(b.dialled()); n < 6 || n > 25 {
			t.Fatalf("%d dials in 2.5 s", n)
		}
	})
}

// §3.3: every call has its own owner.
func TestFreshOwners(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		seen := map[uint64]bool{}
		var w *wire
		for range 50 {
			k := b.acquire("k", 5*time.Second, time.Second)
			if w == nil {
				w = b.session(node1)
			}
			a := w.op("A")
			if a.owner == 0 || seen[a.owner] {
				t.Fatalf("owner %d again", a.owner)
			}
			seen[a.owner] = true
			w.send("T", "k", a.owner)
			end[client.TimedOut](k)
		}
	})
}

// §3.4: the wire wait is what remains just before the write, rounded up.
func TestWaitIsWhatRemains(t *testing.T) {
	for _, c := range []struct {
		wait, held time.Duration
		wire       uint64
	}{
		{10 * time.Second, 3500 * ms, 7},
		{5 * time.Second, 0, 5},
		{2250 * ms, 0, 3},
		{200 * ms, 100 * ms, 1},
		{300 * time.Second, 0, 255},
		{300 * time.Second, 3500 * ms, 252},
		{1<<63 - 1, 0, 255},
	} {
		bubble(t, func(t *testing.T, b *bed) {
			k := b.acquire("k", c.wait, time.Second)
			w := b.accept(node1)
			time.Sleep(c.held)
			w.greet()
			same(t, "wire wait", w.op("A").wait, c.wire)
			is(t, end[client.Indeterminate](k).Cause, client.ErrDeadline)
			same(t, "time", k.took, min(c.wait, 255*time.Second))
		}, one)
	}
}

// §3.5: expired before sending, nothing is sent.
func TestExpiredIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 3*time.Second, time.Second)
		w := b.accept(node1)
		is(t, end[client.Unsent](k).Cause, client.ErrDeadline)
		same(t, "time", k.took, 3*time.Second)
		w.closed(0)
	}, one)
}

// §3.5: expired after a send, exactly that session is closed, at once.
func TestDeadlineClosesItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w1, tk := b.hold("other", 60*time.Second, 1)
		k1 := b.acquire("k", 20*time.Second, time.Second)
		a1 := w1.op("A") // the idle session is used again
		k2 := b.acquire("k", 3*time.Second, time.Second)
		w2 := b.session(node1)
		w2.op("A")
		is(t, end[client.Indeterminate](k2).Cause, client.ErrDeadline)
		same(t, "time", k2.took, 3*time.Second)
		w2.closed(0)
		w1.quiet(time.Second)
		w1.send("A", "k", a1.owner, 2)
		end[client.Acquired](k1)
		ch := release(t.Context(), tk)
		w1.send("R", "other", w1.op("R").token)
		ended[client.Released](b, ch)
	})
}

// §3.6: a grant that is read after the deadline is released and not told; the
// session stays.
func TestLateGrantInGrace(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", time.Second, 30*time.Second)
		w := b.session(node1)
		a := w.op("A")
		time.Sleep(1500 * ms)
		w.send("A", "k", a.owner, 77)
		is(t, end[client.Indeterminate](k).Cause, client.ErrLate)
		same(t, "released token", w.op("R").token, 77)
		w.send("R", "k", 77)
		w.quiet(20 * time.Second)
	}, grace(2*time.Second))
}

// §3.7: T and B are final, as values, and the session lives on.
func TestDefiniteAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", time.Second, time.Second)
		w := b.session(node1)
		a := w.op("A")
		time.Sleep(1001 * ms) // the server's T is late by the way
		w.send("T", "k", a.owner)
		end[client.TimedOut](k)
		k = b.acquire("k", 5*time.Second, time.Second)
		w.send("B", "k", w.op("A").owner)
		end[client.Busy](k)
		w.quiet(10 * time.Second) // no retry
		b.nobody(time.Second)
	}, grace(100*ms))
}

// §3.8: wait 0 goes out as 0, with 5 s for the transport.
func TestZeroWait(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 0, time.Second)
		w := b.accept(node1)
		time.Sleep(4 * time.Second)
		w.greet()
		a := w.op("A")
		same(t, "wire wait", a.wait, 0)
		o := end[client.Indeterminate](k)
		same(t, "time", k.took, 5*time.Second)
		same(t, "until", o.UntilAtMost.Sub(k.start), 5*time.Second)
		w.closed(0)

		k = b.acquire("k", 0, time.Second)
		b.accept(node1)
		end[client.Unsent](k)
		same(t, "time", k.took, 5*time.Second)
	}, one)
}

// §3.8: a grant for wait 0 read later than send + lease is not told.
func TestZeroWaitStaleGrant(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 0, time.Second)
		w := b.session(node1)
		a := w.op("A")
		time.Sleep(time.Second)
		w.send("A", "k", a.owner, 9)
		is(t, end[client.Indeterminate](k).Cause, client.ErrLate)
		same(t, "time", k.took, time.Second)
		same(t, "released token", w.op("R").token, 9)
		w.send("N", "k", 9)
		w.quiet(time.Second)
	})
}

// §3.15: a cancel after the send closes the session; before it, nothing is sent.
func TestCancel(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 30*time.Second, 5*time.Second)
		w := b.session(node1)
		w.op("A")
		k.cancel()
		is(t, end[client.Indeterminate](k).Cause, context.Canceled)
		same(t, "time", k.took, 0)
		w.closed(0)

		k = b.acquire("k", 30*time.Second, 5*time.Second)
		w = b.accept(node1)
		k.cancel()
		is(t, end[client.Unsent](k).Cause, context.Canceled)
		w.closed(0)
	})
}

// A write that makes no progress is stopped with its call, and no byte of the
// request leaves after the deadline, even in the response grace.
func TestBlockedWrite(t *testing.T) {
	for _, cancel := range []bool{true, false} {
		bubble(t, func(t *testing.T, b *bed) {
			k := b.acquire("k", 2*time.Second, 5*time.Second)
			w := b.accept(node1)
			w.LimitReceive(44 + 3) // the answer to the greeting, and a bit
			w.greet()
			k.running()
			if cancel {
				k.cancel()
			}
			end[client.Indeterminate](k)
			same(t, "cancelled", k.took == 0, cancel)
			same(t, "in time", k.took <= 2*time.Second, true)
			w.LimitReceive(-1)
			w.closed(0)
		}, grace(time.Second))
	}
}

// A deadline of ctx is a cancel.
func TestContextDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		ch := make(chan client.Outcome, 1)
		go func() {
			out, _ := b.c.Acquire(ctx, "k", 30*time.Second, time.Second)
			ch <- out
		}()
		w := b.session(node1)
		same(t, "wire wait", w.op("A").wait, 30)
		is(t, (<-ch).(client.Indeterminate).Cause, context.DeadlineExceeded)
		w.closed(0)
	})
}

func TestInvalid(t *testing.T) {
	for _, cfg := range []client.Config{
		{},
		{Addresses: []string{"nowhere"}},
		{Addresses: []string{node1, node1}},
		{Addresses: []string{node1}, Dialect: "other"},
		{Addresses: []string{node1}, ResponseGrace: -1},
		{Addresses: []string{node1}, ResponseGrace: time.Hour},
	} {
		_, err := client.New(cfg)
		is(t, err, client.ErrInvalid)
	}
	for _, dialect := range []string{"ticketing", "ticketing-v0"} {
		bubble(t, func(t *testing.T, b *bed) {
			for _, c := range []struct {
				key         string
				wait, lease time.Duration
			}{
				{"", 1, 1},
				{"a b", 1, 1},
				{"a\n", 1, 1},
				{"a\r", 1, 1},
				{"\xff", 1, 1},
				{strings.Repeat("x", 129), 1, 1},
				{"k", -1, 1},
				{"k", 1, 0},
				{"k", 1, -1},
				{"k", 1, 70000 * time.Second},
			} {
				out, err := b.c.Acquire(t.Context(), c.key, c.wait, c.lease)
				is(t, err, client.ErrInvalid)
				same(t, "outcome", out, nil)
			}
			same(t, "dials", len(b.dialled()), 0)
		}, func(c *client.Config) { c.Dialect = dialect })
	}
}

// Close ends running calls, and everything else.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("held", 60*time.Second, 1)
		k1 := b.acquire("k", 30*time.Second, time.Second)
		w.op("A")
		k2 := b.acquire("k", 30*time.Second, time.Second)
		b.accept(node1)
		if err := b.c.Close(); err != nil {
			t.Fatal(err)
		}
		is(t, end[client.Indeterminate](k1).Cause, client.ErrClosed)
		is(t, end[client.Unsent](k2).Cause, client.ErrClosed)
		w.closed(0)
		_, err := b.c.Acquire(t.Context(), "k", 1, 1)
		is(t, err, client.ErrClosed)
		is(t, tk.Release(t.Context()).(client.ReleaseIndeterminate).Cause, client.ErrClosed)
	})
}
