package verify

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestAdapters: cases are spread over the adapters, those that cannot start are left
// out, and all of them end.
func TestAdapters(t *testing.T) {
	starts := 0
	a := newAdapters(3, func() (transport, error) {
		if starts++; starts == 2 {
			return nil, errors.New("no memory")
		}
		return Library(referenceLibrary())()
	}, dialectCurrent)
	var conns []*adapterConn
	for range 8 {
		c, err := a.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if !slices.Equal(a.busy, []int{4, 0, 4}) || starts != 3 {
		t.Errorf("%v cases each, %d starts", a.busy, starts)
	}
	for _, c := range conns {
		a.put(c)
	}
	if !slices.Equal(a.busy, []int{0, 0, 0}) {
		t.Errorf("%v cases each when none is left", a.busy)
	}
	a.close()
	for i, c := range conns {
		if !c.isGone() {
			t.Errorf("the adapter of case %d has not ended", i)
		}
	}
	if a.restarts() != 0 {
		t.Errorf("%d restarts", a.restarts())
	}
}

// TestNoAdapters: where none can start, the reason is told.
func TestNoAdapters(t *testing.T) {
	a := newAdapters(2, func() (transport, error) { return nil, errors.New("no memory") }, dialectCurrent)
	defer a.close()
	for range 2 {
		if _, err := a.get(t.Context()); err == nil || err.Error() != "no memory" {
			t.Errorf("error %v", err)
		}
	}
}

// TestSpread: a run with adapters that are processes is what one with one is.
func TestSpread(t *testing.T) {
	t.Parallel()
	r := isSafe(t, Options{
		Workloads: []string{"single"}, Sweep: SweepSmoke, Profile: "official", Adapters: 3, Start: asProcess(referenceName),
	})
	if r.InFlight.Adapters != 3 || r.Restarts != 0 {
		t.Errorf("%+v, %d restarts", r.InFlight, r.Restarts)
	}
	if _, err := NewPlan(Options{Adapters: MaxAdapters + 1}); err == nil || !strings.Contains(err.Error(), "--adapters is 65, not 1 to 64") {
		t.Errorf("error %v", err)
	}
}
