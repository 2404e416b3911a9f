package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/proxy"
)

// talk is an exchange with keep-alives. The frames under test are all but the
// last two, which are what follows them in either direction.
var talk = []sent{
	{s2c, "greeting", greeting},
	{c2s, "auth", auth},
	{c2s, "A", acquire},
	{c2s, "keepalive", "\n"},
	{s2c, "keepalive", "\n"},
	{s2c, "A", acquired},
	{c2s, "R", release},
	{s2c, "R", released},
}

// follows finds the frame of the talk that follows target in a direction.
func follows(target int, dir frames.Direction) string {
	for _, f := range talk[target+1:] {
		if f.dir == dir {
			return f.data
		}
	}
	panic("nothing follows")
}

const notice = "L127.0.0.1:4100\n"

// deliver is a fault after which the session goes on: what it makes of a frame
// and the one behind it.
type deliver struct {
	id   string
	args faults.Args
	// want is what arrives, and how often the fault then fires.
	want func(f, next string, k int) (string, int)
}

func same(f, next string, _ int) (string, int) { return f + next, 1 }

func injected(f, next string, k int) (string, int) {
	return f[:k] + notice + f[k:] + next, 1
}

var deliveries = []deliver{
	{"split", faults.Args{"pause": 5 * ms}, same},
	{"dribble", nil, same},
	{"delay", faults.Args{"by": 5 * ms}, same},
	{"coalesce", nil, same},
	{"hold", faults.Args{"most": 5 * ms}, same},
	{"hold-greeting", faults.Args{"most": 5 * ms}, same},
	{"drop", nil, func(_, next string, _ int) (string, int) { return next, 1 }},
	{"inject-keepalive", faults.Args{"pause": 5 * ms}, injected},
	{"inject-notice", faults.Args{"pause": 5 * ms}, injected},
	{"inject-error", faults.Args{"pause": 5 * ms}, injected},
	{"inject-stray", faults.Args{"pause": 5 * ms}, injected},
	{"inject-garbage", faults.Args{"pause": 5 * ms}, injected},
	{"duplicate", nil, func(f, next string, _ int) (string, int) { return f + f + next, 1 }},
	{"reorder", nil, func(f, next string, _ int) (string, int) { return next + f, 1 }},
	{"corrupt", nil, func(f, next string, k int) (string, int) { return f[:k] + string(f[k]^1) + f[k+1:] + next, 1 }},
	{"splice", nil, func(f, next string, k int) (string, int) {
		if len(next) <= k {
			return f + next, 0
		}
		return f[:k] + next[k:], 1
	}},
}

// ways are how a frame and the next one are sent.
var ways = map[string]func(f, next string) []string{
	"together": func(f, next string) []string { return []string{f + next} },
	"apart":    func(f, next string) []string { return []string{f, next} },
	"bytewise": func(f, next string) []string { return strings.Split(f+next, "") },
}

// TestEachDelivery: every fault after which the session goes on, at each of its
// places in every frame, in both directions: what arrives byte for byte, that the
// end and the other direction pass, and the record.
func TestEachDelivery(t *testing.T) {
	for _, d := range deliveries {
		for target, f := range talk[:len(talk)-2] {
			typ := fault(t, d.id)
			if typ.Only != "" && typ.Only != f.op {
				continue
			}
			n := len(f.data)
			at := slices.DeleteFunc(places(n), func(k int) bool { return !typ.Range.Contains(k, n) })
			slices.Sort(at)
			for _, k := range slices.Compact(at) {
				for way := range ways {
					t.Run(fmt.Sprintf("%s/%s.%s@%d/%s", d.id, f.dir, f.op, k, way), func(t *testing.T) {
						d.run(t, tcp, target, k, way)
						synctest.Test(t, func(t *testing.T) { d.run(t, inMemory(0), target, k, way) })
					})
				}
			}
		}
	}
}

func (d deliver) run(t *testing.T, tr transport, target, k int, way string) {
	f := talk[target]
	rule := faults.Rule{
		ID: "the rule", Fault: fault(t, d.id), At: k, Args: d.args,
		Trigger: faults.Trigger{Dir: f.dir, Op: f.op, Client: "c1", ClientNth: 1},
	}
	if rule.Fault.Injects != "" {
		rule.Inject = []byte(notice)
	}
	b := newBed(t, tr, proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
	cl, sv := b.connect()
	carried := play(cl, sv, talk[:target])
	from, to := cl, sv
	if f.dir == s2c {
		from, to = sv, cl
	}
	next, back := follows(target, f.dir), follows(target, f.dir.Opposite())
	from.send(ways[way](f.data, next)...)
	to.send(back)
	from.wait(len(carried[f.dir.Opposite()] + back))
	from.wantGot("the other direction", carried[f.dir.Opposite()]+back, "")
	arrives, fires := d.want(f.data, next, k)
	to.wait(len(carried[f.dir] + arrives))
	from.closeWrite()
	to.wantAll("receiver", carried[f.dir]+arrives, history.FIN)
	to.closeWrite()
	from.wantAll("sender", carried[f.dir.Opposite()]+back, history.FIN)
	ev := b.stop()
	w := checkRecord(t, ev)[wireKey{1, f.dir}]
	if !w.is(carried[f.dir]+f.data+next, carried[f.dir]+arrives) {
		t.Errorf("recorded: %+v", w)
	}
	fired := ofKind(ev, history.Fired)
	if len(fired) != fires {
		t.Fatalf("%d firings, wanted %d", len(fired), fires)
	}
	for _, e := range fired {
		if e.Session != 1 || e.Dir != f.dir || e.Frame.String() != fmt.Sprintf("%s.%s.1", f.dir, f.op) || e.Off != k || e.Rule != "the rule" || e.Fault != d.id {
			t.Errorf("fired: %+v of %s", e, e.Frame)
		}
	}
	d.wantWrites(t, ev, f, next, k)
}

// wantWrites checks how the bytes were put into writes, where that is the fault.
func (d deliver) wantWrites(t *testing.T, ev []history.Event, f sent, next string, k int) {
	t.Helper()
	if bare {
		return
	}
	all := writes(ev, f.dir)
	at := slices.IndexFunc(all, func(w write) bool { return w.fault })
	switch d.id {
	case "coalesce":
		if !slices.ContainsFunc(all, func(w write) bool { return w.data == f.data+next }) {
			t.Errorf("not in one write: %+v", all)
		}
	case "dribble":
		i := slices.IndexFunc(all, func(w write) bool { return w.first == "@0 "+f.op })
		for j := range len(f.data) {
			if w := all[i+j]; w.data != f.data[j:j+1] {
				t.Errorf("byte %d is in the write of %q", j, w.data)
			}
		}
	case "duplicate":
		if at < 0 || all[at].data != f.data || all[at].first != "@0 "+f.op {
			t.Errorf("made: %+v", all)
		}
	default:
		if (at >= 0) != strings.HasPrefix(d.id, "inject-") || at >= 0 && (all[at].data != notice || all[at].first != "@0 L") {
			t.Errorf("made: %+v", all)
		}
	}
}

// write is one write as it was recorded.
type write struct {
	data  string
	first string // offset and op of its first frame
	fault bool   // that frame was made by a fault
}

// writes lists the writes in a direction of the only session.
func writes(ev []history.Event, dir frames.Direction) []write {
	got := map[uint64]string{}
	var out []write
	begun := false
	for _, e := range ev {
		if e.Dir != dir || e.Frame == nil {
			continue
		}
		switch e.Kind {
		case history.Received:
			got[e.Frame.Seq] += string(e.Data)
		case history.WriteAccepted:
			begun = false
		case history.WriteBegun:
			data := string(e.Data)
			if data == "" {
				data = got[e.Frame.Seq][e.Off : e.Off+e.N]
			}
			if !begun {
				out = append(out, write{first: fmt.Sprintf("@%d %s", e.Off, e.Frame.Op), fault: e.Frame.Nth == 0})
			}
			out[len(out)-1].data += data
			begun = true
		}
	}
	return out
}

// TestMadeFrames: frames that faults make are told apart on their link, and in
// the record both of their events have the bytes.
func TestMadeFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t,
			faults.Rule{ID: "i", Fault: fault(t, "inject-keepalive"), Inject: []byte("\n"), Trigger: faults.Trigger{Dir: s2c, Op: "A"}},
			faults.Rule{ID: "g", Fault: fault(t, "inject-garbage"), Inject: []byte("\n?"), At: len(released), Trigger: faults.Trigger{Dir: s2c, Op: "R"}},
		)})
		cl, sv := b.connect()
		sv.send(greeting + acquired + acquired + released)
		synctest.Wait()
		cl.wantGot("client", greeting+"\n", "")
		time.Sleep(100 * ms) // twice the pause behind what is injected
		synctest.Wait()
		cl.wantGot("client", greeting+"\n"+acquired+"\n"+acquired+released+"\n?", "")
		seqs := map[uint64]int{}
		var ops []string
		for _, e := range b.stop() {
			if e.Frame == nil || e.Frame.Nth != 0 {
				continue
			}
			if e.N != len(e.Data) || e.N == 0 {
				t.Errorf("%s of %d bytes has %q", e.Kind, e.N, e.Data)
			}
			seqs[e.Frame.Seq]++
			if e.Kind == history.WriteBegun {
				ops = append(ops, e.Frame.Op)
			}
		}
		if len(seqs) != 3 || !slices.Equal(ops, []string{"keepalive", "keepalive", "\n"}) {
			t.Errorf("made %q, numbers %v", ops, seqs)
		}
		for seq, n := range seqs {
			if n != 2 || seq < 1<<63 {
				t.Errorf("frame %d has %d events", seq, n)
			}
		}
	})
}

// TestMisplaced: a fault that has no place in the frame does nothing to it, and
// does not fire.
func TestMisplaced(t *testing.T) {
	n := len(acquired)
	for _, c := range []struct {
		id string
		at int
	}{
		{"inject-notice", n - 1},
		{"inject-notice", n + 1},
		{"duplicate", n - 1},
		{"duplicate", n + 1},
		{"corrupt", n},
		{"corrupt", n + 1},
		{"splice", n},
		{"splice", n + 1},
		{"truncate-fin-client", n + 1},
		{"stall", n + 1},
	} {
		for way, split := range ways {
			synctest.Test(t, func(t *testing.T) {
				rule := faults.Rule{ID: "r", Fault: fault(t, c.id), At: c.at, Trigger: faults.Trigger{Dir: s2c, Op: "A"}}
				if rule.Fault.Injects != "" {
					rule.Inject = []byte(notice)
				}
				b := newBed(t, inMemory(0), proxy.Config{Grammar: grammar, Rules: rules(t, rule)})
				cl, sv := b.connect()
				sv.send(greeting)
				sv.send(split(acquired, released)...)
				synctest.Wait()
				cl.wantGot("client, "+way, greeting+acquired+released, "")
				if fired := ofKind(b.stop(), history.Fired); len(fired) > 0 {
					t.Errorf("%s at %d: fired %+v", c.id, c.at, fired)
				}
			})
		}
	}
}
