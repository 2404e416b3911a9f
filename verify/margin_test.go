package verify

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/history"
)

var marginRuns = flag.Int("margin-runs", 1, "how often each margin is measured")

// TestMargin: a client that takes a grant whenever it comes has its lease as its margin,
// one that counts from its own send refuses, and who stays inside has so much less.
func TestMargin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, client, dialect string
		wait, inside          time.Duration
		want                  int // ms; 0: refuses
	}{
		{"wrong", "stale-zero", dialectCurrent, 0, 0, 1000},
		{"wrong that stays inside", "stale-zero", dialectCurrent, 0, 400 * time.Millisecond, 600},
		{"right", "", dialectCurrent, 0, 0, 0},
		{"right that stays inside", "", dialectCurrent, 0, 400 * time.Millisecond, 600},
		{"right that waits", "", dialectCurrent, 4 * second, 0, 1000},
		{"right in v0", "", dialectV0, 4 * second, 0, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			within := 20 // ms
			if *marginRuns == 1 {
				within = 150 // time on a machine that does other things is no matter for a test
			}
			lib := referenceLibrary()
			if c.client != "" {
				lib = wrong(t, c.client)
			}
			for range *marginRuns {
				var r *MarginReport
				var err error
				for range busyTries {
					r, err = Margin(t.Context(), MarginOptions{
						Dialect: c.dialect, Start: Library(lib), Wait: c.wait, Lease: second, Inside: c.inside,
					}, nil)
					if !errors.Is(err, errLate) {
						break
					}
				}
				switch {
				case errors.Is(err, errLate):
					t.Skip("the machine is too busy to measure milliseconds")
				case err != nil:
					t.Fatal(err)
				case c.want == 0:
					if !r.Refuses || r.MarginMS != nil || !strings.HasPrefix(r.Line(), "refuses") {
						t.Errorf("%s; %+v", r.Line(), r.Probes)
					}
				case r.Refuses || r.MarginMS == nil || *r.MarginMS < c.want-within || *r.MarginMS > c.want+within:
					t.Errorf("not %d ms: %s; %+v", c.want, r.Line(), r.Probes)
				case *marginRuns > 1:
					t.Log(r.Line())
				}
			}
		})
	}
}

// unwilling is a library whose calls never acquire.
type unwilling struct{ adapter.Library }

func (u unwilling) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c, err := u.Library.Open(dialect, []string{"127.0.0.1:1"}, secret)
	return c, err
}

func TestMarginOf(t *testing.T) {
	t.Parallel()
	_, err := Margin(t.Context(), MarginOptions{Start: Library(unwilling{referenceLibrary()}), Lease: second}, nil)
	if !errors.Is(err, ErrNoMargin) || Unreachable(err) || !strings.Contains(err.Error(), "not acquired") {
		t.Errorf("of a client that acquires nothing: %v", err)
	}
	_, err = Margin(t.Context(), MarginOptions{Start: Command("./is-not-there"), Lease: second}, nil)
	if !Unreachable(err) {
		t.Errorf("of an adapter that is not there: %v", err)
	}
}

func TestMarginOptions(t *testing.T) {
	for want, o := range map[string]MarginOptions{
		"--lease is 0s,":    {},
		"--lease is 1.5s,":  {Lease: 1500 * time.Millisecond},
		"--lease is 1m1s,":  {Lease: 61 * second},
		"--wait is -1s,":    {Lease: second, Wait: -second},
		"--wait is 4m16s,":  {Lease: second, Wait: 256 * second},
		"--wait is 0s, whi": {Lease: second, Dialect: dialectV0},
		"--inside is 1s,":   {Lease: second, Inside: second},
		"--inside is -1s,":  {Lease: second, Inside: -second},
		"the call ends 5s ": {Lease: 5 * second},
		"the call ends 2s ": {Lease: 2 * second, Wait: 2 * second},
		"no dialect":        {Lease: second, Dialect: "x"},
	} {
		_, err := Margin(t.Context(), o, nil)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

func TestMarginProbe(t *testing.T) {
	granted := history.Event{Kind: history.Granted, At: time.Second, Lease: time.Second}
	result := history.Event{Kind: history.CallResult, Outcome: history.OutcomeAcquired}
	expired := history.Event{Kind: history.GrantEnded, How: history.Expired, At: 2 * time.Second}
	next := history.Event{Kind: history.Granted, At: 2 * time.Second, Lease: time.Minute}
	left := func(at time.Duration) history.Event { return history.Event{Kind: history.Left, At: at} }
	for name, c := range map[string]struct {
		events []history.Event
		second bool
		beside float64
	}{
		"left before":    {[]history.Event{granted, result, left(1500 * time.Millisecond), expired, next}, false, -500},
		"inside":         {[]history.Event{granted, result, expired, next, left(2250 * time.Millisecond)}, true, 250},
		"refused":        {[]history.Event{granted, expired, next, {Kind: history.CallResult, Outcome: history.OutcomeIndeterminate}}, false, 0},
		"given back":     {[]history.Event{granted, result, left(1100 * time.Millisecond), {Kind: history.GrantEnded, How: history.Released}, next}, false, -900},
		"nothing at all": {nil, false, 0},
	} {
		var p MarginProbe
		_, _ = p.read(slices.Clone(c.events))
		if p.Second != c.second || p.BesideMS != c.beside {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
