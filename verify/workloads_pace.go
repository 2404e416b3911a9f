package verify

import (
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// paceWorkloads are those about pauses: of the client, and between its connections.
var paceWorkloads = []*Workload{frozen, hotReconnect}

const (
	hotKey  = "hot-1"
	hotTime = 3200 * time.Millisecond
	// hotPause bounds what a client without pauses can do to this machine: it is the
	// time that each connection lasts.
	hotPause = 5 * time.Millisecond
)

// hotReconnect is a server that takes connections and drops them.
var hotReconnect = &Workload{
	ID: "hot-reconnect",
	Sentence: "every connection is accepted and closed with a FIN 5 ms later for 3.2 s, while one call (wait 4 s, lease 5 s) waits; " +
		"after that connections are served",
	Own: &OwnFault{
		Fault: "accept-fin", Frame: FrameID{Dir: frames.ClientToServer, Op: opOpen, Nth: 1},
		Args: faults.Args{"after": hotPause},
	},
	EachSession: true,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", hotKey).s2c("A", hotKey).c2s("R", hotKey).s2c("R", hotKey).list
	},
	Run: func(r *caseRun) {
		if !r.open("c1") {
			return
		}
		c := r.acquire("c1", hotKey, 4*second, 5*second)
		r.until(4*second, once(isFiring))
		r.pause(hotTime)
		r.px.Disarm(r.id.String())
		if ev, _ := r.rec.Events(0); slowedDown(ev) {
			r.fail(errLateTool)
			return
		}
		r.use(c)
		r.close("c1")
	},
	Control: func(r *caseRun) {
		r.use(r.openAcquire("c1", hotKey, second, 5*second))
		r.close("c1")
	},
}

// slowedDown tells whether a client came so often that it may have no pauses, and not
// so often that this is certain, because this machine was slow: the connections lasted
// much longer than they should have.
func slowedDown(events []history.Event) bool {
	opened := map[int]time.Duration{}
	var perSecond [3]int
	var first, held time.Duration
	ended := 0
	for _, e := range events {
		switch {
		case e.Kind == history.SessionOpened:
			if len(opened) == 0 {
				first = e.At
			}
			opened[e.Session] = e.At
			if n := int((e.At - first) / second); n < len(perSecond) {
				perSecond[n]++
			}
		case e.Kind == history.EndSent && e.Side == history.ClientSide && e.Cause == history.CauseFault:
			held += e.At - opened[e.Session]
			ended++
		}
	}
	least := min(perSecond[0], perSecond[1], perSecond[2])
	return least > unhurried && least <= hurried && held > time.Duration(ended)*3*hotPause
}

const (
	unhurried = 8  // connections a second that are few, whatever the machine did
	hurried   = 30 // that are many
)

const (
	frozenKey   = "frozen-1"
	meltedKey   = "frozen-2"
	frozenWait  = 1500 * time.Millisecond
	frozenLease = 6 * time.Second
	// overslept is how long after the deadline a client is continued.
	overslept = 500 * time.Millisecond
)

// frozen stops the client with its request under way, and continues it when its
// deadline has passed and the grant lies in the buffer of its socket. The tool's own
// holder has the key until the client has stopped, so that it cannot have the grant
// before.
var frozen = &Workload{
	ID: "frozen",
	Sentence: "a call (wait 1.5 s, lease 6 s) waits for a held key; every thread of its client is stopped, the key is granted to it, and it goes on " +
		"0.5 s after its deadline; if its session is then still open, it is asked for another key, and its release of the grant is awaited",
	Alone: true,
	Only:  func(*faults.Type, Expected) bool { return false },
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", frozenKey).s2c("A", frozenKey).c2s("R", frozenKey).s2c("R", frozenKey).list
	},
	Run: func(r *caseRun) {
		token, ok := r.hold(frozenKey)
		if !ok || !r.open("c1") {
			return
		}
		defer r.close("c1")
		c := r.acquire("c1", frozenKey, frozenWait, frozenLease)
		r.seen(c, 1)
		if !r.oversleep(c, func() { r.srv.Release(frozenKey, token) }) {
			return
		}
		r.use(c)
		if c.outcome == history.OutcomeAcquired || r.until(noticeLimit, onceDone("c1")) {
			return
		}
		r.use(r.acquire("c1", meltedKey, second, 5*second))
		r.until(frozenLease+second, onceOver(frozenKey))
	},
}

// oversleep stops the client of a call over its deadline, and does something when it
// has stopped. It is false if the case cannot go on.
func (r *caseRun) oversleep(c *call, then func()) bool {
	defer r.thaw()
	if !r.freeze(c.client) {
		return false
	}
	then()
	r.pause(time.Until(c.deadline()) + overslept)
	return !r.over()
}

// onceDone returns a condition for until: the client has begun to release something, or
// has left a session on which it had asked for something.
func onceDone(client string) func(history.Event) bool {
	mine, asked := map[int]bool{}, map[int]bool{}
	return once(func(e history.Event) bool {
		switch {
		case e.Kind == history.SessionOpened && e.Client == client:
			mine[e.Session] = true
		case e.Kind == history.Received && e.Dir == frames.ClientToServer && mine[e.Session] && e.Frame.Op == "A":
			asked[e.Session] = true
		case e.Kind == history.Received && e.Dir == frames.ClientToServer && mine[e.Session] && e.Frame.Op == "R":
			return true
		case e.Kind == history.EndSeen && e.Side == history.ClientSide:
			return asked[e.Session]
		}
		return false
	})
}

// onceOver returns a condition for until: the grant of a key to a client is over.
func onceOver(key string) func(history.Event) bool {
	theirs := map[uint64]bool{}
	return once(func(e history.Event) bool {
		if e.Kind == history.Granted && e.Key == key && e.Peer != "" {
			theirs[e.Token] = true
		}
		return e.Kind == history.GrantEnded && e.Key == key && theirs[e.Token]
	})
}
