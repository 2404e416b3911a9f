package verify

import (
	"tornwire/faults"
	"tornwire/frames"
	"tornwire/server/stub"
)

// tableWorkloads are those about the server and its table.
var tableWorkloads = []*Workload{earlyReply}

const (
	earlyKey = "early-answer-1"
	// earlyByte is the byte of a request that, in ticketing, completes its owner.
	earlyByte = 11
	// earlyRounds is how often it is tried: a client that registers its request after
	// the write is caught only if the answer comes between the two.
	earlyRounds = 25
	earlyToken  = 0x4541524C59000010 // no token of it holds a newline byte
)

// earlyReply is a server whose grant is under way before it has read the request's
// end. It is right, and only a client that expects an answer from the first byte of
// its write on is ready for it.
var earlyReply = &Workload{
	ID: "early-reply",
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
		for range earlyRounds {
			c := r.acquire("c1", earlyKey, 2*second, 5*second)
			if !c.settle() {
				break // it is shown
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
