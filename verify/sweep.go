package verify

import (
	"slices"

	"tornwire/faults"
	"tornwire/frames"
)

// Sweeps of spec/cli.md.
const (
	SweepSmoke    = "smoke"    // a few offsets and faults of the short workloads: under 10 s
	SweepStandard = "standard" // every offset of every frame torn, each other fault once a frame
	SweepFull     = "full"     // every fault at each of its offsets
)

// allCases lists every case of a dialect, in workload, exchange, fault and
// offset order. Keys are longer than the workloads' by so many bytes.
func allCases(g *frames.Grammar, sweep string, longer int) []Case {
	return casesOf(workloads, g, sweep, longer)
}

func casesOf(workloads []*Workload, g *frames.Grammar, sweep string, longer int) []Case {
	var out []Case
	for _, w := range workloads {
		if !w.Knows(g.Name) {
			continue
		}
		base := CaseID{Dialect: g.Name, Workload: w.ID}
		none := base
		none.Fault = NoFault
		out = append(out, Case{ID: none, Workload: w})
		list := w.Exchange(g)
		for i := range list {
			if list[i].hasKey() {
				list[i].Size += longer
			}
		}
		if own := w.Own; own != nil {
			id := base
			id.Frame, id.Offset, id.Fault = own.Frame, own.At, own.Fault
			i := slices.IndexFunc(list, func(x Expected) bool { return x.Frame == own.Frame })
			if own.AtEnd {
				id.Offset = list[i].Size
			}
			out = append(out, Case{ID: id, Workload: w, Frame: list[i]})
			continue
		}
		for _, x := range list {
			for _, t := range faults.All() {
				if !applies(t, g, x) || w.Only != nil && !w.Only(t, x) {
					continue
				}
				for _, k := range offsets(t, w, x, sweep) {
					id := base
					id.Frame, id.Offset, id.Fault = x.Frame, k, t.ID
					out = append(out, Case{ID: id, Workload: w, Frame: x})
				}
			}
		}
	}
	return out
}

const (
	opOpen     = "open"
	opGreeting = "greeting"
	opAuth     = "auth"
)

// isPreface tells whether a frame is a line of the preface.
func (x Expected) isPreface() bool { return x.Frame.Op == opGreeting || x.Frame.Op == opAuth }

// applies tells whether a fault can be done to a frame: connection faults to
// connections, a held greeting to greetings, and what is injected must be what a
// server (or, for keep-alives, either side) may send in that dialect.
func applies(t *faults.Type, g *frames.Grammar, x Expected) bool {
	switch {
	case t.Only != "":
		return t.Only == x.Frame.Op
	case x.Frame.Op == opOpen:
		return false
	case t.Injects != "":
		_, ok := payload(g, t.Injects, x)
		return ok
	}
	return true
}

// each lists the faults that the standard sweep does at every offset.
var each = []string{"truncate-fin", "truncate-rst", "truncate-silence", "split"}

// light lists the faults of the smoke sweep, apart from truncate-fin and -rst, and
// truncate-silence and drop where that takes no longer than the unanswered release
// of workload single.
var light = []string{"split", "delay", "inject-keepalive", "inject-stray", "refuse", "accept-fin"}

// offsets lists where a sweep does a fault to a frame.
func offsets(t *faults.Type, w *Workload, x Expected, sweep string) []int {
	all := t.Range.Offsets(x.Size)
	all = slices.DeleteFunc(all, func(k int) bool { return t.Injects != "" && k == 0 && x.isPreface() })
	if len(all) == 0 {
		return nil
	}
	once := all[len(all)/2:][:1]
	if t.Injects != "" {
		once = all[:1]
	}
	switch {
	case sweep == SweepFull:
		return all
	case sweep == SweepSmoke && (t.ID == "truncate-fin" || t.ID == "truncate-rst"):
		n := x.Size
		marks := []int{0, 1, n / 2, n - 1, n}
		return slices.DeleteFunc(all, func(k int) bool { return !slices.Contains(marks, k) })
	case sweep == SweepSmoke && (t.ID == "truncate-silence" || t.ID == "drop") && x.Frame.Op == "A" && w == single:
		return all[len(all)-1:]
	case sweep == SweepSmoke && !slices.Contains(light, t.ID):
		return nil
	case sweep == SweepStandard && slices.Contains(each, t.ID):
		return all
	}
	return once
}
