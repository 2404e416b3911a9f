package verify

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/faults"
	"tornwire/history"
	"tornwire/internal/memnet"
	"tornwire/proxy"
)

// shy sends its immediate attempts of late-reply in the run without a fault only.
type shy struct {
	adapter.Library
	asked *atomic.Int32
}

type shyClient struct {
	adapter.Client
	asked *atomic.Int32
}

func (s shy) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c, err := s.Library.Open(dialect, addresses, secret)
	return shyClient{c, s.asked}, err
}

func (s shyClient) Acquire(ctx context.Context, key string, wait, lease time.Duration) adapter.Result {
	if key == lateZeroKey && s.asked.Add(1) > 1 {
		return adapter.Result{Outcome: history.OutcomeUnsent}
	}
	return s.Client.Acquire(ctx, key, wait, lease)
}

// TestHalfFired: a hold that is meant on each client and acts on some of them has
// not fired, so the case has no verdict.
func TestHalfFired(t *testing.T) {
	t.Parallel()
	p := plan(t, Options{
		Cases: []string{"ticketing/late-reply/none", "ticketing/late-reply/s2c.A.1@0:hold"},
		Start: Library(shy{reference.Library(), new(atomic.Int32)}),
	})
	r := testRunner(t, p)
	control := r.runNow(t.Context(), p.Cases[0])
	if len(control.reached) < 2 {
		t.Fatalf("the run without a fault has it on %v: %s", control.reached, control.Reason)
	}
	r.control = map[string]CaseResult{lateReply.ID: control}
	for range busyTries {
		got := r.try(t.Context(), p.Cases[1])
		if errors.Is(got.err, errLate) {
			continue
		}
		if !errors.Is(got.err, errUnfired) || got.Fired || got.Verdict != "" || len(got.reached) == 0 {
			t.Errorf("%v, and %q: %v", got.err, got.Verdict, got.reached)
		}
		return
	}
	t.Error("the machine is too busy")
}

// TestRefusalIsFelt: a refusal lasts from the first call that the client starts, or
// release that it asks for, when a connection of its own has ended, however late that is.
func TestRefusalIsFelt(t *testing.T) {
	const lasts = 250 * time.Millisecond
	for _, asks := range []history.Kind{history.CallStarted, history.ReleaseAsked} {
		synctest.Test(t, func(t *testing.T) {
			mem := memnet.New(memnet.Options{})
			l, err := mem.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			refuse, _ := faults.ByID("refuse")
			r := &caseRun{rec: history.NewRecorder(), ctx: t.Context()}
			r.of.Frame.Client, r.of.Frame.ClientNth = "c1", 2
			r.px = proxy.New(proxy.Config{Upstream: "127.0.0.1:1", Dial: mem.Dial, Listen: mem.Listen})
			if err := r.px.Arm(faults.Rule{
				ID: "the rule", Fault: refuse, Args: faults.Args{"most": refuseLimit}, Times: 1, Trigger: faults.Trigger{Op: faults.OpOpen},
			}); err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			r.wg.Go(func() { _ = r.px.Serve(ctx, l, "c1") })
			r.wg.Go(func() { r.refuseFor(lasts) })
			refused := func(when string, want bool) {
				t.Helper()
				synctest.Wait()
				c, err := mem.Dial(t.Context(), "tcp", l.Addr().String())
				if err == nil {
					_ = c.Close()
				}
				if got := err != nil; got != want {
					t.Errorf("%s %s: refused %v, wanted %v", asks, when, got, want)
				}
			}
			for _, e := range []history.Event{
				{Kind: history.SessionOpened, Session: 1, Client: "c1"},
				{Kind: history.SessionOpened, Session: 2, Client: "c2"},
				{Kind: history.Fired},
				{Kind: history.CallAsked, Client: "c1", Call: 1},
				{Kind: asks, Client: "c1", Call: 1}, // over the connection that is still there
				{Kind: history.EndSeen, Session: 2},
				{Kind: history.CallAsked, Client: "c1", Call: 2},
				{Kind: asks, Client: "c1", Call: 2},
				{Kind: history.CallAsked, Client: "c1", Call: 3},
				{Kind: history.EndSeen, Session: 1},
				{Kind: history.CallStarted, Client: "c1", Call: 3}, // heard of late
				{Kind: history.CallAsked, Client: "c2", Call: 4},
				{Kind: asks, Client: "c2", Call: 4},
				{Kind: history.CallAsked, Client: "c1", Call: 5},
			} {
				r.rec.Add(e)
				time.Sleep(2 * lasts)
				refused(string(e.Kind), true)
			}
			if r.met.Load() {
				t.Errorf("%s: the refusal was met before", asks)
			}
			r.rec.Add(history.Event{Kind: asks, Client: "c1", Call: 5})
			time.Sleep(lasts - 1)
			refused("just before the end", true)
			time.Sleep(time.Nanosecond)
			refused("at the end", false)
			if !r.met.Load() {
				t.Errorf("%s: the refusal was not met", asks)
			}
			end()
			r.wg.Wait()
		})
	}
}

// idle asks for nothing after the run without a fault.
type idle struct {
	adapter.Library
	asked *atomic.Int32
}

type idleClient struct {
	adapter.Client
	asked *atomic.Int32
}

func (i idle) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c, err := i.Library.Open(dialect, addresses, secret)
	return idleClient{c, i.asked}, err
}

func (i idleClient) Acquire(ctx context.Context, key string, wait, lease time.Duration) adapter.Result {
	if key == halfKey1 && i.asked.Add(1) > 1 {
		return adapter.Result{Outcome: history.OutcomeUnsent}
	}
	return i.Client.Acquire(ctx, key, wait, lease)
}

// TestRefusalUnmet: a port that was closed for a connection that no call came to need
// has refused nothing.
func TestRefusalUnmet(t *testing.T) {
	t.Parallel()
	cases := []string{"ticketing/half-close/s2.c2s.open.1@0:refuse"}
	var r *Report
	for range busyTries { // a run without a fault that was too late is made again, and asks for nothing then
		r = runPlan(t, Options{Cases: cases, Start: Library(idle{reference.Library(), new(atomic.Int32)})})
		if len(r.Results) == 1 && r.Results[0].Verdict != checker.Skipped {
			break
		}
	}
	if len(r.Results) != 1 || r.Results[0].Fired || r.Results[0].Reason != errUnfired.Error() {
		t.Errorf("of a client that asks for nothing: %s: %+v", r.Verdict, r.Results)
	}
	if r := runPlan(t, Options{Cases: cases, Start: Library(reference.Library())}); len(r.Results) != 1 || !r.Results[0].Fired {
		t.Errorf("of one that does: %s: %+v", r.Verdict, r.Results)
	}
}
