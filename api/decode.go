package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tornwire/internal/words"
)

// object reads a JSON object strictly: its names are exact, none may be there
// twice, and one that nobody asked for is a problem. A member that is null counts
// as left out.
type object struct {
	path    string // of its members, "" or ending in a dot
	members map[string]json.RawMessage
	asked   []string
	bad     *problems
}

// parse reads a body, which must be one JSON object and no more.
func parse(body []byte) (*object, *problems, error) {
	bad := new(problems)
	if !utf8.Valid(body) {
		return nil, nil, badBody("it is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	var whole json.RawMessage
	if err := dec.Decode(&whole); err != nil {
		return nil, nil, badBody("%v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, badBody("there is more behind the object")
	}
	if whole[0] != '{' {
		return nil, nil, badBody("%s is not an object", excerpt(whole))
	}
	return newObject("", whole, bad), bad, nil
}

func badBody(format string, args ...any) error {
	return newError(http.StatusBadRequest, "bad request body: "+format, args...)
}

// newObject takes an object apart; raw is valid JSON.
func newObject(path string, raw json.RawMessage, bad *problems) *object {
	o := &object{path: path, members: map[string]json.RawMessage{}, bad: bad}
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
			o.problem(name, "is there twice")
		}
		o.members[name] = value
	}
	return o
}

// excerptLimit is how many bytes of a wrong value are repeated.
const excerptLimit = 60

// excerpt is a value as it is repeated in an error.
func excerpt(raw []byte) string {
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

func (o *object) problem(name, format string, args ...any) {
	o.bad.add(o.path+name, format, args...)
}

// raw returns a member, nil if it is left out or null.
func (o *object) raw(name string) json.RawMessage {
	o.asked = append(o.asked, name)
	if v := o.members[name]; string(v) != "null" {
		return v
	}
	return nil
}

// isNull tells whether a member is there and is null.
func (o *object) isNull(name string) bool { return string(o.members[name]) == "null" }

// read reads a member into to. It is false, and to is as it was, if the member is
// left out or is not what it has to be.
func read[T any](o *object, name, what string, to *T) bool {
	raw := o.raw(name)
	if raw == nil {
		return false
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		o.problem(name, "is %s, not %s", excerpt(raw), what)
		return false
	}
	*to = v
	return true
}

func (o *object) text(name string, to *string) bool { return read(o, name, "a string", to) }

func (o *object) flag(name string, to *bool) bool { return read(o, name, "true or false", to) }

// count reads a whole number from 0.
func (o *object) count(name string, to *int) bool {
	var v uint32
	if !read(o, name, "a whole number from 0 to 4294967295", &v) {
		return false
	}
	*to = int(v)
	return true
}

func (o *object) number(name string, to *float64) bool { return read(o, name, "a number", to) }

// span reads a duration with its unit.
func (o *object) span(name string, to *time.Duration) bool {
	var s string
	const what = `a duration with its unit, such as "250ms"`
	if !read(o, name, what, &s) {
		return false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		o.problem(name, "is %s, not %s", strconv.Quote(s), what)
		return false
	}
	*to = d
	return true
}

// object reads a member that is an object; nil if there is none.
func (o *object) object(name string) *object {
	raw := o.raw(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		o.problem(name, "is %s, not an object", excerpt(raw))
		return nil
	}
	return newObject(o.path+name+".", raw, o.bad)
}

// names lists the members in alphabetical order.
func (o *object) names() []string { return slices.Sorted(maps.Keys(o.members)) }

// done reports the members that nobody asked for.
func (o *object) done() {
	for _, name := range o.names() {
		if !slices.Contains(o.asked, name) {
			o.problem(name, "is no field that there is%s", words.DidYouMean(name, o.asked))
		}
	}
}

// oneOf says that a word is none of a list.
func oneOf(word string, list []string, what string) string {
	return fmt.Sprintf("is %q, and there is no such %s%s; there are %s", word, what, words.DidYouMean(word, list), strings.Join(list, ", "))
}
