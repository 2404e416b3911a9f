package verify

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/checker"
	"tornwire/history"
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

// TestHalfFired: a hold that is meant on both clients and acts on one of them has
// not fired, so the case is not safe.
func TestHalfFired(t *testing.T) {
	t.Parallel()
	const id = "ticketing/late-reply/s2c.A.1@0:hold"
	for range 5 { // a busy machine may discard the case instead
		r := runPlan(t, Options{Cases: []string{id}, Start: Library(shy{reference.Library(), new(atomic.Int32)})})
		if len(r.Results) != 1 || r.Verdict != checker.Inconclusive || r.Results[0].Fired {
			t.Fatalf("%s: %+v", r.Verdict, r.Results)
		}
		if r.Results[0].Reason == errUnfired.Error() {
			return
		}
	}
	t.Error("the machine is too busy")
}

// slow takes longer over a release than a refusal lasts, and tells how long the
// acquire took that needs its second connection.
type slow struct {
	adapter.Library
	took *atomic.Int64
}

type slowClient struct {
	adapter.Client
	took *atomic.Int64
}

func (s slow) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c, err := s.Library.Open(dialect, addresses, secret)
	return slowClient{c, s.took}, err
}

func (s slowClient) Acquire(ctx context.Context, key string, wait, lease time.Duration) adapter.Result {
	began := time.Now()
	r := s.Client.Acquire(ctx, key, wait, lease)
	switch {
	case r.Ticket == nil:
	case key == halfKey1:
		r.Ticket = slowTicket{r.Ticket}
	case key == halfKey2:
		s.took.Store(int64(time.Since(began)))
	}
	return r
}

type slowTicket struct{ adapter.Ticket }

func (t slowTicket) Release(ctx context.Context) adapter.Result {
	<-time.After(700 * time.Millisecond)
	return t.Ticket.Release(ctx)
}

// TestRefusalIsFelt: a connection that the client makes in the course of the
// workload is refused when the client makes it, however late that is.
func TestRefusalIsFelt(t *testing.T) {
	t.Parallel()
	for range 5 { // a busy machine may start the call late
		took := new(atomic.Int64)
		runPlan(t, Options{Cases: []string{"ticketing/half-close/s2.c2s.open.1@0:refuse"}, Start: Library(slow{reference.Library(), took})})
		if time.Duration(took.Load()) > 250*time.Millisecond {
			return
		}
	}
	t.Error("the connection was not refused")
}
