package client_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/client"
)

// shared makes two calls wait on one session, and returns their requests.
func (b *bed) shared(key1, key2 string) (w *wire, k1, k2 *call, a1, a2 frame) {
	b.t.Helper()
	b.mu.Lock()
	b.refuse = func(n int, _ string) bool { return n > 1 }
	b.mu.Unlock()
	k1 = b.acquire(key1, 30*time.Second, 10*time.Second)
	w = b.session(node1)
	a1 = w.op("A")
	k2 = b.acquire(key2, 30*time.Second, 10*time.Second)
	a2 = w.op("A")
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	return w, k1, k2, a1, a2
}

// §3.9: order matches nothing.
func TestRepliesInReverse(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, k1, k2, a1, a2 := b.shared("k", "k")
		w.send("A", "k", a2.owner, 1)
		same(t, "token", end[client.Acquired](k2).Ticket.Token(), 1)
		k1.running()
		w.send("T", "k", a1.owner)
		end[client.TimedOut](k1)
	})
}

// §3.9: the entry is registered before the write: a reply that comes while the
// write is still under way is matched.
func TestReplyDuringWrite(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		b.wrapper = func(c net.Conn) net.Conn { return slowWriter{c} }
		k := b.acquire("k", 5*time.Second, 10*time.Second)
		w := b.session(node1)
		w.send("A", "k", w.op("A").owner, 3)
		end[client.Acquired](k)
		same(t, "time", k.took, time.Second) // the second write had not returned
	})
}

// slowWriter returns from a write a second after its bytes arrived.
type slowWriter struct{ net.Conn }

func (c slowWriter) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	time.Sleep(time.Second)
	return n, err
}

// §3.9, §3.14: identifier, op and key must match together; otherwise the
// session is closed, and an A is released through the lane.
func TestMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		op    string
		key   string
		owner uint64 // added to the right one
	}{
		"owner of A": {"A", "k", 1}, "key of A": {"A", "K", 0},
		"owner of T": {"T", "k", 1}, "key of T": {"T", "kk", 0},
		"owner of B": {"B", "k", 1}, "key of B": {"B", "l", 0},
		"op R": {"R", "k", 0}, "op N": {"N", "k", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bed) {
				k := b.acquire("k", 30*time.Second, 10*time.Second)
				w := b.session(node1)
				a := w.op("A")
				if c.op == "A" {
					w.send("A", c.key, a.owner+c.owner, 41)
				} else {
					w.send(c.op, c.key, a.owner+c.owner)
				}
				is(t, end[client.Indeterminate](k).Cause, client.ErrMismatch)
				w.closed(0)
				if c.op != "A" {
					b.nobody(10 * time.Second)
					return
				}
				lane := b.session(node1)
				r := lane.op("R")
				same(t, "released", fmt.Sprint(r.token, r.tail), fmt.Sprint(41, c.key))
				lane.send("R", c.key, 41)
				lane.quiet(10 * time.Second)
			})
		})
	}
}

// §3.14: the release of an unmatched A is repeated until it is answered.
func TestUnmatchedReleaseIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, _ := b.hold("other", 60*time.Second, 1)
		w.send("A", "k", 999, 41)
		w.closed(0)
		first := b.session(node1)
		same(t, "token", first.op("R").token, 41)
		_ = first.Close()
		second := b.session(node1)
		same(t, "token", second.op("R").token, 41)
		start := time.Now()
		second.closed(10 * time.Second) // unanswered
		same(t, "time", time.Since(start), 5*time.Second)
		third := b.session(node1)
		same(t, "token", third.op("R").token, 41)
		third.send("N", "k", 41)
		third.quiet(10 * time.Second)
		b.nobody(10 * time.Second)
	})
}

// §3.14: it ends after 255 s.
func TestUnmatchedReleaseGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, _ := b.hold("other", 60*time.Second, 1)
		b.mu.Lock()
		b.refuse = func(int, string) bool { return true }
		b.mu.Unlock()
		start := time.Now()
		w.send("A", "k", 999, 41)
		time.Sleep(300 * time.Second)
		if n := len(b.dialled()); n < 20 || n > 300 {
			t.Fatalf("%d dials", n)
		}
		b.nobody(60 * time.Second)
		same(t, "time", time.Since(start), 360*time.Second)
	})
}

// §3.14: a second A with a token that a call was given closes only: a release
// would give away the lock that the application holds. The key does not matter.
func TestDuplicatedGrant(t *testing.T) {
	for _, key := range []string{"k", "other"} {
		bubble(t, func(t *testing.T, b *bed) {
			k := b.acquire("k", 30*time.Second, 60*time.Second)
			w := b.session(node1)
			a := w.op("A")
			w.send("A", "k", a.owner, 8)
			tk := end[client.Acquired](k).Ticket
			w.send("A", key, a.owner, 8)
			w.closed(0)
			b.nobody(30 * time.Second)
			ch := release(t.Context(), tk)
			lane := b.session(node1)
			same(t, "token", lane.op("R").token, 8)
			lane.send("R", "k", 8)
			ended[client.Released](b, ch)
		})
	}
}

// A token that was given to a call is no grant for another one.
func TestTokenTwice(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, _ := b.hold("k", 60*time.Second, 8)
		k := b.acquire("k", 30*time.Second, 60*time.Second)
		w.send("A", "k", w.op("A").owner, 8)
		is(t, end[client.Indeterminate](k).Cause, client.ErrMismatch)
		w.closed(0)
		b.nobody(30 * time.Second)
	})
}

// §3.10: M closes; its address is a hint only if it is on the allowlist.
func TestMoved(t *testing.T) {
	for address, next := range map[string]string{node3: node3, "10.6.6.6:1": "", "": ""} {
		bubble(t, func(t *testing.T, b *bed) {
			w, k1, k2, _, _ := b.shared("k", "l")
			w.send("M", address)
			is(t, end[client.Indeterminate](k1).Cause, client.ErrMoved)
			is(t, end[client.Indeterminate](k2).Cause, client.ErrMoved)
			w.closed(0)
			b.nobody(10 * time.Second)
			n := len(b.dialled())
			k := b.acquire("k", 3*time.Second, time.Second)
			if next != "" {
				b.accept(next).Close()
			}
			end[client.Unsent](k)
			for i, a := range b.dialled()[n:] {
				if (i == 0 && next != "" && a != next) || (a != node1 && a != node2 && a != node3) {
					t.Fatalf("dial %d went to %s", i, a)
				}
			}
		}, func(c *client.Config) { c.Addresses = append(c.Addresses, node3) })
	}
}

// §3.11: L is a hint for the next dial; nothing else happens.
func TestLeaderNotice(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, tk := b.hold("held", 60*time.Second, 1)
		k := b.acquire("k", 30*time.Second, time.Second)
		a := w.op("A")
		w.send("L", "10.6.6.6:1")
		w.send("L", "")
		w.send("L", node2)
		k.running()
		w.quiet(time.Second)
		w.send("T", "k", a.owner)
		end[client.TimedOut](k)
		k = b.acquire("k", 30*time.Second, time.Second)
		w2 := b.session(node2)
		w2.send("B", "k", w2.op("A").owner)
		end[client.Busy](k)
		ch := release(t.Context(), tk)
		w.send("R", "held", w.op("R").token)
		ended[client.Released](b, ch)
	})
}

// A named leader that cannot be reached keeps nobody from an open session.
func TestLeaderUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, _ := b.hold("held", 60*time.Second, 1)
		w.send("L", node2)
		synctest.Wait()
		b.mu.Lock()
		b.refuse = func(int, string) bool { return true }
		b.mu.Unlock()
		k := b.acquire("k", 3*time.Second, time.Second)
		w.send("B", "k", w.op("A").owner)
		end[client.Busy](k)
	})
}

// §3.12, §3.13: every E closes, makes sent acquires Indeterminate, and pauses.
func TestErrorFrames(t *testing.T) {
	for _, reason := range []string{"no_leader", "not_active", "auth_failed", "bad_frame", ""} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bed) {
				k := b.acquire("k", 30*time.Second, time.Second)
				w := b.session(node1)
				w.op("A")
				w.send("E", reason)
				var se *client.ServerError
				if o := end[client.Indeterminate](k); !errors.As(o.Cause, &se) || se.Reason != reason {
					t.Fatalf("cause is %v", o.Cause)
				}
				w.closed(0)
				start := time.Now()
				k = b.acquire("k", 30*time.Second, time.Second)
				w = b.session(node1)
				w.send("B", "k", w.op("A").owner)
				end[client.Busy](k)
				if d := time.Since(start); d < 50*ms || d > time.Second {
					t.Fatalf("came back after %v", d)
				}
			}, one)
		})
	}
}

// §3.12: no_leader drops the hint.
func TestNoLeaderDropsHint(t *testing.T) {
	for _, from := range []string{node1, node2} {
		bubble(t, func(t *testing.T, b *bed) {
			w, _ := b.hold("held", 60*time.Second, 1)
			w.send("L", node2)
			synctest.Wait()
			k := b.acquire("k", 30*time.Second, time.Second)
			w2 := b.session(node2)
			w2.op("A")
			if from == node1 {
				w.send("E", "no_leader")
				_ = w2.Close()
			} else {
				w2.send("E", "no_leader")
				_ = w.Close()
			}
			end[client.Indeterminate](k)
			synctest.Wait()
			n := len(b.dialled())
			k = b.acquire("k", 30*time.Second, time.Second)
			w = b.session(node1)
			w.send("B", "k", w.op("A").owner)
			end[client.Busy](k)
			same(t, "first dial", b.dialled()[n], node1)
		})
	}
}

// §3.13, §3.15: what is no frame of the dialect is fatal for the connection; a
// good frame behind it counts for nothing.
func TestBadFrames(t *testing.T) {
	for name, bad := range map[string]string{
		"unknown op": "Zhello\n",
		"overlong":   "A" + strings.Repeat("x", 600) + "\n",
		"long key":   "T12345678" + strings.Repeat("x", 129) + "\n",
		"no key":     "T12345678\n",
		"bad key":    "T12345678a b\n",
		"not UTF-8":  "E\xff\n",
		"request":    "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bed) {
				k := b.acquire("k", 30*time.Second, time.Second)
				w := b.session(node1)
				a := w.op("A")
				w.raw(bad + string(w.encode("T", "k", a.owner)))
				is(t, end[client.Indeterminate](k).Cause, client.ErrProtocol)
				w.closed(0)
			})
		})
	}
}

// §1.1: a greeting that is none ends the session; the call goes on elsewhere.
func TestBadGreetings(t *testing.T) {
	for _, line := range []string{"\n", "srv\n", "srv a b\n", " nonce\n", "srv \n", "srv \x80\n", strings.Repeat("x", 257), "Eno_leader\n"} {
		bubble(t, func(t *testing.T, b *bed) {
			k := b.acquire("k", 30*time.Second, time.Second)
			w := b.accept(node1)
			w.raw(line)
			w.closed(0)
			w = b.session(node2)
			w.send("B", "k", w.op("A").owner)
			end[client.Busy](k)
		})
	}
}

// The longest greeting, byte by byte, with a frame in the same write as its end.
func TestLongGreeting(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		k := b.acquire("k", 30*time.Second, time.Second)
		w := b.accept(node1)
		line := "srv " + strings.Repeat("n", 252)
		for i := range line {
			w.raw(line[i : i+1])
			time.Sleep(ms)
		}
		w.raw("\nL" + node2 + "\n\n")
		w.op("auth")
		w.send("B", "k", w.op("A").owner)
		end[client.Busy](k)
		k = b.acquire("k", 30*time.Second, time.Second)
		b.session(node2).op("A")
		k.cancel()
		end[client.Indeterminate](k)
	})
}

// An idle session that its server ends is dropped quietly.
func TestIdleSessionEnds(t *testing.T) {
	for _, f := range []func(*wire) error{(*wire).CloseWrite, (*wire).Reset} {
		bubble(t, func(t *testing.T, b *bed) {
			w, _ := b.hold("held", 60*time.Second, 1)
			_ = f(w)
			synctest.Wait()
			k := b.acquire("k", 30*time.Second, time.Second)
			w = b.session(node1)
			w.send("B", "k", w.op("A").owner)
			end[client.Busy](k)
		})
	}
}

// An unused session is closed in the end.
func TestIdleLimit(t *testing.T) {
	bubble(t, func(t *testing.T, b *bed) {
		w, _ := b.hold("held", 60*time.Second, 1)
		w.quiet(89 * time.Second)
		w.closed(time.Second)
		b.nobody(time.Minute)
	})
}
