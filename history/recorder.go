package history

import (
	"bufio"
	"encoding/json"
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
	changed chan struct{} // closed at the next event while somebody waits
}

// NewRecorder starts a history; At counts from now.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Add stamps the event with its number and time and keeps it. Data must not be
// changed afterwards. A nil recorder keeps nothing.
func (r *Recorder) Add(e Event) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= MaxEvents {
		r.full = true
		return
	}
	e.Seq = uint64(len(r.events) + 1)
	e.At = time.Since(r.start)
	r.events = append(r.events, e)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Since returns the time passed since the history began.
func (r *Recorder) Since() time.Duration { return time.Since(r.start) }

// Events returns a copy of the events from number from (0 is the first) on, and
// a channel that is closed when there are more.
func (r *Recorder) Events(from int) ([]Event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	if from >= len(r.events) {
		return nil, r.changed
	}
	return append([]Event(nil), r.events[from:]...), r.changed
}

// Full tells whether events were lost because there were more than MaxEvents.
func (r *Recorder) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full
}

// WriteJSON writes events as JSON Lines.
func WriteJSON(w io.Writer, events []Event) error {
	enc := json.NewEncoder(w)
	for i := range events {
		if err := enc.Encode(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadJSON reads JSON Lines written by WriteJSON. An error names the line.
func ReadJSON(r io.Reader) ([]Event, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	var out []Event
	for sc.Scan() {
		var e Event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out)+1, err)
		}
		if len(out) >= MaxEvents {
			return nil, fmt.Errorf("line %d: more than %d events", len(out)+1, MaxEvents)
		}
		out = append(out, e)
	}
	return out, sc.Err()
}
