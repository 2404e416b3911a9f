package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
)

// Limits of a story.
const (
	MaxStorySteps = 200
	maxStoryText  = 16 << 10 // bytes of a case id with a story
	maxStoryPause = time.Minute
	grantLimit    = 2 * time.Second  // how long a step waits for a lease to begin
	expiryLimit   = 20 * time.Second // how long it waits for its end
)

// stepKind is a word of a story.
type stepKind string

// The steps of a story. A call is named by its number, from 1, in the order in which the
// story asks for calls.
const (
	stepAcquire   stepKind = "acquire"   // (client,key,wait,lease): opens the client and asks
	stepSent      stepKind = "sent"      // (call): until the server has its request
	stepSettle    stepKind = "settle"    // (call): until it has ended
	stepEnter     stepKind = "enter"     // (call)
	stepLeave     stepKind = "leave"     // (call)
	stepRelease   stepKind = "release"   // (call): asks for its release
	stepReleased  stepKind = "released"  // (call): until the release has ended
	stepCancel    stepKind = "cancel"    // (call)
	stepInterject stepKind = "interject" // (call): the workload's own fault, on its session
	stepHold      stepKind = "hold"      // (key): the tool's own holder acquires it
	stepTake      stepKind = "take"      // (key): it acquires it and enters
	stepFree      stepKind = "free"      // (key): it releases it
	stepExpired   stepKind = "expired"   // (key): until no lease of it runs
	stepUnqueued  stepKind = "unqueued"  // (key,n): until no more than n attempts wait for it
	stepLetGo     stepKind = "let-go"    // (): what the fault holds goes on
	stepPause     stepKind = "pause"     // (time)
)

// step is one step of a story.
type step struct {
	kind        stepKind
	call        int // of acquire: its own number
	client, key string
	wait, lease time.Duration // of pause: wait
	n           int
}

func (s step) isOfCall() bool {
	return s.kind != stepAcquire && s.call > 0
}

func (s step) String() string {
	var args string
	switch s.kind {
	case stepAcquire:
		args = fmt.Sprintf("%s,%s,%s,%s", s.client, s.key, s.wait, s.lease)
	case stepHold, stepTake, stepFree, stepExpired:
		args = s.key
	case stepUnqueued:
		args = fmt.Sprintf("%s,%d", s.key, s.n)
	case stepPause:
		args = s.wait.String()
	case stepLetGo:
	default:
		args = strconv.Itoa(s.call)
	}
	return fmt.Sprintf("%s(%s)", s.kind, args)
}

// story is what the tool's application does in a case, as data: a workload of which the
// story is told in steps, one after the other.
type story []step

func (s story) String() string {
	words := make([]string, len(s))
	for i, x := range s {
		words[i] = x.String()
	}
	return strings.Join(words, " ")
}

// calls counts the calls that the client under test is asked for.
func (s story) calls() int {
	n := 0
	for _, x := range s {
		if x.kind == stepAcquire {
			n++
		}
	}
	return n
}

// key is that of the story's first call.
func (s story) key() string {
	for _, x := range s {
		if x.kind == stepAcquire {
			return x.key
		}
	}
	return ""
}

// parseStory reads the form that String writes.
func parseStory(text string) (story, error) {
	var out story
	for _, word := range strings.Fields(text) {
		name, rest, ok := strings.Cut(word, "(")
		args, ok2 := strings.CutSuffix(rest, ")")
		if !ok || !ok2 {
			return nil, fmt.Errorf("step %q is not of the form word(…)", word)
		}
		s, err := parseStep(stepKind(name), strings.Split(args, ","), out.calls())
		if err != nil {
			return nil, fmt.Errorf("step %q: %w", word, err)
		}
		if out = append(out, s); len(out) > MaxStorySteps {
			return nil, fmt.Errorf("the story has over %d steps", MaxStorySteps)
		}
	}
	if out.calls() == 0 {
		return nil, fmt.Errorf("the story %q asks for no call", text)
	}
	return out, nil
}

func parseStep(kind stepKind, args []string, calls int) (step, error) {
	s := step{kind: kind}
	want, err := 1, error(nil)
	switch kind {
	case stepAcquire:
		want = 4
	case stepUnqueued:
		want = 2
	}
	if len(args) != want {
		return s, fmt.Errorf("it has %d arguments, not %d", len(args), want)
	}
	switch kind {
	case stepAcquire:
		s.call, s.client, s.key = calls+1, args[0], args[1]
		if s.client == "" || s.key == "" {
			return s, fmt.Errorf("it needs a client and a key")
		}
		if s.wait, err = storyTime(args[2]); err == nil {
			s.lease, err = storyTime(args[3])
		}
	case stepHold, stepTake, stepFree, stepExpired:
		s.key = args[0]
	case stepUnqueued:
		s.key = args[0]
		s.n, err = strconv.Atoi(args[1])
	case stepPause:
		s.wait, err = storyTime(args[0])
		if s.wait > maxStoryPause {
			err = fmt.Errorf("a pause of %s is over %s", s.wait, maxStoryPause)
		}
	case stepLetGo:
		if args[0] != "" {
			err = fmt.Errorf("it has no arguments")
		}
	case stepSent, stepSettle, stepEnter, stepLeave, stepRelease, stepReleased, stepCancel, stepInterject:
		if s.call, err = strconv.Atoi(args[0]); err == nil && (s.call < 1 || s.call > calls) {
			err = fmt.Errorf("call %d has not been asked for before it", s.call)
		}
	default:
		return s, fmt.Errorf("there is no such step")
	}
	return s, err
}

func storyTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > 300*second) {
		err = fmt.Errorf("%s is not 0s to 5m", d)
	}
	return d, err
}

// splitStory splits the name of a workload that tells a story, "single[acquire(…) …]".
func splitStory(workload string) (parent, text string, ok bool) {
	parent, rest, ok := strings.Cut(workload, "[")
	text, ok2 := strings.CutSuffix(rest, "]")
	return parent, text, ok && ok2
}

// storyWorkload is the workload parent with another story: server, faults and their
// arguments stay as they are.
func storyWorkload(parent *Workload, s story) *Workload {
	w := *parent
	w.ID = parent.ID + "[" + s.String() + "]"
	w.Run, w.Control = s.run, nil
	return &w
}

// storyByID finds the workload of a name with a story.
func storyByID(id string) (*Workload, story, error) {
	name, text, ok := splitStory(id)
	if !ok {
		return nil, nil, fmt.Errorf("workload %q is not of the form workload[story]", id)
	}
	i := slices.IndexFunc(workloads, func(w *Workload) bool { return w.ID == name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no workload %q to take the story's server from", name)
	}
	if len(id) > maxStoryText {
		return nil, nil, fmt.Errorf("the story has over %d bytes", maxStoryText)
	}
	s, err := parseStory(text)
	if err != nil {
		return nil, nil, err
	}
	return storyWorkload(workloads[i], s), s, nil
}

// storyCase makes the case of an id whose workload tells a story.
func storyCase(g *frames.Grammar, id CaseID) (Case, error) {
	w, s, err := storyByID(id.Workload)
	if err != nil {
		return Case{}, err
	}
	id.Workload = w.ID
	return storied(g, id, w, s)
}

// storied is storyCase for a workload that was made.
func storied(g *frames.Grammar, id CaseID, w *Workload, s story) (Case, error) {
	c := Case{ID: id, Workload: w}
	switch {
	case !w.Knows(g.Name):
		return c, fmt.Errorf("workload %s is not part of dialect %s", w.ID, g.Name)
	case id.Fault == NoFault:
		return c, nil
	}
	t, ok := faults.ByID(id.Fault)
	if !ok {
		return c, fmt.Errorf("there is no fault %q", id.Fault)
	}
	x, err := storyFrame(g, id.Frame, w, s)
	if err != nil {
		return c, err
	}
	c.Frame = x
	if own := w.Own; own != nil {
		if own.Fault != t.ID || own.Frame.Dir != id.Frame.Dir || own.Frame.Op != id.Frame.Op {
			return c, fmt.Errorf("workload %s has a fault of its own, %s", w.ID, own.Fault)
		}
		return c, nil
	}
	if !applies(t, g, x) || !slices.Contains(t.Range.Offsets(x.Size), id.Offset) {
		return c, fmt.Errorf("%s at %d cannot be done to %s, which has %d bytes", t.ID, id.Offset, id.Frame, x.Size)
	}
	return c, nil
}

// secondGreeting is that of a second connection. Any story can do without: a client that
// spreads its calls over two connections then has one.
var secondGreeting = FrameID{Session: 2, Dir: frames.ServerToClient, Op: opGreeting, Nth: 1}

// storyFrame is a frame of a story's exchange. Its size follows from the dialect and
// the story's first key: not from a run.
func storyFrame(g *frames.Grammar, f FrameID, w *Workload, s story) (Expected, error) {
	list := w.Exchange(g)
	i := slices.IndexFunc(list, func(x Expected) bool { return x.Frame == f })
	if f.Op == opOpen || f.Op == opGreeting || f.Op == opAuth || f.Op == frames.OpKeepAlive {
		if i < 0 && f == secondGreeting {
			i = slices.IndexFunc(list, func(x Expected) bool { return x.Frame.Op == opGreeting })
		}
		if i < 0 {
			return Expected{}, fmt.Errorf("workload %s has no frame %s", w.ID, f)
		}
		x := list[i]
		x.Frame = f
		return x, nil
	}
	shape, ok := g.Shape(f.Dir, f.Op)
	if !ok {
		return Expected{}, fmt.Errorf("dialect %s has no frame %s", g.Name, f)
	}
	x := Expected{Frame: f, Tail: s.key(), Size: shape.Size(len(s.key()))}
	if i >= 0 {
		x.Token = list[i].Token
	}
	return x, nil
}

// run tells the story. At its end it waits for every call and release, and closes the
// clients.
func (s story) run(r *caseRun) {
	t := &telling{r: r, tokens: map[string]uint64{}, asked: map[string]int{}, waits: map[int]func(){}, settled: map[int]bool{}}
	for _, x := range s {
		if r.over() {
			return
		}
		t.step(x)
	}
	for i, c := range t.calls {
		t.settle(i+1, c)
		if wait := t.waits[i+1]; wait != nil {
			wait()
		}
	}
	for _, name := range t.clients {
		r.close(name)
	}
}

// telling is a story that is being told.
type telling struct {
	r       *caseRun
	calls   []*call
	nth     []int // of each call on its key
	clients []string
	tokens  map[string]uint64 // of the tool's own holder, by key
	asked   map[string]int    // calls by key
	waits   map[int]func()    // for the ends of releases
	settled map[int]bool      // by call that was awaited: whether it is acquired
}

func (t *telling) step(x step) {
	r := t.r
	switch x.kind {
	case stepAcquire:
		if !slices.Contains(t.clients, x.client) {
			t.clients = append(t.clients, x.client)
			r.open(x.client)
		}
		t.asked[x.key]++
		t.calls = append(t.calls, r.acquire(x.client, x.key, x.wait, x.lease))
		t.nth = append(t.nth, t.asked[x.key])
	case stepHold, stepTake:
		r.until(seenLimit, unheld(x.key))
		token, ok := r.acquireOwn(x.key, 0)
		if !ok {
			return // somebody else has it: the story goes on without
		}
		t.tokens[x.key] = token
		if x.kind == stepTake {
			r.enter(0, "", x.key, token)
		}
	case stepFree:
		if token, ok := t.tokens[x.key]; ok {
			r.releaseOwn(x.key, token)
		}
	case stepExpired:
		r.until(grantLimit, once(func(e history.Event) bool { return e.Kind == history.Granted && e.Key == x.key }))
		r.until(expiryLimit, unheld(x.key))
	case stepUnqueued:
		r.until(expiryLimit, queuedAtMost(x.key, x.n))
	case stepLetGo:
		r.px.OpenGate(faults.GateHold)
	case stepPause:
		r.pause(x.wait)
	default:
		t.ofCall(x, t.calls[x.call-1])
	}
}

// settle waits for a call once, and tells whether it is acquired.
func (t *telling) settle(n int, c *call) bool {
	got, ok := t.settled[n]
	if !ok {
		got = c.settle()
		t.settled[n] = got
	}
	return got
}

// ofCall does a step about a call. What needs its end waits for that.
func (t *telling) ofCall(x step, c *call) {
	switch x.kind {
	case stepSent:
		t.r.seen(c, t.nth[x.call-1])
	case stepInterject:
		t.r.interject(c)
	case stepCancel:
		t.r.cancelCall(c)
	case stepReleased:
		if wait := t.waits[x.call]; wait != nil {
			wait()
		}
	case stepSettle:
		t.settle(x.call, c)
	case stepEnter, stepLeave, stepRelease:
		if !t.settle(x.call, c) {
			return
		}
		switch x.kind {
		case stepEnter:
			c.enter()
		case stepLeave:
			c.leave()
		default:
			t.waits[x.call] = c.startRelease()
		}
	}
}

// unheld returns a condition for until: no grant of a key is left.
func unheld(key string) func(history.Event) bool {
	held := map[uint64]bool{}
	return func(e history.Event) bool {
		switch {
		case e.Key != key:
		case e.Kind == history.Granted:
			held[e.Token] = true
		case e.Kind == history.GrantEnded:
			delete(held, e.Token)
		}
		return len(held) == 0
	}
}
