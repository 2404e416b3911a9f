package scenarios

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tornwire/history"
	"tornwire/verify"
)

// teller tells a scenario on a stage.
type teller struct {
	s   *Scenario
	o   Options
	ctx context.Context

	st     *verify.Stage
	addrs  map[string]map[string]string // by client and proxy
	opened map[string]bool
	calls  map[string]int // their numbers in the record
	failed string         // how the command ended, if not well
	secret string         // of the upstream
	said   *witnesses
}

// tell is the script. It is told again from the beginning if the first time was too late.
func (t *teller) tell(st *verify.Stage) {
	t.st, t.addrs, t.opened, t.calls, t.failed = st, map[string]map[string]string{}, map[string]bool{}, map[string]int{}, ""
	if !t.doors() {
		return
	}
	if t.o.Placed != nil {
		places := map[string][]string{}
		for _, c := range t.s.Clients {
			places[c.Name] = t.list(c)
		}
		t.o.Placed(places)
	}
	for _, x := range t.s.Rules {
		if x.Armed {
			t.arm(x)
		}
	}
	t.said.open(st)
	defer t.said.shut()
	wait, ok := t.start()
	for i, x := range t.s.Steps {
		if ok && t.o.Before != nil {
			t.o.Before(i, t.st.Over())
		}
		if !ok || t.over() {
			break
		}
		at := st.Now()
		if x.When != nil && !t.when(x) {
			break
		}
		t.do(x)
		if t.o.Told != nil && !t.over() {
			t.o.Told(Told{Step: x, At: at, End: st.Now()})
		}
	}
	wait()
	st.End()
}

func (t *teller) over() bool {
	select {
	case <-t.st.Over():
		return true
	default:
		return false
	}
}

// doors opens the addresses of all clients, and those that no client is given.
func (t *teller) doors() bool {
	known := map[string]bool{}
	for _, c := range t.s.Clients {
		t.addrs[c.Name] = map[string]string{}
		for _, name := range c.Proxies {
			known[name] = true
			p := t.proxy(name)
			addr, ok := t.st.Door(c.Name, p.Node-1, p.Listen)
			if !ok {
				return false
			}
			t.addrs[c.Name][name] = addr
		}
	}
	for _, p := range t.s.Proxies {
		if known[p.Name] {
			continue
		}
		owner := t.s.Clients[0].Name
		addr, ok := t.st.Door(owner, p.Node-1, p.Listen)
		if !ok {
			return false
		}
		t.st.Strange(owner, addr)
		t.addrs[owner][p.Name] = addr
	}
	return true
}

func (t *teller) proxy(name string) Proxy {
	for _, p := range t.s.Proxies {
		if p.Name == name {
			return p
		}
	}
	return Proxy{Node: 1}
}

func (t *teller) client(name string) Client {
	for _, c := range t.s.Clients {
		if c.Name == name {
			return c
		}
	}
	return Client{}
}

// list is what a client is told to connect to.
func (t *teller) list(c Client) []string {
	var out []string
	for _, name := range c.Proxies {
		out = append(out, t.addrs[c.Name][name])
	}
	return out
}

func (t *teller) arm(x Rule) {
	if err := t.st.Arm(x.Rule); err != nil {
		t.st.Fail(fmt.Errorf("%s: rule %s cannot be armed: %w", t.s.place(x.Line), x.ID, err))
	}
}

func (t *teller) open(name string) bool {
	if t.opened[name] {
		return true
	}
	t.opened[name] = true
	c := t.client(name)
	return t.st.Open(name, t.list(c), first(c.Secret, t.secret))
}

// do does a step.
func (t *teller) do(x Step) {
	st := t.st
	switch x.Do {
	case DoOpen:
		t.open(x.Name)
	case DoAcquire:
		if t.open(x.Client) {
			st.Acquire(x.Name, x.Client, x.Key, x.Wait, x.Lease)
			t.calls[x.Name] = st.Call(x.Name)
		}
	case DoSettle, DoEnter, DoLeave, DoRelease, DoReleasing, DoReleased, DoCancel:
		t.ofCall(x)
	case DoClose:
		st.Close(x.Name)
	case DoHold, DoTake:
		st.Hold(x.Name, x.Do == DoTake)
	case DoFree:
		st.Free(x.Name)
	case DoExpired:
		if !st.Expired(x.Name) {
			t.st.Fail(fmt.Errorf("%s: no lease of key %q has ended", t.s.place(x.Line), x.Name))
		}
	case DoArm:
		for _, r := range t.s.Rules {
			if r.ID == x.Name {
				t.arm(r)
			}
		}
	case DoDisarm:
		st.Disarm(x.Name)
	case DoGate, DoShut:
		if err := st.Gate(x.Name, x.Do == DoGate); err != nil {
			st.Fail(fmt.Errorf("%s: %w", t.s.place(x.Line), err))
		}
	case DoLead, DoNotice, DoStandby, DoActive:
		t.lead(x)
	case DoPause:
		st.Pause(x.Time)
	case DoWait:
	}
}

// ofCall does a step about a call. One whose client could not be opened has none.
func (t *teller) ofCall(x Step) {
	if t.calls[x.Name] == 0 {
		return
	}
	switch x.Do {
	case DoSettle:
		t.st.Settle(x.Name)
	case DoEnter:
		t.st.Enter(x.Name)
	case DoLeave:
		t.st.Leave(x.Name)
	case DoRelease:
		t.st.Release(x.Name)
	case DoReleasing:
		t.st.Releasing(x.Name)
	case DoReleased:
		t.st.Released(x.Name)
	default:
		t.st.Cancel(x.Name)
	}
}

func (t *teller) lead(x Step) {
	if x.Name == Nobody {
		t.st.Lead(-1, "")
		return
	}
	node := t.proxy(x.Name).Node - 1
	switch x.Do {
	case DoStandby, DoActive:
		t.st.Active(node, x.Do == DoActive)
	case DoNotice:
		t.st.Notice(t.addressOf(x.Name))
	default:
		t.st.Lead(node, t.addressOf(x.Name))
	}
}

// addressOf is a proxy's address as the first client knows it that does.
func (t *teller) addressOf(proxy string) string {
	for _, c := range t.s.Clients {
		if a := t.addrs[c.Name][proxy]; a != "" {
			return a
		}
	}
	return ""
}

// when waits for the condition of a step.
func (t *teller) when(x Step) bool {
	w := x.When
	if w.After > 0 || w.Frame == "" && w.Event == "" && w.Fired == "" {
		if d := w.After - t.st.Now(); d > 0 {
			t.st.Pause(d)
		}
		return !t.over()
	}
	matches := t.matching(w)
	n := 0
	clients := map[int]string{}
	met := t.st.Await(w.Within, func(e history.Event) bool {
		if matches(e, clientOf(clients, e)) {
			n++
		}
		return n >= w.Count
	})
	if !met && !t.over() {
		t.st.Fail(fmt.Errorf("%s: %s did not come within %s (there were %d)", t.s.place(w.Line), w, w.Within, n))
	}
	return met
}

// String says what is waited for.
func (w Condition) String() string {
	var b strings.Builder
	switch {
	case w.Frame != "":
		b.WriteString("frame " + w.Frame)
	case w.Fired != "":
		b.WriteString("an act of rule " + w.Fired)
	case w.Event != "":
		b.WriteString("event " + w.Event)
	default:
		return "the time " + w.After.String()
	}
	for _, x := range [][2]string{{"of client ", w.Client}, {"of call ", w.Call}, {"about key ", w.Key}} {
		if x[1] != "" {
			b.WriteString(" " + x[0] + x[1])
		}
	}
	if w.Count > 1 {
		fmt.Fprintf(&b, ", %d times,", w.Count)
	}
	return b.String()
}

type matcher = func(e history.Event, client string) bool

func (t *teller) matching(w *Condition) matcher {
	switch {
	case w.Frame != "":
		return t.isFrame(w.Frame, w.Client)
	case w.Fired != "":
		return func(e history.Event, _ string) bool { return e.Kind == history.Fired && e.Rule == w.Fired }
	}
	call := 0
	if w.Call != "" {
		call = t.calls[w.Call]
	}
	return func(e history.Event, client string) bool {
		return string(e.Kind) == w.Event && (w.Call == "" || e.Call == call) && (w.Client == "" || client == w.Client) && (w.Key == "" || e.Key == w.Key)
	}
}

// isFrame matches the last byte of a frame, "s2c.A" or "s2c.A.2", coming from its sender.
func (t *teller) isFrame(name, client string) matcher {
	parts := strings.Split(name, ".")
	nth := 0
	if len(parts) == 3 {
		nth, _ = strconv.Atoi(parts[2])
	}
	return func(e history.Event, of string) bool {
		return e.Kind == history.Received && e.Last && e.Frame != nil && e.Frame.Dir.String() == parts[0] && e.Frame.Op == parts[1] &&
			(nth == 0 || e.Frame.Nth == nth) && (client == "" || of == client)
	}
}

// clientOf tells whose event one is, and remembers whose sessions are.
func clientOf(sessions map[int]string, e history.Event) string {
	if e.Kind == history.SessionOpened {
		sessions[e.Session] = e.Client
	}
	if e.Client != "" {
		return e.Client
	}
	return sessions[e.Session]
}

// count counts the events of a record that match.
func (t *teller) count(events []history.Event, match matcher) int {
	n, clients := 0, map[int]string{}
	for _, e := range events {
		if match(e, clientOf(clients, e)) {
			n++
		}
	}
	return n
}

// outcome is what a call ended with; "" if it has not.
func (t *teller) outcome(call string, events []history.Event) string {
	for _, e := range events {
		if e.Kind == history.CallResult && e.Call == t.calls[call] {
			return e.Outcome
		}
	}
	return ""
}

// patience is how long a command has to end when it is asked to.
const patience = 5 * time.Second
