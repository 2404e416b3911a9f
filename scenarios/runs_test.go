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
