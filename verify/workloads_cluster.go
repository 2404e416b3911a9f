package verify

import (
	"fmt"
	"sync"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// clusterWorkloads are those about M, L and E.
var clusterWorkloads = []*Workload{moved, leaderNotice, noLeader, notActive, authFailed}

// unswept is for workloads whose own course is all that there is to see: what a cut
// does to the frames in it other workloads show.
func unswept(*faults.Type, Expected) bool { return false }

const (
	movedKey  = "moved-"
	awayLimit = 10 * second // lease of a lock whose release is turned away
)

// moved is a leader that changes: to an address that the client was given, and to one
// that it was not.
var moved = &Workload{
	ID:    "moved",
	Needs: "a leader that changes when it is told to",
	Sentence: "a client of two nodes holds a lock when the other node comes to lead, and its release is answered M; then an acquire is, " +
		"first with the other node's address, then with one that the client was not given and must not dial; " +
		"after each it acquires and releases",
	Nodes: 2,
	Only:  unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		x := newExchange(g).session(1).c2s("A", movedKey+"1").s2c("A", movedKey+"1").c2s("R", movedKey+"1")
		return x.s2c("M", "127.0.0.1:1").sessionOf(2, "c1", 2).list
	},
	Run: func(r *caseRun) {
		if !r.openAt("c1", 2) {
			return
		}
		r.lead("c1", 0)
		away := away{client: "c1", key: movedKey, op: "M"}
		away.leave = func(node int) { r.lead("c1", 1-node) }
		if r.turnedAway(away) {
			r.turnedDown(away, 4)
			r.decoyed()
		}
		r.close("c1")
	},
}

// decoyed has a client told an address that it was not given.
func (r *caseRun) decoyed() {
	decoy, ok := r.canary("c1")
	if !ok {
		return
	}
	_, node := r.home("c1")
	r.turnedDown(away{client: "c1", key: movedKey, op: "M", leave: func(int) {
		if err := r.cluster.LeadElsewhere(decoy); err != nil {
			r.fail(err)
		}
	}, back: func(int) { r.lead("c1", node) }}, 6)
}

// away is a way in which a node does not lead any more.
type away struct {
	client, key string
	op          string         // of what it answers then
	leave       func(node int) // it stops leading
	back        func(node int) // a node leads again; nil if one does already
}

// turnedAway has a client's release answered by a node that has stopped leading. A
// client that keeps the session gets the leader back at its other end: what it is
// told next there proves that it has read the answer, and then comes one more call.
func (r *caseRun) turnedAway(w away) bool {
	c, ok := r.warm(w.client, w.key+"1", awayLimit)
	if !ok {
		return false
	}
	_, node := r.home(w.client)
	before := r.written(w.client, w.op)
	c.enter()
	w.leave(node)
	c.leave()
	released := c.startRelease()
	session, told := r.turned(w.client, w.op, before)
	left := told && r.until(noticeLimit, hasLeft(session))
	switch {
	case !left:
		r.lead(w.client, node)
	case w.back != nil:
		w.back(node)
	}
	r.use(r.acquire(w.client, w.key+"2", 2*second, 5*second))
	r.use(r.acquire(w.client, w.key+"3", 2*second, 5*second))
	if left {
		released()
	}
	return true
}

// turnedDown has an acquire answered by a node that has stopped leading, and then
// asks for another key.
func (r *caseRun) turnedDown(w away, n int) {
	_, node := r.home(w.client)
	w.leave(node)
	r.use(r.acquire(w.client, fmt.Sprint(w.key, n), 2*second, 5*second))
	if w.back != nil {
		w.back(node)
	}
	r.use(r.acquire(w.client, fmt.Sprint(w.key, n+1), 2*second, 5*second))
}

const (
	noticeKey   = "notice-"
	noticeTimes = 3
	// unlistedAddress is nobody's (RFC 5737).
	unlistedAddress = "192.0.2.1:9"
)

// leaderNotice is notices: on a session with nothing under way, three times, and with
// a call that waits.
var leaderNotice = &Workload{
	ID:    "leader-notice",
	Needs: "nodes that send L when they are told to",
	Sentence: "a client of two nodes has released its lock, and nothing comes; three times it has, and after a while is told by L that the other node leads; " +
		"then a call waits for a held key when L comes, with no address, with one that the client was not given, and with that of its node; " +
		"last it is told by L an address that it must not dial, its session ends, and another key is asked for",
	Dialects: []string{dialectCurrent},
	Nodes:    2,
	Only:     unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", noticeKey+"0").s2c("A", noticeKey+"0").
			c2s("R", noticeKey+"0").s2c("R", noticeKey+"0").s2c("L", "127.0.0.1:1").sessionOf(2, "c1", 2).list
	},
	Run: func(r *caseRun) {
		if !r.openAt("c1", 2) {
			return
		}
		r.lead("c1", 0)
		r.rested(noticeKey + "0")
		for i := range noticeTimes {
			r.noticed(fmt.Sprint(noticeKey, i+1))
		}
		r.noticedWaiting(noticeKey + "held")
		r.misled(noticeKey + "misled")
		r.close("c1")
	},
}

// rested leaves a client alone for longer than noticed takes, and nothing comes: that is
// the control run, in which a client that closes what it does not use closes it.
func (r *caseRun) rested(key string) {
	if r.used(key) {
		session, _ := r.home("c1")
		r.until(2*noticeLimit+noticeLimit/2, hasLeft(session))
	}
}

// used has a client acquire and release.
func (r *caseRun) used(key string) bool {
	c, ok := r.warm("c1", key, 5*second)
	if ok {
		c.enter()
		c.leave()
		c.release()
	}
	return ok
}

// noticed sends L on a session with nothing under way. Before that, too, it has to stay
// open while nothing comes.
func (r *caseRun) noticed(key string) {
	if !r.used(key) {
		return
	}
	session, node := r.home("c1")
	if r.until(noticeLimit, hasLeft(session)) {
		return
	}
	r.lead("c1", 1-node)
	r.node(node).Notice(r.addrOf("c1", 1-node))
	r.until(noticeLimit, hasLeft(session))
}

// misled sends L with an address that the client was not given, has its session end, and
// asks for another key, so that the client has to connect.
func (r *caseRun) misled(key string) {
	decoy, ok := r.canary("c1")
	if !ok {
		return
	}
	c, ok := r.warm("c1", key, 5*second)
	if !ok {
		return
	}
	c.enter()
	c.leave()
	c.release()
	session, node := r.home("c1")
	r.node(node).Notice(decoy)
	r.pause(hintQuiet)
	r.node(node).HalfClose()
	r.until(noticeLimit, hasLeft(session))
	r.use(r.acquire("c1", key+"-next", second, 5*second))
}

// noticedWaiting sends L on a session with a call under way, and then has it granted.
func (r *caseRun) noticedWaiting(key string) {
	token, ok := r.hold(key)
	if !ok {
		return
	}
	_, node := r.home("c1")
	r.lead("c1", 1-node) // where the client was told to go
	for range 2 {
		c := r.acquire("c1", key, 3*second, 5*second)
		r.seen(c, 1)
		if ks := r.srv.Table(); len(ks) == 0 || len(ks[0].Queue) == 0 {
			c.settle() // it asked where nobody leads, and knows better now
			continue
		}
		leader := r.node(1 - node)
		for _, addr := range []string{"", unlistedAddress, r.addrOf("c1", 1-node)} {
			leader.Notice(addr)
		}
		r.until(noticeLimit, once(func(e history.Event) bool { return e.Kind == history.CallResult && e.Call == c.n }))
		r.srv.Release(key, token)
		r.use(c)
		return
	}
}

const (
	noLeaderKey = "leaderless-"
	hintRounds  = 20
	hintSpare   = 4 // rounds in which there may be nothing to see
	// hintQuiet lies between a notice and what comes next, so that a client which
	// connects at once to a leader that it is told of has done so.
	hintQuiet = 120 * time.Millisecond
	hintTime  = 25 * time.Second // over which no round begins
	// hintNodes says by its bits which of two nodes is named, round by round: without
	// a pattern that an order of addresses could have, too.
	hintNodes = 0b0101_0110_1001_1100_1011_0010
)

// noLeader is a cluster without a leader.
var noLeader = &Workload{
	ID:    "no-leader",
	Needs: "nodes of which none leads when that is asked for",
	Sentence: "a client of three nodes holds a lock when nobody leads any more, and its release is answered E no_leader; then an acquire is; " +
		"in ticketing twenty clients follow, each told by L of another leader and then E no_leader where it waits: which node do they dial next?",
	Nodes: 3,
	Only:  unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", noLeaderKey+"1").s2c("A", noLeaderKey+"1").c2s("R", noLeaderKey+"1").
			s2c("E", "no_leader").sessionOf(2, "c1", 2).list
	},
	Run: func(r *caseRun) {
		if !r.openAt("c1", 3) {
			return
		}
		r.lead("c1", 0)
		w := away{client: "c1", key: noLeaderKey, op: "E"}
		w.leave = func(int) { r.cluster.NoLeader() }
		w.back = func(node int) { r.lead("c1", node) }
		if r.turnedAway(w) {
			r.turnedDown(w, 4)
		}
		r.close("c1")
		var wg sync.WaitGroup
		defer wg.Wait()
		if !current(r.grammar) {
			return
		}
		for i, seen := 0, 0; i < hintRounds+hintSpare && seen < hintRounds && i-seen <= hintSpare; i++ {
			if time.Since(r.began) > hintTime || r.over() {
				return
			}
			if r.hinted(i) {
				seen++
			}
			wg.Go(func() { r.close(hintClient(i)) })
		}
	},
}

func hintClient(i int) string { return fmt.Sprint("h", i+1) }

// hinted has a client that waits told who leads, and then that nobody does. Its next
// call shows which node it dials. It is false if there was nothing to see, as with a
// client that stays where it is.
func (r *caseRun) hinted(i int) bool {
	name, key := hintClient(i), fmt.Sprint("hint-", i+1)
	if _, ok := r.hold(key); !ok || !r.openAt(name, 3) {
		return false
	}
	other := 1 + hintNodes>>i&1
	for range 2 {
		r.lead(name, 0)
		c := r.acquire(name, key, 2*second, 5*second)
		r.seen(c, 1)
		before := r.written(name, "E")
		r.node(0).Notice(r.addrOf(name, other))
		r.pause(hintQuiet)
		r.cluster.NoLeader()
		session, ok := r.turned(name, "E", before)
		left := ok && r.until(noticeLimit, hasLeft(session))
		r.lead(name, other)
		if ok && !left {
			return false
		}
		c.settle()
		if left {
			r.use(r.acquire(name, key+"-next", 2*second, 5*second))
			return true
		}
	}
	return false
}

const notActiveKey = "standby-"

// notActive is a node that stops serving.
var notActive = &Workload{
	ID:    "not-active",
	Needs: "nodes that go on standby when they are told to",
	Sentence: "a client of two nodes holds a lock when its node is a standby and the other leads, and its release is answered E not_active; " +
		"then no node is active, and an acquire is; after each it acquires and releases",
	Nodes: 2,
	Only:  unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", notActiveKey+"1").s2c("A", notActiveKey+"1").c2s("R", notActiveKey+"1").
			s2c("E", "not_active").sessionOf(2, "c1", 2).list
	},
	Run: func(r *caseRun) {
		if !r.openAt("c1", 2) {
			return
		}
		r.lead("c1", 0)
		w := away{client: "c1", key: notActiveKey, op: "E"}
		w.leave = func(node int) {
			r.cluster.SetActive(node, false)
			r.lead("c1", 1-node)
		}
		w.back = func(node int) { r.cluster.SetActive(node, true) }
		if r.turnedAway(w) {
			w.leave = func(int) {
				r.cluster.SetActive(0, false)
				r.cluster.SetActive(1, false)
			}
			w.back = func(node int) {
				r.cluster.SetActive(1-node, true)
				r.lead("c1", node)
			}
			r.turnedDown(w, 4)
		}
		r.close("c1")
	},
}

const (
	authKey    = "stranger-"
	knockTime  = 3300 * time.Millisecond
	knockEvery = 33 * time.Millisecond // faster than a client may connect, and slow enough for all to be judged
)

// authFailed is a client with a wrong secret, whose connections the server ends by
// itself; and one whose right secret ceases to be, which has to leave by itself. What it
// is told then is injected, and it is no fault that a case is about.
var authFailed = &Workload{
	ID:       "auth-failed",
	Anywhere: true,
	Sentence: "a client has a wrong secret, which is answered E auth_failed and an end; it asks for two keys, and then for one key after the other for 3.3 s, thirty a second at most; " +
		"another, which waits for a held key, gets E auth_failed; if it stays, the grant of the key comes behind it, and another key is asked for",
	Only: unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).s2c("E", "auth_failed").list
	},
	Run: func(r *caseRun) {
		if !r.openAs("c1", 1, "wrong") {
			return
		}
		r.use(r.acquire("c1", authKey+"1", second, 5*second))
		r.use(r.acquire("c1", authKey+"2", second, 5*second))
		for i, start := 3, time.Now(); time.Since(start) < knockTime && !r.over(); i++ {
			next := time.Now().Add(knockEvery)
			r.use(r.acquire("c1", fmt.Sprint(authKey, i), second, 5*second))
			r.pause(time.Until(next))
		}
		r.close("c1")
		r.expelled("c2", authKey+"3", authKey+"4")
	},
}

// expelled has a client that waits told that it is not let in any more.
func (r *caseRun) expelled(client, key, next string) {
	c, token, ok := r.queued(client, key)
	if !ok {
		return
	}
	defer r.close(client)
	t, _ := faults.ByID("inject-error")
	r.interjectAs(t, func(g *frames.Grammar, _ request) []byte { return mustMessage(g, "E", "auth_failed", 0, 0) }, c)
	r.releaseOwn(key, token)
	r.use(c)
	r.afterwards(client, next)
}
