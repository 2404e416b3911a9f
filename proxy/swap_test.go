package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// load is sessions through one proxy without a recorder, each of which carries
// numbered frames both ways.
type load struct {
	t    *testing.T
	tr   transport
	px   *proxy.Proxy
	up   net.Listener
	addr string

	churns  atomic.Int32 // churn that goes on
	changes atomic.Int64 // of rules so far

	mu    sync.Mutex
	fired map[string]bool // of the rule "steady": session, direction, frame
}

// loadFrames is how many frames a session carries each way.
const loadFrames = 40

// carry is what one peer sends: its preface, then requests or answers with their
// number as the owner.
func carry(first, op string) []byte {
	out := []byte(first)
	for i := range loadFrames {
		if op == "A" {
			out = append(out, frame(c2s, "A", "order-42", uint64(i%256), 30, uint64(i))...)
		} else {
			out = append(out, frame(s2c, "T", "order-42", uint64(i))...)
		}
	}
	return out
}

func newLoad(t *testing.T, tr transport, arm ...faults.Rule) (ld *load, end func()) {
	up, err := tr.listen()
	must(t, err)
	l, err := tr.listen()
	must(t, err)
	ld = &load{t: t, tr: tr, up: up, addr: l.Addr().String(), fired: map[string]bool{}}
	ld.px = proxy.New(proxy.Config{
		Grammar: grammar, Upstream: up.Addr().String(), Dial: tr.dial, Listen: tr.again, Seed: 7, Observe: ld.observe,
	})
	for _, r := range arm {
		must(t, ld.px.Arm(r))
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- ld.px.Serve(ctx, l, "c1") }()
	return ld, func() {
		cancel()
		must(t, <-served)
		_ = up.Close()
	}
}

func (ld *load) observe(e history.Event) {
	if e.Rule != "steady" {
		return
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.fired[fmt.Sprint(e.Session, e.Dir, e.Frame.Seq)] = true
}

// session carries all frames both ways and checks each byte. A connection that is
// refused, or was made too early for that and is reset, is tried again.
func (ld *load) session(client, server []byte) error {
	for {
		c, err := ld.tr.dial(context.Background(), "tcp", ld.addr)
		if err == nil {
			var got int
			if got, err = ld.exchange(c, client, server, 7); err == nil || got > 0 {
				return err
			}
		}
		if !refused(err) {
			return err
		}
	}
}

// exchange sends all bytes and the FIN, and reads until the other's.
func (ld *load) exchange(c net.Conn, send, want []byte, step int) (int, error) {
	defer c.Close()
	errs := make(chan error, 1)
	go func() { errs <- ld.speak(c, send, step) }()
	got, err := io.ReadAll(c)
	if err != nil {
		_ = c.Close()
	}
	if werr := <-errs; err == nil {
		err = werr
	}
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d bytes came, not the %d that were sent", len(got), len(want))
	}
	return len(got), err
}

// refused tells whether a connection was refused at the door, or too early for that.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// speak sends bytes in writes of changing sizes, then FIN. Beside churn, rules
// change every few writes.
func (ld *load) speak(c net.Conn, data []byte, step int) error {
	for i := 0; len(data) > 0; i++ {
		n := min(1+i*step%97, len(data))
		if _, err := c.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
		for seen := ld.changes.Load(); i%4 == 0 && ld.churns.Load() > 0 && ld.changes.Load() == seen; {
			runtime.Gosched()
		}
	}
	return c.(interface{ CloseWrite() error }).CloseWrite()
}

// run has n sessions at once go through all their frames.
func (ld *load) run(n int) {
	client, server := carry(auth, "A"), carry(greeting, "T")
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := ld.session(client, server); err != nil {
				ld.t.Errorf("client: %v", err)
			}
		})
		c, err := ld.up.Accept()
		must(ld.t, err)
		wg.Go(func() {
			if _, err := ld.exchange(c, server, client, 11); err != nil {
				ld.t.Errorf("server: %v", err)
			}
		})
	}
	wg.Wait()
}

// churn arms, rearms and disarms rules of every kind that loses no byte, until done
// is closed. Each would hold for far longer than the test may take.
func (ld *load) churn(done <-chan struct{}, id string) {
	ld.churns.Add(1)
	defer ld.churns.Add(-1)
	long := 10 * time.Minute
	make := []faults.Rule{
		{Fault: fault(ld.t, "hold"), Args: faults.Args{"most": long}},
		{Fault: fault(ld.t, "delay"), Args: faults.Args{"by": long}},
		{Fault: fault(ld.t, "split"), At: 5, Args: faults.Args{"pause": time.Minute}},
		{Fault: fault(ld.t, "dribble"), Args: faults.Args{"pause": time.Minute}},
		{Fault: fault(ld.t, "coalesce"), Args: faults.Args{"most": time.Minute}},
		{Fault: fault(ld.t, "hold"), Until: id, Signal: id, Args: faults.Args{"most": long}},
		{Signal: id},
		{Fault: fault(ld.t, "hold"), TTL: time.Microsecond},
	}
	triggers := []faults.Trigger{
		{Dir: c2s, Op: "A"},
		{Dir: s2c, Op: "T", Chance: 0.3},
		{Dir: c2s, Op: "A", Where: map[string]string{"key": "order-*"}},
		{Dir: s2c, Op: "T", Where: map[string]string{"owner": "3..40"}},
		{Dir: c2s, Op: "A", Where: map[string]string{"wait": "1..9", "key": "*2"}, SessionNth: 5},
		{Dir: c2s, Op: "auth"},
		{Dir: s2c, Op: "greeting"},
	}
	opens := []faults.Rule{
		{Fault: fault(ld.t, "slow-accept"), Args: faults.Args{"pause": time.Minute}},
		{Fault: fault(ld.t, "refuse"), Args: faults.Args{"most": long}},
	}
	for i := 0; ; i++ {
		select {
		case <-done:
			ld.px.Disarm(id)
			return
		default:
		}
		r := make[i%len(make)]
		if r.Trigger = triggers[i%len(triggers)]; i%5 == 4 {
			r = opens[i%2]
			r.Trigger = faults.Trigger{Dir: c2s, Op: faults.OpOpen}
		}
		if r.Fault != nil && r.Fault.ID == "coalesce" {
			r.Trigger = triggers[0] // no other rule has the second of a pair: none of the steady rule's
		}
		r.ID = id
		var err error
		if i%3 == 1 {
			if err = ld.px.Rearm(r); errors.Is(err, proxy.ErrNoRule) { // its time to live was over
				err = nil
			}
		} else {
			ld.px.Disarm(id)
			err = ld.px.Arm(r)
		}
		if err != nil {
			ld.t.Errorf("%+v: %v", r, err)
			return
		}
		if i%7 == 0 {
			ld.px.ShutGate(id)
			must(ld.t, ld.px.OpenGate(id))
		}
		ld.px.Rules()
		ld.changes.Add(1)
		runtime.Gosched()
	}
}

// steady is a rule with dice that stays while others come and go.
func steady(t *testing.T) faults.Rule {
	return faults.Rule{ID: "steady", Fault: fault(t, "split"), At: 3, Args: faults.Args{"pause": 1}, Trigger: faults.Trigger{Dir: s2c, Op: "T", Chance: 0.25}}
}

// TestRuleSwapUnderLoad: rules come, change and go while sessions carry frames both
// ways: nothing hangs, no byte is torn, lost or moved, and a rule that stays throws
// the same dice as without the others.
func TestRuleSwapUnderLoad(t *testing.T) {
	const sessions = 6
	for name, tr := range map[string]transport{"memory": inMemory(2048), "tcp": tcp} {
		t.Run(name, func(t *testing.T) {
			var fired [2]map[string]bool
			for i := range fired {
				ld, end := newLoad(t, tr, steady(t))
				done := make(chan struct{})
				var wg sync.WaitGroup
				for j := range 2 * i { // the first time alone
					wg.Go(func() { ld.churn(done, fmt.Sprint("rule ", j)) })
				}
				ld.run(sessions)
				close(done)
				wg.Wait()
				end()
				if fired[i] = ld.fired; len(ld.px.Rules()) != 1 {
					t.Errorf("%d rules are left", len(ld.px.Rules()))
				}
			}
			if !maps.Equal(fired[0], fired[1]) {
				t.Errorf("fired on %d frames alone, on %d or others beside other rules", len(fired[0]), len(fired[1]))
			}
			if n := len(fired[0]); n < sessions*loadFrames/8 || n > sessions*loadFrames/2 {
				t.Errorf("fired %d times alone", n)
			}
		})
	}
}
