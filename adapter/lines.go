package adapter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
	"unicode/utf8"
)

// line is a line of input without its newline, or the beginning of one that is
// longer than MaxLine.
type line struct {
	text     []byte
	overlong bool
}

// readers are used again: a case of verifytest has an adapter of its own.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, MaxLine) }}

// readLines sends the lines of in until it ends or stop is closed. A last line
// without a newline counts.
func readLines(in io.Reader, lines chan<- line, stop <-chan struct{}) error {
	r := readers.Get().(*bufio.Reader)
	r.Reset(in)
	defer func() {
		r.Reset(nil)
		readers.Put(r)
	}()
	for {
		text, err := r.ReadSlice('\n')
		l := line{text: bytes.Clone(text)}
		for errors.Is(err, bufio.ErrBufferFull) {
			l.overlong = true
			_, err = r.ReadSlice('\n')
		}
		select {
		case lines <- l:
		case <-stop:
			return nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read requests: %w", err)
		}
	}
}

func (l line) blank() bool { return len(bytes.TrimSpace(l.text)) == 0 }

// parse returns the request, or why the line is none.
func (l line) parse() (Request, error) {
	if l.overlong {
		return Request{}, fmt.Errorf("a line of more than %d bytes", MaxLine)
	}
	if !utf8.Valid(l.text) {
		return Request{}, errors.New("a line that is not UTF-8")
	}
	// A pointer tells a missing id from id 0.
	req := struct {
		Request
		ID *uint64 `json:"id"`
	}{}
	if err := json.Unmarshal(l.text, &req); err != nil {
		return Request{}, fmt.Errorf("a line that is not a request: %w", err)
	}
	if req.ID == nil {
		return Request{}, errors.New("a request without an id")
	}
	req.Request.ID = *req.ID
	return req.Request, nil
}

// id looks for the id of a line that could not be parsed, as far as it can be
// read, so that the tool gets an answer at once and not after a time limit.
func (l line) id() (uint64, bool) {
	d := json.NewDecoder(bytes.NewReader(l.text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, false
	}
	for {
		name, err := d.Token()
		if err != nil {
			return 0, false
		}
		if name == "id" {
			var id *uint64
			if d.Decode(&id) != nil || id == nil {
				return 0, false
			}
			return *id, true
		}
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return 0, false
		}
	}
}

// seconds reads a wait or a lease. Zero is passed on: what it means is the
// library's affair.
func seconds(name string, v *float64) (time.Duration, error) {
	switch {
	case v == nil:
		return 0, fmt.Errorf("acquire without a %s", name)
	case *v < 0 || math.IsNaN(*v):
		return 0, fmt.Errorf("a %s of %v s, must not be negative", name, *v)
	case *v > maxSeconds:
		return 0, fmt.Errorf("a %s of %v s, limit %v s", name, *v, float64(maxSeconds))
	}
	return time.Duration(*v * float64(time.Second)), nil
}
