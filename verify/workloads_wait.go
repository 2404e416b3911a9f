package verify

import (
	"sync"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// seenLimit is how long a workload waits until the server has seen an attempt,
// before it takes its next step: the order of steps must not be left to chance.
const seenLimit = 400 * time.Millisecond

// seen waits until the server's table has seen n attempts for a key, or a call
// is over.
func (r *caseRun) seen(c *call, n int) { r.seenWithin(seenLimit, c, n) }

// seenWithin is seen with a limit of its own, for what makes no sense before.
func (r *caseRun) seenWithin(limit time.Duration, c *call, n int) {
	if r.own != nil {
		if r.until(limit, r.asked(c, n)) {
			r.pause(seenAfter)
		}
		return
	}
	r.until(limit, func() func(history.Event) bool {
		attempts, over := 0, false
		return func(e history.Event) bool {
			switch {
			case e.Kind == history.Queued && e.Key == c.key, e.Kind == history.AttemptEnded && e.Key == c.key && e.How == history.Refused:
				attempts++
			case e.Kind == history.Granted && e.Key == c.key && e.Peer != "":
				attempts++
			case e.Kind == history.CallResult && e.Call == c.n:
				over = true
			}
			return over || attempts >= n
		}
	}())
}

// queuedOr waits until an attempt is queued for a call's key, or the call is over.
func (r *caseRun) queuedOr(c *call) {
	if r.own != nil {
		r.seen(c, 2)
		return
	}
	r.until(seenLimit, once(func(e history.Event) bool {
		return e.Kind == history.Queued && e.Key == c.key || e.Kind == history.CallResult && e.Call == c.n
	}))
}

// unqueued waits until the server has no attempt in the queue of a call's key, or the
// wait of the call is over there, too. In front of a server that is not ours it waits
// until the client has left.
func (r *caseRun) unqueued(c *call) {
	limit := time.Until(c.deadline()) + 2*second
	if r.own != nil {
		r.until(limit, allEnded(c.client))
		return
	}
	r.until(limit, queuedAtMost(c.key, 0))
}

// queuedAtMost returns a condition for until: no more attempts than that are queued for
// a key.
func queuedAtMost(key string, most int) func(history.Event) bool {
	queued := map[string]int{} // by connection
	return func(e history.Event) bool {
		switch {
		case e.Key != key:
		case e.Kind == history.Queued:
			queued[e.Peer]++
		case (e.Kind == history.AttemptEnded || e.Kind == history.Granted) && queued[e.Peer] > 0:
			queued[e.Peer]--
		}
		n := 0
		for _, k := range queued {
			n += k
		}
		return n <= most
	}
}

// hold takes a key for the tool's own holder. It is false if the case cannot go
// on.
func (r *caseRun) hold(key string) (token uint64, ok bool) {
	token, ok = r.acquireOwn(key, 0)
	if !ok {
		r.fail(errTable)
	}
	return token, ok
}

const (
	sharedKey = "shared-1"
	// crookedToken is what a reader of text, of signed numbers or of doubles gets wrong: no
	// two of its bytes are alike, and it holds CR, tab, space, NUL, and bytes that are no UTF-8.
	crookedToken = 0xFF0D_2009_00C3_8041
)

// contended is two clients on one key: the second waits for the first to
// release, and is inside while the first may still be asking.
var contended = &Workload{
	ID:       "contended",
	Anywhere: true,
	Sentence: "a first client enters; a second asks for the same key and waits; the first leaves and releases, " +
		"and the second enters, leaves and releases; the tokens hold CR, tab, space, NUL and bytes that are no UTF-8",
	FirstToken: crookedToken,
	Smoke:      true,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", sharedKey).s2c("A", sharedKey).
			session(2).c2s("A", sharedKey).c2s("R", sharedKey).s2c("R", sharedKey).
			s2c("A", sharedKey).c2s("R", sharedKey).s2c("R", sharedKey).list
	},
	Run: func(r *caseRun) {
		first := r.openAcquire("c1", sharedKey, second, 2*second)
		inside := first.settle()
		if inside {
			first.enter()
		}
		next := r.openAcquire("c2", sharedKey, 4*second, 5*second)
		r.queuedOr(next)
		first.leave()
		released := first.startRelease()
		if next.settle() {
			next.enter()
			released()
			next.leave()
			next.release()
		}
		released()
		r.close("c1")
		r.close("c2")
	},
}

const heldKey2 = "held-2"

// timesOut is the wait for a key that stays held.
var timesOut = &Workload{
	ID:       "timeout",
	Anywhere: true,
	Sentence: "a held key is asked for with wait 0 (in ticketing: timeout at once), then with a wait of 1.5 s, whose T comes after 2 s, " +
		"half a second after a strict deadline",
	Smoke: true,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1)
		if current(g) {
			x.c2s("A", heldKey2).s2c("T", heldKey2)
		}
		return x.c2s("A", heldKey2).s2c("T", heldKey2).list
	},
	Run: func(r *caseRun) {
		if _, ok := r.hold(heldKey2); !ok || !r.open("c1") {
			return
		}
		if current(r.grammar) {
			r.use(r.acquire("c1", heldKey2, 0, 5*second))
		}
		c := r.acquire("c1", heldKey2, 1500*time.Millisecond, 5*second)
		r.use(c)
		r.close("c1")
	},
}

const (
	fullKey  = "full-1"
	freeKey2 = "free-2"
)

// fullQueue is a key whose queue is full.
var fullQueue = &Workload{
	ID:    "busy",
	Needs: "a queue of one place",
	Sentence: "a key whose queue is full is asked for (busy at once; in ticketing-v0 the server closes the connection), " +
		"then a free key is acquired and released",
	QueueLimit: 1,
	Smoke:      true,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1).c2s("A", fullKey)
		if current(g) {
			x.s2c("B", fullKey)
		} else {
			x.sessionOf(2, "c1", 2)
		}
		return x.c2s("A", freeKey2).s2c("A", freeKey2).c2s("R", freeKey2).s2c("R", freeKey2).list
	},
	Run: func(r *caseRun) {
		if _, ok := r.hold(fullKey); !ok {
			return
		}
		defer r.srv.Wait(fullKey, time.Minute, time.Minute)()
		if !r.open("c1") {
			return
		}
		r.use(r.acquire("c1", fullKey, 2*second, 5*second))
		r.ready("c1")
		r.use(r.acquire("c1", freeKey2, second, 5*second))
		r.close("c1")
	},
}

const (
	queueKey = "queue-1"
	laneKey1 = "lane-1"
	laneKey2 = "lane-2"
)

// pipelined is many calls of one client at once. Those on one key wait for
// different times and have different leases, so that it shows whose reply each
// was given.
var pipelined = &Workload{
	ID:       "pipelined",
	Anywhere: true,
	Sentence: "one client has calls on two free keys and four on one held key (waits 9, 9, 1.5 and 1.5 s, in ticketing-v0 9, 9, 1 and 1 s; " +
		"leases 2, 3, 30 and 31 s) under way at once; when two of the four have ended, the holder releases",
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1).
			c2s("A", laneKey1).s2c("A", laneKey1).c2s("A", laneKey2).s2c("A", laneKey2)
		for range 4 {
			x.c2s("A", queueKey)
		}
		x.c2s("R", laneKey1).s2c("R", laneKey1).c2s("R", laneKey2).s2c("R", laneKey2)
		if current(g) { // in v0 they come at the deadline, when a client may have left or not
			x.s2c("T", queueKey).s2c("T", queueKey)
		}
		return x.s2c("A", queueKey).c2s("R", queueKey).s2c("R", queueKey).
			s2c("A", queueKey).c2s("R", queueKey).s2c("R", queueKey).list
	},
	Run: runPipelined,
}

func runPipelined(r *caseRun) {
	token, ok := r.hold(queueKey)
	if !ok || !r.open("c1") {
		return
	}
	short := second
	if current(r.grammar) {
		short = 1500 * time.Millisecond
	}
	start := func(key string, n int, wait, lease time.Duration) *call {
		c := r.acquire("c1", key, wait, lease)
		r.seen(c, n)
		return c
	}
	lanes := []*call{start(laneKey1, 1, second, 5*second), start(laneKey2, 1, second, 5*second)}
	queued := []*call{
		start(queueKey, 1, 9*second, 2*second), start(queueKey, 2, 9*second, 3*second),
		start(queueKey, 3, short, 30*second), start(queueKey, 4, short, 31*second),
	}
	for _, c := range lanes {
		r.use(c)
	}
	if r.own != nil {
		r.until(short+second, toldTwice(queued))
	} else {
		// What is told at the deadline and left behind it is not yet out of the queue.
		r.until(short+2*second, queuedAtMost(queueKey, 2))
	}
	r.until(seenLimit, toldTwice(queued))
	r.releaseOwn(queueKey, token)
	var wg sync.WaitGroup
	for _, c := range queued {
		wg.Go(func() {
			if c.settle() {
				c.enter()
				r.pause(min(c.lease/5, 3*second)) // well inside the lease that was asked for
				c.leave()
				c.release()
			}
		})
	}
	wg.Wait()
	r.close("c1")
}

// toldTwice returns a condition for until: two of the calls have ended.
func toldTwice(calls []*call) func(history.Event) bool {
	results := 0
	return func(e history.Event) bool {
		if e.Kind == history.CallResult && e.Key == calls[0].key {
			results++
		}
		return results >= 2
	}
}

// readyLimit is how long a client that has lost its connections is given to connect
// again; the pauses between its tries should be shorter.
const readyLimit = 2 * time.Second

// ready waits, if a client connects by itself, until it has as many connections as it
// began with: which of them its next call finds would else be left to chance.
func (r *caseRun) ready(client string) { r.until(readyLimit, connected(client)) }

// connected returns a condition for until: a client has sent its preface on as many
// sessions, still there, as it had opened before it was asked for anything.
func connected(client string) func(history.Event) bool {
	mine, up, first, asked := map[int]bool{}, map[int]bool{}, 0, false
	return func(e history.Event) bool {
		switch {
		case e.Kind == history.CallAsked && e.Client == client:
			asked = true
		case e.Kind == history.SessionOpened && e.Client == client:
			mine[e.Session] = true
			if !asked {
				first++
			}
		case e.Kind == history.Received && mine[e.Session] && e.Dir == frames.ClientToServer && e.Frame.Op == opAuth && e.Last:
			up[e.Session] = true
		case e.Kind == history.EndSeen, e.Kind == history.EndSent && e.Side == history.ClientSide:
			delete(up, e.Session)
		}
		return len(up) >= first
	}
}
