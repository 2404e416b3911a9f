package toxics

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestNewRefuses: every limit, at it and one past it, and every wrong word.
func TestNewRefuses(t *testing.T) {
	const kinds = "bandwidth, latency, limit_data, noop, reset_peer, slicer, slow_close, timeout"
	tests := []struct {
		spec Spec
		want string // "" is accepted
	}{
		{toxic("noop"), ""},
		{toxic("bandwith"), `type "bandwith" is none of ` + kinds},
		{Spec{}, `type "" is none of ` + kinds},
		{toxic(strings.Repeat("x", 50)), `type "` + strings.Repeat("x", 40) + `…" is none of ` + kinds},
		{toxic("noop", "x", 1), "attributes.x: noop has no attributes"},
		{toxic("latency", "latancy", 1), "attributes.latancy is none of latency, jitter"},
		{Spec{Type: "noop", Stream: "sideways"}, `stream "sideways" is neither upstream nor downstream`},
		{Spec{Type: "noop", Stream: "UpStream"}, ""},
		{Spec{Type: "noop", Toxicity: 0}, ""},
		{Spec{Type: "noop", Toxicity: -0.1}, "toxicity is -0.1, not 0 to 1"},
		{Spec{Type: "noop", Toxicity: 1.1}, "toxicity is 1.1, not 0 to 1"},
		{Spec{Type: "noop", Toxicity: math.NaN()}, "toxicity is NaN, not 0 to 1"},
		{Spec{Type: "noop", Toxicity: math.Inf(1)}, "toxicity is +Inf, not 0 to 1"},
		{named(strings.Repeat("n", MaxName), toxic("noop")), ""},
		{named(strings.Repeat("n", MaxName+1), toxic("noop")), "name has 129 bytes, not 1 to 128"},

		{toxic("latency", "latency", 600000, "jitter", 600000), ""},
		{toxic("latency", "latency", 600001), "attributes.latency is 600001, not 0 to 600000"},
		{toxic("latency", "latency", -1), "attributes.latency is -1, not 0 to 600000"},
		{toxic("latency", "jitter", 1<<62), "attributes.jitter is 4611686018427387904, not 0 to 600000"},
		{toxic("bandwidth"), "attributes.rate is 0, not 1 to 10737418"},
		{toxic("bandwidth", "rate", -1), "attributes.rate is -1, not 1 to 10737418"},
		{toxic("bandwidth", "rate", 10737418), ""},
		{toxic("bandwidth", "rate", 10737419), "attributes.rate is 10737419, not 1 to 10737418"},
		{toxic("slow_close", "delay", 600000), ""},
		{toxic("slow_close", "delay", 600001), "attributes.delay is 600001, not 0 to 600000"},
		{toxic("timeout"), ""},
		{toxic("timeout", "timeout", 600001), "attributes.timeout is 600001, not 0 to 600000"},
		{toxic("reset_peer", "timeout", 600000), ""},
		{toxic("reset_peer", "timeout", -1), "attributes.timeout is -1, not 0 to 600000"},
		{toxic("limit_data", "bytes", 1<<50), ""},
		{toxic("limit_data", "bytes", 1<<50+1), "attributes.bytes is 1125899906842625, not 0 to 1125899906842624"},
		{toxic("limit_data", "bytes", -1), "attributes.bytes is -1, not 0 to 1125899906842624"},
		{toxic("slicer"), "attributes.average_size is 0, not 1 to 1073741824"},
		{toxic("slicer", "average_size", 1<<30, "size_variation", 1<<30-1), ""},
		{toxic("slicer", "average_size", 1<<30+1), "attributes.average_size is 1073741825, not 1 to 1073741824"},
		{toxic("slicer", "average_size", 10, "size_variation", 9), ""},
		{toxic("slicer", "average_size", 10, "size_variation", 10), "attributes.size_variation is 10, not 0 to 9 (less than average_size)"},
		{toxic("slicer", "average_size", 1, "size_variation", -1), "attributes.size_variation is -1, not 0 to 1073741823"},
		{toxic("slicer", "average_size", 1, "delay", 600000000), ""},
		{toxic("slicer", "average_size", 1, "delay", 600000001), "attributes.delay is 600000001, not 0 to 600000000"},
	}
	for _, test := range tests {
		want := test.want
		if want != "" {
			want = "toxic 1: " + want
		}
		if _, err := New(1, test.spec); text(err) != want {
			t.Errorf("%v:\ngot  %s\nwant %s", test.spec, text(err), want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestNewRefusesAll: all that is wrong is told at once.
func TestNewRefusesAll(t *testing.T) {
	_, err := New(1, toxic("noop"), Spec{Type: "slicer", Stream: "x", Toxicity: 2, Attributes: Attributes{"y": 1}}, toxic("noop"))
	want := `toxic 2: attributes.average_size is 0, not 1 to 1073741824
attributes.y is none of average_size, size_variation, delay
stream "x" is neither upstream nor downstream
toxicity is 2, not 0 to 1
toxic 3: name "noop_downstream": there is such a toxic already`
	if text(err) != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if !errors.Is(err, ErrExists) {
		t.Error("a name given twice is not ErrExists")
	}
	many := make([]Spec, MaxStages+1)
	if _, err := New(1, many...); text(err) != "there are 33 toxics, not 0 to 32" {
		t.Error(err)
	}
}

// TestJSON: the form of toxiproxy's API, its defaults, and what is refused.
func TestJSON(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"type":"noop"}`, `{"attributes":{},"name":"noop_downstream","type":"noop","stream":"downstream","toxicity":1}`},
		{
			`{"type":"latency","stream":"UPSTREAM","toxicity":0,"attributes":{"latency":5}}`,
			`{"attributes":{"jitter":0,"latency":5},"name":"latency_upstream","type":"latency","stream":"upstream","toxicity":0}`,
		},
		{
			`{"name":"x","type":"timeout","stream":null,"toxicity":null,"attributes":null}`,
			`{"attributes":{"timeout":0},"name":"x","type":"timeout","stream":"downstream","toxicity":1}`,
		},
		{`[]`, "a toxic is a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage"},
		{`{"type":"noop","toxicty":1}`, `field "toxicty" is none of name, type, stream, toxicity, attributes`},
		{`{"type":1,"stream":true}`, "stream is true, not a string\ntype is 1, not a string"},
		{`{"type":"noop","toxicity":"1"}`, `toxicity is "1", not a number from 0 to 1`},
		{`{"type":"noop","toxicity":1e999}`, "toxicity is 1e999, not a number from 0 to 1"},
		{`{"type":"noop","attributes":[1]}`, "attributes is [1], not an object"},
		{`{"type":"latency","attributes":{"latency":1.5}}`, "attributes.latency is 1.5, not a whole number in digits"},
		{`{"type":"latency","attributes":{"latency":"5"}}`, `attributes.latency is "5", not a whole number in digits`},
		{`{"type":"latency","attributes":{"latency":null}}`, "attributes.latency is null, not a whole number in digits"},
		{`{"type":"latency","attributes":{"latency":99999999999999999999}}`, "attributes.latency is 99999999999999999999, not 0 to 600000"},
		{`{"type":"latency","attributes":{"late":99999999999999999999}}`, "attributes.late is none of latency, jitter"},
		{`{"type":"late","attributes":{"late":99999999999999999999}}`, "attributes.late is 99999999999999999999, not a whole number in digits"},
		{`{"type":"latency","attributes":{"latency":-1}}`, "attributes.latency is -1, not 0 to 600000"},
	}
	for _, test := range tests {
		var s Spec
		got := text(json.Unmarshal([]byte(test.in), &s))
		if got == "" {
			got = string(must(json.Marshal(s)))
		} else if !reflect.DeepEqual(s, Spec{}) {
			t.Errorf("%s: refused, and set to %v", test.in, s)
		}
		if got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.in, got, test.want)
		}
	}
	if got := string(must(json.Marshal(Spec{Type: "noop"}))); got != `{"attributes":{},"name":"","type":"noop","stream":"","toxicity":0}` {
		t.Error(got)
	}
}

// TestPatched: an update in part.
func TestPatched(t *testing.T) {
	was := Spec{Type: "latency", Toxicity: 0.5, Attributes: Attributes{"latency": 7}}
	tests := []struct{ in, want string }{
		{`{}`, `{"attributes":{"jitter":0,"latency":7},"name":"latency_downstream","type":"latency","stream":"downstream","toxicity":0.5}`},
		{
			`{"toxicity":1,"attributes":{"jitter":3},"stream":"Downstream"}`,
			`{"attributes":{"jitter":3,"latency":7},"name":"latency_downstream","type":"latency","stream":"downstream","toxicity":1}`,
		},
		{`{"name":"x"}`, `name is "latency_downstream" and cannot be changed to "x"`},
		{`{"stream":"upstream"}`, `stream is "downstream" and cannot be changed to "upstream"`},
		{`{"type":"noop"}`, "attributes.jitter: noop has no attributes\nattributes.latency: noop has no attributes"},
		{`{"attributes":{"rate":1}}`, "attributes.rate is none of latency, jitter"},
		{`{"x":1}`, `field "x" is none of name, type, stream, toxicity, attributes`},
	}
	for _, test := range tests {
		s, err := was.Patched([]byte(test.in))
		got := text(err)
		if err == nil {
			got = string(must(json.Marshal(s)))
		}
		if got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.in, got, test.want)
		}
	}
	if len(was.Attributes) != 1 {
		t.Errorf("patching changed what was patched: %v", was)
	}
	if _, err := (Spec{}).Patched([]byte(`{}`)); err == nil {
		t.Error("a spec without a type was patched")
	}
}

// TestList: how the next list is made, and that the last one stays.
func TestList(t *testing.T) {
	a, b, c := named("a", toxic("noop")), named("b", toxic("latency", "latency", 5)), named("c", toxic("noop"))
	b.Stream = Upstream
	l := must(New(3, a, b))
	names := func(l *List) string {
		out := ""
		for _, s := range l.Specs() {
			out += s.Name
		}
		return out
	}
	check := func(what string, next *List, err error, want string) {
		t.Helper()
		got := text(err)
		if err == nil {
			got = names(next)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		if names(l) != "ab" {
			t.Errorf("%s changed the list to %s", what, names(l))
		}
	}
	next, err := l.With(c)
	check("With", next, err, "abc")
	_, err = l.With(a)
	check("With", nil, err, `name "a": there is such a toxic already`)
	_, err = l.With(toxic("x"))
	check("With", nil, err, text(second(typeOf("x"))))
	next, err = l.Without("a")
	check("Without", next, err, "b")
	_, err = l.Without("x")
	check("Without", nil, err, `name "x": there is no such toxic; there is a, b`)
	next, err = l.Replace("a", c)
	check("Replace", next, err, "cb")
	next, err = l.Replace("a", a)
	check("Replace", next, err, "ab")
	_, err = l.Replace("a", b)
	check("Replace", nil, err, `name "b": there is such a toxic already`)
	_, err = l.Replace("x", b)
	check("Replace", nil, err, `name "x": there is no such toxic; there is a, b`)
	_, err = l.Replace("a", toxic("x"))
	check("Replace", nil, err, text(second(typeOf("x"))))

	if l.Len(c2s) != 1 || l.Len(s2c) != 1 {
		t.Errorf("%d and %d stages, not 1 and 1", l.Len(c2s), l.Len(s2c))
	}
	l.Specs()[1].Attributes["latency"] = 9
	if s, ok := l.Spec("b"); !ok || s.Attributes["latency"] != 5 || s.Attributes["jitter"] != 0 {
		t.Errorf("got %v", s)
	}
	if _, ok := l.Spec("x"); ok {
		t.Error("found what is not there")
	}
	var none *List
	if none.Len(c2s) != 0 || len(none.Specs()) != 0 || second(none.Without("x")) == nil {
		t.Error("a nil list is not empty")
	}
	if got := names(must(none.With(a))); got != "a" {
		t.Error(got)
	}
	full := must(New(1))
	for i := range MaxStages {
		full = must(full.With(named(string(rune('A'+i)), a)))
	}
	if _, err := full.With(c); text(err) != "there are 33 toxics, not 0 to 32" {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestTypes: what a list of types shows is what is accepted.
func TestTypes(t *testing.T) {
	for _, kind := range Types() {
		s := Spec{Type: kind.Name, Toxicity: 1, Attributes: Attributes{}}
		for _, a := range kind.Attributes {
			s.Attributes[a.Name] = a.Min
			if a.Unit == "" || a.Sentence == "" || a.Max <= a.Min {
				t.Errorf("%s.%s: %v", kind.Name, a.Name, a)
			}
		}
		if _, err := New(1, s); err != nil || kind.Sentence == "" {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}
