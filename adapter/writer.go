package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

var (
	acquireOutcomes = []string{"acquired", "timeout", "busy", "indeterminate", "unsent", "error"}
	releaseOutcomes = []string{"released", "not_held", "indeterminate", "error"}
)

// writer queues answers and writes them from one goroutine, as many as are
// there with one Write. Queueing never blocks.
type writer struct {
	out    io.Writer
	wake   chan struct{}  // capacity 1
	failed chan struct{}  // closed with the first error
	done   chan struct{}  // closed when run has returned
	direct func(Response) // gets the answers, and nothing is written; nil: nobody

	mu    sync.Mutex
	queue []byte
	ended bool
	err   error
}

func newWriter(out io.Writer) *writer {
	return &writer{
		out:  out,
		wake: make(chan struct{}, 1), failed: make(chan struct{}), done: make(chan struct{}),
	}
}

func (w *writer) run() {
	defer close(w.done)
	var batch []byte
	for {
		w.mu.Lock()
		batch, w.queue = w.queue, batch[:0]
		ended, err := w.ended, w.err
		w.mu.Unlock()
		switch {
		case err != nil:
			return
		case len(batch) > 0:
			if _, err := w.out.Write(batch); err != nil {
				w.fail(fmt.Errorf("write answers: %w", err))
				return
			}
		case ended:
			return
		default:
			<-w.wake
		}
	}
}

func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		close(w.failed)
	}
}

// finish writes what is queued and ends run, if out lets it before the limit.
func (w *writer) finish(limit time.Duration) error {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.poke()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		w.fail(fmt.Errorf("the last answers were not read within %v", limit))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default: // run has been told already
	}
}

func (w *writer) send(r Response) {
	if w.direct != nil {
		w.direct(r)
		return
	}
	text, err := json.Marshal(r)
	if err == nil && len(text) >= MaxLine {
		err = fmt.Errorf("an answer of %d bytes, limit %d", len(text)+1, MaxLine)
	}
	if err != nil {
		w.fail(err)
		return
	}
	w.mu.Lock()
	full := len(w.queue)+len(text) >= maxQueued
	if !full && !w.ended {
		w.queue = append(append(w.queue, text...), '\n')
	}
	w.mu.Unlock()
	if full {
		w.fail(errors.New("the tool does not read its answers"))
	}
	w.poke()
}

func (w *writer) answer(typ string, id uint64) {
	w.send(Response{Type: typ, ID: &id})
}

func (w *writer) unsupported(id uint64, detail string) {
	w.send(Response{Type: TypeUnsupported, ID: &id, Detail: clip(detail, maxText)})
}

// failure answers an init, open, cancel or close that failed.
func (w *writer) failure(id uint64, detail string) {
	w.send(Response{Type: TypeError, ID: &id, Detail: clip(detail, maxText)})
}

// refuse answers an acquire or a release that does not reach the library.
func (w *writer) refuse(id uint64, err error) {
	w.send(Response{Type: TypeResult, ID: &id, Outcome: "error", Raw: clip("adapter: "+err.Error(), maxText)})
}

// result answers with the library's own result. A word that the protocol does
// not have becomes an error that quotes it.
func (w *writer) result(id uint64, res Result, words []string) {
	if !slices.Contains(words, res.Outcome) {
		res = Result{Outcome: "error", Raw: fmt.Sprintf("adapter: outcome %q: %s", clip(res.Outcome, 100), res.Raw)}
	}
	r := Response{Type: TypeResult, ID: &id, Outcome: res.Outcome, Raw: clip(res.Raw, maxText)}
	if res.HasToken {
		r.Token = strconv.FormatUint(res.Token, 10)
	}
	if res.HasOwner {
		r.Owner = strconv.FormatUint(res.Owner, 10)
	}
	w.send(r)
}

// clip returns the first limit bytes, or up to 3 fewer to end with a whole
// rune, as valid UTF-8.
func clip(s string, limit int) string {
	if len(s) > limit {
		end := limit
		for end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
