package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tornwire/frames"
	"tornwire/history"
)

// fill sets every field of v, found by reflection, so that a new field of Event
// is tested without anybody thinking of it.
func fill(t *rapid.T, v reflect.Value, name string) {
	switch {
	case v.Type() == reflect.TypeFor[frames.Direction]():
		v.SetUint(uint64(rapid.SampledFrom([]frames.Direction{frames.ClientToServer, frames.ServerToClient}).Draw(t, name)))
	case v.Type() == reflect.TypeFor[history.Hex]():
		if b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, name); len(b) > 0 {
			v.SetBytes(b)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), v.Type().Field(i).Name)
		}
	case v.Kind() == reflect.Pointer:
		if rapid.Bool().Draw(t, name) {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), name)
		}
	case v.Kind() == reflect.String:
		// Text from the wire need not be UTF-8.
		v.SetString(rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) })).Draw(t, name))
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case v.CanUint():
		v.SetUint(rapid.Uint64().Draw(t, name))
	case v.CanFloat():
		v.SetFloat(rapid.Float64().Draw(t, name))
	case v.CanInt():
		v.SetInt(rapid.Int64().Draw(t, name))
	default:
		t.Fatalf("no values for %s, a %s", name, v.Type())
	}
}

func TestJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := make([]history.Event, rapid.IntRange(0, 4).Draw(t, "events"))
		for i := range events {
			fill(t, reflect.ValueOf(&events[i]).Elem(), "event")
		}
		var buf bytes.Buffer
		if err := history.WriteJSON(&buf, events); err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(buf.Bytes(), []byte{'\n'}); lines != len(events) {
			t.Fatalf("%d lines for %d events", lines, len(events))
		}
		back, err := history.ReadJSON(&buf)
		if err != nil || len(back) != len(events) || len(back) > 0 && !reflect.DeepEqual(back, events) {
			t.Fatalf("%+v, %v\nnot %+v", back, err, events)
		}
	})
}

// TestJSONForm fixes the form that records on disk have: 64-bit integers are
// decimal strings, bytes hexadecimal, times nanoseconds, and what is not set is
// left out.
func TestJSONForm(t *testing.T) {
	var buf bytes.Buffer
	err := history.WriteJSON(&buf, []history.Event{
		{
			Seq: 1, At: 1500 * time.Millisecond, Kind: history.Received, Session: 2, Dir: frames.ServerToClient,
			Frame: &history.FrameRef{Dir: frames.ServerToClient, Op: "A", Nth: 1, Seq: 1}, Off: 17, N: 2, Data: history.Hex("k\n"), Last: true,
		},
		{Seq: 2, Kind: history.CallResult, Call: 1, Outcome: history.OutcomeAcquired, Token: 1<<64 - 1, HasToken: true},
	})
	want := `{"seq":1,"at":1500000000,"kind":"received","session":2,"dir":"s2c","frame":{"dir":"s2c","op":"A","nth":1,"seq":1},"off":17,"n":2,"data":"6b0a","last":true}
{"seq":2,"at":0,"kind":"call_result","dir":"c2s","call":1,"outcome":"acquired","token":"18446744073709551615","has_token":true}
`
	if err != nil || buf.String() != want {
		t.Errorf("%v\n%s\nnot\n%s", err, buf.String(), want)
	}
	if ref := (history.FrameRef{Dir: frames.ServerToClient, Op: "A", Nth: 3}); ref.String() != "s2c.A.3" {
		t.Errorf("frame is called %s", ref)
	}
	if history.Receiver(frames.ServerToClient) != history.ClientSide || history.Receiver(frames.ClientToServer) != history.ServerSide {
		t.Error("a side does not receive what travels to it")
	}
}

// TestKinds: the list has every constant of the type, so that a reader refuses none
// of them.
func TestKinds(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []history.Kind
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Kind" {
				word, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared = append(declared, history.Kind(word))
			}
		}
	}
	if !slices.Equal(declared, history.Kinds()) {
		t.Errorf("declared are %v\nlisted are %v", declared, history.Kinds())
	}
}

const good = `{"seq":1,"at":0,"kind":"case_ending","dir":"c2s"}` + "\n"

func TestReadJSONErrors(t *testing.T) {
	for in, want := range map[string]string{
		"not json\n":                                  "line 1: ",
		good + "\n":                                   "line 2: ",
		good + good + `{"seq":`:                       "line 3: ",
		good + good[:len(good)-1] + good:              "line 2: ",
		good + `{"data":"6b0"}`:                       "line 2: ",
		good + `{"data":"xy"}`:                        "line 2: ",
		good + `{"dir":"up"}`:                         "line 2: ",
		good + `{"token":7}`:                          "line 2: ",
		good + `{"token":"18446744073709551616"}`:     "line 2: ",
		good + `{"seq":-1}`:                           "line 2: ",
		good + `{"bytes":{"colour":"ff"}}`:            "line 2: bytes of a field",
		good + `{"bytes":{"frame.op":"ff"}}`:          "line 2: bytes of ",
		good + "[]\n":                                 "line 2: ",
		good + "\x00\n":                               "line 2: ",
		good + strings.Repeat(" ", history.MaxLine):   "line 2: more than 1048576 bytes",
		good + strings.Repeat("[", history.MaxLine-1): "line 2: ",
		good + strings.Repeat("x", 3*history.MaxLine): "line 2: more than 1048576 bytes",
		strings.Repeat(" ", history.MaxLine-1) + "\n": "line 1: unexpected end",
		strings.Repeat(" ", history.MaxLine) + "\n":   "line 1: more than 1048576 bytes",
		// The first MaxEvents lines are taken, or another line would be named.
		strings.Repeat("{}\n", history.MaxEvents) + "xy\n": "line 100001: more than 100000 events",
	} {
		if events, err := history.ReadJSON(strings.NewReader(in)); events != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.90q: %d events, %v, not %q", in, len(events), err, want)
		}
	}
	broken := errors.New("disk on fire")
	_, err := history.ReadJSON(io.MultiReader(strings.NewReader(good), readerFunc(func([]byte) (int, error) { return 0, broken })))
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("a failed read: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestReadJSONAccepts(t *testing.T) {
	for in, want := range map[string]int{
		"":                                     0,
		good:                                   1,
		good[:len(good)-1]:                     1,
		strings.ReplaceAll(good, "\n", "\r\n"): 1,
		`{"kind":"entered","colour":"red"}`:    1,
		good[:len(good)-1] + strings.Repeat(" ", history.MaxLine-len(good)) + "\n": 1,
	} {
		if events, err := history.ReadJSON(strings.NewReader(in)); err != nil || len(events) != want {
			t.Errorf("%.60q: %d events, %v", in, len(events), err)
		}
	}
}

// longest is an event with every field at its largest that goes with Received
// bytes, of which there are n.
func longest(n int) history.Event {
	return history.Event{
		Seq: history.MaxEvents, At: 1<<63 - 1, Kind: history.Received, Session: 1 << 62, Dir: frames.ServerToClient,
		Frame: &history.FrameRef{Dir: frames.ServerToClient, Op: frames.OpKeepAlive, Nth: 1 << 62, Seq: 1<<64 - 1},
		Off:   1 << 62, N: n, Data: bytes.Repeat([]byte{0xFF}, n), Last: true,
	}
}

// TestLongestLine: the Received event of the longest frame, and of a read of
// 256 KiB on an opaque link, fits a line; so does a result with the longest
// words that an adapter's line of 64 KiB can carry. What does not fit is refused
// when it is written, exactly where it would be when it is read.
func TestLongestLine(t *testing.T) {
	raw := history.Event{Kind: history.CallResult, Raw: strings.Repeat("\x01", 64<<10)}
	for _, e := range []history.Event{longest(642), longest(256 << 10), raw} {
		var buf bytes.Buffer
		if err := history.WriteJSON(&buf, []history.Event{e}); err != nil {
			t.Fatal(err)
		}
		if back, err := history.ReadJSON(&buf); err != nil || !reflect.DeepEqual(back, []history.Event{e}) {
			t.Errorf("%d bytes of data: %d events, %v", len(e.Data), len(back), err)
		}
	}
	var empty bytes.Buffer
	if err := history.WriteJSON(&empty, []history.Event{{Detail: "x"}}); err != nil {
		t.Fatal(err)
	}
	for over, ok := range map[int]bool{0: true, 1: false} {
		var buf bytes.Buffer
		e := history.Event{Detail: strings.Repeat("x", 1+history.MaxLine-empty.Len()+over)}
		err := history.WriteJSON(&buf, []history.Event{{}, e})
		if want := fmt.Sprintf("event 2: line has %d bytes, over %d", history.MaxLine+over, history.MaxLine); ok != (err == nil) || !ok && err.Error() != want {
			t.Errorf("%d over the limit: %v", over, err)
		}
		if events, err := history.ReadJSON(&buf); err != nil || len(events) != 2-over {
			t.Errorf("%d over the limit: %d events read, %v", over, len(events), err)
		}
	}
}

func TestWriteJSONErrors(t *testing.T) {
	full := errors.New("disk full")
	fails := writerFunc(func([]byte) (int, error) { return 0, full })
	if err := history.WriteJSON(fails, make([]history.Event, history.MaxEvents)); !errors.Is(err, full) {
		t.Errorf("a failed write, of as many events as may be: %v", err)
	}
	if err := history.WriteJSON(io.Discard, make([]history.Event, history.MaxEvents+1)); err == nil || err.Error() != "history has 100001 events, over 100000" {
		t.Errorf("one event too many: %v", err)
	}
}

func FuzzReadJSON(f *testing.F) {
	var buf bytes.Buffer
	if err := history.WriteJSON(&buf, []history.Event{longest(3), {Kind: history.Granted, Token: 7, Owner: 9, Key: "ü<>\u2028"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, in []byte) {
		events, err := history.ReadJSON(bytes.NewReader(in))
		if err != nil {
			if events != nil || !strings.HasPrefix(err.Error(), "line ") {
				t.Fatalf("%d events, %v", len(events), err)
			}
			return
		}
		var out bytes.Buffer
		if err := history.WriteJSON(&out, events); err != nil {
			t.Fatal(err)
		}
		back, err := history.ReadJSON(&out)
		if err != nil || len(back) != len(events) {
			t.Fatalf("%d events came back as %d, %v", len(events), len(back), err)
		}
	})
}
