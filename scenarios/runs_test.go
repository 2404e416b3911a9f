package scenarios

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
	"tornwire/verify"
)

// awaitState waits until a run is in a state.
func awaitState(t *testing.T, l *Live, holds func(LiveState) bool) LiveState {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		s := l.State()
		if holds(s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("it is %s at step %d", s.State, s.Step)
		}
	}
}

// TestRuns: a run is paused, does its steps one by one, goes on, and ends with its result.
func TestRuns(t *testing.T) {
	t.Parallel()
	r := NewRuns()
	defer r.Close()
	s, _ := ByName("torn-grant")
	l, err := r.Start(s, Options{}, true)
	if err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, l, func(s LiveState) bool { return s.State == Paused && s.Places != nil })
	if st.Step != 0 || len(st.Places["c1"]) != 1 || !strings.Contains(st.Places["c1"][0], ":") {
		t.Errorf("%+v", st)
	}
	if err := l.Advance(); err != nil {
		t.Fatal(err)
	}
	st = awaitState(t, l, func(s LiveState) bool { return s.State == Paused && s.Step == 1 })
	if len(st.Told) != 1 || st.Told[0].Step.Do != DoAcquire {
		t.Errorf("%+v", st)
	}
	if err := l.Resume(); err != nil {
		t.Fatal(err)
	}
	<-l.Done()
	st = l.State()
	if st.State != Done || st.Err != nil || st.Step != len(s.Steps) || st.Result.ExitCode == verify.ExitUnsafe || len(st.Told) != len(s.Steps) {
		t.Errorf("%+v", st)
	}
	if err := errors.Join(l.Pause(), l.Resume(), l.Advance()); !errors.Is(err, ErrOver) {
		t.Error(err)
	}
	if got, err := r.Get(l.ID); got != l || err != nil || len(r.List()) != 1 {
		t.Error(err)
	}
	if _, err := r.Get("0"); !errors.Is(err, ErrNoRun) {
		t.Error(err)
	}
}

// TestRunsStopped: a run that is stopped proves nothing and leaves nothing, and so do those
// that are under way when all end; there are limits.
func TestRunsStopped(t *testing.T) {
	t.Parallel()
	r := NewRuns()
	s, _ := ByName("immediate")
	var all []*Live
	for range MaxLiveRuns {
		l, err := r.Start(s, Options{}, false)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	if _, err := r.Start(s, Options{}, false); !errors.Is(err, ErrRuns) {
		t.Error(err)
	}
	awaitState(t, all[0], func(s LiveState) bool { return s.Step > 0 })
	if err := all[0].Pause(); err != nil {
		t.Error(err)
	}
	all[0].Stop()
	if st := all[0].State(); st.State != Done || st.Result.ExitCode != verify.ExitInconclusive {
		t.Errorf("%+v", st)
	}
	r.Close()
	for _, l := range all {
		if st := l.State(); st.State != Done || st.Result.Verdict != checker.Inconclusive {
			t.Errorf("%+v", st)
		}
	}
	if _, err := r.Start(s, Options{}, false); !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	for text, want := range map[string]string{
		torn: "client program is a program, and a daemon starts none",
		"[server]\nkind = \"upstream\"\naddress = \"a:1\"\nsecret_file = \"x\"\n[[steps]]\nacquire = \"a\"\nkey = \"k\"\nwait = \"1s\"\nlease = \"5s\"\n": "secret_file is a file",
	} {
		if _, err := r.Start(parsed(t, text), Options{}, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestWitness: what a witness says of calls that the run has not asked for is held against the
// bytes at once, and what cannot be is refused.
func TestWitness(t *testing.T) {
	t.Parallel()
	r := NewRuns()
	defer r.Close()
	const story = `
[[clients]]
name = "program"
kind = "anyone"
[[rules]]
id = "lose"
dir = "s2c"
op = "A"
nth = 1
fault = { type = "truncate-fin", at = 0 }
[[steps]]
when = { event = "call_result", count = 2, within = "20s" }
await = "both calls"
[[expect]]
finding = "no-entry-unconfirmed"
[[expect]]
finding = "indeterminate-stays"
`
	l, err := r.Start(parsed(t, story), Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, l, func(s LiveState) bool { return s.Places != nil })
	var findings []checker.Finding
	say := func(s Saying, refused string) {
		t.Helper()
		var err error
		for end := time.Now().Add(10 * time.Second); ; {
			if findings, err = l.Say(s); !errors.Is(err, ErrNotNow) || time.Now().After(end) {
				break
			}
		}
		if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%+v: %v, want %q", s, err, refused)
		}
	}
	start := Saying{Event: SaysCall, Call: "a", Key: "order-42", Wait: time.Second, Lease: 5 * time.Second}
	say(start, "")
	say(start, `call "a" has been told of already`)
	say(Saying{Event: SaysCall, Call: "b", Client: "c9"}, `there is no client "c9"`)
	say(Saying{Event: SaysOutcome, Call: "b"}, `no call "b" has been told of`)
	say(Saying{Event: SaysExit, Call: "a"}, `call "a" is not inside`)
	say(Saying{Event: SaysRelease, Call: "a"}, `call "a" is not acquired`)
	say(Saying{Event: SaysReleased, Call: "a"}, `no release of call "a" is under way`)
	if err := askAt(st.Places["program"][0]); err != nil {
		t.Fatal(err)
	}
	say(Saying{Event: SaysOutcome, Call: "a", Outcome: "acquired", Token: 1}, "") // it has seen nothing of a grant
	say(Saying{Event: SaysOutcome, Call: "a", Outcome: "timeout"}, "has ended already: acquired")
	say(Saying{Event: SaysEnter, Call: "a"}, "")
	found := false
	for _, f := range findings {
		found = found || f.Rule == "no-entry-unconfirmed" && f.Certainty == checker.Certain
	}
	if !found {
		t.Errorf("the witness is answered %+v", findings)
	}
	say(Saying{Event: SaysEnter, Call: "a"}, "is inside already")
	say(Saying{Event: SaysExit, Call: "a"}, "")
	say(Saying{Event: SaysCall, Call: "z", Key: "k", Wait: 0, Lease: time.Second}, "")
	say(Saying{Event: SaysCancel, Call: "z"}, "")
	say(Saying{Event: SaysCancel, Call: "z"}, "is cancelled already")
	say(Saying{Event: SaysOutcome, Call: "z", Outcome: "unsent"}, "")
	<-l.Done()
	if res := l.State().Result; res.ExitCode != 0 || res.Verdict != checker.Unsafe {
		t.Error(describe(res))
	}
	if _, err := l.Say(start); !errors.Is(err, ErrNotNow) {
		t.Error(err)
	}
}
