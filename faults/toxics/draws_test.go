package toxics

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestToxicity: the draw of a session is made once, by the seed; more toxicity
// never lets a session go that less has hit.
func TestToxicity(t *testing.T) {
	hit := func(seed uint64, toxicity float64) map[int]bool {
		out := map[int]bool{}
		l := must(New(seed, Spec{Type: "noop", Toxicity: toxicity}))
		for session := range 1000 {
			if len(l.acting(session, s2c)) > 0 {
				out[session] = true
			}
		}
		return out
	}
	less, more := hit(1, 0.3), hit(1, 0.6)
	for session := range less {
		if !more[session] {
			t.Errorf("session %d is hit with 0.3 and not with 0.6", session)
		}
	}
	if len(less) < 250 || len(less) > 350 || len(more) < 550 || len(more) > 650 {
		t.Errorf("%d and %d of 1000 sessions are hit, not about 300 and 600", len(less), len(more))
	}
	if fmt.Sprint(less) != fmt.Sprint(hit(1, 0.3)) || fmt.Sprint(less) == fmt.Sprint(hit(2, 0.3)) {
		t.Error("it is not the seed that decides")
	}
	if len(hit(1, 0)) != 0 || len(hit(1, 1)) != 1000 {
		t.Error("0 is not none, or 1 not all")
	}
	synctest.Test(t, func(t *testing.T) {
		often := toxic("latency", "latency", 1000)
		often.Toxicity = 0.999
		l := must(New(1, often))
		p := l.Open(1, s2c)
		often.Toxicity = 1
		if got := play(p, at(0, "a"), change(500*time.Millisecond, must(l.Replace("latency_downstream", often)))); got != "1s:a" {
			t.Errorf("a change of the toxicity alone let go what is held: %s", got)
		}
	})
}

// TestReplay: one seed, one transcript; and other draws with another seed,
// session, direction or name.
func TestReplay(t *testing.T) {
	l := must(New(42,
		toxic("slicer", "average_size", 20, "size_variation", 15, "delay", 300), toxic("latency", "latency", 50, "jitter", 50),
		toxic("bandwidth", "rate", 3), Spec{Type: "slow_close", Toxicity: 0.5, Attributes: Attributes{"delay": 10}},
	))
	other := must(must(l.Without("bandwidth_downstream")).With(toxic("noop")))
	run := func(l *List, session int) (text string) {
		synctest.Test(t, func(*testing.T) {
			var steps []step
			r := rand.New(rand.NewPCG(1, 2))
			for at := time.Duration(0); at < 300*time.Millisecond; at += time.Duration(r.IntN(40)) * time.Millisecond {
				steps = append(steps, step{at: at, send: strings.Repeat("x", 1+r.IntN(200))})
			}
			steps = append(steps, change(310*time.Millisecond, other), step{at: 310 * time.Millisecond, send: strings.Repeat("x", 500)}, end(time.Second))
			text = play(l.Open(session, s2c), steps...)
		})
		return text
	}
	first := run(l, 1)
	for range 100 {
		if again := run(l, 1); again != first {
			t.Fatalf("two transcripts of one seed:\n%s\n%s", first, again)
		}
	}
	if run(l, 2) == first || run(must(New(43, l.Specs()...)), 1) == first {
		t.Error("another session or seed has the same transcript")
	}
	st := l.stages[1]
	up := *st
	up.dir = c2s
	renamed := *st
	renamed.spec.Name = "x"
	if a := st.draws(1).Uint64(); a == up.draws(1).Uint64() || a == renamed.draws(1).Uint64() {
		t.Error("another direction or name has the same draws")
	}
}
