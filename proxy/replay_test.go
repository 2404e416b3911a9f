package proxy_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/faults/toxics"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
)

// run is what a run is made of.
type run struct {
	seed   uint64
	stages faults.Stages // nil for none
	churn  int           // 0 none; 1 rules that meet no frame; 2 rules that act too
}

// dice are rules with probabilities for a run. Their waits share no instant with what
// the peers send, every 10 ms: ties would have no order.
func dice(t *testing.T) []faults.Rule {
	const odd = 7 * time.Nanosecond
	rule := func(id string, at int, args faults.Args, trigger faults.Trigger) faults.Rule {
		return faults.Rule{ID: id, Fault: fault(t, id), At: at, Args: args, Trigger: trigger}
	}
	list := []faults.Rule{
		rule("split", 5, faults.Args{"pause": 53*ms + odd}, faults.Trigger{Dir: c2s, Op: "A", Chance: 0.2}),
		rule("delay", 0, faults.Args{"by": 31*ms + 3*odd}, faults.Trigger{Dir: s2c, Op: "A", Chance: 0.3}),
		rule("dribble", 0, faults.Args{"pause": 1*ms + 11*odd}, faults.Trigger{Dir: c2s, Op: "A", Chance: 0.15, Where: map[string]string{"wait": "0..7"}}),
		rule("drop", 0, nil, faults.Trigger{Dir: s2c, Op: "A", Chance: 0.1}),
		rule("corrupt", 3, nil, faults.Trigger{Dir: c2s, Op: "A", Chance: 0.3, Where: map[string]string{"key": "*1?"}}),
		rule("inject-notice", 0, faults.Args{"pause": 17*ms + 5*odd}, faults.Trigger{Dir: s2c, Op: "R", Chance: 0.4}),
		rule("truncate-rst", 9, nil, faults.Trigger{Dir: c2s, Op: "R", Chance: 0.1}),
	}
	list[5].Inject = []byte(notice)
	return list
}

// transcripts plays three sessions at once and returns, for each session and
// direction, all that was read there and when, the end, every write's borders, and
// all firings with their draws.
func (r run) transcripts(t *testing.T) map[string]string {
	b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Seed: r.seed})
	for _, d := range dice(t) {
		must(t, b.px.Arm(d))
	}
	if r.stages != nil {
		b.px.SetStages(r.stages)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	var peers [3][2]*peer
	for i := range peers {
		cl, sv := b.connect()
		peers[i] = [2]*peer{c2s: sv, s2c: cl}
		wg.Go(func() { talkOn(cl, i, c2s) })
		wg.Go(func() { talkOn(sv, i, s2c) })
	}
	var churned sync.WaitGroup
	if r.churn > 0 {
		churned.Go(func() { churnOn(t, b.px, r.churn, done) })
	}
	wg.Wait()
	close(done)
	churned.Wait()
	time.Sleep(time.Minute)
	synctest.Wait()
	out := map[string]string{}
	for i, ps := range peers {
		for dir, p := range ps {
			out[fmt.Sprint(i+1, frames.Direction(dir), " read")] = reads(p)
		}
	}
	end := b.stop
	if r.stages != nil { // what goes through them is not recorded by frame
		end = b.leave
	}
	for _, e := range end() {
		switch key := fmt.Sprint(e.Session, e.Dir); e.Kind {
		case history.WriteBegun, history.WriteAccepted:
			out[key+" wrote"] += fmt.Sprintln(e.At, e.Kind, e.Frame.Seq, e.Off, e.N)
		case history.Fired:
			out[key+" fired"] += fmt.Sprintln(e.At, e.Frame.Op, e.Frame.Seq, e.Off, e.Rule, e.Draw)
		case history.EndSent:
			out[key+" ends"] += fmt.Sprintln(e.At, e.How, e.Cause)
		}
	}
	return out
}

// reads writes down what a peer read; what came in one instant is one.
func reads(p *peer) string {
	_, parts, how := p.now()
	var out strings.Builder
	for i, x := range parts {
		if i == 0 || parts[i-1].at != x.at {
			fmt.Fprintf(&out, "\n%s ", x.at)
		}
		fmt.Fprintf(&out, "%x", x.data)
	}
	return out.String() + "\n" + how
}

// talkOn sends frames, some in two parts, 10 ms apart. The peer may have been reset.
func talkOn(p *peer, session int, dir frames.Direction) {
	first, second := auth, release
	if dir == s2c {
		first, second = greeting, released
	}
	_, _ = p.Write([]byte(first))
	for i := range 15 {
		time.Sleep(10 * ms)
		f := frame(c2s, "A", fmt.Sprintf("key-%d", i), uint64(i), 30, uint64(session))
		switch {
		case i%3 == 2:
			f = second
		case dir == s2c:
			f = frame(s2c, "A", fmt.Sprintf("key-%d", i), uint64(i), 30)
		}
		k := i % 4 * 3
		_, _ = p.Write([]byte(f[:k]))
		if k > 0 {
			time.Sleep(10 * ms)
		}
		_, _ = p.Write([]byte(f[k:]))
	}
	time.Sleep(10 * ms)
	_ = p.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// churnOn changes other rules every 9 ms and a bit.
func churnOn(t *testing.T, px *proxy.Proxy, kind int, done <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-done:
			px.Disarm("other")
			return
		case <-time.After(9*ms + 1001):
		}
		r := faults.Rule{ID: "other", Fault: fault(t, "delay"), Trigger: faults.Trigger{Dir: c2s, Op: "A", Session: 99}}
		if kind == 2 {
			r.Args, r.Trigger.Session = faults.Args{"by": ms + 13}, 1+i%3
		}
		switch i % 4 {
		case 0:
			must(t, px.Arm(r))
		case 1, 2:
			must(t, px.Rearm(r))
		default:
			px.Disarm("other")
		}
	}
}

func (r run) once(t *testing.T) (out map[string]string) {
	synctest.Test(t, func(t *testing.T) { out = r.transcripts(t) })
	return out
}

// wantSame compares two transcripts.
func wantSame(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for key := range want {
		if got[key] != want[key] {
			t.Fatalf("%s: %s is\n%s\nand was\n%s", what, key, got[key], want[key])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d transcripts, there were %d", what, len(got), len(want))
	}
}

// seed is one with which every rule fires.
const seed = 1

// TestReplay: the same seed gives the same transcripts in a hundred runs, with several
// sessions at once and rules that come and go; another seed gives others.
func TestReplay(t *testing.T) {
	for _, churn := range []int{0, 2} {
		first := run{seed: seed, churn: churn}.once(t)
		for _, id := range []string{"split", "delay", "dribble", "drop", "corrupt", "inject-notice", "truncate-rst"} {
			if !strings.Contains(strings.Join(mapValues(first, " fired"), ""), id) {
				t.Errorf("%s never fired: the seed is a poor one", id)
			}
		}
		for range 50 {
			wantSame(t, "the same seed", run{seed: seed, churn: churn}.once(t), first)
		}
		if maps.Equal(run{seed: seed + 1, churn: churn}.once(t), first) {
			t.Error("another seed gives the same")
		}
	}
}

func mapValues(m map[string]string, suffix string) (out []string) {
	for k, v := range m {
		if strings.HasSuffix(k, suffix) {
			out = append(out, v)
		}
	}
	return out
}

// TestReplayBesideOthers: rules that come and go and meet no frame leave no trace.
func TestReplayBesideOthers(t *testing.T) {
	wantSame(t, "beside others", run{seed: seed, churn: 1}.once(t), run{seed: seed}.once(t))
}

// TestReplayOfStages: so it is with stages that jitter and slice, and are drawn for
// each session.
func TestReplayOfStages(t *testing.T) {
	jittery := func(seed uint64) run {
		var list []toxics.Spec
		for _, stream := range []string{toxics.Upstream, toxics.Downstream} {
			list = append(list,
				toxics.Spec{Type: "latency", Stream: stream, Toxicity: 0.7, Attributes: toxics.Attributes{"latency": 40, "jitter": 30}},
				toxics.Spec{Type: "slicer", Stream: stream, Toxicity: 1, Attributes: toxics.Attributes{"average_size": 9, "size_variation": 5, "delay": 700}})
		}
		st, err := toxics.New(seed, list...)
		must(t, err)
		return run{seed: seed, stages: st}
	}
	first := jittery(seed).once(t)
	for range 100 {
		wantSame(t, "the same seed", jittery(seed).once(t), first)
	}
	for _, other := range []map[string]string{jittery(seed + 1).once(t), run{seed: seed}.once(t)} {
		if other["1 c2s read"] == first["1 c2s read"] {
			t.Error("the stages leave no trace of their seed")
		}
	}
}
