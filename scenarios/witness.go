package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tornwire/checker"
	"tornwire/history"
	"tornwire/internal/strict"
	"tornwire/verify"
)

// MaxWitnessed is the most calls that witnesses of a run can tell of.
const MaxWitnessed = 10000

// Witness words: what a client, or a test suite that drives it, says of a call.
const (
	SaysCall     = "call"     // it has been started
	SaysOutcome  = "outcome"  // it has ended
	SaysEnter    = "enter"    // the application has gone into the critical section
	SaysExit     = "exit"     // and out
	SaysRelease  = "release"  // the release was asked for
	SaysReleased = "released" // and has ended
	SaysCancel   = "cancel"   // the call is cancelled
)

var says = []string{SaysCall, SaysOutcome, SaysEnter, SaysExit, SaysRelease, SaysReleased, SaysCancel}

// Saying is one thing that a witness says.
type Saying struct {
	Event       string
	Call        string // its name, which the witness chooses
	Client      string // of a call
	Key         string // of a call
	Wait, Lease time.Duration
	Outcome     string // of outcome and released
	Token       uint64 // of an acquired call
}

// ReadSaying reads a saying from a JSON object; what is wrong is a problem of o.
func ReadSaying(o *strict.Object) Saying {
	var s Saying
	o.Text("event", &s.Event)
	if !slices.Contains(says, s.Event) && !o.Bad.Has("event") {
		o.Problem("event", "%s", strict.OneOf(s.Event, says, "event"))
	}
	if o.Text("call", &s.Call); s.Call == "" && !o.Bad.Has("call") {
		o.Problem("call", "is missing: the name of a call, which the witness chooses")
	} else if len(s.Call) > MaxName {
		o.Problem("call", "has %d bytes, over %d", len(s.Call), MaxName)
	}
	given := map[string]bool{
		"client": o.Text("client", &s.Client), "key": o.Text("key", &s.Key), "wait": o.Span("wait", &s.Wait), "lease": o.Span("lease", &s.Lease),
		"outcome": o.Text("outcome", &s.Outcome), "token": readToken(o, "token", &s.Token),
	}
	need := map[string][]string{SaysCall: {"key", "wait", "lease"}, SaysOutcome: {"outcome"}, SaysReleased: {"outcome"}}[s.Event]
	may := map[string][]string{SaysCall: {"client"}, SaysOutcome: {"token"}}[s.Event]
	for _, name := range []string{"client", "key", "wait", "lease", "outcome", "token"} {
		switch {
		case slices.Contains(need, name) && !given[name] && !o.Bad.Has(name):
			o.Problem(name, "is missing: %s needs it", s.Event)
		case given[name] && !slices.Contains(need, name) && !slices.Contains(may, name) && slices.Contains(says, s.Event):
			o.Problem(name, "does not belong to %s", s.Event)
		}
	}
	words := outcomes
	if s.Event == SaysReleased {
		words = releases
	}
	if given["outcome"] && !slices.Contains(words, s.Outcome) {
		o.Problem("outcome", "%s", strict.OneOf(s.Outcome, words, "outcome"))
	}
	if s.Event == SaysOutcome && (s.Outcome == history.OutcomeAcquired) != given["token"] && !o.Bad.Has("token") {
		o.Problem("token", "belongs to acquired, and to nothing else")
	}
	for name, d := range map[string]time.Duration{"wait": s.Wait, "lease": s.Lease} {
		if d < 0 || d > MaxWithin {
			o.Problem(name, "is %s, not 0s to %s", d, MaxWithin)
		}
	}
	o.Done()
	return s
}

var releases = []string{history.OutcomeReleased, history.OutcomeNotHeld, history.OutcomeIndeterminate, history.OutcomeError}

// witnessed is a call that a witness tells of.
type witnessed struct {
	n                            int
	client, key                  string
	token                        uint64
	outcome                      string
	inside, releasing, cancelled bool
	released                     bool
}

// witnesses is what a run was told of calls that it has not asked for.
type witnesses struct {
	mu    sync.Mutex
	st    *verify.Stage // nil before the run has begun and when it is over
	calls map[string]*witnessed
	any   bool
	tries int           // stages that there were
	turn  chan struct{} // closed when st changes
}

// ErrNotNow is the error about a run that cannot be told anything yet, or any more.
var ErrNotNow = errors.New("the run has not begun, or is over: nothing can be told of it")

// say records a saying, or tells why it cannot be.
func (w *witnesses) say(s Saying, clients []Client) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.st == nil {
		return ErrNotNow
	}
	c := w.calls[s.Call]
	if s.Event == SaysCall {
		return w.begin(s, c, clients)
	}
	if c == nil {
		return fmt.Errorf("no call %q has been told of", s.Call)
	}
	e := history.Event{Call: c.n, Client: c.client, Key: c.key}
	held := func() { e.Token, e.HasToken = c.token, true }
	switch s.Event {
	case SaysOutcome:
		if c.outcome != "" {
			return fmt.Errorf("call %q has ended already: %s", s.Call, c.outcome)
		}
		c.outcome, c.token = s.Outcome, s.Token
		e.Kind, e.Outcome = history.CallResult, s.Outcome
		e.Token, e.HasToken = s.Token, s.Outcome == history.OutcomeAcquired
	case SaysEnter:
		if c.inside {
			return fmt.Errorf("call %q is inside already", s.Call)
		}
		c.inside, e.Kind = true, history.Entered
		held()
	case SaysExit:
		if !c.inside {
			return fmt.Errorf("call %q is not inside", s.Call)
		}
		c.inside, e.Kind = false, history.Left
		held()
	case SaysRelease:
		if c.outcome != history.OutcomeAcquired || c.releasing {
			return fmt.Errorf("call %q is not acquired, or is being released already", s.Call)
		}
		c.releasing, e.Kind = true, history.ReleaseAsked
		held()
	case SaysReleased:
		if !c.releasing || c.released {
			return fmt.Errorf("no release of call %q is under way", s.Call)
		}
		c.released, e.Kind, e.Outcome = true, history.ReleaseResult, s.Outcome
	case SaysCancel:
		if c.outcome != "" || c.cancelled {
			return fmt.Errorf("call %q has ended, or is cancelled already", s.Call)
		}
		c.cancelled, e.Kind = true, history.CancelAsked
	}
	w.st.Witness(e)
	return nil
}

// begin records that a call has been started.
func (w *witnesses) begin(s Saying, c *witnessed, clients []Client) error {
	client := s.Client
	if client == "" {
		client = clients[0].Name
	}
	i := slices.IndexFunc(clients, func(x Client) bool { return x.Name == client })
	switch {
	case c != nil:
		return fmt.Errorf("call %q has been told of already", s.Call)
	case i < 0:
		return fmt.Errorf("there is no client %q", client)
	case clients[i].Kind != Command && clients[i].Kind != Anyone:
		return fmt.Errorf("client %q is asked by the run itself", client)
	case len(w.calls) >= MaxWitnessed:
		return fmt.Errorf("%d calls have been told of, and no more are possible", MaxWitnessed)
	}
	w.any = true
	w.calls[s.Call] = &witnessed{n: w.st.Foreign(client, s.Key, s.Wait, s.Lease), client: client, key: s.Key}
	return nil
}

// open takes the stage of a run; shut gives it back.
func (w *witnesses) open(st *verify.Stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.st, w.calls, w.any = st, map[string]*witnessed{}, false
	w.tries++
	w.turned()
}

// turned tells who waits that st has changed.
func (w *witnesses) turned() {
	if w.turn != nil {
		close(w.turn)
	}
	w.turn = make(chan struct{})
}

func (w *witnesses) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.st = nil
	w.turned()
}

// record is what has been recorded since the from-th event of a try, or from the first on of
// the try that goes on now. more is closed when there is more to ask for.
func (w *witnesses) record(try, from int) (events []history.Event, now int, more <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turn == nil {
		w.turn = make(chan struct{})
	}
	if w.st == nil {
		return nil, w.tries, w.turn
	}
	if try != w.tries {
		from = 0
	}
	events, more = w.st.Events(from)
	return events, w.tries, more
}

// told tells whether anybody has said anything of a call.
func (w *witnesses) told() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.any
}

// judge says what the record of the run shows up to now.
func (w *witnesses) judge(p checker.Policy) []checker.Finding {
	w.mu.Lock()
	st := w.st
	w.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.Judge(p).Findings
}
