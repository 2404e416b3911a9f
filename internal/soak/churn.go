//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	trafficSessions = 16
	trafficAhead    = 64 // requests of one session without an answer
)

// churn is one session with a planned end. Every answer is compared, and so is
// the end that follows them.
func (c *caller) churn(ctx context.Context, p plan) error {
	k, err := c.open(ctx, newStream(c.order.Seed, p))
	if err != nil {
		return fmt.Errorf("%s: %w", p.end, err)
	}
	defer k.c.Close()
	err = c.churnOn(k, rand.New(rand.NewPCG(^c.order.Seed, p.id)))
	if err != nil {
		return fmt.Errorf("%s: %w", p.end, err)
	}
	c.bytes.Add(int64(k.s.n))
	return nil
}

func (c *caller) churnOn(k *caught, rng *rand.Rand) error {
	p, want := k.s.plan, [][]byte{k.ans}
	var req []byte
	for range p.first - 1 {
		var ans []byte
		req, ans = k.s.next(req, nil)
		want = append(want, ans)
	}
	if err := chunks(k.c, rng, req); err != nil {
		return err
	}
	known := entry{ID: p.id, Least: k.s.n, End: endFin}
	if p.end == clientFin {
		if err := k.c.CloseWrite(); err != nil {
			return err
		}
	}
	for _, ans := range want {
		if err := k.check(ans); err != nil {
			return err
		}
	}
	if err := k.churnEnd(rng); err != nil {
		return err
	}
	switch p.end {
	case clientRst:
		known.End = endRst
	case serverRst:
		known.End = ""
	default:
		known.Least = k.s.n
	}
	known.Bytes, known.Sum = k.s.n, k.s.sum
	c.enter(known)
	return nil
}

// churnEnd ends a session of which every answer to its first requests was read.
func (k *caught) churnEnd(rng *rand.Rand) error {
	p := k.s.plan
	if p.end != clientRst && p.end != bothFin {
		if err := k.expectEnd(p.end == serverRst); err != nil {
			return err
		}
	}
	var req []byte
	for range p.behind {
		req, _ = k.s.next(req, nil)
	}
	if err := chunks(k.c, rng, req); err != nil {
		return fmt.Errorf("%d requests behind the answers: %w", p.behind, err)
	}
	if p.end == clientRst {
		_ = k.c.SetLinger(0)
	}
	return k.c.Close()
}

// expectEnd reads the end of the server's direction.
func (k *caught) expectEnd(rst bool) error {
	switch b, err := k.r.ReadByte(); {
	case err == nil:
		return wrongf("byte %q behind the last answer", b)
	case rst && isReset(err), !rst && errors.Is(err, io.EOF):
		return nil
	case rst:
		return fmt.Errorf("a reset arrived as %w", err)
	default:
		return fmt.Errorf("a FIN arrived as %w", err)
	}
}

// traffic keeps long sessions busy for the time of the order, and compares every
// answer.
func (c *caller) traffic() report {
	ctx, cancel := context.WithTimeout(context.Background(), c.order.For)
	defer cancel()
	n := c.each(trafficSessions, func(int) error {
		id := c.newID()
		if err := c.busy(ctx, id); err != nil {
			return fmt.Errorf("session %d: %w", id, err)
		}
		return nil
	})
	return report{Done: n}
}

// busy is one long session: requests ahead of their answers, then a FIN, then
// the answers to the end.
func (c *caller) busy(ctx context.Context, id uint64) error {
	p := plan{id: id, end: clientFin}
	k, err := c.open(ctx, newStream(c.order.Seed, p))
	if err != nil {
		return err
	}
	defer k.c.Close()
	_ = k.c.SetDeadline(time.Now().Add(c.order.For + sessionLimit))
	ahead, broken := make(chan []byte, trafficAhead), make(chan struct{})
	var wg sync.WaitGroup
	var sendErr error
	ahead <- k.ans
	wg.Go(func() {
		defer close(ahead)
		sendErr = k.send(ctx, ahead, broken, rand.New(rand.NewPCG(^c.order.Seed, id)))
	})
	if err = k.receive(ahead); err != nil {
		_ = k.c.Close() // wakes the sender
	}
	close(broken)
	wg.Wait()
	if err = errors.Join(err, sendErr); err != nil {
		return err
	}
	c.bytes.Add(int64(k.s.n))
	c.enter(entry{ID: id, Bytes: k.s.n, Sum: k.s.sum, End: endFin, Least: k.s.n})
	return nil
}

// send sends until ctx is done, and then a FIN.
func (k *caught) send(ctx context.Context, ahead chan<- []byte, broken <-chan struct{}, rng *rand.Rand) error {
	var req []byte
	for ctx.Err() == nil {
		var ans []byte
		req, ans = k.s.next(req[:0], nil)
		select {
		case ahead <- ans:
		case <-broken:
			return nil
		}
		if err := chunks(k.c, rng, req); err != nil {
			return err
		}
	}
	return k.c.CloseWrite()
}

func (k *caught) receive(ahead <-chan []byte) error {
	for ans := range ahead {
		if err := k.check(ans); err != nil {
			return err
		}
	}
	return k.expectEnd(false)
}
