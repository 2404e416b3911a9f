package verify

import (
	"fmt"
	"strings"
	"sync"

	"tornwire/faults"
	"tornwire/frames"
)

// strayWorkloads are those about answers that nobody waits for, and frames that
// cannot be read.
var strayWorkloads = []*Workload{
	strayReply, wrongKeyReply, reversedReplies, newlineToken, unknownOp, malformed, overlong, duplicateGrant,
}

// beforeKeepAlive is a workload's own fault that injects before the keep-alive which
// the server sends while the call waits.
func beforeKeepAlive(fault string, payload func(g *frames.Grammar, q request) []byte) *OwnFault {
	return &OwnFault{
		Fault: fault, Payload: payload,
		Frame: FrameID{Dir: frames.ServerToClient, Op: frames.OpKeepAlive, Nth: 1},
	}
}

// mustMessage builds a frame of the server that the dialect has.
func mustMessage(g *frames.Grammar, op, tail string, owner, token uint64) []byte {
	b, ok := message(g, op, tail, map[string]uint64{"owner": owner, "token": token})
	if !ok {
		panic("verify: no frame " + op + " with text " + tail)
	}
	return b
}

// waitingExchange is that of a call that waits for a held key while the server sends
// a keep-alive, and of a call on another key behind it.
func waitingExchange(key, next string) func(g *frames.Grammar) []Expected {
	return func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).
			c2s("A", key).keepAlive().s2c("A", key).c2s("R", key).s2c("R", key).
			c2s("A", next).s2c("A", next).c2s("R", next).s2c("R", next).list
	}
}

// waiting starts a call that waits for a held key, and lets the workload's own fault
// act on its session.
func (r *caseRun) waiting(client, key string) (c *call, token uint64, ok bool) {
	if c, token, ok = r.queued(client, key); ok {
		r.interject(c)
	}
	return c, token, ok
}

// queued starts a call that waits for a held key.
func (r *caseRun) queued(client, key string) (c *call, token uint64, ok bool) {
	if token, ok = r.hold(key); !ok || !r.open(client) {
		return nil, 0, false
	}
	c = r.acquire(client, key, 4*second, 5*second)
	r.seenWithin(3*second, c, 1) // nothing can be sent to it before
	return c, token, true
}

// afterwards asks for one more key: on the session that the client has kept, or on a
// new one. A client has had the time to leave its session before that, whatever it
// was told there last.
func (r *caseRun) afterwards(client, key string) {
	r.pause(leaveLimit)
	r.use(r.acquire(client, key, second, 5*second))
}

// interrupted is a call that the workload's own fault comes upon while it waits, and
// one behind it. If the session was kept, the key that it waits for becomes free.
func (r *caseRun) interrupted(client, key, next string) {
	c, token, ok := r.waiting(client, key)
	if !ok {
		return
	}
	r.releaseOwn(key, token)
	r.use(c)
	r.afterwards(client, next)
}

const (
	foreignKey  = "foreign-1"
	foreignNext = "foreign-2"
)

// strayReply is a grant for somebody else.
var strayReply = &Workload{
	ID:       "stray-reply",
	Anywhere: true,
	Sentence: "a client that waits for a held key gets a grant of that key for another owner (in ticketing-v0 a grant of a key that it never asked for); " +
		"then the key becomes free, another is asked for, and the release of the foreign grant is awaited",
	Own: beforeKeepAlive("inject-stray", func(g *frames.Grammar, q request) []byte {
		if !current(g) {
			return mustMessage(g, "A", strayKey, 0, strayToken)
		}
		return mustMessage(g, "A", q.key, ^q.owner, strayToken)
	}),
	Exchange: waitingExchange(foreignKey, foreignNext),
	Run: func(r *caseRun) {
		r.interrupted("c1", foreignKey, foreignNext)
		r.orphanReleased("c1", strayToken)
		r.close("c1")
	},
}

const (
	wrongKey     = "wrong-1"
	wrongKeyNext = "wrong-2"
)

// wrongKeyReply is a grant with the right owner and a key that nobody asked for.
var wrongKeyReply = &Workload{
	ID:       "wrong-key-reply",
	Anywhere: true,
	Sentence: "a client that waits for a held key gets a grant of another key for its owner; " +
		"then the key becomes free, another is asked for, and the release of the wrong grant is awaited",
	Dialects: []string{dialectCurrent},
	Own: beforeKeepAlive("inject-stray", func(g *frames.Grammar, q request) []byte {
		return mustMessage(g, "A", strayKey, q.owner, strayToken)
	}),
	Exchange: waitingExchange(wrongKey, wrongKeyNext),
	Run: func(r *caseRun) {
		r.interrupted("c1", wrongKey, wrongKeyNext)
		r.orphanReleased("c1", strayToken)
		r.close("c1")
	},
}

const reversedKey = "reversed-1"

// reversedReplies is two calls on one key, the second of which is answered first.
// Its own fault resets the second connection, so that a client which would rather
// have a session for each call puts both on the first.
var reversedReplies = &Workload{
	ID:       "reversed-replies",
	Anywhere: true,
	Sentence: "a client waits for a held key and asks for it again with wait 0, which is answered first, with T; then the key becomes free, " +
		"and A comes for the first call; a second connection is reset at once",
	Dialects: []string{dialectCurrent},
	Own: &OwnFault{
		Fault: "accept-rst", Frame: FrameID{Session: 2, Dir: frames.ClientToServer, Op: opOpen, Nth: 1},
	},
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", reversedKey).sessionOf(2, "c1", 2).
			c2s("A", reversedKey).s2c("T", reversedKey).s2c("A", reversedKey).
			c2s("R", reversedKey).s2c("R", reversedKey).list
	},
	Run: func(r *caseRun) {
		token, ok := r.hold(reversedKey)
		if !ok || !r.open("c1") {
			return
		}
		first := r.acquire("c1", reversedKey, 4*second, 5*second)
		r.seen(first, 1)
		r.use(r.acquire("c1", reversedKey, 0, 6*second))
		r.releaseOwn(reversedKey, token)
		r.use(first)
		r.close("c1")
	},
}

const newlineKey = "newline-10"

// newlineToken has 0x0A in every byte of the fixed fields but the owner, which is the
// client's own choice, and the op.
var newlineToken = &Workload{
	ID:    "newline-token",
	Needs: "a token of 0x0A in every byte",
	Sentence: "a key is acquired with a wait and a lease of 10 s, which are 0x0A on the wire, the token is 0x0A in every byte, " +
		"and the key is held, so that the grant comes on its own",
	FirstToken: singleToken - 1,
	Only:       func(t *faults.Type, _ Expected) bool { return t.ID == "dribble" },
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).
			c2s("A", newlineKey).s2c("A", newlineKey).c2s("R", newlineKey).s2c("R", newlineKey).token(singleToken).list
	},
	Run: func(r *caseRun) {
		token, ok := r.hold(newlineKey)
		if !ok || !r.open("c1") {
			return
		}
		c := r.acquire("c1", newlineKey, 10*second, 10*second)
		r.seen(c, 1)
		r.releaseOwn(newlineKey, token)
		r.use(c)
		r.close("c1")
	},
}

const (
	unknownKey  = "unknown-1"
	unknownNext = "unknown-2"
	// unknownAtOnce is granted in the segment of the frame that cannot be read.
	unknownAtOnce = "unknown-3"
)

// unknownOp is a frame with an op that the dialect does not have.
var unknownOp = &Workload{
	ID:       "unknown-op",
	Anywhere: true,
	Sentence: "a client that waits for a held key gets a frame with an unknown op; if it stays, the grant of the key comes behind it, " +
		"and another key is asked for; a second client gets such a frame and a grant of its key behind it, in one segment",
	Own: beforeKeepAlive("inject-garbage", func(g *frames.Grammar, q request) []byte {
		b := []byte("Zunknown\n")
		if q.key == unknownAtOnce {
			b = append(b, mustMessage(g, "A", q.key, q.owner, strayToken)...)
		}
		return b
	}),
	Exchange: waitingExchange(unknownKey, unknownNext),
	Run: func(r *caseRun) {
		r.interrupted("c1", unknownKey, unknownNext)
		r.close("c1")
		r.interrupted("c2", unknownAtOnce, unknownAtOnce+"-next")
		r.close("c2")
	},
}

const (
	spacedKey  = "spaced-1"
	rawKey     = "raw-1"
	emptyKey   = "empty-1"
	refusedKey = "refused-1"
)

// malformed is frames whose text breaks the limits, and an error that is none of the
// three that a client knows; each is for a client of its own.
var malformed = &Workload{
	ID:       "malformed",
	Anywhere: true,
	Sentence: "four clients that wait for held keys get a grant whose key has a space, one whose key is no UTF-8, one whose key is empty, " +
		"and an error that is none of those a client knows; if they stay, the grant of the key comes behind it, and another key is asked for",
	Own: beforeKeepAlive("inject-garbage", malformedFor),
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", spacedKey).session(2).c2s("A", rawKey).
			session(3).c2s("A", emptyKey).session(4).c2s("A", refusedKey).keepAlive().list
	},
	Run: func(r *caseRun) {
		var calls []*call
		tokens := map[*call]uint64{}
		for n, key := range []string{spacedKey, rawKey, emptyKey, refusedKey} {
			c, token, ok := r.queued(fmt.Sprintf("c%d", n+1), key)
			if !ok {
				return
			}
			calls, tokens[c] = append(calls, c), token
		}
		r.interject(calls...)
		var wg sync.WaitGroup
		for _, c := range calls {
			wg.Go(func() {
				r.releaseOwn(c.key, tokens[c])
				r.use(c)
				r.afterwards(c.client, c.key+"-next")
				r.close(c.client)
			})
		}
		wg.Wait()
	},
}

// malformedFor is what each client of malformed gets, by the key that it waits for.
func malformedFor(g *frames.Grammar, q request) []byte {
	text := q.key + " x"
	switch q.key {
	case rawKey:
		text = q.key + "\xff"
	case emptyKey:
		text = ""
	case refusedKey:
		return mustMessage(g, "E", "bad_frame", 0, 0)
	}
	grant := mustMessage(g, "A", "x", q.owner, strayToken)
	return append(append(grant[:g.MustShape(frames.ServerToClient, "A").Header:len(grant)], text...), '\n')
}

const (
	overlongKey  = "overlong-1"
	overlongNext = "overlong-2"
	overlongSize = 600
)

// overlong is a frame over the limit of its text, and an answer to the call behind
// it.
var overlong = &Workload{
	ID:       "overlong",
	Anywhere: true,
	Sentence: "a client that waits for a held key gets a grant with a key of 600 bytes and, behind it, T for its call; " +
		"then another key is asked for",
	Own: beforeKeepAlive("inject-garbage", func(g *frames.Grammar, q request) []byte {
		grant := mustMessage(g, "A", "x", q.owner, strayToken)
		b := append(grant[:len(grant)-2:len(grant)], strings.Repeat("x", overlongSize)+"\n"...)
		return append(b, mustMessage(g, "T", q.key, q.owner, 0)...)
	}),
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", overlongKey).keepAlive().
			c2s("A", overlongNext).s2c("A", overlongNext).c2s("R", overlongNext).s2c("R", overlongNext).list
	},
	Run: func(r *caseRun) {
		if c, _, ok := r.waiting("c1", overlongKey); ok {
			r.use(c)
			r.afterwards("c1", overlongNext)
			r.close("c1")
		}
	},
	Control: func(r *caseRun) { // nobody says T then
		r.interrupted("c1", overlongKey, overlongNext)
		r.close("c1")
	},
}

const (
	twiceKey  = "twice-1"
	twiceNext = "twice-2"
	twiceLast = "twice-3"
)

// duplicateGrant is a grant that is delivered twice.
var duplicateGrant = &Workload{
	ID:       "duplicate-grant",
	Anywhere: true,
	Sentence: "a grant is delivered twice; its call enters, stays inside while two other keys are acquired and released, leaves and releases",
	Own: &OwnFault{
		Fault: "duplicate", Frame: FrameID{Dir: frames.ServerToClient, Op: "A", Nth: 1}, AtEnd: true,
	},
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", twiceKey).s2c("A", twiceKey).
			c2s("A", twiceNext).s2c("A", twiceNext).c2s("R", twiceNext).s2c("R", twiceNext).
			c2s("A", twiceLast).s2c("A", twiceLast).c2s("R", twiceLast).s2c("R", twiceLast).
			c2s("R", twiceKey).s2c("R", twiceKey).list
	},
	Run: func(r *caseRun) {
		if !r.open("c1") {
			return
		}
		c := r.acquire("c1", twiceKey, second, 5*second)
		if c.settle() {
			c.enter()
		}
		if q, ok := r.requestOf(c); ok {
			r.until(leaveLimit, once(leaves(q.session)))
		}
		r.use(r.acquire("c1", twiceNext, second, 5*second))
		r.afterwards("c1", twiceLast)
		c.leave()
		c.release()
		r.close("c1")
	},
}
