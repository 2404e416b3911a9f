package verify

import (
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// sanity opens and closes every run: without a fault, acquired and released
// must occur, and a held key is asked for.
var sanity = &Workload{
	ID:       "sanity",
	Anywhere: true,
	Sentence: "without a fault: one acquire and release, and an acquire of a held key",
	Run: func(r *caseRun) {
		if !r.open("c1") {
			return
		}
		r.use(r.acquire("c1", "sanity-1", 5*second, 30*second))
		if _, ok := r.hold("sanity-2"); !ok {
			return
		}
		wait := time.Duration(0)
		if !current(r.grammar) {
			wait = second
		}
		r.use(r.acquire("c1", "sanity-2", wait, 30*second))
		r.close("c1")
	},
}

// use waits for a call, and if it is acquired enters, leaves and releases.
func (r *caseRun) use(c *call) {
	if c.settle() {
		c.enter()
		c.leave()
		c.release()
	}
}

const (
	singleKey   = "order-42"
	singleToken = 0x0A0A0A0A0A0A0A0A
)

// single is one acquire and its release. The token of the grant is all
// newlines, which only a decoder that counts gets right.
var single = &Workload{
	ID:         "single",
	Sentence:   "one client acquires a free key (wait 1 s, lease 5 s), enters, leaves and releases; the token is 0x0A in every byte",
	FirstToken: singleToken,
	Smoke:      true,
	Anywhere:   true,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).
			c2s("A", singleKey).s2c("A", singleKey).c2s("R", singleKey).s2c("R", singleKey).token(singleToken).list
	},
	Run: func(r *caseRun) {
		if r.open("c1") {
			r.use(r.acquire("c1", singleKey, second, 5*second))
			r.close("c1")
		}
	},
}

const (
	freeKey = "free-1"
	heldKey = "held-1"
)

// immediate is wait 0 on a free and on a held key.
var immediate = &Workload{
	ID:       "immediate",
	Anywhere: true,
	Sentence: "one client asks with wait 0 for a free key (acquired, released) and then for a held one (timeout at once)",
	Dialects: []string{dialectCurrent},
	Smoke:    true,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).
			c2s("A", freeKey).s2c("A", freeKey).c2s("R", freeKey).s2c("R", freeKey).
			c2s("A", heldKey).s2c("T", heldKey).list
	},
	Run: func(r *caseRun) {
		if _, ok := r.hold(heldKey); !ok {
			return
		}
		if r.open("c1") {
			r.use(r.acquire("c1", freeKey, 0, 5*second))
			r.use(r.acquire("c1", heldKey, 0, 5*second))
			r.close("c1")
		}
	},
}

const expiredKey = "stale-1"

// expired keeps a ticket past its lease and releases it while another client
// holds the key.
var expired = &Workload{
	ID:       "expired",
	Anywhere: true,
	Sentence: "a first client leaves when its lease of 1 s ends but keeps the ticket; a second enters; the first releases; " +
		"a third asks while the second is inside",
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1).c2s("A", expiredKey).s2c("A", expiredKey).
			session(2).c2s("A", expiredKey).s2c("A", expiredKey)
		x.c2s("R", expiredKey)
		if current(g) {
			x.s2c("N", expiredKey)
		} else {
			x.s2c("R", expiredKey)
		}
		x.session(3).c2s("A", expiredKey)
		if current(g) {
			return x.s2c("T", expiredKey).c2s("R", expiredKey).s2c("R", expiredKey).list
		}
		// In v0 a release by key lets the third in; a client that keeps its late
		// release to itself gets a timeout here.
		return x.s2c("A", expiredKey).s2c("T", expiredKey).
			c2s("R", expiredKey).s2c("R", expiredKey).
			c2s("R", expiredKey).s2c("N", expiredKey).list
	},
	Run: runExpired,
}

func runExpired(r *caseRun) {
	first := r.openAcquire("c1", expiredKey, second, second)
	if first.settle() {
		first.enter()
		r.leaseOver(first)
		first.leave()
	}
	second2 := r.openAcquire("c2", expiredKey, 2*second, 30*second)
	if second2.settle() {
		second2.enter()
	}
	first.release()
	wait := time.Duration(0)
	if !current(r.grammar) {
		// The T comes after 2 s: well after a strict deadline, so that it is not
		// left to chance whether the client is still there to receive it.
		wait = 1500 * time.Millisecond
	}
	third := r.openAcquire("c3", expiredKey, wait, 30*second)
	inside := third.settle()
	if inside {
		third.enter()
	} else {
		// What is still queued when the second releases would be granted to nobody.
		r.unqueued(third)
	}
	second2.leave()
	second2.release()
	if inside {
		third.leave()
		third.release()
	}
	for _, c := range []string{"c1", "c2", "c3"} {
		r.close(c)
	}
}

// openAcquire opens a client and asks for a key.
func (r *caseRun) openAcquire(client, key string, wait, lease time.Duration) *call {
	r.open(client)
	return r.acquire(client, key, wait, lease)
}

// leaseOver waits until the lease of an acquired call has ended.
func (r *caseRun) leaseOver(c *call) {
	if r.own != nil {
		r.pause(c.lease + seenAfter)
		return
	}
	r.until(5*second, once(grantOver(c.key, c.token)))
}

// grantOver matches the end of a grant; of any grant of the key for token 0.
func grantOver(key string, token uint64) func(history.Event) bool {
	return func(e history.Event) bool {
		return e.Kind == history.GrantEnded && e.Key == key && (token == 0 || e.Token == token)
	}
}

const (
	lateKey     = "late-1"
	lateZeroKey = "late-0"
	lateLongKey = "late-9"
)

// lateReply holds the grant until 0.5 s after its lease, when somebody else is
// inside.
var lateReply = &Workload{
	ID:       "late-reply",
	Anywhere: true,
	Sentence: "the grant (lease 1 s; wait 1 s, on a second client 9 s, and in ticketing 0 on a third) is held until 0.5 s after its lease, " +
		"when the key has been granted to another; the second cannot know that, and only a resource that checks tokens stops it",
	Own: &OwnFault{
		Fault: "hold", Frame: FrameID{Dir: frames.ServerToClient, Op: "A", Nth: 1},
		Args: faults.Args{"most": 20 * second},
	},
	EachSession: true,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g)
		for i, c := range lateCalls(g) {
			x.session(i+1).c2s("A", c.key).s2c("A", c.key).c2s("R", c.key).s2c("R", c.key)
		}
		return x.list
	},
	Run: runLateReply,
	Control: func(r *caseRun) {
		for _, c := range lateCalls(r.grammar) {
			r.use(r.openAcquire(c.client, c.key, c.wait, second))
			r.close(c.client)
		}
	},
}

// lateCalls are the calls of late-reply: nobody can know from its wait that the lease
// of the second is over.
func lateCalls(g *frames.Grammar) []slowCall {
	calls := []slowCall{{client: "c1", key: lateKey, wait: second}, {client: "c2", key: lateLongKey, wait: 9 * second}}
	if current(g) {
		calls = append(calls, slowCall{client: "c3", key: lateZeroKey})
	}
	return calls
}

func runLateReply(r *caseRun) {
	var calls []*call
	for _, c := range lateCalls(r.grammar) {
		calls = append(calls, r.openAcquire(c.client, c.key, c.wait, second))
	}
	for _, c := range calls {
		r.takeOver(c.key)
	}
	r.pause(500 * time.Millisecond)
	r.px.OpenGate(faults.GateHold)
	for _, c := range calls {
		r.use(c)
	}
	for _, c := range calls {
		r.close(c.client)
	}
}

// takeOver waits for the end of a key's first grant, and then enters with the
// next one, as another holder would.
func (r *caseRun) takeOver(key string) {
	wait := time.Duration(0)
	if r.own != nil {
		r.until(second, r.grantSeen(key))
		wait = 5 * second
	} else if !r.until(5*second, once(grantOver(key, 0))) {
		return
	}
	if token, ok := r.acquireOwn(key, wait); ok {
		r.enter(0, "", key, token)
	}
}
