package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"tornwire/adapter"
)

// Limits of the adapter protocol (spec/adapter.md).
const (
	InitLimit    = 60 * time.Second
	RequestLimit = 10 * time.Second // open, cancel, close
	exitLimit    = 5 * time.Second  // after the end of stdin
	pingEvery    = 100 * time.Millisecond
)

// The limits in force; only tests change them.
var initLimit, requestLimit = InitLimit, RequestLimit

// transport is a running adapter: a child process, or a library in this one.
type transport interface {
	io.Writer          // its stdin
	Lines() io.Reader  // its stdout
	Stop() error       // closes stdin, waits a while, then kills; nothing is left
	LastWords() string // last lines of its stderr
}

// adapterConn speaks the protocol over a transport. The reader goroutine calls
// each waiter in the order of the lines, so that what a waiter records is
// recorded when the line was read. A library that is asked by calls tells itself.
type adapterConn struct {
	t    transport
	info adapter.Response // init_ok
	out  chan []byte
	gone chan struct{} // closed when the adapter has failed or was stopped
	once sync.Once
	wg   sync.WaitGroup

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*waiter
	err     error
	pings   pinger
	used    usage
	pool    int // of the run's; set before it is used

	inside *inside   // the network that the library uses; nil: sockets
	direct *attached // a library that is asked by calls; nil: lines go over t

	telling sync.Mutex // a waiter is told
}

// waiter gets the answers to one request.
type waiter struct {
	types []string               // types of answers that are right
	got   func(adapter.Response) // called by the reader; must not block
	last  func(typ string) bool  // whether an answer ends the exchange
	done  chan struct{}          // closed with the last answer
	seen  map[string]bool
}

// failure is why an adapter failed, with what it said last.
type failure struct {
	reason string
	words  string
}

func (f *failure) Error() string {
	if f.words == "" {
		return f.reason
	}
	return f.reason + "; its last words on stderr: " + f.words
}

// dialAdapter initialises a transport, and watches from then on whether the adapter
// answers in time. It fails without a valid init_ok.
func dialAdapter(ctx context.Context, t transport, dialect string) (*adapterConn, error) {
	c, err := initAdapter(ctx, t, dialect)
	if err == nil {
		c.wg.Go(c.ping)
	}
	return c, err
}

// outRoom is how many requests wait to be written.
const outRoom = 1024

// initAdapter is dialAdapter where nothing can be late.
func initAdapter(ctx context.Context, t transport, dialect string) (*adapterConn, error) {
	c := &adapterConn{
		t: t, gone: make(chan struct{}), waiting: map[uint64]*waiter{},
	}
	if d, ok := t.(*attached); ok {
		c.direct = d
		d.Attached = adapter.Attach(d.lib, c.told)
	} else {
		c.out = make(chan []byte, outRoom)
		c.wg.Go(c.read)
		c.wg.Go(c.write)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, initLimit, fmt.Errorf("no init_ok within %s", initLimit))
	defer cancel()
	var got adapter.Response
	req := adapter.Request{Type: adapter.TypeInit, Version: adapter.Version, Dialect: dialect}
	err := c.ask(ctx, req, []string{adapter.TypeInitOK, adapter.TypeError}, func(r adapter.Response) { got = r })
	switch {
	case err != nil:
	case got.Type == adapter.TypeError:
		err = &failure{reason: "the adapter refused init: " + got.Detail}
	case got.Client == "" || len(got.Dialects) == 0:
		err = &failure{reason: "init_ok without client or dialects"}
	default:
		for _, word := range got.Outcomes {
			if !slices.Contains(acquireOutcomes, word) && !slices.Contains(releaseOutcomes, word) {
				err = &failure{reason: fmt.Sprintf("init_ok declares outcome %q, which is none of %v, nor of %v%s", word, acquireOutcomes, releaseOutcomes,
					DidYouMean(word, slices.Concat(acquireOutcomes, releaseOutcomes)))}
			}
		}
	}
	if err != nil {
		c.stop()
		return nil, c.explain(err)
	}
	c.info = got
	return c, nil
}

const errAdapterExited = "the adapter exited"

// explain prefers the adapter's own failure, which says more than a timeout.
func (c *adapterConn) explain(err error) error {
	var f *failure
	if own := c.reason(); errors.As(own, &f) {
		err = own
	}
	reason := err.Error()
	if errors.As(err, &f) {
		reason = f.reason
	}
	words := c.t.LastWords()
	if p, ok := c.t.(*process); ok && reason == errAdapterExited {
		reason = p.ending(reason)
	}
	return &failure{reason: reason, words: words}
}

// speaks tells whether the adapter knows a dialect.
func (c *adapterConn) speaks(dialect string) bool { return slices.Contains(c.info.Dialects, dialect) }

// stop ends the adapter and waits until nothing of it is left.
func (c *adapterConn) stop() {
	c.fail(errors.New("the adapter was stopped"))
	c.wg.Wait()
	c.letGo()
}

// fail ends the connection once. Everybody who waits is told.
func (c *adapterConn) fail(err error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		close(c.gone)
		c.wg.Go(func() { _ = c.t.Stop() })
	})
}

// reason returns why the connection is gone.
func (c *adapterConn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// start sends a request; got is called for each answer by the reader.
func (c *adapterConn) start(req adapter.Request, w *waiter) (*waiter, uint64, error) {
	w.done, w.seen = make(chan struct{}), map[string]bool{}
	if w.last == nil {
		w.last = func(string) bool { return true }
	}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, 0, c.err
	}
	req.ID = c.next
	c.next++
	c.waiting[req.ID] = w
	c.mu.Unlock()
	if c.direct != nil {
		c.direct.Do(req)
		return w, req.ID, nil
	}
	line, err := json.Marshal(req)
	if err != nil {
		return nil, 0, err
	}
	select {
	case c.out <- append(line, '\n'):
		return w, req.ID, nil
	case <-c.gone:
		return nil, 0, c.reason()
	}
}

// ask sends a request that has one answer, and waits for it.
func (c *adapterConn) ask(ctx context.Context, req adapter.Request, types []string, got func(adapter.Response)) error {
	w, _, err := c.start(req, &waiter{types: types, got: got})
	if err != nil {
		return err
	}
	select {
	case <-w.done:
		return nil
	case <-c.gone:
		return c.reason()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write sends lines. A full pipe to an adapter that does not read ends when the
// adapter is stopped.
func (c *adapterConn) write() {
	for {
		select {
		case line := <-c.out:
			if _, err := c.t.Write(line); err != nil {
				// The reader knows better why: give it the chance to say so.
				select {
				case <-c.gone:
				case <-time.After(time.Second):
					c.fail(&failure{reason: "the adapter does not take requests: " + err.Error()})
				}
				return
			}
		case <-c.gone:
			return
		}
	}
}

// read takes answers until the adapter fails or ends.
func (c *adapterConn) read() {
	sc := bufio.NewScanner(c.t.Lines())
	sc.Buffer(make([]byte, 4<<10), adapter.MaxLine)
	for sc.Scan() {
		if err := c.answer(sc.Bytes()); err != nil {
			c.fail(err)
			break
		}
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		c.fail(&failure{reason: fmt.Sprintf("the adapter printed a line of over %d bytes", adapter.MaxLine)})
	default:
		c.fail(&failure{reason: errAdapterExited})
	}
	_, _ = io.Copy(io.Discard, c.t.Lines()) // let it finish what it writes
}

// answer hands a line to its waiter. An error means that the adapter failed.
func (c *adapterConn) answer(line []byte) error {
	var r adapter.Response
	if err := json.Unmarshal(line, &r); err != nil || r.ID == nil || !utf8.Valid(line) {
		what := "is not a JSON object in UTF-8 with type and id"
		return &failure{reason: fmt.Sprintf("the adapter printed a line that %s (is it a log on stdout? logs belong on stderr): %s", what, quoteLine(line))}
	}
	return c.tell(r, func() string { return quoteLine(line) })
}

// told gets the answers of a library that is asked by calls.
func (c *adapterConn) told(r adapter.Response) {
	err := c.tell(r, func() string {
		line, _ := json.Marshal(r) // it comes from a library's own words and numbers
		return quoteLine(line)
	})
	if err != nil {
		c.fail(err)
	}
}

// tell hands an answer to its waiter, and quotes it where it is none.
func (c *adapterConn) tell(r adapter.Response, quote func() string) error {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	w := c.waiting[*r.ID]
	if w == nil {
		used := *r.ID < c.next
		c.mu.Unlock()
		if used {
			return &failure{reason: "the adapter answered twice: " + quote()}
		}
		return &failure{reason: "the adapter answered a request that was never made: " + quote()}
	}
	if w.seen[r.Type] || !slices.Contains(w.types, r.Type) {
		c.mu.Unlock()
		return &failure{reason: fmt.Sprintf("the adapter's answer is not one of %s, or a second one: %s", strings.Join(w.types, ", "), quote())}
	}
	w.seen[r.Type] = true
	last := w.last(r.Type)
	if last {
		delete(c.waiting, *r.ID)
	}
	c.mu.Unlock()
	w.got(r)
	if last {
		close(w.done)
	}
	return nil
}

// quoteLine shows a line of the adapter, at most 200 bytes of it.
func quoteLine(line []byte) string {
	if len(line) > 200 {
		return fmt.Sprintf("%q and %d more bytes", line[:200], len(line)-200)
	}
	return fmt.Sprintf("%q", line)
}

// pinger remembers when the adapter's scheduler was last heard of.
type pinger struct {
	sent     time.Time // of the ping under way, zero if none is
	lastLate time.Time // when lateness was last seen
	lastTook time.Duration
	best     time.Duration // the shortest so far: the adapter's own delay
	off      bool          // the adapter has no pong
	stopping bool          // the adapter is being stopped, or has been
	frozen   time.Time     // when all of it had stopped; zero if it runs
	thawed   time.Time     // when it was continued last
	spoke    bool          // it answered a ping that was sent while it was frozen
}

// ping asks for a pong again and again.
func (c *adapterConn) ping() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.gone:
			return
		}
		c.mu.Lock()
		c.pings.sent = time.Now()
		c.mu.Unlock()
		w, _, err := c.start(adapter.Request{Type: adapter.TypePing}, &waiter{
			types: []string{adapter.TypePong, adapter.TypeUnsupported}, got: c.pong,
		})
		if err != nil {
			return
		}
		select {
		case <-w.done:
		case <-c.gone:
			return
		}
	}
}

func (c *adapterConn) pong(r adapter.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Type == adapter.TypeUnsupported {
		c.pings.off = true
	}
	c.pings.spoke = c.pings.spoke || !c.pings.frozen.IsZero() && c.pings.sent.After(c.pings.frozen)
	c.pings.lastTook = c.pings.since()
	if c.pings.best == 0 || c.pings.lastTook < c.pings.best {
		c.pings.best = c.pings.lastTook
	}
	if c.pings.lastTook > LateLimit {
		c.pings.lastLate = time.Now()
	}
	c.pings.sent = time.Time{}
}

// lateSince tells whether a pong was late, or is now, since a case began.
func (c *adapterConn) lateSince(begin time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pings.off {
		return false
	}
	return c.pings.lastLate.After(begin) || c.pings.since() > LateLimit
}

// hasPong tells whether P11 can hold.
func (c *adapterConn) hasPong() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.pings.off
}

// strain returns how much later than at its best the adapter answers at present.
func (c *adapterConn) strain() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.pings.lastTook-c.pings.best, c.pings.since()-c.pings.best, 0)
}
