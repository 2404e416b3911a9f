package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/internal/memnet"
)

// Dial connects to an address of a case's network, like net.Dialer.DialContext.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// bySocket is Dial over the system's network.
func bySocket(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Inside is what a case inside a bubble gives to a library.
type Inside struct {
	// Dial connects on the case's network; nothing else does.
	Dial Dial
	// Seed is that of the run and the case: never 0, the same each time the case is run.
	Seed uint64
}

// inside is the network in memory of a case in a bubble.
type inside struct {
	*memnet.Network
	settle func() // of turns
	rec    *history.Recorder
}

// dial connects on the network that the library uses.
func (c *adapterConn) dial() Dial {
	if c.inside != nil {
		return c.inside.Dial
	}
	return bySocket
}

// Bubble runs the cases of a plan against a Go library, each on a network of its own
// in memory and inside the synctest bubble of the goroutine that asks for it, where waits
// cost no time and nothing is late. Its methods may be called from several bubbles at
// once.
type Bubble struct {
	// Transcribe fills the results' Transcript. It is set before the first run.
	Transcribe bool

	p      *Plan
	settle func()

	mu      sync.Mutex
	control map[string]CaseResult // by workload: its run without a fault
}

// NewBubble checks the options and lists the cases, as NewPlan does. settle is
// synctest.Wait, which this package must not import: it is part of testing. Start, Alone,
// Parallel, Timeout and Upstream have no meaning here.
func NewBubble(o Options, settle func()) (*Bubble, error) {
	if o.Upstream != "" {
		return nil, usagef("a server that is not in this process cannot be reached from inside a bubble")
	}
	p, err := NewPlan(o)
	if err != nil {
		return nil, err
	}
	return &Bubble{p: p, settle: settle, control: map[string]CaseResult{}}, nil
}

// For is a Bubble of the same plan for another library, which sends other frames.
func (b *Bubble) For() *Bubble {
	return &Bubble{Transcribe: b.Transcribe, p: b.p, settle: b.settle, control: map[string]CaseResult{}}
}

// Cases lists the cases of the plan, each workload's together.
func (b *Bubble) Cases() []Case { return b.p.Cases }

// Sane runs the sanity case of a run: a client that does not acquire and release a free key
// when nothing is torn has sent nothing that could be, and would be SAFE in most cases. It
// is INCONCLUSIVE then.
func (b *Bubble) Sane(ctx context.Context, library func(Inside) adapter.Library) CaseResult {
	res := b.once(ctx, Case{ID: CaseID{Dialect: b.p.Dialect, Workload: sanity.ID, Fault: NoFault}, Workload: sanity}, library)
	res.sane()
	if res.Verdict == checker.Inconclusive && len(res.frames) == 0 {
		res.Reason += "; it did not connect: inside a bubble it has to connect with the Dial of its case, and with nothing else"
	}
	return res
}

// Run runs one case. The caller is inside a bubble, and nothing of the case is left in
// it afterwards but what the library has left.
func (b *Bubble) Run(ctx context.Context, c Case, library func(Inside) adapter.Library) CaseResult {
	control := b.Control(ctx, c.Workload, library)
	if c.ID.Fault == NoFault {
		control.Case = c
		return control
	}
	if verdict, reason := canFire(c, control); verdict != checker.Safe {
		return CaseResult{Case: c, Verdict: verdict, Reason: reason}
	}
	return b.once(ctx, c, library)
}

// Control runs a workload without a fault, if no case of it has needed that before. It
// tells which frames the client sends.
func (b *Bubble) Control(ctx context.Context, w *Workload, library func(Inside) adapter.Library) CaseResult {
	b.mu.Lock()
	got, ok := b.control[w.ID]
	b.mu.Unlock()
	if ok {
		return got
	}
	got = b.once(ctx, Case{ID: CaseID{Dialect: b.p.Dialect, Workload: w.ID, Fault: NoFault}, Workload: w}, library)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.control[w.ID] = got
	return got
}

// recorder is where a case records.
func (c *adapterConn) recorder() *history.Recorder {
	if c.inside != nil {
		return c.inside.rec
	}
	return history.NewRecorder()
}

// rooms are those of records. What is said of a case refers to nothing in its own.
var rooms = sync.Pool{New: func() any { room := make([]history.Event, 0, 256); return &room }}

// errNoFreeze: to stop a client means that time passes while it has something to do.
var errNoFreeze = &skipError{"a bubble's clock stands still while the client has something to do, so that it cannot be stopped there: tornwire verify -- ADAPTER shows it"}

// once tries a case, again if its fault did not fire: a client that does not draw from
// its seed may have another order the next time.
func (b *Bubble) once(ctx context.Context, c Case, library func(Inside) adapter.Library) CaseResult {
	for n := 0; ; n++ {
		t := b.try(ctx, c, library)
		t.Repeated = n
		if n == unfiredTries || !errors.Is(t.err, errUnfired) {
			t.unjudged()
			return t.CaseResult
		}
	}
}

// try is one try, on a network of its own.
func (b *Bubble) try(ctx context.Context, c Case, library func(Inside) adapter.Library) try {
	none := try{CaseResult: CaseResult{Case: c}}
	if c.Workload.Alone {
		none.err = errNoFreeze
		return none
	}
	network := networkOf(c)
	conn, err := initAdapter(ctx, &attached{lib: library(Inside{network.Dial, seedOf(b.p.Seed, c.ID)})}, b.p.Dialect)
	if err != nil {
		none.err = err
		return none
	}
	room := rooms.Get().(*[]history.Event)
	conn.inside = &inside{network, b.settle, history.NewRecorderIn(*room)}
	defer func() {
		*room = conn.inside.rec.Take()
		rooms.Put(room)
	}()
	defer conn.stop()
	if !conn.speaks(b.p.Dialect) {
		none.err = &skipError{fmt.Sprintf("the library speaks %v, not %s", conn.info.Dialects, b.p.Dialect)}
		return none
	}
	r := &runner{p: b.p, pool: &adapters{pools: []*adapterPool{{conn: conn}}, busy: []int{0}}, policy: policyFor(b.p, conn), control: map[string]CaseResult{}, transcribe: b.Transcribe}
	b.mu.Lock()
	if control, ok := b.control[c.Workload.ID]; ok {
		r.control[c.Workload.ID] = control
	}
	b.mu.Unlock()
	return r.try(ctx, c)
}

const (
	// lag is how long what is written to a client takes: without it an answer would come
	// in the very moment of a deadline, and which of the two came first would be left to
	// chance.
	lag = 1370 * time.Nanosecond
	// trickle is the time from a byte of a client to the next where its write is to be
	// cut short. No number of them is one of lags.
	trickle = time.Microsecond
)

// networkOf is the network of a case. Where a request is cut and the client is told, a
// byte goes at a time, so that the client's write is cut short and says how many bytes
// went out; else all that is written is taken, as kernels do.
func networkOf(c Case) *memnet.Network {
	told := slices.Contains([]string{"truncate-fin", "truncate-rst", "truncate-fin-client", "truncate-rst-client"}, c.ID.Fault)
	cut := told && c.ID.Frame.Dir == frames.ClientToServer
	return memnet.New(memnet.Options{OnConn: func(dialed, accepted *memnet.Conn) {
		accepted.Lag(lag)
		if cut {
			dialed.Trickle(trickle)
		}
	}})
}

// Describe tells a person why a case is not SAFE: each finding with its bytes, what the
// server's table said, and the timeline, or the reason.
func Describe(c CaseResult) string {
	var b strings.Builder
	for _, f := range c.Findings {
		rule, _ := checker.RuleByID(f.Rule)
		fmt.Fprintf(&b, "%s (%s, %s): %s\n", f.Rule, f.Severity, f.Certainty, rule.Sentence)
		textFinding(&b, Finding{Case: c.Case.ID.String(), Finding: f, Class: classOf(c.Case.ID)}, true)
	}
	if c.Reason != "" {
		fmt.Fprintf(&b, "%s\n", c.Reason)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// seedOf is the seed of what a library draws in a case.
func seedOf(seed uint64, id CaseID) uint64 {
	return max(rand.New(rand.NewPCG(seed+1, idHash(id))).Uint64(), 1)
}
