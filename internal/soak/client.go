//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialers      = 32               // idle sessions that are opened at once
	flightLimit  = 512              // paced sessions under way; one more waits, which counts as its time; as many may be closing
	sessionLimit = 20 * time.Second // for one session, or for one exchange of an idle one
	answerMost   = 1 + 8 + 8 + tailLimit + 1
)

// quantiles of a spread.
var quantiles = []float64{0.5, 0.9, 0.99, 0.999, 1}

// caller is the client: all sessions of it run in this process.
type caller struct {
	order order
	turn  atomic.Uint64 // of targets and sources
	ids   atomic.Uint64
	idle  []*caught

	problems problems
	bytes    atomic.Int64 // that were checked
	mu       sync.Mutex
	ledger   []entry
}

// caught is a session whose preface is over.
type caught struct {
	c   *net.TCPConn
	r   *bufio.Reader
	s   *stream
	req []byte
	ans []byte
	got [answerMost]byte
	nth int // answers so far
}

func (c *caller) do(o order) (report, error) {
	c.order = o
	var r report
	switch o.Do {
	case "open-idle":
		r = c.openIdle()
	case "check-idle":
		r = c.checkIdle()
	case "close-idle":
		r = c.closeIdle()
	case "opens":
		r = c.paced(func(ctx context.Context, id uint64) error { return c.openOnce(ctx, id) })
	case "churn":
		r = c.paced(func(ctx context.Context, id uint64) error { return c.churn(ctx, newPlan(o.Seed, id)) })
	case "traffic":
		r = c.traffic()
	default:
		return r, fmt.Errorf("the client cannot %q", o.Do)
	}
	r.Problems, r.Bytes = c.problems.take(), int(c.bytes.Swap(0))
	r.Ledger, c.ledger = c.ledger, nil
	return r, nil
}

// dial connects from the next of the source addresses, so that ports in
// TIME_WAIT do not run out: each address has its own.
func (c *caller) dial(ctx context.Context) (*net.TCPConn, error) {
	n := c.turn.Add(1)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 64, byte(1+n%uint64(c.order.Sources)))}, KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", c.order.Targets[n%uint64(len(c.order.Targets))])
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// open connects and answers the greeting, the first request in the same write.
// The answer to that is not read yet.
func (c *caller) open(ctx context.Context, s *stream) (*caught, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(sessionLimit))
	k := &caught{c: conn, r: bufio.NewReaderSize(conn, lineLimit), s: s}
	line, err := k.r.ReadSlice('\n')
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("greeting: %w", err)
	}
	auth, err := digestOf(line[:len(line)-1])
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	k.req, k.ans = s.next(auth, nil)
	if _, err := conn.Write(k.req); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("preface and first request: %w", err)
	}
	return k, nil
}

// check reads one answer and compares it byte by byte.
func (k *caught) check(want []byte) error {
	k.nth++
	got := k.got[:len(want)]
	n, err := io.ReadFull(k.r, got)
	if !bytes.Equal(got[:n], want[:n]) {
		return wrongf("answer %d is %q, wanted %q", k.nth, got[:n], want)
	}
	if err != nil {
		return fmt.Errorf("answer %d, after %d of %d bytes: %w", k.nth, n, len(want), err)
	}
	return nil
}

// exchange has one more request answered.
func (k *caught) exchange() error {
	_ = k.c.SetDeadline(time.Now().Add(sessionLimit))
	k.req, k.ans = k.s.next(k.req[:0], k.ans[:0])
	if _, err := k.c.Write(k.req); err != nil {
		return err
	}
	return k.check(k.ans)
}

// newID numbers sessions over the life of the process, from 1.
func (c *caller) newID() uint64 { return c.ids.Add(1) }

// endless is a session whose server never acts by itself.
func endless(id uint64) plan { return plan{id: id, end: bothFin} }

// each does something with every number under n, dialers at once.
func (c *caller) each(n int, do func(i int) error) (done int) {
	var wg sync.WaitGroup
	var next, good atomic.Int64
	for range min(n, dialers) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					c.problems.add(err)
				} else {
					good.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(good.Load())
}

func (c *caller) openIdle() report {
	began, opened := time.Now(), make([]*caught, c.order.Count)
	n := c.each(c.order.Count, func(i int) error {
		k, err := c.open(context.Background(), newStream(c.order.Seed, endless(c.newID())))
		if err != nil {
			return fmt.Errorf("idle session %d: %w", i, err)
		}
		opened[i] = k
		return k.check(k.ans)
	})
	c.idle = slices.DeleteFunc(opened, func(k *caught) bool { return k == nil })
	return report{Done: n, Rate: float64(n) / time.Since(began).Seconds()}
}

func (c *caller) checkIdle() report {
	return report{Done: c.each(len(c.idle), func(i int) error {
		if err := c.idle[i].exchange(); err != nil {
			return fmt.Errorf("idle session %d: %w", i, err)
		}
		return nil
	})}
}

func (c *caller) closeIdle() report {
	n := c.each(len(c.idle), func(i int) error { return c.finish(c.idle[i]) })
	c.idle = nil
	return report{Done: n}
}

// finish closes a session that has every answer and enters it in the ledger.
func (c *caller) finish(k *caught) error {
	c.enter(entry{ID: k.s.plan.id, Bytes: k.s.n, Sum: k.s.sum, End: endFin, Least: k.s.n})
	return k.c.Close()
}

func (c *caller) enter(e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger = append(c.ledger, e)
}

// openOnce connects, has one request answered and closes.
func (c *caller) openOnce(ctx context.Context, id uint64) error {
	k, err := c.open(ctx, newStream(c.order.Seed, endless(id)))
	if err != nil {
		return err
	}
	err = k.check(k.ans)
	return errors.Join(err, c.finish(k))
}

// paced starts sessions at a steady rate. The time of each is counted from when
// it was due, so that nobody who holds the next ones up looks fast.
func (c *caller) paced(do func(ctx context.Context, id uint64) error) report {
	total := int(c.order.For.Seconds() * float64(c.order.Rate))
	spread, room := make([]time.Duration, total), make(chan struct{}, flightLimit)
	var wg sync.WaitGroup
	var good atomic.Int64
	began := time.Now()
	for i := range total {
		due := began.Add(time.Duration(float64(i) / float64(c.order.Rate) * float64(time.Second)))
		time.Sleep(time.Until(due))
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(context.Background(), sessionLimit)
			defer cancel()
			id := c.newID()
			if err := do(ctx, id); err != nil {
				c.problems.add(fmt.Errorf("session %d: %w", id, err))
			} else {
				good.Add(1)
			}
			spread[i] = time.Since(due)
		})
	}
	lasted := time.Since(began)
	wg.Wait()
	return report{Done: int(good.Load()), Rate: float64(total) / max(lasted, c.order.For).Seconds(), Spread: spreadOf(spread)}
}

// spreadOf returns the quantiles.
func spreadOf(all []time.Duration) []time.Duration {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	var at []time.Duration
	for _, q := range quantiles {
		at = append(at, all[min(int(q*float64(len(all))), len(all)-1)])
	}
	return at
}

// chunks writes b in pieces of random size.
func chunks(c *net.TCPConn, rng *rand.Rand, b []byte) error {
	for len(b) > 0 {
		n := min(1+rng.IntN(200), len(b))
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
