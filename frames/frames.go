// Package frames describes wire grammars as data and decodes and encodes
// their frames. It does no I/O, starts no goroutine and reads no clock.
//
// A frame is an op byte, fixed big-endian fields, a text tail and a newline
// (spec/ticketing.md §1). The fixed fields are consumed by count, so a
// newline byte inside them is harmless. A connection opens with preface lines,
// and a newline alone at a frame boundary is a keep-alive.
package frames

import "fmt"

// Direction is the way a byte travels through the proxy.
type Direction uint8

// The two directions.
const (
	ClientToServer Direction = iota
	ServerToClient
)

// String returns the short form used in case ids, "c2s" or "s2c".
func (d Direction) String() string {
	if d == ServerToClient {
		return "s2c"
	}
	return "c2s"
}

// Opposite returns the other direction.
func (d Direction) Opposite() Direction { return d ^ 1 }

// ParseDirection reads "c2s" or "s2c".
func ParseDirection(s string) (Direction, error) {
	switch s {
	case "c2s":
		return ClientToServer, nil
	case "s2c":
		return ServerToClient, nil
	}
	return 0, fmt.Errorf("direction %q is neither c2s nor s2c", s)
}

// MarshalText returns the short form.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the short form.
func (d *Direction) UnmarshalText(b []byte) error {
	v, err := ParseDirection(string(b))
	if err == nil {
		*d = v
	}
	return err
}

// Kind tells preface lines, messages and keep-alives apart.
type Kind uint8

// The kinds of a shape. Opaque is the kind of bytes that belong to no frame
// because the decoder gave up on the link.
const (
	Preface Kind = iota + 1
	Message
	KeepAlive
	Opaque
)

// String returns the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Preface:
		return "preface"
	case Message:
		return "message"
	case KeepAlive:
		return "keepalive"
	case Opaque:
		return "opaque"
	}
	return "none"
}

// OpKeepAlive is the op under which a lone newline is named in case ids.
const OpKeepAlive = "keepalive"

// OpOpen is the op under which a connection itself is named in case ids, as if
// it were a frame of its client.
const OpOpen = "open"

// Field is one fixed field of a frame, an unsigned big-endian integer.
type Field struct {
	Name   string
	Offset int // from the op byte, which is at 0
	Size   int // bytes: 1, 2, 4 or 8
}

// Max returns the largest value the field can hold.
func (f Field) Max() uint64 { return ^uint64(0) >> (64 - 8*f.Size) }

// Tail says what the text between the fixed fields and the newline may be.
// Bytes are counted without the newline.
type Tail struct {
	Name    string
	Min     int
	Max     int
	Without string // bytes that are refused, besides newline
}

// Shape is one row of a grammar: the layout of one frame or preface line.
// Shapes are immutable; two frames of one op and direction share one Shape.
type Shape struct {
	Kind   Kind
	Dir    Direction
	Op     string // "A", or "greeting", "auth", "keepalive"
	Name   string // "Acquire"
	Fields []Field
	Header int // bytes before the tail: op and fixed fields, 0 in a preface line
	Limit  int // most tail bytes that are decoded; Tail.Max may be lower
	Tail   Tail
}

// Field finds a fixed field by name.
func (s *Shape) Field(name string) (Field, bool) {
	for _, f := range s.Fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// Uint returns the value of the named fixed field of a frame with this shape.
// It is false if there is no such field or the frame is too short to hold it.
func (s *Shape) Uint(frame []byte, name string) (uint64, bool) {
	f, ok := s.Field(name)
	if !ok {
		return 0, false
	}
	return f.Uint(frame)
}

// Uint returns the value of the field in a frame. It is false if the frame is too
// short to hold it.
func (f Field) Uint(frame []byte) (uint64, bool) {
	if len(frame) < f.Offset+f.Size {
		return 0, false
	}
	var v uint64
	for _, b := range frame[f.Offset : f.Offset+f.Size] {
		v = v<<8 | uint64(b)
	}
	return v, true
}

// TailOf returns the text of a whole frame, without header and newline. It
// aliases frame.
func (s *Shape) TailOf(frame []byte) []byte {
	if len(frame) < s.Header+1 {
		return nil
	}
	return frame[s.Header : len(frame)-1]
}

// Size returns the number of bytes of a frame whose tail has n bytes,
// newline included.
func (s *Shape) Size(n int) int { return s.Header + n + 1 }
