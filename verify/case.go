package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tornwire/adapter"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
	"tornwire/server"
)

// Limits and times of a case.
const (
	// settleAfter is how long after a call's deadline its result is awaited
	// (rule settles).
	settleAfter = 5 * time.Second
	// immediateLimit is the deadline of a call with wait 0 (spec/ticketing.md §3.8).
	immediateLimit = 5 * time.Second
	// releaseLimit is how long a release is awaited; without a result the case
	// goes on.
	releaseLimit = 6 * time.Second
	// watchAfter is how long the wire is watched after a call that did not end
	// acquired, or with a client that cannot close: a client that sends its
	// request again behind the application's back does it then.
	watchAfter = 250 * time.Millisecond
	// closeLimit is how long the ends of a closed client's sessions are awaited.
	closeLimit = time.Second
	// readSize holds any frame; hundreds of cases wait at once.
	readSize = 512
	// quietFor and calmLimit: after open, a client that connects by itself has
	// done so when its connections were quiet for so long.
	quietFor  = 40 * time.Millisecond
	calmLimit = 400 * time.Millisecond
	// prefaceLimit is the server's, over every time for which a greeting is held.
	prefaceLimit = 30 * time.Second
	// fireLimit is how long a fault that has not fired when the workload is over
	// is awaited.
	fireLimit = time.Second
	// refuseLimit ends the refusal of a connection that no call has needed. It is
	// over the time that any workload takes.
	refuseLimit = time.Minute
)

// address numbers the loopback addresses of this process. The second byte
// depends on the process, so that two runs on one machine rarely share one.
var address atomic.Uint32

// nextAddress returns a loopback address that no other case of this process has.
func nextAddress() string {
	n := address.Add(1)
	second := 16 + (uint32(os.Getpid())+n>>16)%200
	return fmt.Sprintf("127.%d.%d.%d", second, n>>8&0xff, n&0xff)
}

// insideAddress is that of every case which has a network to itself.
const insideAddress = "127.1.2.3"

// errUnsupported ends a case that the library has no way to do.
type errUnsupported struct{ what, detail string }

func (e *errUnsupported) Error() string {
	return fmt.Sprintf("the adapter does not support %s: %s", e.what, e.detail)
}

// caseRun is one try of a case.
type caseRun struct {
	id      CaseID
	of      Case
	conn    *adapterConn
	rec     *history.Recorder
	srv     *server.Server  // the embedded one; nil in front of another
	cluster *server.Cluster // nil where the workload asks for none; srv is its first node then
	own     *hand           // the tool's own hand in front of another; nil at the embedded one
	px      *proxy.Proxy
	grammar *frames.Grammar
	addr    string
	serial  uint64
	began   time.Time
	// patience is how long after a deadline a session may still be open.
	patience time.Duration

	ctx    context.Context // of the case: done when it fails or is over
	cancel context.CancelCauseFunc
	netCtx context.Context // of its network: done when it is torn down
	netEnd context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	clients map[string]*caseClient
	calls   []*call
	top     map[string]uint64 // the resource: highest token seen, by key
	watch   bool              // a call ended other than acquired
	// prompted are the connections to a server that is not ours.
	prompted []*prompted

	turns turns // inside a bubble

	met atomic.Bool // a call was started that a later refusal was meant for
}

var serials atomic.Uint64

// newCaseRun builds the network of a case: a lock server of its own, or the one that
// is there, and a proxy with the case's fault in front of it.
func newCaseRun(ctx context.Context, c Case, conn *adapterConn, seed uint64, limit time.Duration, there *staging) (*caseRun, error) {
	id := c.ID
	r := &caseRun{
		id: id, of: c, conn: conn, rec: conn.recorder(), serial: serials.Add(1),
		grammar: frames.MustBuiltin(id.Dialect), began: time.Now(),
		clients: map[string]*caseClient{}, top: map[string]uint64{},
	}
	if conn.inside == nil {
		r.addr = nextAddress()
	} else {
		r.addr = insideAddress
	}
	if there != nil {
		r.own = there.hand()
		c.Frame = r.named(c.Frame)
		r.of = c
	}
	rules, err := rulesOf(c, r.grammar)
	if err != nil {
		return nil, err
	}
	cfg := proxy.Config{Grammar: r.grammar, Rules: rules, Recorder: r.rec, ReadSize: readSize, Observe: r.unaccepted}
	if conn.inside != nil {
		cfg.Listen = conn.inside.Listen
	}
	if !conn.closes() {
		cfg.Keep = conn.keep
	}
	serve := func() {}
	if p := c.Workload.play; p != nil && p.Upstream != "" {
		cfg.Upstream = p.Upstream
	} else if there != nil {
		cfg.Upstream, cfg.Dial = there.addr, r.dialPrompted
	} else if serve, err = r.embed(&cfg, seed); err != nil {
		return nil, err
	}
	r.px = proxy.New(cfg)
	// The network outlives a cancelled case, so that it is torn down in order.
	r.netCtx, r.netEnd = context.WithCancel(context.WithoutCancel(ctx))
	tctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the case took over %s", limit))
	r.ctx, r.cancel = context.WithCancelCause(tctx)
	context.AfterFunc(r.ctx, stop)
	if conn.inside != nil {
		r.turns.settle = conn.inside.settle
	}
	serve()
	r.wg.Go(r.heed)
	if lasts := refusesLater(c); lasts > 0 {
		r.wg.Go(func() { r.refuseFor(lasts) })
	}
	return r, nil
}

// listen opens a port on the case's address, or what is asked for. Where the system has only one
// loopback address, that one is used.
func (r *caseRun) listen(asked string) (net.Listener, error) {
	if asked != "" && r.conn.inside == nil {
		return net.Listen("tcp", asked)
	}
	if r.conn.inside != nil {
		return r.conn.inside.Listen("tcp4", r.addr+":0")
	}
	l, err := net.Listen("tcp4", r.addr+":0")
	if err != nil && r.addr != "127.0.0.1" {
		if l2, err2 := net.Listen("tcp4", "127.0.0.1:0"); err2 == nil {
			return l2, nil
		}
	}
	return l, err
}

// tableEvent records what the server's table did.
func (r *caseRun) tableEvent(e server.Event) {
	r.rec.Add(history.Event{
		Kind: history.Kind(e.Kind), Key: e.Key, Token: e.Token, HasToken: e.Token != 0,
		Owner: e.Owner, HasOwner: e.HasOwner, Wait: e.Wait, Lease: e.Lease, Peer: e.Peer, How: e.How,
	})
}

// heed ends the case when its adapter has failed, whatever the case waits for.
func (r *caseRun) heed() {
	select {
	case <-r.conn.gone:
		r.fail(r.conn.reason())
	case <-r.netCtx.Done():
	}
}

// fail ends the case; what it still does returns at once.
func (r *caseRun) fail(err error) { r.cancel(err) }

// over tells whether the case has failed.
func (r *caseRun) over() bool { return r.ctx.Err() != nil }

// ask sends a request with one answer within requestLimit. It is false if the
// case failed or the adapter answered with an error.
func (r *caseRun) ask(req adapter.Request, want string, got func()) (ok bool, refused string) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, requestLimit, &failure{
		reason: fmt.Sprintf("the adapter did not answer %s within %s", req.Type, requestLimit),
	})
	defer cancel()
	var resp adapter.Response
	err := r.conn.ask(ctx, req, []string{want, adapter.TypeError, adapter.TypeUnsupported}, func(a adapter.Response) {
		resp = a
		if a.Type == want && got != nil {
			got()
		}
	})
	if err != nil {
		var f *failure
		if errors.As(err, &f) && r.ctx.Err() == nil {
			r.conn.fail(err)
		}
		r.fail(err)
		return false, ""
	}
	switch resp.Type {
	case adapter.TypeUnsupported:
		r.fail(&errUnsupported{req.Type, resp.Detail})
		return false, ""
	case adapter.TypeError:
		return false, resp.Detail
	}
	return true, ""
}

// pause is sleep for the tool's application.
func (r *caseRun) pause(d time.Duration) {
	r.sleep(d)
	r.turn("")
}

// sleep waits for a time, or until the case fails.
func (r *caseRun) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}

// turn returns when what the tool has done before is over, and the caller may act; in
// real time nobody can tell that, and it returns at once.
func (r *caseRun) turn(rank string) {
	if r.conn.inside != nil {
		r.turns.take(rank, r.ctx.Done(), r.wg.Go)
	}
}

// until is await for what the tool's application waits for.
func (r *caseRun) until(limit time.Duration, holds func(history.Event) bool) bool {
	defer r.turn("")
	return r.await(limit, holds)
}

// await feeds the record to a condition, event by event, until it holds or a
// time has passed. It tells whether it held. What was recorded before the call
// is fed in one go, so that the condition is asked of the state now.
func (r *caseRun) await(limit time.Duration, holds func(history.Event) bool) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	from := 0
	for {
		ev, more := r.rec.Events(from)
		from += len(ev)
		met := false
		for _, e := range ev {
			met = holds(e)
		}
		if met {
			return true
		}
		select {
		case <-more:
		case <-t.C:
			return false
		case <-r.ctx.Done():
			return false
		}
	}
}

// once returns a condition for await: an event that matches was recorded.
func once(match func(history.Event) bool) func(history.Event) bool {
	met := false
	return func(e history.Event) bool {
		met = met || match(e)
		return met
	}
}

// isFiring matches the case's fault acting.
func isFiring(e history.Event) bool { return e.Kind == history.Fired }

// finish ends what is left of the case and returns its record.
func (r *caseRun) finish() []history.Event {
	if r.id.Fault != NoFault {
		r.until(fireLimit, once(isFiring))
	}
	r.turn("")
	r.px.RecordAcked()
	r.rec.Add(history.Event{Kind: history.CaseEnding})
	r.cancel(errCaseOver)
	r.netEnd()
	r.wg.Wait()
	ev, _ := r.rec.Events(0)
	r.clearUp(ev)
	// What the tear-down makes a client or the server do proves nothing.
	if i := slices.IndexFunc(ev, func(e history.Event) bool { return e.Kind == history.CaseEnding }); i >= 0 {
		ev = ev[:i+1]
	}
	return ev
}

var errCaseOver = errors.New("the case is over")
