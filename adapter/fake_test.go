package adapter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeLibrary follows the first word of a key: "grant", "timeout" after the
// wait, "block" until cancel or close, "stuck" for ever, or any other word as
// the outcome.
type fakeLibrary struct {
	info    Info
	openErr error
	opening chan struct{} // if set, Open waits until it is closed

	mu       sync.Mutex
	opens    []string
	clients  []*fakeClient
	releases []uint64
	closes   int
	acquires []string
}

func newFake() *fakeLibrary {
	return &fakeLibrary{info: Info{
		Client: "fake 1", Dialects: []string{"ticketing"}, Features: []string{"cancel", "close", "owner"},
	}}
}

func (l *fakeLibrary) Info() Info { return l.info }

func (l *fakeLibrary) Open(dialect string, addresses []string, secret string) (Client, error) {
	if l.opening != nil {
		<-l.opening
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opens = append(l.opens, fmt.Sprint(dialect, addresses, secret))
	if l.openErr != nil {
		return nil, l.openErr
	}
	c := &fakeClient{lib: l, gone: make(chan struct{})}
	l.clients = append(l.clients, c)
	return c, nil
}

func (l *fakeLibrary) look(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

type fakeClient struct {
	lib  *fakeLibrary
	once sync.Once
	gone chan struct{}
}

func (c *fakeClient) Acquire(ctx context.Context, key string, wait, lease time.Duration) Result {
	word, _, _ := bytes.Cut([]byte(key), []byte("-"))
	var n uint64
	c.lib.look(func() {
		c.lib.acquires = append(c.lib.acquires, fmt.Sprintf("%s %v %v", key, wait, lease))
		n = uint64(len(c.lib.acquires))
	})
	switch string(word) {
	case "grant":
		return Result{
			Outcome: "acquired", Token: 1<<63 + n, HasToken: true, Owner: n, HasOwner: true,
			Ticket: fakeTicket{c.lib, n},
		}
	case "timeout":
		select {
		case <-time.After(wait):
			return Result{Outcome: "timeout"}
		case <-ctx.Done():
		}
		return Result{Outcome: "indeterminate", Raw: context.Cause(ctx).Error()}
	case "block":
		select {
		case <-ctx.Done():
			return Result{Outcome: "indeterminate", Raw: "cancelled"}
		case <-c.gone:
			return Result{Outcome: "indeterminate", Raw: "closed"}
		}
	case "race": // the grant wins against the cancel
		<-ctx.Done()
		return Result{Outcome: "acquired", Token: n, HasToken: true, Ticket: fakeTicket{c.lib, n}}
	case "stuck":
		<-c.lib.opening
	}
	return Result{Outcome: string(word), Raw: key}
}

func (c *fakeClient) Close() error {
	c.lib.look(func() { c.lib.closes++ })
	err := errors.New("closed twice")
	c.once.Do(func() {
		close(c.gone)
		err = nil
	})
	return err
}

type fakeTicket struct {
	lib *fakeLibrary
	n   uint64
}

func (t fakeTicket) Release(context.Context) Result {
	outcome := "released"
	t.lib.look(func() {
		for _, n := range t.lib.releases {
			if n == t.n {
				outcome = "not_held"
			}
		}
		t.lib.releases = append(t.lib.releases, t.n)
	})
	return Result{Outcome: outcome}
}

// tool is the other side, inside a bubble.
type tool struct {
	t      *testing.T
	in     *io.PipeWriter
	cancel context.CancelFunc
	log    bytes.Buffer
	ended  chan error

	mu  sync.Mutex
	got []string
}

// start runs serve in the bubble and inits it.
func start(t *testing.T, lib Library) *tool {
	t.Helper()
	s := startRaw(t, lib)
	s.send(`{"type":"init","id":0,"version":1,"dialect":"ticketing"}`)
	if got := s.answers(); len(got) != 1 {
		t.Fatalf("init: %q", got)
	}
	return s
}

func startRaw(t *testing.T, lib Library) *tool {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	s := &tool{t: t, in: inW, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		s.ended <- serve(ctx, inR, outW, &s.log, lib)
		cancel()
		_ = outW.Close()
	}()
	go func() {
		r := bufio.NewReader(outR)
		for {
			text, err := r.ReadString('\n')
			if err != nil {
				if text != "" {
					t.Errorf("half a line: %q", text)
				}
				return
			}
			s.mu.Lock()
			s.got = append(s.got, text[:len(text)-1])
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *tool) send(lines ...string) {
	s.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(s.in, l+"\n"); err != nil {
			s.t.Fatalf("send %s: %v", l, err)
		}
	}
}

// answers returns what came since the last time, once all is quiet.
func (s *tool) answers() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// expect sends a line and checks the answers to it, in order.
func (s *tool) expect(request string, want ...string) {
	s.t.Helper()
	s.send(request)
	got := s.answers()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		s.t.Errorf("%s\ngot  %q\nwant %q", request, got, want)
	}
}

// end closes the input and checks that Serve returns within limit.
func (s *tool) end(limit time.Duration) error {
	s.t.Helper()
	began := time.Now()
	_ = s.in.Close()
	err := <-s.ended
	if d := time.Since(began); d > limit {
		s.t.Errorf("Serve returned %v after the end of its input, want %v", d, limit)
	}
	return err
}

func (s *tool) open(names ...string) {
	s.t.Helper()
	for i, name := range names {
		s.expect(fmt.Sprintf(`{"type":"open","id":%d,"client":%q,"addresses":["h:1"],"secret":"s"}`, 900+i, name),
			fmt.Sprintf(`{"type":"open_ok","id":%d}`, 900+i))
	}
}

func decode(t *testing.T, text string) Response {
	t.Helper()
	var r Response
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("not a response: %q: %v", text, err)
	}
	return r
}
