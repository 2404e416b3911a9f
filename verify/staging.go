package verify

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tornwire/checker"
	"tornwire/client"
	"tornwire/frames"
	"tornwire/history"
)

// Limits of a run in front of a server that is not ours.
const (
	// stagingParallel is how many cases are in flight there if nobody says.
	stagingParallel = 64
	// MaxKeyPrefix is the longest Options.KeyPrefix in bytes.
	MaxKeyPrefix = 64
	// seenAfter is how long after the last byte of a request was written to such a
	// server it is taken to have read it.
	seenAfter = 50 * time.Millisecond
	ownLease  = time.Minute
)

// staging is a server in the embedded one's place.
type staging struct {
	addr, secret, prefix string
	grammar              *frames.Grammar
	first, keys          atomic.Uint64
	greeting             atomic.Int64 // bytes of its line
}

func newStaging(p *Plan) *staging {
	s := &staging{addr: p.Upstream, secret: p.Secret, prefix: p.KeyPrefix, grammar: p.Grammar}
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	s.first.Store(binary.BigEndian.Uint64(b[:]))
	return s
}

// reach tells whether the server is there and takes the secret: an R of a token that
// nobody has is answered.
func (s *staging) reach(ctx context.Context) error {
	w, err := dialWire(ctx, bySocket, s.grammar, s.addr, s.secret)
	if err != nil {
		return fmt.Errorf("the upstream %s cannot be reached: %w", s.addr, err)
	}
	defer w.close()
	s.greeting.Store(int64(w.greeting))
	err = w.send("R", s.fresh(singleKey), nil)
	if err != nil {
		return fmt.Errorf("the upstream %s cannot be reached: %w", s.addr, err)
	}
	f, err := w.read(ctx, wireLimit)
	switch {
	case err != nil:
		return fmt.Errorf("the upstream %s did not answer a release of a key that nobody holds: %w", s.addr, err)
	case f.is("E") || f.is("M"):
		return fmt.Errorf("the upstream %s answered a release with %s %q; is it the leader, and --secret-file right?", s.addr, f.shape.Op, f.key())
	}
	return nil
}

// upstreamGone tells whether the server that is not ours is not there any more, or the
// run was stopped meanwhile. It is asked where a case gives reason to: strange, what
// ended it, or a session that did not reach the server. A server that is gone ends the
// run.
func (r *runner) upstreamGone(ctx context.Context, events []history.Event, cause error, strange bool) bool {
	if r.staging == nil {
		return false
	}
	strange = strange || cause != nil && !isFailure(cause) || slices.ContainsFunc(events, func(e history.Event) bool {
		return e.Kind == history.ServerDialed && e.Detail != ""
	})
	if !strange {
		return false
	}
	err := r.staging.reach(ctx)
	if err == nil || ctx.Err() != nil {
		return ctx.Err() != nil
	}
	r.mu.Lock()
	done := r.progress.Done
	r.mu.Unlock()
	r.report.unreachable(fmt.Errorf("the run ended after %d of %d cases: %w", done, len(r.p.Cases), err))
	r.stop()
	return true
}

const keyDigits = "0123456789abcdefghijklmnopqrstuvwxyz"

// fresh makes a key of the same length as the workload's, behind the prefix. Keys
// of one run differ from each other, and from those of other runs as far as random
// numbers do.
func (s *staging) fresh(like string) string {
	b := []byte(like)
	space := uint64(1)
	for range min(len(b), 12) {
		space *= uint64(len(keyDigits))
	}
	// A step without a factor in common with the space visits all of it.
	n := (s.first.Load() + s.keys.Add(1)*15485863) % space
	for i := range b {
		b[i] = keyDigits[n%uint64(len(keyDigits))]
		n /= uint64(len(keyDigits))
	}
	return s.prefix + string(b)
}

// hand is what a case's own hand does at a server that is not ours.
type hand struct {
	s    *staging
	keys map[string]string // of the workload, and themselves

	mu      sync.Mutex
	client  *client.Client
	tickets map[string]*client.Ticket
}

func (s *staging) hand() *hand {
	return &hand{s: s, keys: map[string]string{}, tickets: map[string]*client.Ticket{}}
}

// dial returns the client by which the tool's own holder acquires.
func (h *hand) dial() (*client.Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.client != nil {
		return h.client, nil
	}
	c, err := client.New(client.Config{Addresses: []string{h.s.addr}, Dialect: h.s.grammar.Name, Secret: h.s.secret})
	h.client = c
	return c, err
}

// key is what a workload's key is called in this case.
func (r *caseRun) key(k string) string {
	if r.own == nil || k == "" {
		return k
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	mine, ok := r.own.keys[k]
	if !ok {
		mine = r.own.s.fresh(k)
		r.own.keys[k], r.own.keys[mine] = mine, mine
	}
	return mine
}

// named puts the case's own key into the frame that its fault acts on.
func (r *caseRun) named(x Expected) Expected {
	if x.hasKey() {
		x.Tail = r.key(x.Tail)
	}
	return x
}

func (x Expected) hasKey() bool {
	return x.Tail != "" && (x.Frame.Op == "A" || x.Frame.Op == "T" || x.Frame.Op == "B" || x.Frame.Op == "R" || x.Frame.Op == "N")
}

// acquireOwn acquires a key of the case for the tool's own holder, and waits for it
// no longer than wait.
func (r *caseRun) acquireOwn(key string, wait time.Duration) (token uint64, ok bool) {
	r.turn(key)
	if r.own == nil {
		return r.srv.Acquire(key, ownLease)
	}
	key = r.key(key)
	if wait == 0 && !current(r.grammar) {
		wait = second
	}
	c, err := r.own.dial()
	if err != nil {
		r.fail(err)
		return 0, false
	}
	out, err := c.Acquire(r.ctx, key, wait, ownLease)
	got, ok := out.(client.Acquired)
	if !ok {
		if err == nil && out != nil {
			err = fmt.Errorf("it ended %s", out)
		}
		r.fail(fmt.Errorf("the tool's own holder could not acquire a fresh key from the upstream: %w", err))
		return 0, false
	}
	r.own.mu.Lock()
	r.own.tickets[key] = got.Ticket
	r.own.mu.Unlock()
	r.rec.Add(history.Event{Kind: history.Granted, Key: key, Token: got.Ticket.Token(), HasToken: true, Lease: ownLease})
	return got.Ticket.Token(), true
}

// releaseOwn ends the grant of the tool's own holder. In front of a server that is not
// ours, a key for which only clients that have left are queued is kept for clearUp.
func (r *caseRun) releaseOwn(key string, token uint64) {
	r.turn(key)
	if r.own == nil {
		r.srv.Release(key, token)
		return
	}
	key = r.key(key)
	if r.deserted(key) {
		return
	}
	r.own.mu.Lock()
	t := r.own.tickets[key]
	delete(r.own.tickets, key)
	r.own.mu.Unlock()
	if t != nil {
		r.rec.Add(history.Event{Kind: history.GrantEnded, Key: key, Token: token, HasToken: true, How: history.Released})
		_ = t.Release(r.ctx) // a grant that is not released ends with its lease
	}
}

// asked returns a condition for until: n requests for a key were written whole to
// the server, or a call is over.
func (r *caseRun) asked(c *call, n int) func(history.Event) bool {
	shape := r.grammar.MustShape(frames.ClientToServer, "A")
	type place struct {
		session int
		seq     uint64
	}
	bytes, size := map[place][]byte{}, map[place]int{}
	whole, over := 0, false
	return func(e history.Event) bool {
		if e.Kind == history.CallResult && e.Call == c.n {
			over = true
		}
		if e.Dir != frames.ClientToServer || e.Frame == nil || e.Frame.Op != "A" {
			return over || whole >= n
		}
		at := place{e.Session, e.Frame.Seq}
		switch e.Kind {
		case history.Received:
			bytes[at] = append(bytes[at], e.Data...)
			if e.Last && string(shape.TailOf(bytes[at])) == c.key {
				size[at] = len(bytes[at])
			}
		case history.WriteAccepted:
			if size[at] > 0 && e.Off+e.N == size[at] {
				whole++
			}
		}
		return over || whole >= n
	}
}

// grantSeen returns a condition for until: an A for a key came from the server.
func (r *caseRun) grantSeen(key string) func(history.Event) bool { return r.replySeen("A", key) }

// releaseSeen returns a condition for until: the key's grant is over.
func (r *caseRun) releaseSeen(key string) func(history.Event) bool {
	if r.own == nil {
		return once(grantOver(key, 0))
	}
	return r.replySeen("R", key)
}

func (r *caseRun) replySeen(op, key string) func(history.Event) bool {
	shape := r.grammar.MustShape(frames.ServerToClient, op)
	parts := map[int][]byte{} // by session
	return once(func(e history.Event) bool {
		if e.Kind != history.Received || e.Dir != frames.ServerToClient || e.Frame == nil || e.Frame.Op != op {
			return false
		}
		if e.Off == 0 {
			parts[e.Session] = nil
		}
		parts[e.Session] = append(parts[e.Session], e.Data...)
		return e.Last && string(shape.TailOf(parts[e.Session])) == key
	})
}

// fits tells whether a case's offsets mean the same there: the greeting is the
// server's own.
func (s *staging) fits(c Case) (checker.Verdict, string) {
	if s == nil || c.ID.Frame.Op != opGreeting || c.ID.Offset == 0 {
		return checker.Safe, ""
	}
	if n := int(s.greeting.Load()); n != c.Frame.Size {
		return checker.Skipped, fmt.Sprintf("the upstream's greeting has %d bytes, not %d", n, c.Frame.Size)
	}
	return checker.Safe, ""
}

// upstreamWords are the flags that lead to the same server.
func (p *Plan) upstreamWords() []string {
	if p.Upstream == "" {
		return nil
	}
	words := []string{"--upstream", shellWord(p.Upstream)}
	if p.SecretFile != "" {
		words = append(words, "--secret-file", shellWord(p.SecretFile))
	}
	if p.ClosedWorld {
		words = append(words, "--closed-world")
	}
	if p.KeyPrefix != "" {
		words = append(words, "--key-prefix", shellWord(p.KeyPrefix))
	}
	return words
}
