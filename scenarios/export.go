package scenarios

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tornwire/faults"
	"tornwire/verify"
)

// letGo is the gate that ends what the fault of a case holds, in a scenario made of it.
const letGo = "let-go"

// FromCase writes a case of the sweep as the TOML of a scenario. The error says what in it
// no scenario can tell.
func FromCase(t *verify.Told) (string, error) {
	w := &exporter{t: t, asked: map[string]int{}}
	name := strings.Trim(strings.Map(nameRune, strings.ToLower(t.Case.ID.String())), "-")
	w.line("# The case %s", strings.ReplaceAll(t.Case.ID.String(), "\n", " "))
	w.line("# (%s).", t.Sentence)
	w.pair("name", strings.TrimRight(name[:min(len(name), nameLimit)], "-"))
	w.pair("about", "The case "+t.Case.ID.String()+".")
	w.pair("dialect", t.Dialect)
	if t.Tokens != 0 || t.Queue != 0 {
		w.line("\n[server]")
		if t.Tokens != 0 {
			w.pair("first_token", fmt.Sprintf("0x%016x", t.Tokens))
		}
		if t.Queue != 0 {
			w.line("queue_limit = %d", t.Queue)
		}
	}
	w.clients()
	for i, r := range t.Rules {
		w.rule(faultID(i), r)
	}
	for i, s := range t.Steps {
		if err := w.step(i, s); err != nil {
			return "", err
		}
	}
	w.expect()
	return w.b.String(), nil
}

func nameRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

type exporter struct {
	t     *verify.Told
	b     strings.Builder
	asked map[string]int // requests by client so far
	who   map[int]string // client by call
}

func (w *exporter) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// pair writes a text, quoted as TOML wants it.
func (w *exporter) pair(key, value string) { w.line("%s = %s", key, quoted(value)) }

func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (w *exporter) clients() {
	var names []string
	for _, s := range w.t.Steps {
		if s.Client != "" && !slices.Contains(names, s.Client) {
			names = append(names, s.Client)
		}
	}
	for _, n := range names {
		w.line("\n[[clients]]")
		w.pair("name", n)
	}
}

// faultID names the rules that tear the frames of a case.
func faultID(i int) string {
	if i == 0 {
		return "fault"
	}
	return fmt.Sprintf("fault-%d", i+1)
}

func (w *exporter) rule(id string, r *faults.Rule) {
	w.line("\n[[rules]]")
	w.pair("id", id)
	t := r.Trigger
	w.pair("dir", t.Dir.String())
	w.pair("op", t.Op)
	for _, x := range []struct {
		key string
		n   int
	}{{"session", t.Session}, {"nth", t.Nth}, {"session_nth", t.SessionNth}, {"client_nth", t.ClientNth}} {
		if x.n > 0 {
			w.line("%s = %d", x.key, x.n)
		}
	}
	if t.Client != "" {
		w.pair("client", t.Client)
	}
	if len(r.Inject) > 0 {
		w.pair("inject_hex", hex.EncodeToString(r.Inject))
	}
	fault := fmt.Sprintf("type = %q, at = %d", r.Fault.ID, r.At)
	if r.Fault.ID == "hold" {
		fault += fmt.Sprintf(", until = %q", letGo)
	}
	if len(r.Args) > 0 {
		var args []string
		for _, name := range slices.Sorted(maps.Keys(r.Args)) {
			args = append(args, fmt.Sprintf("%s = %q", name, r.Args[name]))
		}
		fault += ", args = { " + strings.Join(args, ", ") + " }"
	}
	w.line("fault = { %s }", fault)
}

// storied are the actions that have the words of a story.
var storied = map[string]Action{
	"settle": DoSettle, "enter": DoEnter, "leave": DoLeave, "release": DoReleasing, "released": DoReleased, "cancel": DoCancel,
	"hold": DoHold, "take": DoTake, "free": DoFree, "expired": DoExpired,
}

func callName(n int) string { return fmt.Sprintf("call-%d", n) }

func (w *exporter) step(i int, s verify.ToldStep) error {
	if s.Word == "unqueued" {
		return nil // the story waits for it by its other steps
	}
	w.line("\n[[steps]]")
	switch {
	case s.Word == "acquire":
		if w.who == nil {
			w.who = map[int]string{}
		}
		w.who[s.Call] = s.Client
		w.pair("acquire", callName(s.Call))
		w.pair("client", s.Client)
		w.pair("key", s.Key)
		w.pair("wait", s.Wait.String())
		w.pair("lease", s.Lease.String())
	case s.Word == "sent":
		w.asked[w.who[s.Call]]++
		w.line("when = { frame = \"c2s.A\", client = %s, count = %d }", quoted(w.who[s.Call]), w.asked[w.who[s.Call]])
		w.pair("await", "the request of "+callName(s.Call))
	case s.Word == "pause":
		w.pair("pause", s.Wait.Round(time.Millisecond).String())
	case s.Word == "let-go":
		w.pair("gate", letGo)
	case storied[s.Word] == "":
		return fmt.Errorf("%s cannot be told as a scenario: its step %d, %q, has no word there", w.t.Case.ID, i+1, s.Word)
	case s.Call > 0:
		w.pair(string(storied[s.Word]), callName(s.Call))
		if s.Word == "settle" && w.holds() {
			w.line("\n[[steps]]")
			w.pair("gate", letGo)
		}
	default:
		w.pair(string(storied[s.Word]), s.Key)
	}
	return nil
}

// holds tells whether the fault of the case is a hold that the end of its call ends.
func (w *exporter) holds() bool {
	return len(w.t.Rules) > 0 && w.t.Rules[0].Fault.ID == "hold" && w.t.Case.Workload.Own == nil && !strings.Contains(w.b.String(), "gate = \""+letGo)
}

func (w *exporter) expect() {
	for i := range w.t.Rules {
		w.line("\n[[expect]]")
		w.pair("fired", faultID(i))
	}
	for _, rule := range w.t.Broken {
		w.line("\n[[expect]]")
		w.pair("finding", rule)
	}
	if len(w.t.Broken) == 0 {
		w.line("\n[[expect]]")
		w.pair("no_finding", AnyRule)
	}
}
