package faults

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tornwire/frames"
)

// MaxPattern is the longest pattern of a condition, in bytes.
const MaxPattern = 1024

// cond is one condition on a frame.
type cond struct {
	name   string
	part                 // of shape
	shape  *frames.Shape // if it was known beforehand
	lo, hi uint64        // of a number
	number bool          // the pattern can be one
	text   string
	exact  bool // the text has neither * nor ?
}

// part is what a name stands for in frames of a shape.
type part struct {
	field         frames.Field
	isField, tail bool
}

func partOf(s *frames.Shape, name string) part {
	f, ok := s.Field(name)
	return part{field: f, isField: ok, tail: !ok && s.Tail.Name == name}
}

// Answer is what is known of a rule's conditions when a part of a frame is there.
type Answer uint8

// The answers.
const (
	No Answer = iota
	Yes
	Unknown // more of the frame is needed
)

// Where asks the rule's conditions of a frame of which the bytes have are there.
func (r *Rule) Where(s *frames.Shape, have []byte, whole bool) Answer {
	out := Yes
	for i := range r.conds {
		switch r.conds[i].ask(s, have, whole) {
		case No:
			return No
		case Unknown:
			out = Unknown
		}
	}
	return out
}

func (c *cond) ask(s *frames.Shape, have []byte, whole bool) Answer {
	p := &c.part
	if s != c.shape {
		of := partOf(s, c.name)
		p = &of
	}
	if p.isField {
		switch v, ok := p.field.Uint(have); {
		case !ok && !whole:
			return Unknown
		case ok && c.number && v >= c.lo && v <= c.hi:
			return Yes
		}
		return No
	}
	switch {
	case !p.tail:
		return No
	case !whole:
		return Unknown
	case c.exact && string(s.TailOf(have)) == c.text, !c.exact && match(c.text, s.TailOf(have)):
		return Yes
	}
	return No
}

// compile makes conditions of Trigger.Where, for frames of a shape if that is known.
func compile(where map[string]string, s *frames.Shape) ([]cond, error) {
	var out []cond
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(where)) {
		p := where[name]
		if len(p) > MaxPattern {
			errs = append(errs, fieldf("where."+name, "the pattern has %d bytes, not up to %d", len(p), MaxPattern))
			continue
		}
		c := cond{name: name, text: p, exact: !strings.ContainsAny(p, "*?")}
		c.lo, c.hi, c.number = numbers(p)
		if s != nil {
			c.shape, c.part = s, partOf(s, name)
		}
		out = append(out, c)
	}
	return out, errors.Join(errs...)
}

// match tells whether a pattern fits all of text, byte by byte. When it fails it
// gives the last * one byte more: that of an earlier one need never grow.
func match(pattern string, text []byte) bool {
	p, i := 0, 0
	star, from := -1, 0 // the last *, and where the text behind its run begins
	for i < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[i]):
			p++
			i++
		case star >= 0:
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// numbers reads a number or a range of numbers.
func numbers(p string) (lo, hi uint64, ok bool) {
	first, last, isRange := strings.Cut(p, "..")
	if !isRange {
		last = first
	}
	lo, err := parseNumber(first)
	hi, err2 := parseNumber(last)
	return lo, hi, err == nil && err2 == nil && lo <= hi
}

// parseNumber reads a decimal number, or a hexadecimal one behind 0x.
func parseNumber(s string) (uint64, error) {
	if x, ok := strings.CutPrefix(s, "0x"); ok {
		return strconv.ParseUint(x, 16, 64)
	}
	return strconv.ParseUint(s, 10, 64)
}

// checkWhere tells which conditions no frame of a shape meets.
func checkWhere(where map[string]string, s *frames.Shape) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(where)) {
		f, isField := s.Field(name)
		lo, _, number := numbers(where[name])
		switch {
		case !isField && (name != s.Tail.Name || name == ""):
			errs = append(errs, fieldf("where."+name, "%s.%s has no %q; it has %s", s.Dir, s.Op, name, partsOf(s)))
		case isField && !number:
			errs = append(errs, fieldf("where."+name, "%q is no number, nor a range such as 5..9", where[name]))
		case isField && lo > f.Max():
			errs = append(errs, fieldf("where."+name, "%d is over %d, the most that %s holds", lo, f.Max(), name))
		}
	}
	return errors.Join(errs...)
}

// partsOf lists what conditions on a shape can name.
func partsOf(s *frames.Shape) string {
	var names []string
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	if s.Tail.Name != "" {
		names = append(names, s.Tail.Name)
	}
	if len(names) == 0 {
		return "nothing that a condition can name"
	}
	return strings.Join(names, ", ")
}
