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
