package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tornwire/frames"
	"tornwire/history"
)

// flow is one direction of a session, as it was received from its sender and written to
// its receiver.
type flow struct {
	session int
	dir     frames.Direction
}

// heard is what was received or written at one time.
type heard struct {
	at   time.Duration
	text string
	data []byte
}

// transcript tells what went over the wire, by session and direction: the bytes that came
// from the sender and how many were written to the receiver, with their times since the
// case began, and the ends. What happened at one time is told in one line, however many
// reads and writes it took.
func transcript(events []history.Event) string {
	opened, in, out := map[int]history.Event{}, map[flow][]heard{}, map[flow][]heard{}
	ends := map[flow][]string{}
	for _, e := range events {
		f := flow{e.Session, e.Dir}
		switch e.Kind {
		case history.SessionOpened:
			opened[e.Session] = e
		case history.Received:
			in[f] = hear(in[f], e.At, "received", e.Data)
		case history.WriteAccepted:
			out[f] = hear(out[f], e.At, "written", make([]byte, e.N))
		case history.EndSeen:
			f.dir = frames.ServerToClient
			if e.Side == history.ClientSide {
				f.dir = frames.ClientToServer
			}
			ends[f] = append(ends[f], fmt.Sprintf("%v %s from its sender", e.At, e.How))
		case history.EndSent:
			f.dir = frames.ClientToServer
			if e.Side == history.ClientSide {
				f.dir = frames.ServerToClient
			}
			ends[f] = append(ends[f], fmt.Sprintf("%v %s to its receiver", e.At, e.How))
		}
	}
	var b strings.Builder
	for _, session := range slices.Sorted(maps.Keys(opened)) {
		o := opened[session]
		fmt.Fprintf(&b, "session %d of %s at %v, to %s\n", session, o.Client, o.At, o.Addr)
		for _, dir := range []frames.Direction{frames.ClientToServer, frames.ServerToClient} {
			f := flow{session, dir}
			for _, h := range in[f] {
				fmt.Fprintf(&b, "  %s %v %s %q\n", dir, h.at, h.text, h.data)
			}
			for _, h := range out[f] {
				fmt.Fprintf(&b, "  %s %v %s %d\n", dir, h.at, h.text, len(h.data))
			}
			for _, e := range ends[f] {
				fmt.Fprintf(&b, "  %s %s\n", dir, e)
			}
		}
	}
	return b.String()
}

// hear adds bytes to those of the same time.
func hear(list []heard, at time.Duration, text string, data []byte) []heard {
	if n := len(list); n > 0 && list[n-1].at == at {
		list[n-1].data = append(list[n-1].data, data...)
		return list
	}
	return append(list, heard{at, text, slices.Clone(data)})
}
