package client

import (
	"slices"
	"testing"
	"time"
)

// §3.6, §3.8: the delivery step's limit.
func TestUseBy(t *testing.T) {
	start := time.Now()
	s := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	for _, c := range []struct {
		wait       time.Duration
		sent, read int
		lease      time.Duration
		by         int
	}{
		{10 * time.Second, 1, 2, 30 * time.Second, 10}, // the deadline
		{255 * time.Second, 1, 9, time.Second, 10},     // over for certain
		{0, 1, 2, 30 * time.Second, 5},                 // the transport's deadline
		{0, 1, 2, 2 * time.Second, 3},                  // sent + lease
	} {
		b := newBudget(start, c.wait, 255*time.Second)
		if by := b.useBy(s(c.sent), s(c.read), c.lease); by != s(c.by) {
			t.Errorf("%+v: use by %v", c, by.Sub(start))
		}
	}
}

// §3.4: rounded up, never to nothing.
func TestWireWait(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		wait, passed time.Duration
		wire         uint64
		ok           bool
	}{
		{5 * time.Second, 0, 5, true},
		{5 * time.Second, 1, 5, true},
		{5 * time.Second, time.Second, 4, true},
		{5 * time.Second, 5*time.Second - 1, 1, true},
		{5 * time.Second, 5 * time.Second, 0, false},
		{1, 0, 1, true},
		{1<<63 - 1, 0, 255, true},
		{0, 0, 0, true},
		{0, 5*time.Second - 1, 0, true},
		{0, 5 * time.Second, 0, false},
	} {
		wire, ok := newBudget(start, c.wait, 255*time.Second).wire(start.Add(c.passed))
		if wire != c.wire || ok != c.ok {
			t.Errorf("%+v: %d, %v", c, wire, ok)
		}
	}
}

func TestExpires(t *testing.T) {
	now := time.Now()
	tk := &Ticket{sent: now, read: now.Add(2 * time.Second), lease: 2 * time.Second}
	if by, sure := tk.Expires(); sure || !by.Equal(now.Add(4*time.Second)) {
		t.Errorf("queued as long as the lease: %v, %v", by.Sub(now), sure)
	}
	tk.read = tk.read.Add(-1)
	if by, sure := tk.Expires(); !sure || !by.Equal(now.Add(2*time.Second)) {
		t.Errorf("queued for less: %v, %v", by.Sub(now), sure)
	}
}

func TestPacer(t *testing.T) {
	now := time.Now()
	var p pacer
	for range dialBurst {
		if p.next().After(now) {
			t.Fatal("the burst is too short")
		}
		p.take(now)
	}
	if got := p.next().Sub(now); got != dialEvery {
		t.Errorf("after the burst: %v", got)
	}
	p = pacer{}
	for i, most := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		p.until = time.Time{}
		p.fail(now, peerEnded)
		if d := p.until.Sub(now); d < most*time.Millisecond/2 || d > most*time.Millisecond {
			t.Errorf("failure %d: %v", i+1, d)
		}
	}
	p.ok()
	p.fail(now, noBackoff)
	if p.failures != 0 || !p.until.IsZero() {
		t.Error("no back-off counts as one")
	}
}

// Two clients of one seed draw the same owners and pauses, those of another other ones,
// and what is drawn for one address does not depend on what others drew.
func TestSeed(t *testing.T) {
	draws := func(seed uint64, others int) (all []uint64) {
		c, err := New(Config{Addresses: []string{"a:1", "b:1"}, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for range 3 {
			all = append(all, c.draw())
		}
		for _, p := range []*pool{c.acquires, c.lane} {
			for range others {
				p.pacer("b:1").fail(now, authFailed)
			}
			for _, one := range []*pacer{p.pacer("a:1"), &p.leader} {
				one.fail(now, authFailed)
				all = append(all, uint64(one.until.Sub(now)))
			}
		}
		return all
	}
	first := draws(7, 0)
	if again := draws(7, 3); !slices.Equal(first, again) {
		t.Errorf("drawn were %v, then %v", first, again)
	}
	for i, other := range draws(8, 0) {
		if other == first[i] {
			t.Errorf("draw %d is %d for another seed, too", i, other)
		}
	}
}

// A full ring forgets the oldest, and nothing else.
func TestRing(t *testing.T) {
	r := newRing(3)
	for v := range uint64(4) {
		if !r.add(v) || r.add(v) {
			t.Fatalf("adding %d", v)
		}
	}
	for v, want := range []bool{false, true, true, true} {
		if r.has(uint64(v)) != want {
			t.Errorf("%d: %v", v, !want)
		}
	}
	if len(r.set) != 3 {
		t.Errorf("%d members", len(r.set))
	}
}
