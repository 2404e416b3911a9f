package verify

import (
	"fmt"
	"sync"
	"time"

	"tornwire/adapter"
	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// sessionWorkloads are those about which sessions a client keeps.
var sessionWorkloads = []*Workload{cancelled, twoSessions, silentServer, releaseLost, releaseRepeated, heldPastLease}

const (
	dropKey  = "drop-1"
	raceKey  = "race-1"
	raceNext = "race-2"
)

// cancelled is calls that are cancelled after they were sent. The second client's
// grant comes when its call has been cancelled: a client that has left the session
// cannot have read it, and for one that is still there the rest is not left to chance.
// It must not tell it, a further answer behind it shows that it was read, and its lease
// is awaited, within which it is to be released (spec/rules.md P10).
var cancelled = &Workload{
	ID:       "cancel",
	Anywhere: true,
	Sentence: "a first client's call for a held key is cancelled after it was sent, and the same key is acquired by its next call (lease 6 s); " +
		"a second client's call (lease 2 s) is cancelled, then the holder releases, and the client acquires another key",
	Only: unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", dropKey).session(2).c2s("A", raceKey).
			sessionOf(3, "c1", 2).c2s("A", dropKey).s2c("A", dropKey).c2s("R", dropKey).s2c("R", dropKey).
			s2c("A", raceKey).c2s("R", raceKey).s2c("R", raceKey).list
	},
	Run: func(r *caseRun) {
		var wg sync.WaitGroup
		wg.Go(func() { r.cancelWaiting("c1") })
		wg.Go(func() { r.cancelGranted("c2") })
		wg.Wait()
	},
}

// cancelWaiting cancels a call that is waiting, and makes a new one.
func (r *caseRun) cancelWaiting(client string) {
	token, ok := r.hold(dropKey)
	if !ok || !r.open(client) {
		return
	}
	defer r.close(client)
	c := r.acquire(client, dropKey, 8*second, 5*second)
	r.seen(c, 1)
	r.cancelCall(c)
	r.use(c)
	next := r.acquire(client, dropKey, 2*second, 6*second)
	r.seen(next, 2)
	r.releaseOwn(dropKey, token)
	r.use(next)
}

// cancelTakes is what a client gets before a cancel to come back from its write, so that
// it does not break that off, and behind cancel_ok to act on it: if it still waits for
// the answer then, it does so on purpose.
const cancelTakes = 50 * time.Millisecond

// cancelGranted cancels a call and then grants it.
func (r *caseRun) cancelGranted(client string) {
	token, ok := r.hold(raceKey)
	if !ok || !r.open(client) {
		return
	}
	defer r.close(client)
	c := r.acquire(client, raceKey, 8*second, 2*second)
	r.seen(c, 1)
	r.cancelCall(c)
	r.pause(cancelTakes)
	r.releaseOwn(raceKey, token)
	kept := false
	r.until(noticeLimit, keptForGrant(client, &kept))
	r.use(c)
	if c.outcome == history.OutcomeAcquired {
		return
	}
	r.use(r.acquire(client, raceNext, second, 5*second))
	if kept && r.own == nil { // only the table tells when the lease is over
		r.until(3*second, once(func(e history.Event) bool {
			return grantOver(raceKey, 0)(e) && e.Token != token
		}))
	}
}

// cancelCall asks for the cancel of a call, and waits until it is said to be done.
func (r *caseRun) cancelCall(c *call) {
	if c.failed || r.over() {
		return
	}
	r.pause(cancelTakes)
	r.rec.Add(history.Event{Kind: history.CancelAsked, Call: c.n, Client: c.client, Key: c.key})
	r.ask(adapter.Request{Type: adapter.TypeCancel, Client: r.clientOf(c.client).name, Call: &c.id}, adapter.TypeCancelOK, func() {
		r.rec.Add(history.Event{Kind: history.CancelDone, Call: c.n, Client: c.client, Key: c.key})
	})
}

const (
	quietKey = "quiet-1"
	rounds   = 3
	// quietWait ends well before the T for it, which comes after 2 s.
	quietWait = 1200 * time.Millisecond
)

// twoSessions has one client with two sessions, if it uses one for each call, and
// lets a call on one of them run into its deadline, three times.
var twoSessions = &Workload{
	ID:       "two-sessions",
	Anywhere: true,
	Sentence: "three times, one client has two calls waiting: one (wait 1.2 s) runs into its deadline without an answer, " +
		"and the other's key is released when that is over",
	Only: unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1)
		for n := range rounds {
			x.c2s("A", besideKey(n)).sessionOf(n+2, "c1", n+2).c2s("A", quietKey).
				s2c("A", besideKey(n)).c2s("R", besideKey(n)).s2c("R", besideKey(n))
		}
		return x.list
	},
	Run: func(r *caseRun) {
		if _, ok := r.hold(quietKey); !ok || !r.open("c1") {
			return
		}
		defer r.close("c1")
		for n := range rounds {
			key := besideKey(n)
			token, ok := r.hold(key)
			if !ok {
				return
			}
			other := r.acquire("c1", key, 8*second, time.Duration(n+10)*second)
			r.seen(other, 1)
			quiet := r.acquire("c1", quietKey, quietWait, time.Duration(n+20)*second)
			r.seen(quiet, n+1)
			r.use(quiet)
			// A client that closes more than the one session does it by now, and
			// what it closed is seen.
			r.until(noticeLimit, endedFor("c1", quietKey))
			r.pause(watchAfter)
			r.releaseOwn(key, token)
			r.use(other)
		}
	},
}

func besideKey(n int) string { return fmt.Sprintf("beside-%d", n+1) }

// endedFor returns a condition for until: every session on which the client has sent
// an A for the key has ended on its side.
func endedFor(client, key string) func(history.Event) bool {
	mine, open := map[int]bool{}, map[int]bool{}
	return func(e history.Event) bool {
		switch {
		case e.Kind == history.SessionOpened:
			mine[e.Session] = e.Client == client
		case e.Kind == history.Received && e.Dir == frames.ClientToServer && e.Frame.Op == "A" && mine[e.Session]:
			open[e.Session] = true
		case e.Kind == history.EndSeen && e.Side == history.ClientSide:
			delete(open, e.Session)
		}
		return len(open) == 0
	}
}

const (
	silentKey = "silent-1"
	halfKey   = "silent-2"
)

// silentServer never answers the first client, and the second one only when more than
// half of its wait is over.
var silentServer = &Workload{
	ID:       "silent-server",
	Anywhere: true,
	Sentence: "a first client's request (wait 1 s) is lost, and its session watched for as long as it may be open (--grace and --tolerance); " +
		"then the same key is acquired by its next call; a second client's (wait 3 s) is granted after 1.8 s",
	Own: &OwnFault{
		Fault: "drop", Frame: FrameID{Dir: frames.ClientToServer, Op: "A", Nth: 1},
	},
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", silentKey).s2c("A", silentKey).c2s("R", silentKey).s2c("R", silentKey).list
	},
	Run: func(r *caseRun) {
		var wg sync.WaitGroup
		one := r.openAcquire("c1", silentKey, second, 5*second)
		r.until(fireLimit, once(isFiring))
		wg.Go(func() {
			defer r.close("c1")
			r.use(one)
			if one.outcome == history.OutcomeAcquired {
				return
			}
			r.until(time.Until(one.deadline())+r.patience+second, allEnded("c1"))
			r.use(r.acquire("c1", silentKey, second, 6*second))
		})
		wg.Go(func() { r.grantedAtLength("c2") })
		wg.Wait()
	},
	Control: func(r *caseRun) {
		r.use(r.openAcquire("c1", silentKey, second, 5*second))
		r.close("c1")
	},
}

// grantedAtLength lets a call wait for over half of its time.
func (r *caseRun) grantedAtLength(client string) {
	token, ok := r.hold(halfKey)
	if !ok || !r.open(client) {
		return
	}
	defer r.close(client)
	c := r.acquire(client, halfKey, 3*second, 5*second)
	r.seen(c, 1)
	r.pause(1800 * time.Millisecond)
	r.releaseOwn(halfKey, token)
	r.use(c)
}

const (
	lostKey = "lost-1"
	lostNew = "lost-2"
)

// releaseLost loses the answer to a release, or the connection in it. (The cut at each
// byte of the release and of its answer is part of single.)
var releaseLost = &Workload{
	ID:       "release-lost",
	Anywhere: true,
	Sentence: "a key is acquired and released, and the answer to the release never comes, or the connection is cut in it; " +
		"then another key is acquired and released",
	Only: func(t *faults.Type, x Expected) bool {
		switch t.ID {
		case "drop", "truncate-fin-client", "truncate-rst-client", "stall":
			return x.Frame.Dir == frames.ServerToClient && x.Frame.Op == "R" && x.Frame.Nth == 1
		}
		return false
	},
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", lostKey).s2c("A", lostKey).c2s("R", lostKey).s2c("R", lostKey).
			c2s("A", lostNew).s2c("A", lostNew).c2s("R", lostNew).s2c("R", lostNew).list
	},
	Run: func(r *caseRun) {
		if !r.open("c1") {
			return
		}
		defer r.close("c1")
		r.use(r.acquire("c1", lostKey, second, 30*second))
		r.use(r.acquire("c1", lostNew, second, 5*second))
	},
}

const repeatedKey = "repeated-1"

// releaseRepeated cuts the connection in the answer to a release by key, when somebody
// else has been granted the key.
var releaseRepeated = &Workload{
	ID:       "release-repeated",
	Anywhere: true,
	Sentence: "a first client enters, and a second waits for its key; the first leaves and releases, and the connection is cut in the answer; " +
		"the second enters; when the first's release is over, a third asks while the second is inside",
	Dialects: []string{dialectV0},
	Only: func(t *faults.Type, x Expected) bool {
		return (t.ID == "truncate-fin" || t.ID == "truncate-rst") &&
			x.Frame.Dir == frames.ServerToClient && x.Frame.Op == "R" && x.Frame.Nth == 1
	},
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", repeatedKey).s2c("A", repeatedKey).
			session(2).c2s("A", repeatedKey).c2s("R", repeatedKey).s2c("R", repeatedKey).s2c("A", repeatedKey).
			session(3).c2s("A", repeatedKey).c2s("R", repeatedKey).s2c("R", repeatedKey).list
	},
	Run: func(r *caseRun) {
		first := r.openAcquire("c1", repeatedKey, second, 30*second)
		if first.settle() {
			first.enter()
		}
		next := r.openAcquire("c2", repeatedKey, 4*second, 30*second)
		r.queuedOr(next)
		first.leave()
		released := first.startRelease()
		if next.settle() {
			next.enter()
		}
		released()
		third := r.openAcquire("c3", repeatedKey, 1500*time.Millisecond, 30*second)
		if third.settle() {
			third.enter()
			r.pause(watchAfter)
		}
		for _, c := range []*call{next, third} {
			c.leave()
			c.release()
		}
		for _, c := range []string{"c1", "c2", "c3"} {
			r.close(c)
		}
	},
}

const (
	pastHalfKey = "past-1"
	pastAllKey  = "past-2"
	pastLease   = 2 * time.Second
)

// heldPastLease keeps tickets, not replies.
var heldPastLease = &Workload{
	ID:       "held-past-lease",
	Anywhere: true,
	Sentence: "one client stays inside past half of its lease of 2 s and releases; " +
		"another stays inside past the whole lease, and then releases what is no longer its own",
	Only: unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1).c2s("A", pastHalfKey).s2c("A", pastHalfKey).
			session(2).c2s("A", pastAllKey).s2c("A", pastAllKey).
			c2s("R", pastHalfKey).s2c("R", pastHalfKey)
		if current(g) { // in ticketing-v0 a right client lets the lease end
			x.c2s("R", pastAllKey).s2c("N", pastAllKey)
		}
		return x.list
	},
	Run: func(r *caseRun) {
		var wg sync.WaitGroup
		half := r.openAcquire("c1", pastHalfKey, second, pastLease)
		wg.Go(func() {
			defer r.close("c1")
			r.stayInside(half, func() { r.pause(pastLease/2 + watchAfter) })
		})
		all := r.openAcquire("c2", pastAllKey, second, pastLease)
		wg.Go(func() {
			defer r.close("c2")
			r.stayInside(all, func() {
				r.leaseOver(all)
				r.pause(watchAfter)
			})
		})
		wg.Wait()
	},
}

// stayInside is use with something to do inside.
func (r *caseRun) stayInside(c *call, inside func()) {
	if c.settle() {
		c.enter()
		inside()
		c.leave()
		c.release()
	}
}
