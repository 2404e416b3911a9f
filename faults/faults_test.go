package faults_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/faults"
)

// row is one fault of the table in spec/faults.md.
type row struct {
	id, class, offsets string
}

// specified reads the table.
func specified(t *testing.T) []row {
	t.Helper()
	data, err := os.ReadFile("../spec/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || strings.Trim(cells[1], " -") == "" || cells[1] == " id " {
			continue
		}
		family := ""
		for _, id := range strings.Split(cells[1], ",") {
			id = strings.TrimSpace(id)
			if family == "" {
				family, _, _ = strings.Cut(id, "-")
			}
			if strings.HasPrefix(id, "-") {
				id = family + id
			}
			out = append(out, row{id, strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])})
		}
	}
	if len(out) < 28 {
		t.Fatalf("the table has %d rows: %v", len(out), out)
	}
	return out
}

func ids(ts []*faults.Type) string {
	var out []string
	for _, t := range ts {
		out = append(out, t.ID)
	}
	return strings.Join(out, " ")
}

// TestRegistry: every fault is one of the specified, in their order, and
// complete.
func TestRegistry(t *testing.T) {
	rows := specified(t)
	at := -1
	for _, f := range faults.All() {
		i := slices.IndexFunc(rows, func(r row) bool { return r.id == f.ID })
		if i <= at {
			t.Errorf("%s is out of order, or not specified", f.ID)
			continue
		}
		at = i
		if r := rows[i]; string(f.Class) != r.class || string(f.Range) != r.offsets {
			t.Errorf("%s is of class %s and range %s, not %s and %s", f.ID, f.Class, f.Range, r.class, r.offsets)
		}
		if f.Sentence == "" || f.Steps == nil || f.Family == "" {
			t.Errorf("%s is not complete: %+v", f.ID, f)
		}
		for _, a := range f.Args {
			if a.Name == "" || a.Sentence == "" || a.Default < 0 || a.Default > a.Max || a.Max <= 0 {
				t.Errorf("argument of %s: %+v", f.ID, a)
			}
		}
		if got, ok := faults.ByID(f.ID); !ok || got != f {
			t.Errorf("%s is not found", f.ID)
		}
	}
	if _, ok := faults.ByID("truncate"); ok {
		t.Error("a family is taken for a fault")
	}
	for _, r := range rows {
		if _, ok := faults.ByID(r.id); !ok {
			t.Errorf("%s is missing", r.id)
		}
	}
}

func TestSelect(t *testing.T) {
	for name, want := range map[string]string{
		"split": "split", "hold": "hold", "hold-greeting": "hold-greeting", "accept": "accept-rst accept-fin",
		"byzantine": "duplicate reorder corrupt splice", "truncate-rst": "truncate-rst", "": "", "trunc": "", "Split": "", "open": "",
	} {
		if got := ids(faults.Select(name)); got != want {
			t.Errorf("%q selects %q, not %q", name, got, want)
		}
	}
	var family []string
	for _, f := range faults.All() {
		if strings.HasPrefix(f.ID, "truncate-") {
			family = append(family, f.ID)
		}
	}
	if got := ids(faults.Select("truncate")); len(family) < 3 || got != strings.Join(family, " ") {
		t.Errorf("truncate selects %q", got)
	}
	words := faults.Words()
	for _, f := range faults.All() {
		for _, w := range []string{f.ID, f.Family} {
			if n := len(slices.DeleteFunc(slices.Clone(words), func(x string) bool { return x != w })); n != 1 {
				t.Errorf("%s is %d times among the words", w, n)
			}
		}
	}
	for _, w := range words {
		if len(faults.Select(w)) == 0 {
			t.Errorf("the word %s selects nothing", w)
		}
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		r    faults.Range
		n    int
		want []int
	}{
		{faults.Every, 0, []int{0}},
		{faults.Every, 1, []int{0, 1}},
		{faults.Every, 3, []int{0, 1, 2, 3}},
		{faults.Inside, 0, nil},
		{faults.Inside, 1, nil},
		{faults.Inside, 2, []int{1}},
		{faults.Inside, 4, []int{1, 2, 3}},
		{faults.Start, 0, []int{0}},
		{faults.Start, 26, []int{0}},
		{faults.Ends, 0, []int{0}},
		{faults.Ends, 1, []int{0, 1}},
		{faults.Ends, 26, []int{0, 26}},
		{faults.AtEnd, 0, []int{0}},
		{faults.AtEnd, 26, []int{26}},
		{faults.Before, 0, nil},
		{faults.Before, 1, []int{0}},
		{faults.Before, 3, []int{0, 1, 2}},
	} {
		if got := c.r.Offsets(c.n); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s of %d: %v, not %v", c.r, c.n, got, c.want)
		}
		for k := -2; k < c.n+3; k++ {
			if got := c.r.Contains(k, c.n); got != slices.Contains(c.want, k) {
				t.Errorf("%s of %d contains %d: %v", c.r, c.n, k, got)
			}
		}
	}
}

// TestSteps: what each fault does to a frame of which five bytes pass, or to one
// of five bytes behind which it acts.
func TestSteps(t *testing.T) {
	pass := faults.Step{Kind: faults.Pass, N: 5}
	cut := func(client, server faults.End) []faults.Step {
		return []faults.Step{pass, {Kind: faults.Cut, Client: client, Server: server, This: true, Other: true}}
	}
	inject := []faults.Step{pass, {Kind: faults.Inject}}
	want := map[string][]faults.Step{
		"truncate-fin":        cut(faults.FIN, faults.FIN),
		"truncate-rst":        cut(faults.RST, faults.RST),
		"truncate-silence":    cut(faults.NoEnd, faults.NoEnd),
		"truncate-fin-client": cut(faults.FIN, faults.NoEnd),
		"truncate-fin-server": cut(faults.NoEnd, faults.FIN),
		"truncate-rst-client": cut(faults.RST, faults.NoEnd),
		"truncate-rst-server": cut(faults.NoEnd, faults.RST),
		"stall":               {pass, {Kind: faults.Cut, This: true}},
		"split":               {pass, {Kind: faults.Wait, For: 50 * time.Millisecond}},
		"dribble":             {{Kind: faults.Drip, For: time.Millisecond}},
		"delay":               {{Kind: faults.Wait, For: 250 * time.Millisecond}},
		"coalesce":            {{Kind: faults.Join, For: time.Second}},
		"hold":                {{Kind: faults.Gate, Name: faults.GateHold, For: 3500 * time.Millisecond}},
		"refuse":              {{Kind: faults.Refuse, Name: faults.GateOpen, For: 500 * time.Millisecond}},
		"accept-rst":          {{Kind: faults.Cut, Client: faults.RST, This: true, Other: true}},
		"accept-fin":          {{Kind: faults.Cut, Client: faults.FIN, This: true, Other: true}},
		"slow-accept":         {{Kind: faults.Wait, For: 500 * time.Millisecond}},
		"hold-greeting":       {{Kind: faults.Gate, Name: faults.GateGreeting, For: 3500 * time.Millisecond}},
		"drop":                {{Kind: faults.Drop}},
		"inject-keepalive":    inject,
		"inject-notice":       inject,
		"inject-error":        inject,
		"inject-stray":        inject,
		"inject-garbage":      inject,
		"duplicate":           {pass, {Kind: faults.Repeat}},
		"reorder":             {{Kind: faults.Swap, For: time.Second}},
		"corrupt":             {pass, {Kind: faults.Flip}},
		"splice":              {pass, {Kind: faults.Splice, N: 5, For: time.Second}},
	}
	for _, f := range faults.All() {
		at := 5
		if f.Range == faults.Start {
			at = 0
		}
		if got := steps(t, faults.Rule{Fault: f, At: at}); !reflect.DeepEqual(got, want[f.ID]) {
			t.Errorf("%s: %+v, not %+v", f.ID, got, want[f.ID])
		}
	}
	garbage, _ := faults.ByID("inject-garbage")
	if got := steps(t, faults.Rule{Fault: garbage}); !reflect.DeepEqual(got, []faults.Step{inject[1], {Kind: faults.Wait, For: 50 * time.Millisecond}}) {
		t.Errorf("%s before the frame: %+v", garbage.ID, got)
	}
}

// TestStepArgs: each argument is the time of the fault's last step.
func TestStepArgs(t *testing.T) {
	for _, f := range faults.All() {
		if len(f.Args) > 1 {
			t.Errorf("%s has %d arguments", f.ID, len(f.Args))
		}
		for _, a := range f.Args {
			for _, v := range []time.Duration{max(a.Default, 1), time.Second, a.Max} {
				at := 2
				if f.Range == faults.Start || f.Injects != "" { // behind the frame nothing waits
					at = 0
				}
				got := steps(t, faults.Rule{Fault: f, At: at, Args: faults.Args{a.Name: v}})
				if last := got[len(got)-1]; last.For != v {
					t.Errorf("%s %s=%s: %+v", f.ID, a.Name, v, got)
				}
			}
		}
	}
}

func steps(t *testing.T, r faults.Rule) []faults.Step {
	t.Helper()
	if r.Trigger.Op = r.Fault.Only; r.Trigger.Op == "" {
		r.Trigger.Op = "A"
	}
	if r.Fault.Injects != "" {
		r.Inject = []byte("?")
	}
	s, err := faults.NewSet(r)
	if err != nil {
		t.Fatal(err)
	}
	return s.Rules()[0].Steps()
}

func TestArgsText(t *testing.T) {
	for id, want := range map[string]string{
		"split":        "pause=50ms (up to 1m0s): between the two parts",
		"truncate-fin": "after=0s (up to 1m0s): from the last byte to the end of the connection",
		"drop":         "",
	} {
		f, _ := faults.ByID(id)
		if got := f.ArgsText(); got != want {
			t.Errorf("%s: %q, not %q", id, got, want)
		}
	}
}
