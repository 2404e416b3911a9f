package verifytest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tornwire/client" // the library under test: put yours in its place
	"tornwire/verifytest"
)

func TestTornWire(t *testing.T) {
	verifytest.RunWith(t, verifytest.Options{Sweep: "smoke"}, open)
}

// open opens a client of the library on the network of a case.
func open(env verifytest.Env) verifytest.Client {
	c, err := client.New(client.Config{
		Addresses: env.Addresses, Dialect: env.Dialect, Secret: env.Secret, Dial: env.Dial,
	})
	if err != nil {
		return verifytest.Unopened(err)
	}
	return binding{c}
}

// binding says what the library says, and nothing that it does not say.
type binding struct{ *client.Client }

func (b binding) Acquire(ctx context.Context, key string, wait, lease time.Duration) verifytest.Result {
	outcome, err := b.Client.Acquire(ctx, key, wait, lease)
	if err != nil {
		return verifytest.Result{Outcome: "error", Raw: err.Error()}
	}
	switch o := outcome.(type) {
	case client.Acquired:
		return verifytest.Result{Outcome: "acquired", Token: o.Ticket.Token(), HasToken: true, Ticket: ticket{o.Ticket}}
	case client.TimedOut:
		return verifytest.Result{Outcome: "timeout"}
	case client.Busy:
		return verifytest.Result{Outcome: "busy"}
	case client.Unsent:
		return verifytest.Result{Outcome: "unsent", Raw: o.Cause.Error()}
	case client.Indeterminate:
		return verifytest.Result{Outcome: "indeterminate", Raw: o.Cause.Error()}
	}
	return verifytest.Result{Outcome: "error", Raw: fmt.Sprintf("%T", outcome)}
}

type ticket struct{ *client.Ticket }

func (t ticket) Release(ctx context.Context) verifytest.Result {
	switch o := t.Ticket.Release(ctx).(type) {
	case client.Released:
		return verifytest.Result{Outcome: "released"}
	case client.NotHeld:
		return verifytest.Result{Outcome: "not_held"}
	case client.ReleaseIndeterminate:
		return verifytest.Result{Outcome: "indeterminate", Raw: o.Cause.Error()}
	default:
		return verifytest.Result{Outcome: "error", Raw: fmt.Sprintf("%T", o)}
	}
}
