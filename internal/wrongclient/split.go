package wrongclient

import (
	"bytes"
	"errors"
	"fmt"

	"tornwire/frames"
)

// frame is one frame from the server. A frame that a defect takes before its
// end has cut set; raw is then filled with zeros up to its header, and got
// counts the bytes that are really there.
type frame struct {
	shape *frames.Shape
	raw   []byte
	got   int
	cut   bool
}

// id is the identifier that the frame echoes, 0 where the dialect has none.
func (f frame) id() uint64 {
	v, _ := f.shape.Uint(f.raw, idField(f.shape.Op))
	return v
}

// idField names the echoed identifier of an answer.
func idField(op string) string {
	if op == "R" || op == "N" {
		return "token"
	}
	return "owner"
}

func (f frame) token() uint64 {
	v, _ := f.shape.Uint(f.raw, "token")
	return v
}

func (f frame) tail() string { return string(f.shape.TailOf(f.raw)) }

// answers tells whether the frame is an answer to x: identifier, op and key
// together. Of a cut frame the bytes that are there are compared.
func (f frame) answers(x *exchange) bool {
	if !bytes.Contains([]byte(x.ops), []byte(f.shape.Op)) {
		return false
	}
	if !f.cut {
		return f.id() == x.id && f.tail() == x.key
	}
	field, ok := f.shape.Field(idField(f.shape.Op))
	if !ok {
		return true
	}
	missing := 8 * max(field.Offset+field.Size-max(f.got, field.Offset), 0)
	return f.id()>>missing == x.id>>missing
}

// splitter cuts a byte stream into frames, preface first.
type splitter interface {
	// next takes a frame from the start of p and returns what is left. It is
	// false if the frame needs more bytes; an error ends the session.
	next(p []byte) (f frame, rest []byte, ok bool, err error)
	// begun is the frame under way, without a shape if there is none.
	begun() frame
}

// countSplitter consumes fixed fields by count.
type countSplitter struct{ dec *frames.Decoder }

func (c *countSplitter) next(p []byte) (frame, []byte, bool, error) {
	for len(p) > 0 {
		var pc frames.Piece
		pc, p = c.dec.Next(p)
		if pc.Kind == frames.Opaque {
			return frame{}, nil, false, c.dec.Err()
		}
		if pc.Last {
			return frame{shape: pc.Shape, raw: pc.Whole, got: len(pc.Whole)}, p, true, pc.Shape.Check(pc.Whole)
		}
	}
	return frame{}, nil, false, nil
}

func (c *countSplitter) begun() frame {
	s, b := c.dec.Pending()
	return frame{shape: s, raw: b, got: len(b), cut: true}
}

// newlineSplitter ends every frame at the first newline byte.
type newlineSplitter struct {
	g       *frames.Grammar
	greeted bool
	buf     []byte
}

// maxLine bounds the bytes that newlineSplitter keeps without a newline.
const maxLine = 1024

var errLine = errors.New("no newline within 1024 bytes")

func (n *newlineSplitter) next(p []byte) (frame, []byte, bool, error) {
	i := bytes.IndexByte(p, '\n')
	if i < 0 {
		n.buf = append(n.buf, p...)
		if len(n.buf) > maxLine {
			return frame{}, nil, false, errLine
		}
		return frame{}, nil, false, nil
	}
	line := append(n.buf, p[:i+1]...)
	n.buf = nil
	op := string(line[0])
	switch {
	case !n.greeted:
		op = "greeting"
		n.greeted = true
	case op == "\n":
		op = frames.OpKeepAlive
	}
	s, ok := n.g.Shape(frames.ServerToClient, op)
	if !ok {
		return frame{}, nil, false, fmt.Errorf("unknown op %q", op)
	}
	f := frame{shape: s, raw: line, got: len(line) - 1}
	if len(line) < s.Header+1 && s.Kind == frames.Message {
		f.cut = true
		f.raw = append(line[:f.got:f.got], make([]byte, s.Header-f.got)...)
		return f, p[i+1:], true, nil
	}
	return f, p[i+1:], true, s.Check(line)
}

func (n *newlineSplitter) begun() frame { return frame{} }
