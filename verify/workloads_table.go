package verify

import (
	"errors"
	"fmt"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/server/stub"
)

// tableWorkloads are those about the server and its table.
var tableWorkloads = []*Workload{earlyReply, serverProbe}

const (
	earlyKey = "early-answer-1"
	// earlyByte is the byte of a request that, in ticketing, completes its owner.
	earlyByte = 11
	// earlyRounds is how often it is tried: a client that registers its request after
	// the write is caught only if the answer comes between the two.
	earlyRounds = 25
	// earlyFailures is how many calls may end without a grant.
	earlyFailures = 3
	earlyToken    = 0x4541524C59000010 // no token of it holds a newline byte
)

// earlyReply is a server whose grant is under way before it has read the request's
// end. It is right, and only a client that expects an answer from the first byte of
// its write on is ready for it.
var earlyReply = &Workload{
	ID:    "early-reply",
	Needs: "a grant before its request is whole",
	Sentence: "one client acquires and releases a free key 25 times (wait 2 s, lease 5 s); " +
		"each grant is written as soon as byte 11 of its request is in",
	Only: func(*faults.Type, Expected) bool { return false },
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1)
		for range earlyRounds {
			x.c2s("A", earlyKey).s2c("A", earlyKey).c2s("R", earlyKey).s2c("R", earlyKey)
		}
		return x.list
	},
	Stub: earlySteps,
	Run: func(r *caseRun) {
		if !r.open("c1") {
			return
		}
		failed := 0
		for range earlyRounds {
			c := r.acquire("c1", earlyKey, 2*second, 5*second)
			if !c.settle() {
				// An answer whose owner has a newline in it shows nothing; three are enough.
				if failed++; failed == earlyFailures {
					break
				}
				continue
			}
			c.enter()
			c.leave()
			c.release()
		}
		r.close("c1")
	},
}

// earlySteps grants each attempt before it is whole, and keeps the tokens.
func earlySteps(g *frames.Grammar) []stub.Step {
	token := uint64(earlyToken)
	held := map[uint64]bool{}
	return []stub.Step{
		{Op: "A", At: earlyByte, Write: func(f stub.Frame) []byte {
			token++
			held[token] = true
			return f.Answer("A", earlyKey, token)
		}},
		{Op: "R", Write: func(f stub.Frame) []byte {
			t := f.Uint("token")
			if !current(g) {
				t = token
			}
			if !held[t] {
				return f.Answer("N", f.Key(), t)
			}
			delete(held, t)
			return f.Answer("R", f.Key(), t)
		}},
	}
}

const (
	probeKey  = "probe-1"
	probeKey2 = "probe-2"
	probeKey3 = "probe-3"
	// probeLease outlasts the probe, probeShort ends in it.
	probeLease = 20
	probeShort = 1
	// probeHold is how long the key is held while an attempt with wait 0 would be queued
	// by a server that queues it: over the second that zero-never-queues asks for.
	probeHold = 1200 * time.Millisecond
	// probePatience is how much longer the waiter for an ended lease waits: until a second
	// after that lease and more.
	probePatience = 1500 * time.Millisecond
	// probeOrder is what a server gets to read one request before the next comes on
	// another connection.
	probeOrder = 50 * time.Millisecond
)

// serverProbe has no client: connections of the tool's own ask for what clients
// seldom do, so that every rule about the server has something to judge.
var serverProbe = &Workload{
	ID: "server-probe",
	Sentence: "three connections of the tool's own, no client: an acquire is repeated with its owner while the key is held, a release names a wrong token, " +
		"wait 0 and a wait of 1 s meet held keys, one waiter is granted at a release and another when a lease of 1 s ends",
	Dialects: []string{dialectCurrent},
	Anywhere: true,
	Probe:    true,
	Only:     func(*faults.Type, Expected) bool { return false },
	Exchange: func(*frames.Grammar) []Expected { return nil },
	Run:      runServerProbe,
}

// prober is one connection of serverProbe.
type prober struct {
	r *caseRun
	w *wire
}

// probe opens a connection of the tool's own through the proxy.
func (r *caseRun) probe(addr string) *prober {
	w, err := dialWire(r.ctx, r.conn.dial(), r.grammar, addr, r.secret())
	if err != nil {
		r.fail(fmt.Errorf("the tool's own connection: %w", err))
		return nil
	}
	r.wg.Go(func() {
		<-r.netCtx.Done()
		w.close()
	})
	return &prober{r, w}
}

// ask sends an acquire.
func (p *prober) ask(key string, owner, wait, lease uint64) {
	if err := p.w.send("A", p.r.key(key), map[string]uint64{"owner": owner, "wait": wait, "lease": lease}); err != nil {
		p.r.fail(fmt.Errorf("the tool's own connection: %w", err))
	}
}

// answer waits for the answer to an acquire; what else comes is passed over.
func (p *prober) answer(key string, owner uint64, limit time.Duration) (token uint64, granted bool) {
	f, ok := p.w.await(p.r.ctx, limit, func(f said) bool {
		return (f.is("A") || f.is("T") || f.is("B")) && f.key() == p.r.key(key) && f.field("owner") == owner
	})
	return f.tokenIf(ok), ok && f.is("A")
}

func (s said) tokenIf(ok bool) uint64 {
	if !ok {
		return 0
	}
	return s.field("token")
}

// release sends a release and waits for its answer.
func (p *prober) release(key string, token uint64) {
	if p.w.send("R", p.r.key(key), map[string]uint64{"token": token}) != nil {
		return
	}
	p.w.await(p.r.ctx, second, func(f said) bool {
		return (f.is("R") || f.is("N")) && f.key() == p.r.key(key) && f.field("token") == token
	})
}

func runServerProbe(r *caseRun) {
	l, err := r.listen("")
	if err != nil {
		r.fail(err)
		return
	}
	r.wg.Go(func() { _ = r.px.Serve(r.netCtx, l, "") }) // it ends with the case
	a, b, c := r.probe(l.Addr().String()), r.probe(l.Addr().String()), r.probe(l.Addr().String())
	if a == nil || b == nil || c == nil {
		return
	}
	a.ask(probeKey, 1, 0, probeLease)
	held, ok := a.answer(probeKey, 1, second)
	if !ok {
		r.fail(errors.New("a free key was not granted to the tool's own connection"))
		return
	}
	a.ask(probeKey, 1, 0, probeLease) // a new attempt, which is not granted
	a.answer(probeKey, 1, second)
	b.ask(probeKey, 2, 9, probeShort)
	r.pause(probeOrder)
	c.release(probeKey, held+1<<40)
	c.ask(probeKey, 3, 0, probeShort)
	a.ask(probeKey2, 4, 0, probeLease)
	held2, _ := a.answer(probeKey2, 4, second)
	b.ask(probeKey2, 5, 1, probeShort)
	a.ask(probeKey3, 6, 0, probeShort)
	a.answer(probeKey3, 6, second)
	c.ask(probeKey3, 7, 9, probeShort) // granted when that lease ends
	r.pause(probeHold)
	a.release(probeKey, held)
	if token, ok := b.answer(probeKey, 2, second); ok {
		b.release(probeKey, token)
	}
	if token, ok := c.answer(probeKey3, 7, probePatience); ok {
		c.release(probeKey3, token)
	}
	a.release(probeKey2, held2)
	r.pause(probeOrder)
}
