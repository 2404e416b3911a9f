package verify

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"tornwire/frames"
	"tornwire/history"
	"tornwire/server/stub"
)

// nearWorkloads are those about answers that are nearly right, and about requests that
// get none.
var nearWorkloads = []*Workload{nearMiss, unanswered}

// miss is a response that differs from the right one in one thing.
type miss struct {
	op     string
	differ uint64                  // bits of the owner that are another's
	key    func(own string) string // nil: the call's own
}

// misses are written to clients that wait for held keys, one to each. The owners differ
// in a half, in one bit, or in all of it: in what a client that keeps only a part of a
// number does not compare. So do the keys.
var misses = []miss{
	{"A", 1, nil},
	{"A", 1 << 63, nil},
	{"A", 1<<32 - 1, nil},
	{"A", ^uint64(1<<32 - 1), nil},
	{"A", 0, strings.ToUpper},
	{"A", 0, func(own string) string { return own + "x" }},
	{"A", 0, func(own string) string { return own[:len(own)-1] }},
	{"T", ^uint64(0), nil},
	{"B", ^uint64(0), nil},
}

const (
	nearKey = "near-miss-"
	// nearPause is how long the wrong answer to a release takes: a client that does not
	// wait for any has told by then.
	nearPause = 150 * time.Millisecond
)

// wrongAnswers are those to releases: for another token, for another key, and T.
var wrongAnswers = []struct {
	client, op string
	differ     uint64 // from the token, in bits
	key        string // what is put behind the key
}{
	{"near-not", "N", 1, ""},
	{"near-done", "R", 1, ""},
	{"near-not-2", "N", 0, "x"},
	{"near-done-2", "R", 0, "x"},
	{"near-op", "T", 0, ""}, // whose owner is the token
}

func missKey(i int) string { return nearKey + string(rune('a'+i)) }

// nearMiss is responses that look like the right one.
var nearMiss = &Workload{
	ID:    "near-miss",
	Needs: "answers that are nearly right",
	Sentence: "nine clients that wait for held keys get grants whose owner differs in a bit or in a half, or whose key differs in its case or by a letter, " +
		"and a T and a B for another owner; then the keys become free, and each asks for another; " +
		"five clients' releases are answered N and R for another token, N and R for another key, and T with the token for its owner",
	Dialects: []string{dialectCurrent},
	Only:     unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", missKey(0)).s2c("A", missKey(0)).list
	},
	Stub: nearSteps,
	Run: func(r *caseRun) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range misses {
			key, client := missKey(i), fmt.Sprintf("c%d", i+1)
			token, ok := r.hold(key)
			if !ok || !r.open(client) {
				return
			}
			wg.Go(func() {
				defer r.close(client)
				c := r.acquire(client, key, 3*second, 5*second)
				r.seen(c, 1)
				r.pause(leaveLimit)
				// What comes after a word that was told would hide why the client leaves then.
				if !r.until(0, once(func(e history.Event) bool { return e.Kind == history.CallResult && e.Call == c.n })) {
					r.srv.Release(key, token)
				}
				r.use(c)
				r.afterwards(client, key+"-next")
				if misses[i].op == "A" {
					r.orphanSought(client, strayToken)
				}
			})
		}
		for _, a := range wrongAnswers {
			key := a.client
			if !r.open(key) {
				return
			}
			wg.Go(func() {
				defer r.close(key)
				r.use(r.acquire(key, key, second, 10*second))
			})
		}
	},
}

// nearSteps write what is nearly right as soon as the request is in. A release is kept
// back once, so that only the wrong answer to it is there.
func nearSteps(g *frames.Grammar) []stub.Step {
	var steps []stub.Step
	for i, m := range misses {
		key := missKey(i)
		named := key
		if m.key != nil {
			named = m.key(key)
		}
		steps = append(steps, stub.Step{
			Op: "A", Key: key, Pass: wholeFrame,
			Write: func(f stub.Frame) []byte { return mustMessage(g, m.op, named, f.Uint("owner")^m.differ, strayToken) },
		})
	}
	for _, a := range wrongAnswers {
		steps = append(steps, stub.Step{Op: "R", Key: a.client, Nth: 1, Pause: nearPause, Write: func(f stub.Frame) []byte {
			token := f.Uint("token") ^ a.differ
			return mustMessage(g, a.op, a.client+a.key, token, token)
		}})
	}
	return steps
}

func wholeFrame(f stub.Frame) []byte { return f.Bytes }

const (
	mutedKey     = "muted-1"
	mutedZeroKey = "muted-0"
	mutedWait    = 1200 * time.Millisecond
	endedKey     = "ended-1"
	refusedAtKey = "refused-1"
	// humEvery is less than any wait of the workload, and divides none: what is said when a
	// client leaves may come or not.
	humEvery = 290 * time.Millisecond
	// endedAfter is how long the wire is watched after a request whose connection has
	// ended: for a client that sends it again when it thinks that nobody looks.
	endedAfter = 1500 * time.Millisecond
)

// unanswered is requests that the server takes and never answers, while it shows that it
// is alive.
var unanswered = &Workload{
	ID:    "unanswered",
	Needs: "requests that are never answered",
	Sentence: "a client's request (wait 1.2 s, in ticketing on another client also wait 0) is never answered, while a keep-alive comes every 0.3 s for as long as its session " +
		"may be open (--grace and --tolerance); another's connection ends with FIN in place of an answer, and the wire is watched for 1.5 s; a further one is told T at once",
	Only: unswept,
	Exchange: func(g *frames.Grammar) []Expected {
		return newExchange(g).session(1).c2s("A", mutedKey).keepAlive().list
	},
	Stub: func(*frames.Grammar) []stub.Step {
		return []stub.Step{
			{Op: "A", Key: mutedKey},
			{Op: "A", Key: mutedZeroKey},
			{Op: "A", Key: endedKey, End: true},
			{Op: "A", Key: refusedAtKey, Write: func(f stub.Frame) []byte { return f.Answer("T", refusedAtKey, 0) }},
		}
	},
	Run: func(r *caseRun) {
		var wg, silent sync.WaitGroup
		defer wg.Wait()
		over := make(chan struct{})
		wg.Go(func() { r.hum(over) })
		muted := []*call{r.openAcquire("c1", mutedKey, mutedWait, 5*second)}
		if current(r.grammar) {
			muted = append(muted, r.openAcquire("c2", mutedZeroKey, 0, 5*second))
		}
		for _, c := range muted {
			silent.Go(func() {
				defer r.close(c.client)
				r.use(c)
				r.until(time.Until(c.deadline())+r.patience+second, allEnded(c.client))
			})
		}
		wg.Go(func() {
			silent.Wait()
			close(over)
		})
		cut := r.openAcquire("c3", endedKey, 4*second, 5*second)
		wg.Go(func() {
			defer r.close("c3")
			r.use(cut)
			r.pause(endedAfter)
		})
		refused := r.openAcquire("c4", refusedAtKey, 4*second, 5*second)
		wg.Go(func() {
			defer r.close("c4")
			r.use(refused)
		})
	},
}

// hum has the server send keep-alives on all sessions until something is over.
func (r *caseRun) hum(over <-chan struct{}) {
	for !r.over() {
		r.srv.KeepAlive()
		select {
		case <-over:
			return
		case <-time.After(humEvery):
		}
	}
}
