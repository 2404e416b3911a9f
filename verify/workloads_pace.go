package verify

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
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
	ID:       "hot-reconnect",
	Anywhere: true,
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
		possible := r.connectHot(hotTime)
		r.px.Disarm(r.id.String())
		if ev, _ := r.rec.Events(0); hidesPace(connectRate(ev), possible) {
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

// hotRate is how many connections there were in each of the first three seconds.
type hotRate [3]int

func (h *hotRate) count(since time.Duration) {
	if n := int(since / second); n < len(h) {
		h[n]++
	}
}

func (h hotRate) least() int { return min(h[0], h[1], h[2]) }

const (
	unhurried = 8  // connections a second that are few, unless hardly more were possible
	hurried   = 30 // that are many
)

// hidesPace tells whether a client came so often that it may have no pauses, and not
// so often that this is certain, at a time when this machine was so slow that one
// without pauses would not have come much more often.
func hidesPace(came, possible hotRate) bool {
	few := came.least() == 0 || came.least() <= unhurried && came.least() <= possible.least()/4
	return !few && came.least() <= hurried && possible.least() < 2*hurried
}

// connectRate counts the connections to the proxy.
func connectRate(events []history.Event) hotRate {
	var came hotRate
	first := time.Duration(-1)
	for _, e := range events {
		if e.Kind != history.SessionOpened {
			continue
		}
		if first < 0 {
			first = e.At
		}
		came.count(e.At - first)
	}
	return came
}

// connectHot does for some time what a client without pauses does, on
// a listener of its own, and counts how often that is possible here and now.
func (r *caseRun) connectHot(limit time.Duration) hotRate {
	var possible hotRate
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	if r.conn.inside != nil { // in virtual time nothing is slow
		<-ctx.Done()
		return hotRate{math.MaxInt, math.MaxInt, math.MaxInt}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		r.fail(err)
		return possible
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = l.Close() }()
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.pause(hotPause)
			_ = c.Close()
		}
	})
	var d net.Dialer
	start := time.Now()
	for ctx.Err() == nil {
		c, err := d.DialContext(ctx, "tcp4", l.Addr().String())
		if err != nil {
			r.pause(hotPause)
			continue
		}
		possible.count(time.Since(start))
		_ = c.SetReadDeadline(start.Add(limit))
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	return possible
}

const (
	frozenKey   = "frozen-1"
	frozenLater = "frozen-2"
	meltedKey   = "frozen-3"
	frozenWait  = 2 * time.Second
	frozenLease = 6 * time.Second
	// overslept is how long after the deadline a client is continued.
	overslept = 500 * time.Millisecond
	// tooLate is how long after it the grant comes in the second round.
	tooLate = 350 * time.Millisecond
)

// frozen stops the client with its request under way, and continues it when its
// deadline has passed and the grant lies in the buffer of its socket: one that came in
// time, and in a second round one that came too late. The tool's own holder has the key
// until the client has stopped, so that it cannot have the grant before.
var frozen = &Workload{
	ID:       "frozen",
	Anywhere: true,
	Sentence: "a call (wait 2 s, lease 6 s) waits for a held key; every thread of its client is stopped, the key is granted to it, and it goes on " +
		"0.5 s after its deadline; if its session is then still open, it is asked for another key, and its release of the grant is awaited; " +
		"then once more, but the grant is held back until 0.35 s after the deadline",
	Alone: true,
	Only:  func(*faults.Type, Expected) bool { return false },
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", frozenKey).s2c("A", frozenKey).c2s("R", frozenKey).s2c("R", frozenKey).list
	},
	Run: func(r *caseRun) {
		if !r.open("c1") {
			return
		}
		defer r.close("c1")
		if r.frozenOver(frozenKey, false) {
			r.frozenOver(frozenLater, true)
		}
	},
}

// frozenOver is one round. It is false if the case cannot go on.
func (r *caseRun) frozenOver(key string, late bool) bool {
	token, ok := r.hold(key)
	if !ok {
		return false
	}
	from, _ := r.rec.Events(0)
	c := r.acquire("c1", key, frozenWait, frozenLease)
	r.seen(c, 1)
	if late && !r.holdGrant(c) {
		return false
	}
	if !r.oversleep(c, late, func() { r.releaseOwn(key, token) }) {
		return false
	}
	r.use(c)
	if c.outcome == history.OutcomeAcquired || r.until(noticeLimit, onceDone("c1", len(from))) {
		return !r.over()
	}
	r.use(r.acquire("c1", meltedKey, second, 5*second))
	over := onceOver(key)
	if r.own != nil {
		over = r.releaseSeen(c.key)
	}
	r.until(frozenLease+second, over)
	return !r.over()
}

// holdGrant holds the grant of a call back until the rule with the call's key as its id
// is disarmed. It is false if the case cannot go on.
func (r *caseRun) holdGrant(c *call) bool {
	hold, _ := faults.ByID("hold")
	q, ok := r.requestOf(c)
	if !ok {
		return !r.over()
	}
	err := r.px.Arm(faults.Rule{
		ID: c.key, Fault: hold, Args: faults.Args{"most": frozenWait + second}, Times: 1,
		Trigger: faults.Trigger{Dir: frames.ServerToClient, Op: "A", Session: q.session},
	})
	if err != nil {
		r.fail(fmt.Errorf("the fault cannot be armed: %w", err))
	}
	return err == nil
}

// oversleep stops the client of a call over its deadline, and does something when it
// has stopped; a grant that is held back is let go when the deadline has passed. It is
// false if the case cannot go on.
func (r *caseRun) oversleep(c *call, late bool, then func()) bool {
	defer r.thaw()
	if !r.freeze(c.client) {
		return false
	}
	then()
	if late {
		r.pause(time.Until(c.deadline()) + tooLate)
		r.px.Disarm(c.key)
	}
	r.pause(time.Until(c.deadline()) + overslept)
	return !r.over()
}

// onceDone returns a condition for until: the client has begun to release something, or
// has left a session on which it had asked for something, both after that many events
// of the record.
func onceDone(client string, after int) func(history.Event) bool {
	mine, asked := map[int]bool{}, map[int]bool{}
	n := 0
	return once(func(e history.Event) bool {
		n++
		switch {
		case e.Kind == history.SessionOpened && e.Client == client:
			mine[e.Session] = true
		case n <= after:
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
