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
	data []byte
}

// spoken is a direction of a session.
type spoken struct {
	in, out       []heard  // from its sender, to its receiver
	seen, forward []string // ends, likewise
}

// transcript tells what went over the wire, by session and direction: the bytes that came
// from the sender, how many were written to the receiver, and the ends of both, with their
// times since the case began. What happened at one time is told in one line, however many
// reads and writes it took, and nothing is said of the order in which two did something at
// one time.
func transcript(events []history.Event) string {
	opened, said := map[int]history.Event{}, map[flow]*spoken{}
	of := func(session int, dir frames.Direction) *spoken {
		f := flow{session, dir}
		if said[f] == nil {
			said[f] = &spoken{}
		}
		return said[f]
	}
	for _, e := range events {
		switch e.Kind {
		case history.SessionOpened:
			opened[e.Session] = e
		case history.Received:
			s := of(e.Session, e.Dir)
			s.in = hear(s.in, e.At, e.Data)
		case history.WriteAccepted:
			s := of(e.Session, e.Dir)
			s.out = hear(s.out, e.At, make([]byte, e.N))
		case history.EndSeen:
			s := of(e.Session, sentBy(e.Side))
			s.seen = append(s.seen, fmt.Sprintf("%v %s received", e.At, e.How))
		case history.EndSent:
			s := of(e.Session, 1-sentBy(e.Side))
			s.forward = append(s.forward, fmt.Sprintf("%v %s written", e.At, e.How))
		}
	}
	var b strings.Builder
	for _, session := range slices.Sorted(maps.Keys(opened)) {
		o := opened[session]
		fmt.Fprintf(&b, "session %d of %s at %v, to %s\n", session, o.Client, o.At, o.Addr)
		for _, dir := range []frames.Direction{frames.ClientToServer, frames.ServerToClient} {
			of(session, dir).tell(&b, dir)
		}
	}
	return b.String()
}

// sentBy is the direction of what a side sends.
func sentBy(side history.Side) frames.Direction {
	if side == history.ClientSide {
		return frames.ClientToServer
	}
	return frames.ServerToClient
}

func (s *spoken) tell(b *strings.Builder, dir frames.Direction) {
	for _, h := range s.in {
		fmt.Fprintf(b, "  %s %v %q received\n", dir, h.at, h.data)
	}
	for _, end := range s.seen {
		fmt.Fprintf(b, "  %s %s\n", dir, end)
	}
	for _, h := range s.out {
		fmt.Fprintf(b, "  %s %v %d bytes written\n", dir, h.at, len(h.data))
	}
	for _, end := range s.forward {
		fmt.Fprintf(b, "  %s %s\n", dir, end)
	}
}

// hear adds bytes to those of the same time.
func hear(list []heard, at time.Duration, data []byte) []heard {
	if n := len(list); n > 0 && list[n-1].at == at {
		list[n-1].data = append(list[n-1].data, data...)
		return list
	}
	return append(list, heard{at, slices.Clone(data)})
}
