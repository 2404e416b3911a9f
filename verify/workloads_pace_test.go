package verify

import (
	"testing"
	"time"

	"tornwire/history"
)

// TestHidesPace: a machine that is slow is no pause of the client's, and only matters
// where it makes a difference.
func TestHidesPace(t *testing.T) {
	for _, c := range []struct {
		every    time.Duration
		possible int
		want     bool
	}{
		{6 * time.Millisecond, 59, false},
		{25 * time.Millisecond, 59, false},
		{35 * time.Millisecond, 60, false},
		{35 * time.Millisecond, 59, true},
		{100 * time.Millisecond, 59, true},
		{110 * time.Millisecond, 60, false},
		{125 * time.Millisecond, 9, true},
		{125 * time.Millisecond, 31, true},
		{125 * time.Millisecond, 32, false},
	} {
		var ev []history.Event
		for at := time.Second; at < 4200*time.Millisecond; at += c.every {
			ev = append(ev, history.Event{Kind: history.SessionOpened, Session: len(ev) + 1, At: at}, history.Event{Kind: history.EndSent})
		}
		if got := hidesPace(connectRate(ev), hotRate{200, c.possible, 200}); got != c.want {
			t.Errorf("every %s where %d are possible: %v", c.every, c.possible, got)
		}
	}
	if hidesPace(connectRate(nil), hotRate{}) {
		t.Error("a client that never came may have no pauses")
	}
}

// TestConnectHot: what is possible is tried, and ends in time.
func TestConnectHot(t *testing.T) {
	r := &caseRun{ctx: t.Context(), rec: history.NewRecorder(), conn: &adapterConn{}}
	if got := r.connectHot(250 * time.Millisecond); got[0] < 1 || got[1]+got[2] > 0 || r.over() {
		t.Errorf("connected %v times", got)
	}
}
