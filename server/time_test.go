package server

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimeoutComesAtTheWaitersOwnDeadline(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q := h.dial(), h.dial()
		p.acquire("k", 0, 200, 1)
		p.want("A owner=1 token=1 k")
		start := time.Now()
		q.acquire("k", 7, 10, 2)
		q.acquire("k", 3, 10, 3)
		q.acquire("k", 255, 10, 4)
		for _, c := range []struct {
			frame string
			ms    int64
		}{{"T owner=3 k", 3000}, {"T owner=2 k", 7000}, {"A owner=4 token=2 k", 200_000}} {
			q.want(c.frame)
			if ms := since(start); ms != c.ms {
				t.Errorf("%s after %d ms, want %d", c.frame, ms, c.ms)
			}
		}
		h.wantTold("granted k token=1 owner=1",
			"queued k owner=2", "queued k owner=3", "queued k owner=4",
			"attempt_ended k timed_out owner=3", "attempt_ended k timed_out owner=2",
			"grant_ended k expired token=1 owner=1", "granted k token=2 owner=4")
	})
}

func TestLeaseRunsFromTheGrant(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q, r := h.dial(), h.dial(), h.dial()
		p.acquire("k", 0, 10, 1)
		p.want("A owner=1 token=1 k")
		start := time.Now()
		q.acquire("k", 60, 10, 2)
		h.told()
		time.Sleep(4 * time.Second)
		p.release("k", 1)
		p.want("R token=1 k")
		q.want("A owner=2 token=2 k") // granted at 4 s, so it ends at 14 s
		r.acquire("k", 60, 5, 3)
		r.want("A owner=3 token=3 k")
		if ms := since(start); ms != 14_000 {
			t.Errorf("third grant after %d ms, want 14000", ms)
		}
		time.Sleep(5 * time.Second)
		h.wantHolder("k", 0)
	})
}

func TestWaitersAreServedInOrderWhateverTheirDeadlines(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q, r := h.dial(), h.dial(), h.dial()
		p.acquire("k", 0, 100, 1)
		p.want("A owner=1 token=1 k")
		q.acquire("k", 200, 100, 2)
		h.told()
		r.acquire("k", 10, 100, 3) // the shorter deadline does not jump the queue
		h.told()
		p.release("k", 1)
		q.want("A owner=2 token=2 k")
		r.quiet(5 * time.Second)
		q.release("k", 2)
		r.want("A owner=3 token=3 k")
	})
}

func TestReleaseAtOrAfterExpiryIsNotHeld(t *testing.T) {
	for _, late := range []time.Duration{0, time.Nanosecond, time.Hour} {
		inBubble(t, Config{}, func(h *harness) {
			p := h.dial()
			p.acquire("k", 0, 3, 1)
			p.want("A owner=1 token=1 k")
			time.Sleep(3*time.Second - 1)
			h.wantHolder("k", 1)
			time.Sleep(1 + late)
			p.release("k", 1)
			p.want("N token=1 k")
		})
	}
}

func TestReleaseIsAnsweredBeforeTheGrantItCauses(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p := h.dial()
		p.acquire("k", 0, 100, 1)
		p.acquire("k", 50, 100, 1) // the same owner: a new attempt
		p.release("k", 1)
		p.release("k", 1)
		p.want("A owner=1 token=1 k", "R token=1 k", "A owner=1 token=2 k", "N token=1 k")
		h.wantHolder("k", 2)
		h.wantTold("granted k token=1 owner=1", "queued k owner=1",
			"grant_ended k released token=1 owner=1", "granted k token=2 owner=1")
	})
}

func TestARepeatedAcquireRenewsNothing(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p := h.dial()
		p.acquire("k", 0, 10, 1)
		p.want("A owner=1 token=1 k")
		time.Sleep(9 * time.Second)
		p.acquire("k", 0, 10, 1)
		p.want("T owner=1 k")
		time.Sleep(time.Second)
		h.wantHolder("k", 0)
	})
}

func TestDeadlineAndGrantAtTheSameInstant(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		p, q := h.dial(), h.dial()
		p.acquire("k", 0, 10, 1)
		p.want("A owner=1 token=1 k")
		q.acquire("k", 10, 10, 2)
		q.want("T owner=2 k")
		q.quiet(time.Hour)
		h.wantTold("granted k token=1 owner=1", "queued k owner=2",
			"attempt_ended k timed_out owner=2", "grant_ended k expired token=1 owner=1")
	})
}

// A table whose timer never fires is still right at every operation.
func TestALateTimerChangesNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t}
		s, err := New(Config{Capacity: 3, OnEvent: func(e Event) { h.events = append(h.events, e) }})
		if err != nil {
			t.Fatal(err)
		}
		h.Server = s
		asleep := func() { s.table.timer.Stop() }
		s.Acquire("a", 10*time.Second)
		s.Acquire("b", 5*time.Second)
		s.table.acquire(&attempt{key: "a", owner: 7, hasOwner: true, patience: bounded, wait: 20 * time.Second, lease: time.Second})
		asleep()
		time.Sleep(5 * time.Second)
		if tok, ok := s.Acquire("c", time.Minute); !ok || tok != 3 { // b's place is free
			t.Errorf("acquire of c: %d %v", tok, ok)
		}
		asleep()
		time.Sleep(10 * time.Second)
		if s.Release("a", 1) {
			t.Error("released a after its lease")
		}
		asleep()
		h.wantHolder("a", 4) // the lease of the late grant began when it was made
		asleep()
		time.Sleep(time.Second)
		h.wantHolder("a", 0)
		h.wantTold("granted a token=1", "granted b token=2", "queued a owner=7",
			"grant_ended b expired token=2", "granted c token=3",
			"grant_ended a expired token=1", "granted a token=4 owner=7",
			"grant_ended a expired token=4 owner=7")
	})
}

func TestALateTimerNeverGrantsPastADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t}
		s, err := New(Config{OnEvent: func(e Event) { h.events = append(h.events, e) }})
		if err != nil {
			t.Fatal(err)
		}
		s.Acquire("a", 5*time.Second)
		for _, wait := range []time.Duration{6, 30} {
			s.table.acquire(&attempt{key: "a", patience: bounded, wait: wait * time.Second, lease: time.Second})
		}
		s.table.timer.Stop()
		time.Sleep(10 * time.Second)
		s.Table()
		h.wantTold("granted a token=1", "queued a", "queued a",
			"grant_ended a expired token=1", "attempt_ended a timed_out", "granted a token=2")
	})
}

func TestTokensWithNewlinesInside(t *testing.T) {
	const first = 0x0A0A0A0A0A0A0A0A
	inBubble(t, Config{FirstToken: first}, func(h *harness) {
		p := h.dial()
		p.acquire("k", 0, 10, first) // wait 0, lease 10 = 0x0A
		p.want("A owner=723401728380766730 token=723401728380766730 k")
		p.release("k", first)
		p.want("R token=723401728380766730 k")
	})
}

func TestTokensIncreaseOverAllKeys(t *testing.T) {
	inBubble(t, Config{FirstToken: 41}, func(h *harness) {
		p := h.dial()
		p.acquire("a", 0, 9, 1)
		p.acquire("b", 0, 9, 1)
		p.release("a", 41)
		p.acquire("a", 0, 9, 1)
		p.want("A owner=1 token=41 a", "A owner=1 token=42 b", "R token=41 a", "A owner=1 token=43 a")
	})
}

func TestTokensNeverWrap(t *testing.T) {
	inBubble(t, Config{FirstToken: math.MaxUint64}, func(h *harness) {
		p, q, r := h.dial(), h.dial(), h.dial()
		p.acquire("k", 0, 9, 1)
		p.want("A owner=1 token=18446744073709551615 k")
		q.acquire("k", 60, 9, 2)
		q.acquire("k", 60, 9, 3)
		h.told()
		p.release("k", math.MaxUint64)
		p.want("R token=18446744073709551615 k")
		q.want("E no_token", "FIN")
		r.acquire("other", 0, 9, 4)
		r.want("E no_token", "FIN")
		if tok, ok := h.Acquire("k", time.Second); ok {
			t.Errorf("granted token %d", tok)
		}
		h.wantTold("grant_ended k released token=18446744073709551615 owner=1",
			"attempt_ended k refused owner=2", "attempt_ended k dropped owner=3",
			"attempt_ended other refused owner=4", "attempt_ended k refused")
		if s := h.Table(); len(s) != 0 || h.table.used != 0 {
			t.Errorf("table %+v with %d used", s, h.table.used)
		}
	})
}

// A frame that was decoded while the table hung up comes too late.
func TestAPartyThatHasLeftIsNotServed(t *testing.T) {
	s, err := New(Config{OnEvent: func(e Event) {
		if e.HasOwner {
			t.Errorf("event %+v", e)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	token, _ := s.Acquire("k", time.Hour)
	p := &party{out: deaf{}}
	s.table.leave(p)
	s.table.acquire(&attempt{key: "k", hasOwner: true, patience: forever, lease: time.Second, from: p})
	s.table.acquire(&attempt{key: "free", hasOwner: true, lease: time.Second, from: p})
	if s.table.release(p, "k", token, true) {
		t.Error("released")
	}
}
