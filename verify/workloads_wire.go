package verify

import (
	"sync"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

const (
	afterKey     = "after-1"
	afterZeroKey = "after-0"
	nextKey      = "next-1"
	nextZeroKey  = "next-0"
	grantLease   = 12 * time.Second
	// beyond is how long after a deadline a withheld grant comes.
	beyond = 1500 * time.Millisecond
)

// lateGrant holds the grant until it comes after the deadline, with the lease
// still running for long. A client that keeps its session is asked for another
// key, whose answer proves that it has read the grant.
var lateGrant = &Workload{
	ID:       "late-grant",
	Anywhere: true,
	Sentence: "the grant (lease 12 s; wait 1 s, and in ticketing wait 0 on another client) comes 1.5 s after the deadline; " +
		"if its session is still open, the client is asked for another key, and its release of the late grant is awaited",
	Own: &OwnFault{
		Fault: "hold", Frame: FrameID{Dir: frames.ServerToClient, Op: "A", Nth: 1},
		Each: map[string]faults.Args{
			"c1": {"most": second + beyond},
			"c2": {"most": immediateLimit + beyond},
		},
	},
	EachSession: true,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1).c2s("A", afterKey).s2c("A", afterKey).c2s("R", afterKey).s2c("R", afterKey)
		if current(g) {
			x.session(2).c2s("A", afterZeroKey).s2c("A", afterZeroKey).c2s("R", afterZeroKey).s2c("R", afterZeroKey)
		}
		return x.list
	},
	Run: func(r *caseRun) {
		var wg sync.WaitGroup
		one := r.openAcquire("c1", afterKey, second, grantLease)
		wg.Go(func() { r.grantedLate(one, nextKey) })
		if current(r.grammar) {
			zero := r.openAcquire("c2", afterZeroKey, 0, grantLease)
			wg.Go(func() { r.grantedLate(zero, nextZeroKey) })
		}
		wg.Wait()
	},
	Control: func(r *caseRun) {
		r.use(r.openAcquire("c1", afterKey, second, grantLease))
		r.close("c1")
		if current(r.grammar) {
			r.use(r.openAcquire("c2", afterZeroKey, 0, grantLease))
			r.close("c2")
		}
	},
}

// grantedLate sees a call through whose grant comes after its deadline.
func (r *caseRun) grantedLate(c *call, next string) {
	defer r.close(c.client)
	r.use(c)
	kept := false
	r.until(immediateLimit+beyond+second, keptForGrant(c.client, &kept))
	if !kept || c.outcome == history.OutcomeAcquired {
		return
	}
	r.use(r.acquire(c.client, next, second, 5*second))
	r.until(grantLease+second, r.releaseSeen(c.key))
}

// keptForGrant returns a condition for until: the grant for a client has been
// written, or the client has left the session on which it had asked for it. Kept is
// then whether it was still there.
func keptForGrant(client string, kept *bool) func(history.Event) bool {
	mine, asked, left := map[int]bool{}, map[int]bool{}, map[int]bool{}
	met := false
	return func(e history.Event) bool {
		switch {
		case e.Kind == history.SessionOpened && e.Client == client:
			mine[e.Session] = true
		case !mine[e.Session]:
		case e.Kind == history.Received && e.Dir == frames.ClientToServer && e.Frame.Op == "A":
			asked[e.Session] = true
		case e.Kind == history.EndSeen && e.Side == history.ClientSide:
			left[e.Session] = true
			met = met || asked[e.Session]
		case e.Kind == history.WriteAccepted && e.Dir == frames.ServerToClient && e.Frame.Op == "A":
			*kept, met = !left[e.Session], true
		}
		return met
	}
}

const (
	halfKey1 = "half-1"
	halfKey2 = "half-2"
	halfKey3 = "half-3"
)

// noticeLimit is how long a client may take to close a session of which the
// server has closed its half.
const noticeLimit = 300 * time.Millisecond

// halfClose is a server that ends its sending side, first of an idle session,
// then of one with a call under way.
var halfClose = &Workload{
	ID:       "half-close",
	Anywhere: true,
	Sentence: "the server ends its sending side (FIN) of an idle session and goes on reading; a second key is acquired and released; " +
		"then it does so while a call waits for a held key",
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).
			c2s("A", halfKey1).s2c("A", halfKey1).c2s("R", halfKey1).s2c("R", halfKey1).
			sessionOf(2, "c1", 2).
			c2s("A", halfKey2).s2c("A", halfKey2).c2s("R", halfKey2).s2c("R", halfKey2).
			c2s("A", halfKey3).list
	},
	Run: func(r *caseRun) {
		if _, ok := r.hold(halfKey3); !ok || !r.open("c1") {
			return
		}
		r.use(r.acquire("c1", halfKey1, second, 5*second))
		r.halfClose()
		r.until(noticeLimit, allEnded("c1"))
		r.use(r.acquire("c1", halfKey2, second, 5*second))
		waiting := r.acquire("c1", halfKey3, 2*second, 5*second)
		r.seen(waiting, 1)
		r.halfClose()
		r.use(waiting)
		r.close("c1")
	},
}

const (
	aliveKey = "alive-1"
	// aliveToken is the embedded server's second: the tool's own holder has the first.
	aliveToken = 2
)

// keepAlive is a server that sends lone newlines, while a call waits, between two
// and in front of an answer.
var keepAlive = &Workload{
	ID:       "keep-alive",
	Anywhere: true,
	Sentence: "the server sends keep-alives while a call waits, in front of its grant, while the client is inside, " +
		"and before the answer to the release",
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).
			c2s("A", aliveKey).keepAlive().keepAlive().s2c("A", aliveKey).keepAlive().
			c2s("R", aliveKey).s2c("R", aliveKey).token(aliveToken).list
	},
	Run: func(r *caseRun) {
		token, ok := r.hold(aliveKey)
		if !ok || !r.open("c1") {
			return
		}
		c := r.acquire("c1", aliveKey, 2*second, 5*second)
		r.seen(c, 1)
		r.keepAlive()
		r.keepAlive()
		r.releaseOwn(aliveKey, token)
		if c.settle() {
			c.enter()
			r.keepAlive()
			c.leave()
			c.release()
		}
		r.close("c1")
	},
}

const againKey = "again-1"

// reconnect has a client with two addresses, and tears the preface of its first
// connection: nothing of the acquire has been sent, so it goes on at the other
// address, with what is left of its deadline.
var reconnect = &Workload{
	ID:       "reconnect",
	Anywhere: true,
	Sentence: "one client with two addresses acquires a free key (wait 5 s, lease 10 s); its first connection dies in the preface, " +
		"2.5 s after the bytes stopped, and nothing else is torn",
	Exchange: func(g *frames.Grammar) []Expected { return newExchange(g).session(1).list },
	Only: func(t *faults.Type, _ Expected) bool {
		return t.Only != "" || t.ID == "truncate-fin" || t.ID == "truncate-rst"
	},
	Args: map[string]faults.Args{
		"truncate-fin": {"after": 2500 * time.Millisecond},
		"truncate-rst": {"after": 2500 * time.Millisecond},
	},
	Run: func(r *caseRun) {
		if r.openAt("c1", 2) {
			r.use(r.acquire("c1", againKey, 5*second, 10*second))
			r.close("c1")
		}
	},
}

const (
	slowKey     = "slow-10"
	slowerKey   = "slow-1"
	slowZeroKey = "slow-0"
	slowHold    = 3500 * time.Millisecond
	slowerHold  = second + 1500*time.Millisecond
	slowestHold = 7 * time.Second
)

// lateConnect holds the greeting, so that the connection is ready late or too
// late, and the wire wait has to be what is left then.
var lateConnect = &Workload{
	ID:       "late-connect",
	Anywhere: true,
	Sentence: "the greeting of each client's first connection is held: 3.5 s for a wait of 10 s, 2.5 s for a wait of 1 s, " +
		"and in ticketing 7 s for wait 0",
	Own: &OwnFault{
		Fault: "hold-greeting", Frame: FrameID{Dir: frames.ServerToClient, Op: opGreeting, Nth: 1},
		Each: map[string]faults.Args{
			"c1": {"most": slowHold}, "c2": {"most": slowerHold}, "c3": {"most": slowestHold},
		},
	},
	EachSession: true,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1).c2s("A", slowKey).s2c("A", slowKey).c2s("R", slowKey).s2c("R", slowKey).
			session(2).c2s("A", slowerKey).s2c("A", slowerKey).c2s("R", slowerKey).s2c("R", slowerKey)
		if current(g) {
			x.session(3).c2s("A", slowZeroKey).s2c("A", slowZeroKey).c2s("R", slowZeroKey).s2c("R", slowZeroKey)
		}
		return x.list
	},
	Run: runLateConnect,
	Control: func(r *caseRun) {
		for _, c := range slowCalls(r.grammar) {
			r.use(r.openAcquire(c.client, c.key, c.wait, 5*second))
			r.close(c.client)
		}
	},
}

// slowCall is one call of late-connect.
type slowCall struct {
	client, key string
	wait, held  time.Duration
}

func slowCalls(g *frames.Grammar) []slowCall {
	calls := []slowCall{{"c1", slowKey, 10 * second, slowHold}, {"c2", slowerKey, second, slowerHold}}
	if current(g) {
		calls = append(calls, slowCall{"c3", slowZeroKey, 0, slowestHold})
	}
	return calls
}

func runLateConnect(r *caseRun) {
	var wg sync.WaitGroup
	for _, s := range slowCalls(r.grammar) {
		c := r.openAcquire(s.client, s.key, s.wait, 5*second)
		wg.Go(func() {
			r.use(c)
			// A request that comes when the greeting does, though it is too late, is
			// still to be seen.
			if late := time.Until(c.asked.Add(s.held + watchAfter)); late > 0 {
				r.pause(late)
			}
			r.close(s.client)
		})
	}
	wg.Wait()
}
