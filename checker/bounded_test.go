package checker

import "testing"

// TestManyRequests: a client that sends without end is judged by its first
// requests, and the judgement ends.
func TestManyRequests(t *testing.T) {
	for _, n := range []int{MaxRequests - 1, 20 * MaxRequests} {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
		for i := range n {
			s.pass(s.req(1, "k1", 5, 30, uint64(i+1)))
		}
		s.told(1, indet)
		p := s.policy()
		p.Only = map[string]bool{"one-attempt": true}
		if got, want := len(Check(s.ev, p).Findings), min(n, MaxRequests)-1; got != want {
			t.Errorf("%d requests: %d findings, want %d", n, got, want)
		}
	}
}

// What a shortened history does not show may have come later.
func TestShortenedHistoryProvesNoAbsence(t *testing.T) {
	for _, n := range []int{1, 2 * MaxRequests} {
		s := newScript(t, v1)
		s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec).pass(s.req(1, "k1", 5, 30, 1)).told(1, "unsent")
		for i := 1; i < n; i++ {
			s.pass(s.rel(1, "k2", uint64(i)))
		}
		p := s.policy()
		p.Only = map[string]bool{"indeterminate-stays": true}
		if got := len(Check(s.ev, p).Findings); (got == 1) != (n == 1) {
			t.Errorf("%d requests: %d findings", n, got)
		}
	}
}
