package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"tornwire/checker"
	"tornwire/history"
)

// Limits of a registry of runs.
const (
	MaxLiveRuns = 8   // at once
	MaxKeptRuns = 100 // that have ended
)

// Errors of a registry.
var (
	ErrRuns    = fmt.Errorf("%d runs are under way, and no more are possible at once", MaxLiveRuns)
	ErrNoRun   = errors.New("run not found")
	ErrOver    = errors.New("the run is over")
	ErrStopped = errors.New("no more runs are started")
)

// Runs are the runs of a daemon, by id. They are safe for concurrent use.
type Runs struct {
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	last int
	list []*Live // in the order of their starts
}

// NewRuns returns an empty registry.
func NewRuns() *Runs {
	r := &Runs{}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close stops all runs, and returns when they have ended.
func (r *Runs) Close() {
	r.mu.Lock()
	r.stop() // while none is being started
	r.mu.Unlock()
	r.wg.Wait()
}

// Live is a run that was started.
type Live struct {
	ID       string
	Scenario *Scenario
	Began    time.Time

	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	step   int // that is done next, from 0
	told   []Told
	places map[string][]string
	paused bool
	credit int           // steps that may be done although it is paused
	moved  chan struct{} // closed when paused or credit changes
	result *Result
	err    error
	said   *witnesses
	judge  func() []checker.Finding
}

// LiveState is how far a run is.
type LiveState struct {
	State  string // running, paused or done
	Step   int    // that is done next, from 0; the number of steps where all are done
	Told   []Told
	Places map[string][]string // the addresses of each client
	Result *Result             // nil until it is done
	Err    error               // why it could not be run; nil until it is done
}

// Words for LiveState.State.
const (
	Running = "running"
	Paused  = "paused"
	Done    = "done"
)

// Start starts a run; paused, it does no step until it is told to. A scenario that starts
// programs or reads files is refused: who can reach a daemon is not meant to do that.
func (r *Runs) Start(s *Scenario, o Options, paused bool) (*Live, error) {
	for _, c := range s.Clients {
		if c.Kind == Command || c.Kind == Adapter {
			return nil, fmt.Errorf("client %s is a program, and a daemon starts none: tornwire run does", c.Name)
		}
	}
	if s.Server.SecretFile != "" {
		return nil, errors.New("secret_file is a file, and a daemon reads none that a request names: tornwire run does")
	}
	return r.StartHere(s, o, paused)
}

// EnvRun is the variable of a command's environment that has the id of its run.
const EnvRun = "TORNWIRE_RUN"

// StartHere is Start for who has this machine anyway: the scenario may start programs and
// read files.
func (r *Runs) StartHere(s *Scenario, o Options, paused bool) (*Live, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := 0
	for _, l := range r.list {
		if !l.over() {
			live++
		}
	}
	switch {
	case r.ctx.Err() != nil:
		return nil, ErrStopped
	case live >= MaxLiveRuns:
		return nil, ErrRuns
	}
	for len(r.list)-live >= MaxKeptRuns {
		i := slices.IndexFunc(r.list, (*Live).over)
		r.list = slices.Delete(r.list, i, i+1)
	}
	r.last++
	ctx, stop := context.WithCancel(r.ctx)
	l := &Live{ID: strconv.Itoa(r.last), Scenario: s, Began: time.Now(), stop: stop, done: make(chan struct{}), paused: paused, moved: make(chan struct{})}
	r.list = append(r.list, l)
	l.said = &witnesses{}
	told := o.Told
	o.said, o.Before, o.Placed = l.said, l.before, l.place
	o.Told = func(t Told) {
		l.tell(t)
		if told != nil {
			told(t)
		}
	}
	o.Env = append(slices.Clone(o.Env), EnvRun+"="+l.ID)
	t := newTeller(ctx, s, o)
	l.judge = func() []checker.Finding { return l.said.judge(t.policy(t.base())) }
	r.wg.Go(func() {
		defer stop()
		defer close(l.done)
		res, err := Run(ctx, s, o)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.result, l.err = res, err
	})
	return l, nil
}

// Get finds a run.
func (r *Runs) Get(id string) (*Live, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.list {
		if l.ID == id {
			return l, nil
		}
	}
	return nil, ErrNoRun
}

// List lists all runs that are known, in the order of their starts.
func (r *Runs) List() []*Live {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Say records what a witness says, and returns what the record shows then: the findings that
// are there by now. Who says anything of the calls of a run has to say it of all of them.
func (l *Live) Say(s Saying) ([]checker.Finding, error) {
	if err := l.said.say(s, l.Scenario.Clients); err != nil {
		return nil, err
	}
	return l.judge(), nil
}

// Record is the record of the run from its from-th event on: that of its try-th try, from 1,
// or of the one that now is, if that is another; a run that was too late to judge is told
// again, up to three times. more is closed when there may be more to ask for; it is nil when
// the run is over, and the events are all that there are.
func (l *Live) Record(try, from int) (events []history.Event, now int, more <-chan struct{}) {
	events, now, more = l.said.record(try, from)
	if !l.over() {
		return events, now, more
	}
	all := []history.Event{}
	if l.result != nil { // it does not change any more
		all = l.result.Events
	}
	if try != now {
		from = 0
	}
	return all[min(from, len(all)):], now, nil
}

func (l *Live) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Done is closed when the run has ended.
func (l *Live) Done() <-chan struct{} { return l.done }

// Stop ends the run, and returns when all that it had armed, opened and started is gone.
func (l *Live) Stop() {
	l.stop()
	<-l.done
}

// State tells how far the run is.
func (l *Live) State() LiveState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LiveState{State: Running, Step: l.step, Told: slices.Clone(l.told), Places: l.places, Result: l.result, Err: l.err}
	switch {
	case l.result != nil || l.err != nil:
		s.State = Done
	case l.paused && l.credit == 0:
		s.State = Paused
	}
	return s
}

// Pause keeps the run from its next step; its time goes on.
func (l *Live) Pause() error { return l.change(func() { l.paused, l.credit = true, 0 }) }

// Resume lets it go on.
func (l *Live) Resume() error { return l.change(func() { l.paused, l.credit = false, 0 }) }

// Advance lets a paused run do one step more; one that goes on is paused behind its next.
func (l *Live) Advance() error {
	return l.change(func() { l.paused, l.credit = true, l.credit+1 })
}

func (l *Live) change(do func()) error {
	if l.over() {
		return ErrOver
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.moved)
	l.moved = make(chan struct{})
	return nil
}

// before waits until a step may be done. With the first, the run is told from its beginning.
func (l *Live) before(step int, over <-chan struct{}) {
	for {
		l.mu.Lock()
		if l.step = step; step == 0 {
			l.told = nil
		}
		if !l.paused || l.credit > 0 {
			l.credit = max(l.credit-1, 0)
			l.mu.Unlock()
			return
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-over:
			return
		}
	}
}

func (l *Live) tell(t Told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, t)
	l.step++
}

func (l *Live) place(addrs map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places = addrs
}
