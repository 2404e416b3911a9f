// Package strict reads JSON objects strictly: unknown members, wrong types and units, and
// members that are there twice are problems, and all of them are told at once, each with the
// path of its member.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tornwire/faults"
	"tornwire/internal/words"
)

// Object reads a JSON object strictly: its names are exact, none may be there
// twice, and one that nobody asked for is a problem. A member that is null counts
// as left out.
type Object struct {
	Path    string // of its members, "" or ending in a dot
	members map[string]json.RawMessage
	asked   []string
	Bad     *Problems
}

// Parse reads a body, which must be one JSON object and no more.
func Parse(body []byte) (*Object, *Problems, error) {
	bad := new(Problems)
	if !utf8.Valid(body) {
		return nil, nil, errors.New("it is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	var whole json.RawMessage
	if err := dec.Decode(&whole); err != nil {
		return nil, nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is more behind the object")
	}
	if whole[0] != '{' {
		return nil, nil, fmt.Errorf("%s is not an object", Excerpt(whole))
	}
	return NewObject("", whole, bad), bad, nil
}

// NewObject takes an object apart; raw is valid JSON.
func NewObject(path string, raw json.RawMessage, bad *Problems) *Object {
	o := &Object{Path: path, members: map[string]json.RawMessage{}, Bad: bad}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token()
	for dec.More() {
		key, _ := dec.Token()
		name, _ := key.(string)
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			break
		}
		if _, twice := o.members[name]; twice {
			o.Problem(name, "is there twice")
		}
		o.members[name] = value
	}
	return o
}

// excerptLimit is how many bytes of a wrong value are repeated.
const excerptLimit = 60

// Excerpt is a value as it is repeated in an error.
func Excerpt(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "this"
	}
	if b.Len() > excerptLimit {
		cut := b.Bytes()[:excerptLimit]
		for !utf8.Valid(cut) {
			cut = cut[:len(cut)-1]
		}
		return string(cut) + "…"
	}
	return b.String()
}

func (o *Object) Problem(name, format string, args ...any) {
	o.Bad.Add(o.Path+name, format, args...)
}

// Raw returns a member, nil if it is left out or null.
func (o *Object) Raw(name string) json.RawMessage {
	o.asked = append(o.asked, name)
	if v := o.members[name]; string(v) != "null" {
		return v
	}
	return nil
}

// IsNull tells whether a member is there and is null.
func (o *Object) IsNull(name string) bool { return string(o.members[name]) == "null" }

// Read reads a member into to. It is false, and to is as it was, if the member is
// left out or is not what it has to be.
func Read[T any](o *Object, name, what string, to *T) bool {
	raw := o.Raw(name)
	if raw == nil {
		return false
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		o.Problem(name, "is %s, not %s", Excerpt(raw), what)
		return false
	}
	*to = v
	return true
}

func (o *Object) Text(name string, to *string) bool { return Read(o, name, "a string", to) }

func (o *Object) Flag(name string, to *bool) bool { return Read(o, name, "true or false", to) }

// Count reads a whole number from 0.
func (o *Object) Count(name string, to *int) bool {
	var v uint32
	if !Read(o, name, "a whole number from 0 to 4294967295", &v) {
		return false
	}
	*to = int(v)
	return true
}

func (o *Object) Number(name string, to *float64) bool { return Read(o, name, "a number", to) }

// Span reads a duration with its unit.
func (o *Object) Span(name string, to *time.Duration) bool {
	var s string
	const what = `a duration with its unit, such as "250ms"`
	if !Read(o, name, what, &s) {
		return false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		o.Problem(name, "is %s, not %s", strconv.Quote(s), what)
		return false
	}
	*to = d
	return true
}

// Object reads a member that is an object; nil if there is none.
func (o *Object) Object(name string) *Object {
	raw := o.Raw(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		o.Problem(name, "is %s, not an object", Excerpt(raw))
		return nil
	}
	return NewObject(o.Path+name+".", raw, o.Bad)
}

// Names lists the members in alphabetical order.
func (o *Object) Names() []string { return slices.Sorted(maps.Keys(o.members)) }

// Asked takes over which members another view of the same object was asked for.
func (o *Object) Asked(other *Object) { o.asked = other.asked }

// Done reports the members that nobody asked for.
func (o *Object) Done() {
	for _, name := range o.Names() {
		if !slices.Contains(o.asked, name) {
			o.Problem(name, "is no field that there is%s", words.DidYouMean(name, o.asked))
		}
	}
}

// OneOf says that a word is none of a list.
func OneOf(word string, list []string, what string) string {
	return fmt.Sprintf("is %q, and there is no such %s%s; there are %s", word, what, words.DidYouMean(word, list), strings.Join(list, ", "))
}

// Problem is what is wrong with one field.
type Problem struct {
	Field  string `json:"field"`
	Reason string `json:"error"`
}

// Problems collects what is wrong with what was read.
type Problems []Problem

// Add adds one whose text goes on behind the name of the field.
func (p *Problems) Add(field, format string, args ...any) {
	*p = append(*p, Problem{field, field + " " + fmt.Sprintf(format, args...)})
}

// MissingText is how toxiproxy says that a field has to be there.
const MissingText = "missing required field: "

// Missing adds a field that has to be there.
func (p *Problems) Missing(field string) {
	*p = append(*p, Problem{field, MissingText + field})
}

// Has tells whether there is a problem with a field or with a part of it.
func (p Problems) Has(field string) bool {
	for _, o := range p {
		if o.Field == field || strings.HasPrefix(o.Field, field+".") {
			return true
		}
	}
	return false
}

// MergeAt is Merge for field errors whose fields are members of the object at a path, "" or
// ending in a dot.
func (p *Problems) MergeAt(path string, err error) error {
	if path == "" {
		return p.Merge(err)
	}
	var below Problems
	for _, o := range *p {
		below = append(below, Problem{strings.TrimPrefix(o.Field, path), o.Reason})
	}
	n := len(below)
	rest := below.Merge(err)
	for _, o := range below[n:] {
		*p = append(*p, Problem{path + o.Field, o.Reason})
	}
	return rest
}

// Merge adds the field errors that err is made of, but one for a field that has
// a problem already. It returns what is no field error.
func (p *Problems) Merge(err error) error {
	var field *faults.FieldError
	many, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		var rest []error
		for _, e := range many.Unwrap() {
			rest = append(rest, p.Merge(e))
		}
		return errors.Join(rest...)
	case errors.As(err, &field):
		if !p.Has(field.Field) {
			*p = append(*p, Problem{field.Field, field.Reason})
		}
		return nil
	}
	return err
}
