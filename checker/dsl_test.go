package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

const (
	v1    = "ticketing"
	v0    = "ticketing-v0"
	c2s   = frames.ClientToServer
	s2c   = frames.ServerToClient
	sec   = time.Second
	nls   = uint64(0x0a0a0a0a0a0a0a0a) // eight newlines
	acq   = history.OutcomeAcquired
	indet = history.OutcomeIndeterminate
)

// script builds a history event by event, a millisecond apart.
type script struct {
	t    *testing.T
	g    *frames.Grammar
	ev   []history.Event
	at   time.Duration
	nth  map[string]int
	seq  map[string]uint64
	made uint64 // frames of our own making
}

// msg is a frame of a script.
type msg struct {
	session int
	ref     history.FrameRef
	b       []byte
}

func newScript(t *testing.T, dialect string) *script {
	return &script{t: t, g: frames.MustBuiltin(dialect), nth: map[string]int{}, seq: map[string]uint64{}}
}

func (s *script) add(e history.Event) *script {
	s.at += time.Millisecond
	e.Seq, e.At = uint64(len(s.ev)+1), s.at
	s.ev = append(s.ev, e)
	return s
}

func (s *script) wait(d time.Duration) *script { s.at += d; return s }

// open opens a session of a client with its preface.
func (s *script) open(session int, client string) *script {
	s.add(history.Event{Kind: history.SessionOpened, Session: session, Client: client})
	s.add(history.Event{Kind: history.ServerDialed, Session: session, Peer: peer(session)})
	s.pass(s.line(session, s2c, "greeting", "node-1 nonce"))
	return s.pass(s.line(session, c2s, "auth", "digest"))
}

func peer(session int) string { return fmt.Sprintf("127.0.0.1:%d", 40000+session) }

func (s *script) line(session int, dir frames.Direction, op, tail string, values ...uint64) msg {
	s.t.Helper()
	b, err := s.g.MustShape(dir, op).Append(nil, []byte(tail), values...)
	if err != nil {
		s.t.Fatal(err)
	}
	link := fmt.Sprint(session, dir)
	s.nth[dir.String()+op]++
	m := msg{session, history.FrameRef{Dir: dir, Op: op, Nth: s.nth[dir.String()+op], Seq: s.seq[link]}, b}
	s.seq[link]++
	return m
}

// req makes an A of the dialect; the owner is ignored in v0.
func (s *script) req(session int, key string, wait, lease, owner uint64) msg {
	if s.g.Name == v0 {
		return s.line(session, c2s, "A", key, wait, lease)
	}
	return s.line(session, c2s, "A", key, wait, lease, owner)
}

// got makes an A from the server.
func (s *script) got(session int, key string, owner, token uint64) msg {
	if s.g.Name == v0 {
		return s.line(session, s2c, "A", key, token)
	}
	return s.line(session, s2c, "A", key, owner, token)
}

func (s *script) rel(session int, key string, token uint64) msg {
	if s.g.Name == v0 {
		return s.line(session, c2s, "R", key)
	}
	return s.line(session, c2s, "R", key, token)
}

func (s *script) answer(session int, op, key string, echo uint64) msg {
	if s.g.Name == v0 {
		return s.line(session, s2c, op, key)
	}
	return s.line(session, s2c, op, key, echo)
}

func (s *script) bytes(k history.Kind, m msg, from, to int) *script {
	if from >= to {
		return s
	}
	e := history.Event{Kind: k, Session: m.session, Dir: m.ref.Dir, Frame: &m.ref, Off: from, N: to - from}
	if k == history.Received {
		e.Data, e.Last = m.b[from:to], to == len(m.b)
	}
	return s.add(e)
}

func (s *script) recv(m msg, from, to int) *script { return s.bytes(history.Received, m, from, to) }

func (s *script) write(m msg, from, to int) *script {
	s.bytes(history.WriteBegun, m, from, to)
	return s.bytes(history.WriteAccepted, m, from, to)
}

// pass carries a whole frame through.
func (s *script) pass(m msg) *script { return s.cut(m, len(m.b)) }

// cut receives all of a frame and writes its first n bytes.
func (s *script) cut(m msg, n int) *script { return s.recv(m, 0, len(m.b)).write(m, 0, n) }

func (s *script) ask(call int, client, key string, wait, lease time.Duration) *script {
	s.add(history.Event{Kind: history.CallAsked, Call: call, Client: client, Key: key, Wait: wait, Lease: lease})
	return s.add(history.Event{Kind: history.CallStarted, Call: call})
}

func (s *script) told(call int, outcome string) *script {
	return s.add(history.Event{Kind: history.CallResult, Call: call, Outcome: outcome})
}

// acquired tells a token, enters with it, and stays inside.
func (s *script) acquired(call int, key string, token uint64) *script {
	s.add(history.Event{Kind: history.CallResult, Call: call, Outcome: acq, Token: token, HasToken: true})
	return s.add(history.Event{Kind: history.Entered, Call: call, Key: key, Token: token})
}

func (s *script) leave(call int, key string, token uint64) *script {
	return s.add(history.Event{Kind: history.Left, Call: call, Key: key, Token: token})
}

func (s *script) ask2release(call int) *script {
	return s.add(history.Event{Kind: history.ReleaseAsked, Call: call})
}

func (s *script) released(call int, outcome string) *script {
	return s.add(history.Event{Kind: history.ReleaseResult, Call: call, Outcome: outcome})
}

func (s *script) granted(session int, key string, token uint64, lease time.Duration) *script {
	e := history.Event{Kind: history.Granted, Key: key, Token: token, Lease: lease}
	if session > 0 {
		e.Peer = peer(session)
	}
	return s.add(e)
}

// ended ends a grant by an R of a session, or by its lease for session 0.
func (s *script) ended(session int, key string, token uint64) *script {
	e := history.Event{Kind: history.GrantEnded, Key: key, Token: token, How: history.Expired}
	if session > 0 {
		e.How, e.Peer = history.Released, peer(session)
	}
	return s.add(e)
}

func (s *script) seen(session int, how string) *script {
	return s.add(history.Event{Kind: history.EndSeen, Session: session, Side: history.ClientSide, How: how})
}

func (s *script) sent(session int, how string) *script {
	return s.add(history.Event{Kind: history.EndSent, Session: session, Side: history.ClientSide, How: how, Cause: history.CauseFault})
}

func (s *script) policy() Policy {
	return Policy{Dialect: s.g.Name, Profile: ProfileAny, SawTable: true}
}

// want asserts the certain findings, as "rule severity", and that each rule named
// by a finding counts as checked. Scripts about other rules are told in
// milliseconds and let the server say what they need, so what its replies, or a client
// that does not like them, break
// counts only where it is expected or where the policy names the rules to judge.
func (s *script) want(p Policy, findings ...string) Result {
	s.t.Helper()
	return want(s.t, s.ev, p, findings...)
}

func want(t *testing.T, ev []history.Event, p Policy, findings ...string) Result {
	t.Helper()
	r := Check(ev, p)
	var got []string
	for _, f := range r.Findings {
		w := f.Rule + " " + string(f.Severity)
		if p.Only == nil && aboutReplies(f.Rule) && !slices.ContainsFunc(findings, func(w string) bool { return strings.HasPrefix(w, f.Rule) }) {
			continue
		}
		if f.Certainty == Suspect {
			w += " suspect"
		}
		got = append(got, w)
		if !slices.Contains(r.Checked, f.Rule) {
			t.Errorf("%s has a finding but is not checked", f.Rule)
		}
		if f.Message == "" || len(f.Evidence.Timeline) == 0 || len(f.Evidence.Timeline) > maxTimeline {
			t.Errorf("%s: message %q, %d lines", f.Rule, f.Message, len(f.Evidence.Timeline))
		}
	}
	slices.Sort(got)
	slices.Sort(findings)
	if !slices.Equal(got, findings) {
		t.Errorf("findings %q, want %q", got, findings)
		for _, f := range r.Findings {
			t.Log(f.Message)
		}
		for _, l := range Timeline(ev) {
			t.Log(l)
		}
	}
	return r
}

func aboutReplies(id string) bool {
	return slices.ContainsFunc(slices.Concat(replyRules(), tableRules()), func(r implemented) bool { return r.ID == id })
}

func wantChecked(t *testing.T, r Result, rule string, yes bool) {
	t.Helper()
	if slices.Contains(r.Checked, rule) != yes {
		t.Errorf("%s checked: %v, want %v (%v)", rule, !yes, yes, r.Checked)
	}
}

// single is a right exchange of one call, up to its grant: the request on session
// 1 is passed, the grant made, and the A received but not written.
func single(t *testing.T, dialect string, token uint64) (*script, msg) {
	s := newScript(t, dialect)
	s.open(1, "c1").ask(1, "c1", "k1", 5*sec, 30*sec)
	s.pass(s.req(1, "k1", 5, 30, 77)).granted(1, "k1", token, 30*sec)
	return s, s.got(1, "k1", 77, token)
}
