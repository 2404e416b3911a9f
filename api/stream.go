package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"tornwire/scenarios"
)

// Limits of event streams.
const (
	MaxStreams    = 32               // at once
	BeatTime      = 15 * time.Second // between two signs of life on a stream with nothing to tell
	StreamTimeout = 10 * time.Second // for who reads to take what is written
)

// streamRun tells the record of a run as server-sent events, as it grows. The id of an event
// is TRY.N; who comes again with the last one that he has had goes on behind it. The event
// "record" is one of the record, "again" tells that the run was too late to judge and begins
// anew, and "end" is the run when it is over.
func (m *Manager) streamRun() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet {
			w.Header().Set("Allow", "GET")
			write(w, newError(http.StatusMethodNotAllowed, "%s is not possible here, only GET", req.Method).reply())
			return
		}
		id, _ := url.PathUnescape(mux.Vars(req)["run"])
		l, err := m.runs.Get(id)
		if err != nil {
			write(w, asError(runError(err)).reply())
			return
		}
		try, from, err := lastEvent(req.Header.Get("Last-Event-ID"))
		if err != nil {
			write(w, asError(err).reply())
			return
		}
		if m.streams.Add(1) > MaxStreams {
			m.streams.Add(-1)
			write(w, newError(statusFull, "%d streams are open, and no more are possible at once", MaxStreams).reply())
			return
		}
		defer m.streams.Add(-1)
		s := &stream{w: w, control: http.NewResponseController(w)}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		s.run(req, l, try, from)
	})
}

// lastEvent reads the id of an event that was sent.
func lastEvent(id string) (try, from int, err error) {
	if id == "" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(id, ".")
	t, err1 := strconv.ParseUint(a, 10, 31)
	n, err2 := strconv.ParseUint(b, 10, 31)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, newError(http.StatusBadRequest, "Last-Event-ID is %q, and no id of these events", id)
	}
	return int(t), int(n), nil
}

// stream is one reader of events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

func (s *stream) run(req *http.Request, l *scenarios.Live, try, from int) {
	beat := time.NewTicker(BeatTime)
	defer beat.Stop()
	for {
		events, now, more := l.Record(try, from)
		if now != try {
			if try > 0 {
				s.put("again", fmt.Sprintf("%d.0", now), struct{}{})
			}
			try, from = now, 0
		}
		for _, e := range events {
			from++
			s.put("record", fmt.Sprintf("%d.%d", try, from), e)
		}
		if more == nil {
			s.put("end", fmt.Sprintf("%d.%d", try, from), viewLive(l))
		}
		if !s.flush() || more == nil {
			return
		}
		select {
		case <-more:
		case <-l.Done():
		case <-beat.C:
			s.buf.WriteString(": still here\n\n")
		case <-req.Context().Done():
			return
		}
	}
}

// put adds an event. JSON has no line ends in it, so that its data is one line.
func (s *stream) put(kind, id string, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		b = []byte("{}")
	}
	fmt.Fprintf(&s.buf, "id: %s\nevent: %s\ndata: %s\n\n", id, kind, b)
}

// flush sends what there is. It is false if nobody takes it.
func (s *stream) flush() bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(StreamTimeout)) // a recorder of a test has none
	_, err := s.w.Write(s.buf.Bytes())
	s.buf.Reset()
	if err == nil {
		err = s.control.Flush()
	}
	return err == nil
}
