package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
	"tornwire/faults"
	"tornwire/history"
)

// Play is a case that is told by somebody else: a workload of which this package knows
// the server alone. It is tried again, judged and made deterministic as any other.
type Play struct {
	Name       string
	Dialect    string
	Nodes      int    // of a cluster with one table; 0: a server alone
	FirstToken uint64 // of the embedded server; 0: its default
	QueueLimit int    // likewise
	// Upstream is a server that is there already, in the embedded one's place: HOST:PORT or
	// unix:/PATH. Its table is not seen.
	Upstream, Secret string
	// Script tells the case. It is told again if the first time was too late to judge.
	Script func(*Stage)
	// Policy changes by what the case is judged; nil: nothing.
	Policy func(checker.Policy) checker.Policy
}

// of is the case of a play.
func (p *Play) of() Case {
	w := &Workload{ID: p.Name, FirstToken: p.FirstToken, QueueLimit: p.QueueLimit, Nodes: p.Nodes, play: p}
	w.Run = func(r *caseRun) {
		p.Script(&Stage{r: r, calls: map[string]*call{}, own: map[string]uint64{}, waits: map[string]func(){}})
	}
	return Case{ID: CaseID{Dialect: p.Dialect, Workload: p.Name, Fault: NoFault}, Workload: w}
}

// policy is by what a play is judged.
func (p *Play) policy(c checker.Policy) checker.Policy {
	if p.Upstream != "" {
		c.SawTable, c.Embedded = false, false
	}
	if p.Policy != nil {
		c = p.Policy(c)
	}
	return c
}

// RunPlay runs a play in real time, with an adapter of its own. Of the options those about
// cases have no meaning. The error is a UsageError, or tells that the adapter cannot be
// used (Unreachable).
func RunPlay(ctx context.Context, o Options, play *Play) (CaseResult, error) {
	o.Dialect = play.Dialect
	p := &Plan{Options: o}
	if err := p.checkWords(); err != nil {
		return CaseResult{}, err
	}
	if err := p.checkNumbers(); err != nil {
		return CaseResult{}, err
	}
	r, end, err := alone(ctx, p)
	var other *unspoken
	switch {
	case errors.As(err, &other):
		return CaseResult{Case: play.of(), Verdict: checker.Skipped, Reason: other.reason}, nil
	case err != nil:
		return CaseResult{}, err
	}
	defer end()
	return r.runNow(r.ctx, play.of()), nil
}

// Play runs a play inside the bubble of the goroutine that asks for it.
func (b *Bubble) Play(ctx context.Context, play *Play, library func(Inside) adapter.Library) CaseResult {
	return b.once(ctx, play.of(), library)
}

// Events are the record of a play.
func (c CaseResult) Events() []history.Event { return c.events }

// Policy is by what a play was judged; nil if it was not, and Reason says why.
func (c CaseResult) Policy() *checker.Policy { return c.judged }

// Stage is where a play takes place: the servers, a proxy and clients of a case, and the
// tool's application, which goes into critical sections. Its methods are called by one
// goroutine, unless they say otherwise; when the case has failed they return at once.
type Stage struct {
	r     *caseRun
	calls map[string]*call
	order []string
	names []string // of the clients that were opened
	own   map[string]uint64
	waits map[string]func() // for the results of releases, by call
	cause sync.Once
}

// Over is closed when the case has failed or its time is up.
func (s *Stage) Over() <-chan struct{} { return s.r.ctx.Done() }

// Fail ends the case, which proves nothing then.
func (s *Stage) Fail(err error) { s.cause.Do(func() { s.r.fail(err) }) }

// Door opens an address for a client, which leads to a node, from 0. listen is HOST:PORT,
// or "" for any.
func (s *Stage) Door(client string, node int, listen string) (addr string, ok bool) {
	return s.r.doorAt(client, node, listen)
}

// Strange records an address that no client is given, so that what connects there is
// known for a stranger's guest. It is ascribed to a client.
func (s *Stage) Strange(client, addr string) {
	s.r.rec.Add(history.Event{Kind: history.CanarySet, Client: client, Addr: addr})
}

// Open opens a client of the adapter at some addresses.
func (s *Stage) Open(client string, addrs []string, secret string) bool {
	s.names = append(s.names, client)
	return s.r.openList(client, addrs, secret)
}

// Acquire asks for a key by a new call with a name.
func (s *Stage) Acquire(name, client, key string, wait, lease time.Duration) {
	s.calls[name] = s.r.acquire(client, key, wait, lease)
	s.order = append(s.order, name)
}

// Call is the number of a call in the record; 0 if there is none of that name.
func (s *Stage) Call(name string) int {
	if c := s.calls[name]; c != nil {
		return c.n
	}
	return 0
}

// Settle waits for the end of a call, and tells whether it is acquired.
func (s *Stage) Settle(name string) bool {
	c := s.calls[name]
	if c.settled == nil {
		got := c.settle()
		c.settled = &got
	}
	return *c.settled
}

// Enter, Leave and Release do what the application of an acquired call does; they do
// nothing with another. Release waits for its result.
func (s *Stage) Enter(name string) {
	if s.Settle(name) {
		s.calls[name].enter()
	}
}

// Leave goes out of the critical section.
func (s *Stage) Leave(name string) { s.calls[name].leave() }

// Release asks for the release of an acquired call, and waits for the result.
func (s *Stage) Release(name string) {
	if s.Settle(name) {
		s.calls[name].release()
	}
}

// Releasing asks for it, and leaves the result to Released or to End.
func (s *Stage) Releasing(name string) {
	if s.Settle(name) {
		s.waits[name] = s.calls[name].startRelease()
	}
}

// Released waits for the result of a release, as long as Release does.
func (s *Stage) Released(name string) {
	if wait := s.waits[name]; wait != nil {
		wait()
	}
}

// Cancel cancels a call.
func (s *Stage) Cancel(name string) { s.r.cancelCall(s.calls[name]) }

// Close closes a client.
func (s *Stage) Close(client string) { s.r.close(client) }

// Hold has the tool's own holder acquire a key at the embedded server. If somebody else has
// it, the case fails.
func (s *Stage) Hold(key string, enter bool) {
	s.r.until(seenLimit, unheld(key))
	token, ok := s.r.acquireOwn(key, 0)
	if !ok {
		if !s.r.over() {
			s.r.fail(fmt.Errorf("the tool's own holder could not have key %q: somebody else has it", key))
		}
		return
	}
	s.own[key] = token
	if enter {
		s.r.enter(0, "", key, token)
	}
}

// Free releases what Hold has.
func (s *Stage) Free(key string) {
	if token, ok := s.own[key]; ok {
		delete(s.own, key)
		s.r.releaseOwn(key, token)
	}
}

// Expired waits until no lease of a key runs.
func (s *Stage) Expired(key string) bool {
	s.r.until(grantLimit, once(func(e history.Event) bool { return e.Kind == history.Granted && e.Key == key }))
	return s.r.until(expiryLimit, unheld(key))
}

// Await feeds the record to a condition, event by event, until it holds or a time has passed.
func (s *Stage) Await(limit time.Duration, holds func(history.Event) bool) bool {
	return s.r.until(limit, holds)
}

// Now is the time since the play began.
func (s *Stage) Now() time.Duration { return time.Since(s.r.began) }

// Pause waits for a time.
func (s *Stage) Pause(d time.Duration) { s.r.pause(d) }

// Wait waits for something outside the stage.
func (s *Stage) Wait(done <-chan struct{}) {
	select {
	case <-done:
	case <-s.r.ctx.Done():
	}
}

// Arm arms a rule; Disarm and Gate may be called by any goroutine.
func (s *Stage) Arm(rule faults.Rule) error { return s.r.px.Arm(rule) }

// Disarm takes a rule back.
func (s *Stage) Disarm(id string) { s.r.px.Disarm(id) }

// Gate opens a gate, or shuts it. It fails where there are too many.
func (s *Stage) Gate(name string, open bool) error {
	if open {
		return s.r.px.OpenGate(name)
	}
	s.r.px.ShutGate(name)
	return nil
}

// Lead has a node of the cluster lead, from 0, which the others name by an address; none
// leads with a node under 0.
func (s *Stage) Lead(node int, addr string) {
	s.r.turn("")
	if node < 0 {
		s.r.cluster.NoLeader()
	} else if err := s.r.cluster.Lead(node, addr); err != nil {
		s.r.fail(err)
	}
}

// Notice has every node tell its clients, by L, that the one with an address leads.
func (s *Stage) Notice(addr string) {
	s.r.turn("")
	for i := range max(s.r.of.Workload.Nodes, 1) {
		s.r.node(i).Notice(addr)
	}
}

// Active has a node of the cluster serve, or not.
func (s *Stage) Active(node int, active bool) {
	s.r.turn("")
	s.r.cluster.SetActive(node, active)
}

// Witness records what somebody else says of a client: of a call that it has begun with
// Foreign. An entry and an exit write to the resource. Any goroutine may call it.
func (s *Stage) Witness(e history.Event) {
	if e.Kind == history.Entered || e.Kind == history.Left {
		e.Refused = s.r.write(e.Key, e.Token)
	}
	s.r.rec.Add(e)
}

// Foreign gives a call that somebody else makes its number in the record. Any goroutine may
// call it.
func (s *Stage) Foreign(client, key string, wait, lease time.Duration) int {
	s.r.mu.Lock()
	c := &call{r: s.r, n: len(s.r.calls) + 1, client: client, key: key, wait: wait, lease: lease, failed: true}
	s.r.calls = append(s.r.calls, c)
	s.r.mu.Unlock()
	s.r.rec.Add(history.Event{Kind: history.CallAsked, Call: c.n, Client: client, Key: key, Wait: wait, Lease: lease})
	s.r.rec.Add(history.Event{Kind: history.CallStarted, Call: c.n, Client: client, Key: key})
	return c.n
}

// Judge says what the record shows up to now.
func (s *Stage) Judge(p checker.Policy) checker.Result {
	s.r.px.RecordAcked()
	events, _ := s.r.rec.Events(0)
	return checker.Check(events, p)
}

// Events are the record from its nth event on; more is closed when there is more.
func (s *Stage) Events(from int) (events []history.Event, more <-chan struct{}) {
	return s.r.rec.Events(from)
}

// End waits for all calls and releases, and closes the clients.
func (s *Stage) End() {
	for _, name := range s.order {
		s.Settle(name)
	}
	for _, name := range s.order {
		s.Released(name)
	}
	for _, name := range s.names {
		s.r.close(name)
	}
}

// openList is openAs at addresses that are there.
func (r *caseRun) openList(name string, list []string, secret string) bool {
	c := &caseClient{name: fmt.Sprintf("%s-%d", name, r.serial), addrs: list}
	r.mu.Lock()
	r.clients[name] = c
	r.mu.Unlock()
	var refused string
	r.conn.opened()
	c.opened, refused = r.ask(adapter.Request{
		Type: adapter.TypeOpen, Client: c.name, Addresses: list, Secret: &secret,
	}, adapter.TypeOpenOK, func() {
		r.rec.Add(history.Event{Kind: history.ClientOpened, Client: name, Addr: strings.Join(list, ",")})
	})
	if refused != "" && r.id.Fault == NoFault && secret == r.secret() {
		r.fail(fmt.Errorf("open failed without a fault: %s", refused))
	}
	r.calm(name)
	return c.opened
}
