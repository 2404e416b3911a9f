package proxy_test

import (
	"slices"
	"strings"
	"testing"

	"tornwire/frames"
	"tornwire/history"
)

// wire is what the record says of one direction of a session.
type wire struct {
	received  []byte
	delivered []byte // accepted by our kernel
	frames    map[uint64][]byte
	passed    map[uint64]int // accepted bytes of each frame
	began     []history.Event
	acked     int
	cut       bool
	altered   bool // a fault changed more than the times
}

// alters tells whether a fault changes what is delivered before an end.
func alters(fault string) bool {
	return slices.Contains([]string{"drop", "duplicate", "reorder", "corrupt", "splice"}, fault) || strings.HasPrefix(fault, "inject-")
}

type wireKey struct {
	session int
	dir     frames.Direction
}

// wires reads a record, and tells of everything in it that cannot be.
func wires(ev []history.Event, bad func(format string, args ...any)) map[wireKey]*wire {
	out := map[wireKey]*wire{}
	of := func(session int, dir frames.Direction) *wire {
		k := wireKey{session, dir}
		if out[k] == nil {
			out[k] = &wire{frames: map[uint64][]byte{}, passed: map[uint64]int{}}
		}
		return out[k]
	}
	for _, e := range ev {
		w := of(e.Session, e.Dir)
		switch e.Kind {
		case history.Received:
			w.receive(e, bad)
		case history.WriteBegun, history.WriteAccepted:
			w.write(e, bad)
		case history.Acked:
			if e.Total > len(w.delivered) || e.N < 0 || e.N > e.Total {
				bad("event %d: %d of %d bytes acknowledged, %d were accepted", e.Seq, e.N, e.Total, len(w.delivered))
			}
			w.acked = max(w.acked, e.N)
		case history.Fired:
			w.altered = w.altered || alters(e.Fault)
			truncated := strings.HasPrefix(e.Fault, "truncate")
			if !truncated && e.Fault != "stall" {
				break
			}
			if w.cut {
				bad("event %d: %s fired on what was cut", e.Seq, e.Fault)
			}
			w.cut = true
			if truncated {
				of(e.Session, e.Dir.Opposite()).cut = true
			}
			if n := w.passed[e.Frame.Seq]; n != e.Off && !bare {
				bad("event %d: %s fired at %d, %d bytes of %s had passed", e.Seq, e.Fault, e.Off, n, e.Frame)
			}
		}
	}
	return out
}

func (w *wire) receive(e history.Event, bad func(string, ...any)) {
	if e.N != len(e.Data) || e.N == 0 {
		bad("event %d: %d bytes received are %d", e.Seq, e.N, len(e.Data))
	}
	if have := len(w.frames[e.Frame.Seq]); e.Off != have {
		bad("event %d: byte %d of frame %d received after %d", e.Seq, e.Off, e.Frame.Seq, have)
	}
	w.received = append(w.received, e.Data...)
	w.frames[e.Frame.Seq] = append(w.frames[e.Frame.Seq], e.Data...)
}

// write checks that writes go on where the last ended, and that what is accepted
// had begun.
func (w *wire) write(e history.Event, bad func(string, ...any)) {
	data, exact := []byte(e.Data), len(e.Data) > 0
	if have := w.frames[e.Frame.Seq]; !exact && e.N > 0 && e.Off >= 0 && e.Off+e.N <= len(have) {
		data = have[e.Off : e.Off+e.N]
	}
	if len(data) != e.N || e.N == 0 {
		bad("event %d: bytes %d+%d of frame %d written, of which %d came", e.Seq, e.Off, e.N, e.Frame.Seq, len(w.frames[e.Frame.Seq]))
		return
	}
	if w.cut {
		bad("event %d: %s after the cut", e.Seq, e.Kind)
	}
	if e.Kind == history.WriteBegun {
		w.began = append(w.began, e)
		return
	}
	if len(w.began) == 0 {
		bad("event %d: a write was accepted that had not begun", e.Seq)
		return
	}
	b := w.began[0]
	w.began = w.began[1:]
	if *b.Frame != *e.Frame || b.Off != e.Off || e.N > b.N {
		bad("event %d: %s at %d+%d accepted, %s at %d+%d had begun", e.Seq, e.Frame, e.Off, e.N, b.Frame, b.Off, b.N)
	}
	if e.N < b.N {
		w.began = nil // a short write: the rest of it never gets there
	}
	if e.Off != w.passed[e.Frame.Seq] && !exact {
		bad("event %d: byte %d of %s written after %d", e.Seq, e.Off, e.Frame, w.passed[e.Frame.Seq])
	}
	w.passed[e.Frame.Seq] += e.N
	w.delivered = append(w.delivered, data...)
}

// is tells whether these bytes were recorded, if bytes are.
func (w *wire) is(received, delivered string) bool {
	if w == nil {
		w = &wire{}
	}
	return bare || string(w.received) == received && string(w.delivered) == delivered
}

// checkRecord holds a whole record against what must always be true of one.
func checkRecord(t *testing.T, ev []history.Event) map[wireKey]*wire {
	t.Helper()
	ws := wires(ev, func(format string, args ...any) {
		t.Helper()
		t.Errorf(format, args...)
	})
	for k, w := range ws {
		if !w.altered && !strings.HasPrefix(string(w.received), string(w.delivered)) {
			t.Errorf("session %d %s: %q was delivered, not the start of %q", k.session, k.dir, clip(string(w.delivered)), clip(string(w.received)))
		}
	}
	type end struct {
		kind    history.Kind
		session int
		side    history.Side
	}
	ends := map[end][]string{}
	for _, e := range ev {
		if e.Kind != history.EndSeen && e.Kind != history.EndSent {
			continue
		}
		k := end{e.Kind, e.Session, e.Side}
		// Dir is the way that the end goes: from the side that is seen, or to the one that is sent it.
		if to := history.Receiver(e.Dir); (to == e.Side) != (e.Kind == history.EndSent) {
			t.Errorf("event %d: %s %s in %s", e.Seq, e.Kind, e.Side, e.Dir)
		}
		if had := ends[k]; slices.Contains(had, e.How) || slices.Contains(had, history.RST) {
			t.Errorf("event %d: %s %s %s after %v", e.Seq, e.Kind, e.Side, e.How, had)
		}
		ends[k] = append(ends[k], e.How)
	}
	return ws
}

// wantEnds compares the ends in a record, in order: "client fin seen", "server
// rst sent by fault". Those of the teardown count only if some are wanted.
func wantEnds(t *testing.T, ev []history.Event, want ...string) {
	t.Helper()
	var got []string
	teardown := strings.Contains(strings.Join(want, " "), history.CauseTeardown)
	for _, e := range ev {
		if !teardown && e.Cause == history.CauseTeardown {
			continue
		}
		switch e.Kind {
		case history.EndSeen:
			got = append(got, string(e.Side)+" "+e.How+" seen")
		case history.EndSent:
			got = append(got, string(e.Side)+" "+e.How+" sent by "+e.Cause)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("ends are %q, wanted %q", got, want)
	}
}
