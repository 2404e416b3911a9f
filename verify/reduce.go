package verify

import (
	"slices"
	"time"

	"tornwire/faults"
	"tornwire/frames"
)

// keep returns the story with the steps that ok lets through. The steps of a call go
// with its acquire, and calls are numbered anew.
func (s story) keep(ok func(i int, x step) bool) story {
	number := map[int]int{}
	var out story
	for i, x := range s {
		if !ok(i, x) {
			continue
		}
		if x.kind == stepAcquire {
			number[x.call] = len(number) + 1
			x.call = number[x.call]
		} else if x.isOfCall() {
			if x.call = number[x.call]; x.call == 0 {
				continue
			}
		}
		out = append(out, x)
	}
	return out
}

// change returns the story with every step changed.
func (s story) change(f func(step) step) story {
	out := slices.Clone(s)
	for i := range out {
		out[i] = f(out[i])
	}
	return out
}

// tidy takes out what means nothing: steps about keys that nobody uses, releases of
// keys that nobody holds.
func (s story) tidy() story {
	used := map[string]bool{}
	for _, x := range s {
		used[x.key] = used[x.key] || x.kind == stepAcquire
	}
	return s.keep(func(_ int, x step) bool { return x.key == "" || used[x.key] })
}

// ofCalls keeps the calls given and what happens on their keys. With holders the other
// calls on these keys become grants of the tool's own holder, else they are left out.
func (s story) ofCalls(calls []int, holders bool) story {
	keys, of := map[string]bool{}, map[int]string{}
	for _, x := range s {
		if x.kind == stepAcquire {
			of[x.call] = x.key
			keys[x.key] = keys[x.key] || slices.Contains(calls, x.call)
		}
	}
	var out story
	inside := map[int]bool{}
	for _, x := range s {
		if !x.isOfCall() && x.kind != stepAcquire || slices.Contains(calls, x.call) {
			out = append(out, x)
			continue
		}
		if !holders || !keys[of[x.call]] {
			continue
		}
		switch {
		case (x.kind == stepSettle || x.kind == stepEnter) && !inside[x.call]:
			inside[x.call] = true
			out = append(out, step{kind: stepTake, key: of[x.call]})
		case x.kind == stepRelease:
			out = append(out, step{kind: stepFree, key: of[x.call]})
		}
	}
	return out.keep(func(int, step) bool { return true }).tidy()
}

// fewerCalls lists stories with fewer calls, those with the fewest first.
func (s story) fewerCalls() []story {
	n := s.calls()
	var sets [][]int
	for i := 1; i <= n && n > 1; i++ {
		sets = append(sets, []int{i})
	}
	for i := 1; i <= n && n > 2; i++ {
		for j := i + 1; j <= n; j++ {
			sets = append(sets, []int{i, j})
		}
	}
	for i := 1; i <= n && n > 3; i++ {
		all := make([]int, 0, n)
		for j := 1; j <= n; j++ {
			if j != i {
				all = append(all, j)
			}
		}
		sets = append(sets, all)
	}
	var out []story
	for _, set := range sets {
		out = append(out, s.ofCalls(set, false), s.ofCalls(set, true))
	}
	return out
}

// fewerSteps lists stories without a run of steps, the shortest first. No call is left
// out: fewerCalls does that.
func (s story) fewerSteps() []story {
	var out []story
	for size := len(s) / 2; size > 0; size /= 2 {
		for from := 0; from < len(s); from += size {
			t := s.keep(func(i int, x step) bool { return x.kind == stepAcquire || i < from || i >= from+size })
			if len(t) < len(s) {
				out = append(out, t)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b story) int { return len(a) - len(b) })
	return out
}

// simpler lists stories with simpler values, each with one that is.
func (s story) simpler() []story {
	var out []story
	add := func(t story) {
		if !slices.Equal(t, s) {
			out = append(out, t)
		}
	}
	if s.calls() > 1 { // all calls by one client
		add(s.change(func(x step) step {
			if x.kind == stepAcquire {
				x.client = "c1"
			}
			return x
		}))
	}
	for i, x := range s {
		with := func(f func(*step)) {
			t := slices.Clone(s)
			f(&t[i])
			add(t)
		}
		switch x.kind {
		case stepAcquire:
			for _, d := range []time.Duration{second, 2 * second, 5 * second} {
				if d < x.wait {
					with(func(x *step) { x.wait = d })
				}
				if d < x.lease {
					with(func(x *step) { x.lease = d })
				}
			}
		case stepPause:
			if x.wait > 100*time.Millisecond {
				with(func(x *step) { x.wait = (x.wait / 2).Round(idleStep) })
			}
		}
	}
	return out
}

// shortKeys names the keys k, k2, and so on. It tells by how much the first is shorter.
func (s story) shortKeys() (t story, shorter int) {
	names := map[string]string{}
	for _, x := range s {
		if _, ok := names[x.key]; x.key != "" && !ok {
			name := "k"
			if n := len(names); n > 0 {
				name += string(rune('1' + n%9))
			}
			names[x.key] = name
		}
	}
	t = s.change(func(x step) step {
		if x.key != "" {
			x.key = names[x.key]
		}
		return x
	})
	return t, len(s.key()) - len(t.key())
}

// smallerFaults lists the same case with less of a fault: without one, with one that is
// plainer, or after fewer bytes.
func (c Case) smallerFaults() []CaseID {
	if c.ID.Fault == NoFault || c.Workload.Own != nil {
		return nil
	}
	none := c.ID
	none.Frame, none.Offset, none.Fault = FrameID{}, 0, NoFault
	out := []CaseID{none}
	t, _ := faults.ByID(c.ID.Fault)
	if t.Family == "truncate" {
		op, nth := c.ID.Frame.Op, c.ID.Frame.Nth
		if (Expected{Frame: c.ID.Frame}).isPreface() { // behind it the request is lost in the same way
			op, nth = "A", 1
		}
		for _, f := range []string{"truncate-fin", "truncate-rst"} {
			id := c.ID
			id.Frame, id.Offset, id.Fault = FrameID{Dir: frames.ServerToClient, Op: op, Nth: nth}, 0, f
			if id == c.ID {
				return out
			}
			out = append(out, id)
		}
	}
	for _, k := range t.Range.Offsets(c.Frame.Size) {
		if k < c.ID.Offset {
			id := c.ID
			id.Offset = k
			out = append(out, id)
		}
	}
	return out
}
