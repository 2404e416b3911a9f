package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// MaxEvents is the most events that one history holds. A case that passes it is
// not judged: Full says so.
const MaxEvents = 100_000

// Recorder collects the events of one case. It is safe for concurrent use, and
// never blocks on I/O. The zero value is not ready; use NewRecorder.
type Recorder struct {
	mu      sync.Mutex
	start   time.Time
	events  []Event
	full    bool
	taken   bool
	changed chan struct{} // closed at the next event while somebody waits
}

// NewRecorder starts a history; At counts from now.
func NewRecorder() *Recorder {
	return &Recorder{start: time.Now(), events: make([]Event, 0, firstEvents)}
}

// NewRecorderIn is NewRecorder in the room of the events that another recorder gave up.
func NewRecorderIn(room []Event) *Recorder {
	return &Recorder{start: time.Now(), events: room[:0]}
}

// Take returns all events; the recorder has and keeps none from then on.
func (r *Recorder) Take() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.events
	r.events, r.taken = nil, true
	return all
}

// firstEvents is room for the events of a short case.
const firstEvents = 64

// Add stamps the event with its number and time and keeps it. Data must not be
// changed afterwards. A nil recorder keeps nothing.
func (r *Recorder) Add(e Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.taken:
		return
	case len(r.events) < MaxEvents:
		e.Seq = uint64(len(r.events) + 1)
		e.At = time.Since(r.start)
		r.events = append(r.events, e)
	case r.full:
		return
	default:
		r.full = true
	}
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Since returns the time passed since the history began, 0 for a nil recorder.
func (r *Recorder) Since() time.Duration {
	if r == nil {
		return 0
	}
	return time.Since(r.start)
}

// Events returns the events from number from (0 is the first) on, which must not be
// changed, and a channel that is closed when there are more, or when the first is lost because
// the history is full. A nil recorder has no events and no channel.
func (r *Recorder) Events(from int) ([]Event, <-chan struct{}) {
	if r == nil {
		return nil, nil
	}
	from = max(from, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	if from >= len(r.events) {
		return nil, r.changed
	}
	return r.events[from:len(r.events):len(r.events)], r.changed
}

// Full tells whether events were lost because there were more than MaxEvents.
func (r *Recorder) Full() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full
}

// MaxLine is the longest line of a written history in bytes, newline included.
// Received is the longest event; half of MaxLine is room for the bytes of any
// read by far.
const MaxLine = 1 << 20

// WriteJSON writes events as JSON Lines, without loss: text that is not UTF-8, as a
// key on the wire may be, is written with U+FFFD in its place and as it is, in
// hexadecimal, in the member "bytes". It refuses an event whose line is over MaxLine
// and more than MaxEvents events, because ReadJSON would.
func WriteJSON(w io.Writer, events []Event) error {
	if len(events) > MaxEvents {
		return fmt.Errorf("history has %d events, over %d", len(events), MaxEvents)
	}
	for i := range events {
		line, err := json.Marshal(lineOf(&events[i]))
		if err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
		if len(line)+1 > MaxLine {
			return fmt.Errorf("event %d: line has %d bytes, over %d", i+1, len(line)+1, MaxLine)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// ReadJSON reads JSON Lines written by WriteJSON, of at most MaxLine bytes each
// and at most MaxEvents. An error names the line.
func ReadJSON(r io.Reader) ([]Event, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), MaxLine)
	var out []Event
	for sc.Scan() {
		if len(out) >= MaxEvents {
			return nil, fmt.Errorf("line %d: more than %d events", len(out)+1, MaxEvents)
		}
		l := line{Event: new(Event)}
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out)+1, err)
		}
		if err := l.restore(); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out)+1, err)
		}
		out = append(out, *l.Event)
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d: more than %d bytes", len(out)+1, MaxLine)
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", len(out)+1, err)
	}
	return out, nil
}
