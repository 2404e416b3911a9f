package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
)

// deed is one thing that a peer does in a random session.
type deed struct {
	dir   frames.Direction // what the peer sends goes this way
	data  string
	fin   bool
	pause time.Duration
}

func (d deed) String() string {
	if d.fin {
		return fmt.Sprintf("%s FIN", d.dir)
	}
	return fmt.Sprintf("%s %q, %v", d.dir, d.data, d.pause)
}

// drawTalk draws frames for each direction, sometimes garbage behind them, cuts
// them anywhere and mixes the pieces.
func drawTalk(rt *rapid.T) (deeds []deed, whole [2]string) {
	own := [2][]string{c2s: {acquire, release, "\n"}, s2c: {acquired, released, frame(s2c, "M", ""), "\n"}}
	whole = [2]string{c2s: auth, s2c: greeting}
	var rest [2]string
	for dir := range whole {
		for range rapid.IntRange(0, 6).Draw(rt, "frames") {
			whole[dir] += rapid.SampledFrom(own[dir]).Draw(rt, "frame")
		}
		if rapid.IntRange(0, 9).Draw(rt, "garbage") == 0 {
			whole[dir] += "?garbage" + acquire
		}
		rest[dir] = whole[dir]
	}
	fins := [2]bool{}
	for !fins[c2s] || !fins[s2c] {
		dir := frames.Direction(rapid.IntRange(0, 1).Draw(rt, "direction"))
		if fins[dir] {
			dir = dir.Opposite()
		}
		if rest[dir] == "" {
			fins[dir] = true
			deeds = append(deeds, deed{dir: dir, fin: true})
			continue
		}
		n := rapid.IntRange(1, len(rest[dir])).Draw(rt, "bytes")
		pause := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 30, 4000}).Draw(rt, "pause")) * ms
		deeds = append(deeds, deed{dir: dir, data: rest[dir][:n], pause: pause})
		rest[dir] = rest[dir][n:]
	}
	return deeds, whole
}

func drawRules(rt *rapid.T) []faults.Rule {
	var out []faults.Rule
	all := slices.DeleteFunc(faults.All(), func(f *faults.Type) bool {
		return f.Opens && f.ID != "slow-accept" // without a session there is no talk
	})
	for i := range rapid.IntRange(0, 3).Draw(rt, "rules") {
		f := rapid.SampledFrom(all).Draw(rt, "fault")
		dir := frames.Direction(rapid.IntRange(0, 1).Draw(rt, "rule's direction"))
		ops := [2][]string{c2s: {"auth", "A", "R", "keepalive"}, s2c: {"greeting", "A", "R", "M", "keepalive"}}
		r := faults.Rule{ID: fmt.Sprint("r", i), Fault: f, Trigger: faults.Trigger{
			Dir: dir, Op: rapid.SampledFrom(ops[dir]).Draw(rt, "op"), Nth: rapid.IntRange(0, 2).Draw(rt, "nth"),
		}}
		switch f.Only {
		case faults.OpOpen:
			r.Trigger.Dir, r.Trigger.Op = c2s, f.Only
		case faults.OpGreeting:
			r.Trigger.Dir, r.Trigger.Op = s2c, f.Only
		}
		size := map[string]int{"auth": len(auth), "A": len(acquire), "R": len(release), "M": 2, "keepalive": 1, "greeting": len(greeting)}[r.Trigger.Op]
		if r.Trigger.Op == "A" && r.Trigger.Dir == s2c {
			size = len(acquired)
		}
		size += rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(rt, "over")
		if r.At = rapid.IntRange(0, size).Draw(rt, "at"); f.Range == faults.AtEnd || f.Range == faults.Ends && r.At > 0 {
			r.At = size
		} else if f.Range == faults.Start {
			r.At = 0
		} else if f.Range == faults.Inside {
			r.At = max(r.At, 1)
		}
		if f.Injects != "" {
			r.Inject = []byte("Linjected\n")
		}
		out = append(out, r)
	}
	return out
}

// TestRandom: whatever is sent and whichever rules act, each peer gets a prefix
// of what the other sent, all of it unless there was a cut, which falls exactly
// at the offset of its rule; and the record says the same.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		deeds, whole := drawTalk(rt)
		set := drawRules(rt)
		var problems []string
		bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
		synctest.Test(t, func(t *testing.T) { perform(t, deeds, whole, set, bad) })
		if len(problems) > 0 {
			rt.Fatalf("%v\nrules %+v\n%s", deeds, set, strings.Join(problems, "\n"))
		}
	})
}

// perform plays a talk and tells of all that is wrong.
func perform(t *testing.T, deeds []deed, whole [2]string, set []faults.Rule, bad func(string, ...any)) {
	b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, set...)})
	cl, sv := b.connect()
	to := [2]*peer{c2s: sv, s2c: cl}
	for _, d := range deeds {
		from := to[d.dir.Opposite()]
		if d.fin {
			_ = from.Conn.(interface{ CloseWrite() error }).CloseWrite() // it may have been reset
		} else {
			_, _ = from.Write([]byte(d.data))
		}
		time.Sleep(d.pause)
	}
	time.Sleep(time.Minute) // no rule holds anything for longer, all together
	synctest.Wait()
	b.end()
	<-b.served
	<-cl.ended
	<-sv.ended
	ev, _ := b.rec.Events(0)
	ws := wires(ev, bad)
	cuts := 0
	var cut [2]bool
	reset := false
	for _, e := range ofKind(ev, history.Fired) {
		if strings.HasPrefix(e.Fault, "truncate") {
			cuts++
			cut = [2]bool{true, true}
			reset = reset || strings.HasPrefix(e.Fault, "truncate-rst")
		}
		cut[e.Dir] = cut[e.Dir] || e.Fault == "stall"
	}
	if cuts > 1 {
		bad("%d cuts", cuts)
	}
	for dir, want := range whole {
		w := ws[wireKey{1, frames.Direction(dir)}]
		if w == nil {
			w = &wire{}
		}
		got, _, how := to[dir].now()
		if string(w.delivered) != got && !bare {
			bad("%s: %q is recorded as delivered, %q was", frames.Direction(dir), w.delivered, got)
		}
		if !w.altered && (!strings.HasPrefix(want, got) || !cut[dir] && got != want) {
			bad("%s: %q was sent, %q came", frames.Direction(dir), want, got)
		}
		if !strings.HasPrefix(want, string(w.received)) || !reset && string(w.received) != want && !bare {
			bad("%s: %q was sent, %q is recorded", frames.Direction(dir), want, w.received)
		}
		if !cut[dir] && how != history.FIN {
			bad("%s: ended with %s", frames.Direction(dir), how)
		}
	}
}
