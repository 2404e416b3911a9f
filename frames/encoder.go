package frames

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrBadFrame is wrapped by every error of Check and Append: the frame breaks a
// limit of its grammar (spec/ticketing.md §1.4).
var ErrBadFrame = errors.New("bad frame")

// Append appends a frame with the given tail and field values, in the order of
// Fields, to dst. It refuses a value that does not fit its field, a wrong number
// of values, and a tail that the grammar does not allow; dst is then returned
// as it was.
func (s *Shape) Append(dst, tail []byte, values ...uint64) ([]byte, error) {
	if len(values) != len(s.Fields) {
		return dst, fmt.Errorf("%w: %s %s has %d fields, not %d", ErrBadFrame, s.Dir, s.Op, len(s.Fields), len(values))
	}
	if err := s.CheckTail(tail); err != nil {
		return dst, err
	}
	out := dst
	if s.Kind == Message {
		out = append(out, s.Op[0])
	}
	for i, f := range s.Fields {
		v := values[i]
		if v > f.Max() {
			return dst, fmt.Errorf("%w: %s of %s %s is %d, over %d", ErrBadFrame, f.Name, s.Dir, s.Op, v, f.Max())
		}
		for shift := 8 * (f.Size - 1); shift >= 0; shift -= 8 {
			out = append(out, byte(v>>shift))
		}
	}
	out = append(out, tail...)
	return append(out, '\n'), nil
}

// Check tells whether a whole frame keeps the limits of the grammar: its length,
// and a tail of valid UTF-8 (printable ASCII in a preface line) without refused
// bytes.
func (s *Shape) Check(frame []byte) error {
	if len(frame) < s.Header+1 || frame[len(frame)-1] != '\n' {
		return fmt.Errorf("%w: %s %s of %d bytes is cut short", ErrBadFrame, s.Dir, s.Op, len(frame))
	}
	if s.Kind == KeepAlive && len(frame) != 1 {
		return fmt.Errorf("%w: keep-alive of %d bytes, not 1", ErrBadFrame, len(frame))
	}
	return s.CheckTail(s.TailOf(frame))
}

// CheckTail tells whether a tail keeps the limits of the grammar.
func (s *Shape) CheckTail(tail []byte) error {
	t := s.Tail
	switch {
	case len(tail) < t.Min:
		return fmt.Errorf("%w: %s of %s %s has %d bytes, under %d", ErrBadFrame, t.Name, s.Dir, s.Op, len(tail), t.Min)
	case len(tail) > t.Max:
		return fmt.Errorf("%w: %s of %s %s has %d bytes, over %d", ErrBadFrame, t.Name, s.Dir, s.Op, len(tail), t.Max)
	case bytes.IndexByte(tail, '\n') >= 0:
		return fmt.Errorf("%w: %s of %s %s has a newline", ErrBadFrame, t.Name, s.Dir, s.Op)
	case bytes.ContainsAny(tail, t.Without):
		return fmt.Errorf("%w: %s of %s %s has a byte of %q", ErrBadFrame, t.Name, s.Dir, s.Op, t.Without)
	case s.Kind == Preface && !printable(tail):
		return fmt.Errorf("%w: %s line is not printable ASCII", ErrBadFrame, s.Op)
	case !utf8.Valid(tail):
		return fmt.Errorf("%w: %s of %s %s is not UTF-8", ErrBadFrame, t.Name, s.Dir, s.Op)
	}
	return nil
}

func printable(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}
