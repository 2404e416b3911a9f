package verify

import (
	"testing"

	"tornwire/frames"
	"tornwire/server/stub"
)

// TestScriptAccusesNobody: what a workload's script does is told of no server, and the
// run is none with a broken embedded one.
func TestScriptAccusesNobody(t *testing.T) {
	t.Parallel()
	twice := *single
	twice.Stub = func(*frames.Grammar) []stub.Step {
		return []stub.Step{{Dir: frames.ServerToClient, Op: "R", Pass: func(f stub.Frame) []byte { return append(f.With("token", 77), f.Bytes...) }}}
	}
	p, err := NewPlan(Options{Cases: []string{controlCase}, Start: Library(referenceLibrary())})
	if err != nil {
		t.Fatal(err)
	}
	spared := false
	for _, w := range []*Workload{single, &twice} {
		p.Cases[0].Workload = w
		r := Run(t.Context(), p, nil)
		for _, f := range r.Findings {
			if f.Side == "server" {
				t.Errorf("%s: %s", f.Rule, f.Message)
			}
		}
		if r.ExitCode == ExitInternal {
			t.Error(r.Reason)
		}
		spared = unjudged(r)
		if w == single && spared {
			t.Error("without a script the server was not judged")
		}
	}
	if !spared {
		t.Error("with a script the server was judged")
	}
}

// unjudged tells whether the server was judged in the two sanity runs alone.
func unjudged(r *Report) bool {
	for _, n := range r.Rules {
		if n.ID == "echo-matches" {
			return n.Checked < 3
		}
	}
	return true
}
