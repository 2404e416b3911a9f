package stub

import (
	"bytes"
	"slices"
	"strings"

	"tornwire/frames"
)

// Frame is a message as far as it has come. Bytes are its own.
type Frame struct {
	Conn  string // remote address of the client
	Bytes []byte
	shape *frames.Shape
	g     *frames.Grammar
}

// Op is the frame's op.
func (f Frame) Op() string { return f.shape.Op }

// Uint returns a fixed field, 0 if the frame has none of that name or it has not
// come yet.
func (f Frame) Uint(field string) uint64 {
	v, _ := f.shape.Uint(f.Bytes, field)
	return v
}

// Key returns the text tail as far as it has come.
func (f Frame) Key() string {
	if len(f.Bytes) <= f.shape.Header {
		return ""
	}
	return strings.TrimSuffix(string(f.Bytes[f.shape.Header:]), "\n")
}

func (f Frame) whole() bool {
	return len(f.Bytes) > f.shape.Header && bytes.HasSuffix(f.Bytes, []byte("\n"))
}

// keyFits tells whether the frame's key is, or can still become, the one wanted.
func (f Frame) keyFits(want string) bool {
	return want == "" || f.Key() == want || !f.whole() && strings.HasPrefix(want, f.Key())
}

// With returns the frame's bytes with another value in one of its fixed fields. A
// value that does not fit is cut to the field's size.
func (f Frame) With(field string, v uint64) []byte {
	b := slices.Clone(f.Bytes)
	fd, ok := f.shape.Field(field)
	if !ok || len(b) < fd.Offset+fd.Size {
		return b
	}
	for i := range fd.Size {
		b[fd.Offset+fd.Size-1-i] = byte(v >> (8 * i))
	}
	return b
}

// Answer returns a frame of the server: op and key, the owner of f where the layout
// has one, and a token where it has one. It is nil where the dialect has no such
// frame, or the key cannot be in one.
func (f Frame) Answer(op, key string, token uint64) []byte {
	s, ok := f.g.Shape(frames.ServerToClient, op)
	if !ok {
		return nil
	}
	values := make([]uint64, len(s.Fields))
	for i, fd := range s.Fields {
		switch fd.Name {
		case "owner":
			values[i] = f.Uint("owner")
		case "token":
			values[i] = token
		}
	}
	b, err := s.Append(nil, []byte(key), values...)
	if err != nil {
		return nil
	}
	return b
}
