package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// maxTimeline is the most lines of a finding's timeline, and maxHexBytes the
// most bytes of a frame that a line spells out.
const (
	maxTimeline = 40
	maxHexBytes = 48
)

// Timeline tells events in plain words, one line each, in the order given. Times
// are in milliseconds since the case began, bytes in hexadecimal where they are
// few; the bytes of preface lines are never shown, since they allow guessing a
// weak secret. Runs of events about neighbouring bytes of one frame share a line.
func Timeline(events []history.Event) []string {
	lines := make([]string, 0, len(events))
	for i := 0; i < len(events); {
		e := events[i]
		n := 1
		verb := string(e.Kind)
		switch e.Kind {
		case history.Acked:
			i++
			continue
		case history.Received:
			verb = "received from the " + string(history.Receiver(e.Dir.Opposite()))
			n = joinRun(events[i:], &e)
		case history.WriteBegun:
			verb = "write to the " + string(history.Receiver(e.Dir)) + " begun"
			if n = joinWrites(events[i:], &e); n > 1 {
				verb = "written to the " + string(history.Receiver(e.Dir))
			}
		case history.WriteAccepted:
			verb = "write to the " + string(history.Receiver(e.Dir)) + " accepted"
			n = joinRun(events[i:], &e)
		}
		lines = append(lines, fmt.Sprintf("%11s  %s", ms(e.At), describe(&e, verb)))
		i += n
	}
	return lines
}

// joinRun widens e over the events that go on where it ends, and counts them.
func joinRun(events []history.Event, e *history.Event) int {
	n := 1
	for n < len(events) && goesOn(e, &events[n]) {
		e.N += events[n].N
		e.Data = append(e.Data[:len(e.Data):len(e.Data)], events[n].Data...)
		n++
	}
	return n
}

// joinWrites does so for writes whose acceptance follows at once.
func joinWrites(events []history.Event, e *history.Event) int {
	if len(events) < 2 || !acceptedAtOnce(e, &events[1]) {
		return 1
	}
	n := 2
	for n+1 < len(events) && events[n].Kind == e.Kind && goesOn(e, &events[n]) && acceptedAtOnce(&events[n], &events[n+1]) {
		e.N += events[n].N
		e.Data = append(e.Data[:len(e.Data):len(e.Data)], events[n].Data...)
		n += 2
	}
	return n
}

func goesOn(a, b *history.Event) bool {
	return a.Kind == b.Kind && sameFrame(a, b) && b.Off == a.Off+a.N
}

func acceptedAtOnce(a, b *history.Event) bool {
	return b.Kind == history.WriteAccepted && sameFrame(a, b) && a.Off == b.Off && a.N == b.N
}

func sameFrame(a, b *history.Event) bool {
	return a.Session == b.Session && a.Dir == b.Dir && a.Frame != nil && b.Frame != nil && *a.Frame == *b.Frame
}

func describe(e *history.Event, verb string) string {
	var b strings.Builder
	if e.Session != 0 {
		fmt.Fprintf(&b, "session %d: ", e.Session)
	}
	switch e.Kind {
	case history.Received, history.WriteBegun, history.WriteAccepted:
		fmt.Fprintf(&b, "%s %s %s", refName(e), byteRange(e), verb)
		if hex := shortHex(e); hex != "" {
			b.WriteString(": " + hex)
		}
	case history.Fired:
		fmt.Fprintf(&b, "fault %s acted on %s after %d bytes", e.Fault, refName(e), e.Off)
	case history.EndSeen:
		fmt.Fprintf(&b, "%s from the %s", strings.ToUpper(e.How), e.Side)
	case history.EndSent:
		fmt.Fprintf(&b, "%s sent to the %s", strings.ToUpper(e.How), e.Side)
		note(&b, "because of", e.Cause)
	default:
		b.WriteString(plain(e))
	}
	return b.String()
}

// plain tells an event that is not about bytes.
func plain(e *history.Event) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(string(e.Kind), "_", " "))
	if e.Call != 0 {
		fmt.Fprintf(&b, ", call %d", e.Call)
	}
	note(&b, ", client", e.Client)
	if e.Key != "" {
		fmt.Fprintf(&b, ", key %q", e.Key)
	}
	if e.Kind == history.CallAsked {
		fmt.Fprintf(&b, ", wait %s, lease %s", e.Wait, e.Lease)
	}
	note(&b, ":", strings.ReplaceAll(e.Outcome, "_", " "))
	if e.HasToken || e.Kind == history.Granted || e.Kind == history.GrantEnded || e.Kind == history.Entered {
		fmt.Fprintf(&b, ", token %d", e.Token)
	}
	if e.HasOwner {
		fmt.Fprintf(&b, ", owner %d", e.Owner)
	}
	note(&b, ",", strings.ReplaceAll(e.How, "_", " "))
	note(&b, ", peer", e.Peer)
	note(&b, ", to", e.Addr)
	if e.Refused {
		b.WriteString(", the resource refuses the token")
	}
	note(&b, ";", e.Detail)
	return b.String()
}

func note(b *strings.Builder, label, value string) {
	if value == "" {
		return
	}
	if label[0] != ',' && label[0] != ':' && label[0] != ';' {
		b.WriteByte(' ')
	}
	b.WriteString(label + " " + value)
}

func refName(e *history.Event) string {
	switch {
	case e.Frame == nil || e.Frame.Op == "":
		return e.Dir.String() + " bytes"
	case e.Frame.Op == frames.OpKeepAlive:
		return e.Dir.String() + " keep-alive"
	}
	return e.Frame.String()
}

func byteRange(e *history.Event) string {
	if e.N <= 1 {
		return fmt.Sprintf("byte %d", e.Off)
	}
	return fmt.Sprintf("bytes %d to %d", e.Off, e.Off+e.N-1)
}

// shortHex spells out the bytes of a message.
func shortHex(e *history.Event) string {
	if e.Frame == nil || len(e.Frame.Op) != 1 || len(e.Data) == 0 || len(e.Data) > maxHexBytes {
		return ""
	}
	return fmt.Sprintf("% x", []byte(e.Data))
}

// relevant picks the events that a finding is about: those of its sessions, of
// its calls and of its key, and what concerns the whole case.
func (v *view) relevant(sessions map[int]bool, calls map[int]bool, key string) []history.Event {
	var out []history.Event
	for _, e := range v.events {
		var ok bool
		switch e.Kind {
		case history.Queued, history.Granted, history.GrantEnded, history.AttemptEnded:
			ok = key != "" && e.Key == key
		case history.CaseEnding, history.RanLate, history.Frozen, history.Thawed:
			ok = true
		default:
			ok = sessions[e.Session] || calls[e.Call]
		}
		if ok {
			out = append(out, e)
		}
	}
	return out
}

// clip shortens a long timeline to its first lines and those around the moment
// judged, of which before lines lie before it.
func clip(lines []string, before int) []string {
	const (
		head = 8
		body = maxTimeline - head - 2 // two lines say what was left out
	)
	if len(lines) <= maxTimeline {
		return lines
	}
	to := min(max(before+body/4, head+body), len(lines))
	from := to - body
	out := lines[:head:head]
	if from > head {
		out = append(out, fmt.Sprintf("%11s  %d more lines", "…", from-head))
	}
	out = append(out, lines[from:to]...)
	if to < len(lines) {
		out = append(out, fmt.Sprintf("%11s  %d more lines", "…", len(lines)-to))
	}
	return out
}

// sketchy tells whether an event tells nothing about a lock: a preface line, a
// keep-alive, a dial, the end of the case.
func sketchy(e history.Event) bool {
	switch e.Kind {
	case history.ServerDialed, history.CallStarted, history.Acked:
		return true
	case history.EndSent:
		return e.Cause == history.CauseTeardown
	case history.Received, history.WriteBegun, history.WriteAccepted:
		return e.Frame != nil && len(e.Frame.Op) > 1
	}
	return false
}

// story tells the events of a finding in at most maxTimeline lines.
func (v *view) story(events []history.Event, at int) []string {
	lines := Timeline(events)
	if len(lines) <= maxTimeline {
		return lines
	}
	events = slices.DeleteFunc(events, sketchy)
	before := len(events)
	if at > 0 && at <= len(v.events) {
		judged := v.events[at-1].Seq
		before = len(Timeline(slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool { return e.Seq > judged })))
	}
	return clip(Timeline(events), before)
}

// scene collects what the evidence of a finding shows.
type scene struct {
	call   *call
	frame  *wireFrame
	others []*call // whose events belong into the timeline
	also   []int   // sessions whose events do
	offset int     // bytes of the frame that had passed
	at     int     // order number of the moment judged
	key    string  // if there is no call
}

func (v *view) evidence(s scene) Evidence {
	e := Evidence{Offset: s.offset}
	sessions, calls := map[int]bool{}, map[int]bool{}
	key := s.key
	if s.frame != nil {
		e.Session, e.Frame = s.frame.session, s.frame.ref.String()
		e.FrameHex = fmt.Sprintf("%x", v.source(s.frame))
		e.Delivered = v.passedOn(s.frame, s.at)
		sessions[e.Session] = true
	}
	if s.call != nil {
		e.Call, e.Outcome, key = s.call.id, s.call.outcome, s.call.key
		s.others = append([]*call{s.call}, s.others...)
	}
	for _, c := range s.others {
		calls[c.id] = true
		for _, a := range c.attempts {
			sessions[a.session] = true
			if e.Session == 0 && c == s.call {
				e.Session = a.session
			}
		}
	}
	for _, id := range s.also {
		sessions[id] = true
	}
	delete(sessions, 0)
	delete(calls, 0)
	e.ServerState = v.state(key, s.at)
	e.Application = v.application(key, calls)
	e.Timeline = v.story(v.relevant(sessions, calls, key), s.at)
	return e
}

func tokenNote(c *call) string {
	if !c.hasToken {
		return ""
	}
	return fmt.Sprintf(" (token %d)", c.token)
}

// told begins a message about a call.
func told(c *call) string {
	return fmt.Sprintf("call %d on key %q was told %s%s", c.id, c.key, strings.ReplaceAll(c.outcome, "_", " "), tokenNote(c))
}

func since(from, to moment) time.Duration { return to.at - from.at }
