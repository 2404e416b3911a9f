package verify

import (
	"testing"
	"time"

	"tornwire/history"
)

// TestSlowedDown: a machine that is slow is no pause of the client's, and only matters
// where it makes a difference.
func TestSlowedDown(t *testing.T) {
	for _, c := range []struct {
		every, lasts time.Duration
		want         bool
	}{
		{6 * time.Millisecond, 5 * time.Millisecond, false},
		{50 * time.Millisecond, 15 * time.Millisecond, false},
		{50 * time.Millisecond, 16 * time.Millisecond, true},
		{100 * time.Millisecond, 90 * time.Millisecond, true},
		{125 * time.Millisecond, 120 * time.Millisecond, false},
		{25 * time.Millisecond, 20 * time.Millisecond, false},
	} {
		var ev []history.Event
		n := 0
		for at := time.Second; at < 4200*time.Millisecond; at += c.every {
			n++
			ev = append(ev,
				history.Event{Kind: history.SessionOpened, Session: n, At: at},
				history.Event{Kind: history.EndSent, Side: history.ClientSide, Cause: history.CauseFault, Session: n, At: at + c.lasts})
		}
		if got := slowedDown(ev); got != c.want {
			t.Errorf("every %s, for %s each: %v", c.every, c.lasts, got)
		}
	}
}
