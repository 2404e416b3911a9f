package proof

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tornwire/checker"
	"tornwire/frames"
	"tornwire/history"
)

// Limits of a script, and times that it allows.
const (
	maxLines = 40
	maxSleep = time.Minute
	// idleFrom is the pause in a record from which on the proof pauses, too; sleepStep is
	// what its length is rounded up to.
	idleFrom  = 100 * time.Millisecond
	sleepStep = 50 * time.Millisecond
	// patience is how much longer than in the record the proof waits for what the client
	// does; absence is how long it looks for what a client must not do, or must.
	patience = 1500 * time.Millisecond
	// promptness is that for a word that must not come: what the client says of its own
	// accord, at its deadline, is no answer to what was written.
	promptness = 500 * time.Millisecond
	absence    = 2 * time.Second
	settles    = 5 * time.Second // after its deadline a call has ended (rule settles)
)

type lineKind int

const (
	doCall      lineKind = iota // call n asks for key, with wait and lease
	doWant                      // the next request with op is req; optional: or none
	doSend                      // to the connection of req: bytes from to to of text
	doFIN                       // likewise
	doRST                       // likewise
	doTold                      // until call n has ended, at most limit
	doRelease                   // of call n is asked for
	doFreed                     // until that has ended, at most limit
	doSleep                     // limit
	checkNot                    // call n must not have ended as outcome (with token, if there is one)
	checkFreed                  // nor its release
	checkNoMore                 // no request with op comes for limit
	checkToken                  // call n has ended acquired with token
	checkHead                   // the fixed fields of req are those in text
	checkEnds                   // call n ends within limit
	checkBack                   // an R with the fields in text comes within limit, or the connection of req was left
)

// line is one statement of a script.
type line struct {
	kind        lineKind
	n, req      int
	op          string
	key         string
	wait, lease time.Duration
	limit       time.Duration
	optional    bool
	text        string // hexadecimal, with * for the owner of req
	from, to    int
	outcome     string
	token       string
	says        string
}

// request is one that the script waits for.
type request struct {
	n       int
	session int
	op      string
	key     string
	owner   uint64
	at      time.Duration
	wait    time.Duration
	lease   time.Duration
	open    bool // not answered
}

// writer makes a script of a record.
type writer struct {
	g       *frames.Grammar
	f       checker.Finding
	lines   []line
	last    time.Duration // when the line before was done
	reqs    []request
	begun   map[place][]byte // frames as they came
	call    map[int]history.Event
	number  map[int]int // of a call, by its number in the record
	asked   map[string]int
	sent    map[string]int
	client  string
	session map[int]string // client by session
	left    map[int]bool   // sessions that the client has left
	result  map[int]history.Event
	pending history.Event // the last entry of the table about an attempt
	silent  int           // the connection that gets no greeting, from 1
	done    bool
	err     error
}

type place struct {
	session int
	dir     frames.Direction
	seq     uint64
}

var errNoRule = errors.New("there is no proof for this rule")

// resent are the rules about a request that must not come.
var resent = []string{"one-attempt", "no-resend", "no-renewal", "busy-not-retried"}

// told are the rules about what a call ends as.
var told = []string{
	"no-entry-unconfirmed", "no-partial-frame", "match-triple", "no-fifo", "indeterminate-stays", "moved-uncorrelated", "leader-uncorrelated",
	"late-grant", "late-gate", "entry-after-lease", "unknown-fatal", "timeout-final", "busy-final", "close-proves-nothing",
}

// others are the other rules of which proofs can be written.
var others = []string{"release-own", "exact-token", "header-by-count", "settles"}

// Rules lists the rules of which a proof can be written.
func Rules() []string { return slices.Concat(resent, told, others) }

// scriptOf makes the script.
func scriptOf(g *frames.Grammar, f checker.Finding, events []history.Event) (*writer, error) {
	if !slices.Contains(Rules(), f.Rule) {
		return nil, fmt.Errorf("%w, %s: there are proofs of %s", errNoRule, f.Rule, strings.Join(Rules(), ", "))
	}
	w := &writer{
		g: g, f: f, begun: map[place][]byte{}, call: map[int]history.Event{}, number: map[int]int{}, asked: map[string]int{},
		sent: map[string]int{}, session: map[int]string{}, left: map[int]bool{}, result: map[int]history.Event{},
	}
	for i := range events {
		if w.done || w.err != nil || events[i].Kind == history.CaseEnding {
			break
		}
		w.event(&events[i])
	}
	if w.err == nil && !w.done {
		w.atEnd()
	}
	switch {
	case w.err != nil:
		return nil, w.err
	case w.silent > 0 && len(w.reqs) > 0 && w.reqs[0].session == w.silent:
		return nil, errors.New("a request came on a connection that was not greeted")
	case !w.done:
		return nil, errors.New("the record does not show where the rule was broken in a way that a script can ask for")
	case len(w.lines) > maxLines:
		return nil, fmt.Errorf("the case takes %d steps, over %d: shrink it first", len(w.lines), maxLines)
	}
	return w, nil
}

func (w *writer) add(at time.Duration, l line) {
	w.lines = append(w.lines, l)
	w.last = at
}

// act adds what the script does by itself, after the pause that was before it.
func (w *writer) act(at time.Duration, l line) {
	if idle := at - w.last; len(w.lines) > 0 && idle > idleFrom {
		w.lines = append(w.lines, line{kind: doSleep, limit: min((idle + sleepStep).Truncate(sleepStep), maxSleep)})
	}
	w.add(at, l)
}

func (w *writer) finish(l line) {
	w.lines = append(w.lines, l)
	w.done = true
}

func (w *writer) event(e *history.Event) {
	n := w.number[e.Call]
	switch e.Kind {
	case history.SessionOpened:
		w.session[e.Session] = e.Client
	case history.CallAsked:
		if w.client != "" && e.Client != w.client {
			w.err = errors.New("the case has two clients, and a proof one: shrink it first")
		}
		n = len(w.number) + 1
		w.client, w.number[e.Call], w.call[n] = e.Client, n, *e
		w.asked[e.Key]++
		w.act(e.At, line{kind: doCall, n: n, key: e.Key, wait: e.Wait, lease: e.Lease})
	case history.ReleaseAsked:
		w.act(e.At, line{kind: doRelease, n: n})
	case history.CallResult:
		w.callEnded(e, n)
	case history.ReleaseResult:
		w.releaseEnded(e, n)
	case history.CallOverdue:
		if w.f.Rule == "settles" && e.Call == w.f.Evidence.Call {
			w.finish(line{kind: checkEnds, n: n, limit: w.call[n].Wait + settles, says: w.f.Message})
		}
	case history.Granted, history.AttemptEnded:
		w.pending = *e
	case history.Received:
		w.received(e)
	case history.WriteBegun:
		w.written(e)
	case history.Fired:
		if e.Frame != nil && e.Frame.Op == "greeting" && e.Fault == "truncate-silence" && e.Off == 0 {
			w.silent = e.Session
		}
	case history.EndSeen:
		w.left[e.Session] = w.left[e.Session] || e.Side == history.ClientSide
	case history.EndSent:
		w.ended(e)
	}
}

// callEnded is the end of a call: what the rule is about, or what is waited for.
func (w *writer) callEnded(e *history.Event, n int) {
	w.result[n] = *e
	limit := (e.At - w.last + patience).Truncate(sleepStep)
	wait := line{kind: doTold, n: n, limit: limit}
	mine := e.Call == w.f.Evidence.Call
	token := fmt.Sprint(e.Token)
	if mine && slices.Contains(told, w.f.Rule) {
		wait.limit -= patience - promptness
	}
	switch {
	case mine && slices.Contains(told, w.f.Rule) && !w.ofRelease() && !w.unreleased():
		w.add(e.At, wait)
		l := line{kind: checkNot, n: n, outcome: e.Outcome, says: w.f.Message}
		if w.f.Rule == "no-fifo" && e.Outcome == history.OutcomeAcquired {
			l.token = token
		}
		w.finish(l)
	case mine && w.f.Rule == "header-by-count", mine && w.f.Rule == "exact-token" && e.HasToken && e.Token != w.granted(n):
		w.add(e.At, wait)
		w.finish(line{kind: checkToken, n: n, token: fmt.Sprint(w.granted(n)), says: w.f.Message})
	default:
		w.add(e.At, wait)
	}
}

// ofRelease tells whether the finding is about what a release was told.
func (w *writer) ofRelease() bool {
	return strings.HasPrefix(w.f.Message, "the release of") || w.f.Rule == "close-proves-nothing"
}

// unreleased tells whether the finding is about a grant that should have been released.
func (w *writer) unreleased() bool {
	return strings.HasPrefix(w.f.Rule, "late-") && strings.Contains(w.f.Message, "sent no R")
}

func (w *writer) releaseEnded(e *history.Event, n int) {
	w.add(e.At, line{kind: doFreed, n: n, limit: (e.At - w.last + patience).Truncate(sleepStep)})
	if w.ofRelease() && e.Call == w.f.Evidence.Call {
		w.finish(line{kind: checkFreed, n: n, outcome: e.Outcome, says: w.f.Message})
	}
}

// granted is the token of the grant that was written for a call, 0 if none was.
func (w *writer) granted(n int) uint64 {
	for _, l := range slices.Backward(w.lines) {
		if l.kind != doSend || l.op != "A" || l.key != w.call[n].Key {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(l.text, "*", "0000000000000000"))
		if t, ok := w.g.MustShape(frames.ServerToClient, "A").Uint(b, "token"); ok && err == nil {
			return t
		}
	}
	return 0
}

// received is bytes of a request, which the script waits for as a whole, or of a reply.
func (w *writer) received(e *history.Event) {
	at := place{e.Session, e.Dir, e.Frame.Seq}
	w.begun[at] = append(w.begun[at], e.Data...)
	if e.Dir != frames.ClientToServer || e.Frame.Op != "A" && e.Frame.Op != "R" {
		return
	}
	b := w.begun[at]
	shape := w.g.MustShape(e.Dir, e.Frame.Op)
	if !e.Last {
		return
	}
	q := request{n: len(w.reqs) + 1, session: e.Session, op: e.Frame.Op, key: string(shape.TailOf(b)), at: e.At, open: true}
	q.owner, _ = shape.Uint(b, "owner")
	wait, _ := shape.Uint(b, "wait")
	lease, _ := shape.Uint(b, "lease")
	q.wait, q.lease = time.Duration(wait)*time.Second, time.Duration(lease)*time.Second
	more := q.op == "A" && w.sent[q.key] >= w.asked[q.key]
	limit := (e.At - w.last + patience).Truncate(sleepStep)
	switch {
	case more && slices.Contains(resent, w.f.Rule), q.op == "R" && w.f.Rule == "release-own" && e.Frame.String() == w.f.Evidence.Frame:
		w.finish(line{kind: checkNoMore, op: q.op, limit: limit, says: w.f.Message})
		return
	}
	if q.op == "A" {
		w.sent[q.key]++
	}
	w.reqs = append(w.reqs, q)
	w.add(e.At, line{kind: doWant, req: q.n, op: q.op, limit: limit, optional: more || q.op == "R" && w.f.Rule != "exact-token"})
	if q.op == "R" && w.f.Rule == "exact-token" && e.Frame.String() == w.f.Evidence.Frame {
		w.finish(line{kind: checkHead, req: q.n, text: fmt.Sprintf("%016x", w.grantOf(q.key)), says: w.f.Message})
	}
}

func (w *writer) grantOf(key string) uint64 {
	for n, c := range w.call {
		if c.Key == key {
			return w.granted(n)
		}
	}
	return 0
}

// written is bytes for the client: the script sends them on the connection of the request
// that they answer.
func (w *writer) written(e *history.Event) {
	if e.Dir != frames.ServerToClient || e.Frame.Op == "greeting" || w.left[e.Session] {
		return
	}
	b := []byte(e.Data)
	if len(b) == 0 || e.Off > 0 || len(w.begun[place{e.Session, e.Dir, e.Frame.Seq}]) > len(b) {
		b = w.begun[place{e.Session, e.Dir, e.Frame.Seq}]
	}
	if len(b) < e.Off+e.N { // made by the fault, in parts
		w.err = errors.New("the record does not have all bytes of what the fault wrote")
		return
	}
	q, text := w.answers(e, b)
	if q == nil {
		if e.Frame.Op != frames.OpKeepAlive {
			w.err = fmt.Errorf("%s was written before any request came on its connection: a script has none to send it on", e.Frame)
		}
		return
	}
	l := line{kind: doSend, req: q.n, op: e.Frame.Op, key: q.key, text: text, from: e.Off, to: e.Off + e.N}
	if n := len(w.lines); n > 0 && w.lines[n-1].kind == doSend && w.lines[n-1].req == l.req && w.lines[n-1].text == l.text && w.lines[n-1].to == l.from && e.At-w.last < idleFrom {
		w.lines[n-1].to = l.to
		return
	}
	w.act(e.At, l)
	if w.unreleased() && w.result[1].Kind != "" && e.Frame.Op == "A" && l.to == len(b) {
		token, _ := w.g.MustShape(e.Dir, "A").Uint(b, "token")
		w.finish(line{kind: checkBack, req: q.n, text: fmt.Sprintf("%016x", token), limit: absence, says: w.f.Message})
	}
}

// answers finds the request that a frame is the answer to, else the last one on its
// session, and writes the frame with * for the owner of the request.
func (w *writer) answers(e *history.Event, b []byte) (*request, string) {
	shape, ok := w.g.Shape(e.Dir, e.Frame.Op)
	text := hex.EncodeToString(b)
	var last, due *request
	for i := range w.reqs {
		q := &w.reqs[i]
		if q.session != e.Session {
			continue
		}
		last = q
		if !ok || shape.Kind != frames.Message {
			continue
		}
		owner, has := shape.Uint(b, "owner")
		switch {
		case has && owner == q.owner && q.op == "A":
			return q, text[:2] + "*" + text[18:]
		case has || q.op != "A" || !q.open || (e.Frame.Op != "A" && e.Frame.Op != "T") || string(shape.TailOf(b)) != q.key:
		case e.Frame.Op == "A" && w.pending.Kind == history.Granted && w.pending.Lease == q.lease, e.Frame.Op == "T" && w.due(q, e.At):
			due = q
		}
	}
	if due != nil {
		due.open = false
		return due, text
	}
	return last, text
}

// due tells whether no other open request of the same key has its wait over earlier.
func (w *writer) due(q *request, at time.Duration) bool {
	return !slices.ContainsFunc(w.reqs, func(o request) bool {
		return o.open && o.op == "A" && o.session == q.session && o.key == q.key && o.at+o.wait < q.at+q.wait
	})
}

// ended is the end of a connection that the client sees.
func (w *writer) ended(e *history.Event) {
	if e.Side != history.ClientSide || e.Cause == history.CauseTeardown || w.left[e.Session] {
		return
	}
	for _, q := range slices.Backward(w.reqs) {
		if q.session != e.Session {
			continue
		}
		kind := doFIN
		if e.How == history.RST {
			kind = doRST
		}
		w.act(e.At, line{kind: kind, req: q.n})
		return
	}
	if w.session[e.Session] == w.client {
		w.err = fmt.Errorf("session %d was ended before a request came on it: a script has none to end it by", e.Session)
	}
}

// atEnd asks for what the record does not show where it ends.
func (w *writer) atEnd() {
	n := w.number[w.f.Evidence.Call]
	switch {
	case w.f.Rule == "settles" && n > 0:
		w.finish(line{kind: checkEnds, n: n, limit: w.call[n].Wait + settles, says: w.f.Message})
	case w.f.Rule == "header-by-count" && n > 0 && w.granted(n) != 0:
		w.finish(line{kind: checkToken, n: n, token: fmt.Sprint(w.granted(n)), says: w.f.Message})
	}
}
