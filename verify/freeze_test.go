package verify

import (
	"testing"
	"testing/synctest"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
)

// TestFrozenNeedsAProcess: without one a case is skipped, and the reason says so.
func TestFrozenNeedsAProcess(t *testing.T) {
	t.Parallel()
	r := runPlan(t, Options{Cases: []string{"ticketing/frozen/none"}, Start: Library(referenceLibrary())})
	if len(r.Results) != 1 || r.Results[0].Verdict != checker.Skipped || r.Results[0].Reason != errSameProcess.Error() {
		t.Errorf("%+v", r.Results)
	}
}

// TestPongsWhileFrozen: an adapter is late for what it does before it is stopped and
// after it goes on, not for the time between (spec/rules.md P11).
func TestPongsWhileFrozen(t *testing.T) {
	const fine, late = LateLimit, LateLimit + 1
	for _, c := range []struct {
		before, frozen, after time.Duration
		again                 bool // it is asked again while it is frozen
		late, spoke           bool
	}{
		{0, time.Minute, 0, false, false, false},
		{fine, time.Minute, fine, false, false, false},
		{late, time.Minute, 0, false, true, false},
		{0, time.Minute, late, false, true, false},
		{0, time.Minute, 0, true, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &adapterConn{}
			begin := time.Now()
			conn.pings.sent = begin
			time.Sleep(c.before)
			conn.freezing()
			conn.froze()
			if c.again {
				time.Sleep(time.Nanosecond)
				conn.pong(adapter.Response{Type: adapter.TypePong}) // written before
				conn.pings.sent = time.Now()
				conn.pong(adapter.Response{Type: adapter.TypePong})
				conn.pings.sent = time.Now()
			}
			time.Sleep(c.frozen)
			if conn.lateSince(begin) != (c.before == late) || conn.strain() > late {
				t.Errorf("%+v: late while it is frozen, strain %s", c, conn.strain())
			}
			if spoke := conn.thawing(); spoke != c.spoke {
				t.Errorf("%+v: spoke %v", c, spoke)
			}
			time.Sleep(c.after)
			if got := conn.lateSince(begin); got != c.late {
				t.Errorf("%+v: late %v", c, got)
			}
			conn.pong(adapter.Response{Type: adapter.TypePong})
			if got := conn.lateSince(begin); got != c.late {
				t.Errorf("%+v: late %v after the pong", c, got)
			}
		})
	}
}
