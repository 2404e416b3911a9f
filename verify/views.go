package verify

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"tornwire/frames"
	"tornwire/history"
)

// views are what each side of a case could tell of it, as hashes: two cases with
// one view were the same exchange to that side, whatever the other saw.
type views struct{ client, server uint64 }

// sight is what one peer of a session was shown, in order.
type sight struct {
	parts []string
	frame history.FrameRef // the one under way
	end   int              // bytes of it so far
	blind bool             // the peer has left
}

// write adds bytes of a frame. Bytes that follow those before without a pause are
// one part.
func (s *sight) write(f history.FrameRef, off, n int) {
	if s.blind {
		return
	}
	if len(s.parts) > 0 && s.frame == f && s.end == off {
		s.parts = s.parts[:len(s.parts)-1]
		off, n = 0, off+n
	}
	s.frame, s.end = f, off+n
	s.parts = append(s.parts, fmt.Sprintf("%s[%d:%d]", f.Op, off, off+n))
}

// pause notes that what comes next comes apart from what came before.
func (s *sight) pause() {
	if len(s.parts) > 0 && !s.blind {
		s.frame = history.FrameRef{}
	}
}

func (s *sight) ended(how string) {
	if !s.blind {
		s.parts = append(s.parts, how)
	}
}

// viewsOf returns what each side could tell of a case: the frames it was given as
// far as they came, pauses inside them, and how its connections ended. Values
// that differ in every case, such as nonces, and what a peer did itself do not
// count.
func viewsOf(workload string, events []history.Event) views {
	sights := map[int]*[2]sight{}
	var order []int
	of := func(session int, d frames.Direction) *sight {
		if sights[session] == nil {
			sights[session] = &[2]sight{}
			order = append(order, session)
		}
		return &sights[session][d]
	}
	for _, e := range events {
		switch e.Kind {
		case history.WriteAccepted:
			of(e.Session, e.Dir).write(*e.Frame, e.Off, e.N)
		case history.Fired:
			of(e.Session, e.Dir).pause()
		case history.EndSent:
			of(e.Session, e.Dir).ended(e.How)
		case history.EndSeen:
			of(e.Session, e.Dir.Opposite()).blind = true
		}
	}
	slices.Sort(order)
	hash := func(d frames.Direction) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s", workload)
		for _, id := range order {
			fmt.Fprintf(h, "|%d:%s", id, strings.Join(sights[id][d].parts, " "))
		}
		return h.Sum64()
	}
	return views{client: hash(frames.ServerToClient), server: hash(frames.ClientToServer)}
}
