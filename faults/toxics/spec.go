package toxics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/Shopify/toxiproxy/v2/stream"

	"tornwire/frames"
)

// The streams.
const (
	Upstream   = "upstream"   // from the client to the server
	Downstream = "downstream" // from the server to the client
)

// Attributes are the arguments of a toxic by name, in the units of its type.
type Attributes map[string]int64

// Spec describes a toxic as toxiproxy's API does.
type Spec struct {
	Name   string // TYPE_STREAM if empty
	Type   string
	Stream string // Downstream if empty
	// Toxicity is the part of the sessions that the toxic acts on, 0 to 1. It is 1
	// if JSON leaves it out; the zero Spec has 0, none.
	Toxicity   float64
	Attributes Attributes
}

var fields = []string{"name", "type", "stream", "toxicity", "attributes"}

// MarshalJSON writes the five fields of toxiproxy's API.
func (s Spec) MarshalJSON() ([]byte, error) {
	a := s.Attributes
	if a == nil {
		a = Attributes{}
	}
	return json.Marshal(struct {
		Attributes Attributes `json:"attributes"`
		Name       string     `json:"name"`
		Type       string     `json:"type"`
		Stream     string     `json:"stream"`
		Toxicity   float64    `json:"toxicity"`
	}{a, s.Name, s.Type, s.Stream, s.Toxicity})
}

// UnmarshalJSON reads the form of toxiproxy's API. A field that is left out or
// null has its default. It refuses what New refuses, unknown fields, and
// attributes that are not whole numbers in digits, all problems in one error.
func (s *Spec) UnmarshalJSON(data []byte) error {
	read := Spec{Toxicity: 1}
	if err := read.merge(data); err != nil {
		return err
	}
	whole, err := read.filled()
	if err != nil {
		return err
	}
	*s = whole
	return nil
}

// Patched returns the toxic with the toxicity and the attributes that a JSON
// object has; what it leaves out stays. The other fields may be there, but only
// as they are.
func (s Spec) Patched(data []byte) (Spec, error) {
	was, err := s.filled()
	if err != nil {
		return Spec{}, err
	}
	is := was
	is.Attributes = maps.Clone(was.Attributes)
	if err := is.merge(data); err != nil {
		return Spec{}, err
	}
	if is, err = is.filled(); err != nil {
		return Spec{}, err
	}
	for _, f := range [][3]string{{"name", was.Name, is.Name}, {"type", was.Type, is.Type}, {"stream", was.Stream, is.Stream}} {
		if f[1] != f[2] {
			return Spec{}, fmt.Errorf("%s is %q and cannot be changed to %q", f[0], f[1], brief(f[2]))
		}
	}
	return is, nil
}

// merge sets the fields that a JSON object has.
func (s *Spec) merge(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("a toxic is a JSON object: %w", err)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !slices.Contains(fields, name) {
			problems = append(problems, fmt.Errorf("field %q is none of %s", brief(name), strings.Join(fields, ", ")))
		}
	}
	for name, to := range map[string]*string{"name": &s.Name, "type": &s.Type, "stream": &s.Stream} {
		if v, ok := raw[name]; ok && json.Unmarshal(v, to) != nil {
			problems = append(problems, fmt.Errorf("%s is %s, not a string", name, brief(string(v))))
		}
	}
	if v, ok := raw["toxicity"]; ok && json.Unmarshal(v, &s.Toxicity) != nil {
		problems = append(problems, fmt.Errorf("toxicity is %s, not a number from 0 to 1", brief(string(v))))
	}
	var attributes map[string]json.RawMessage
	if v, ok := raw["attributes"]; ok && json.Unmarshal(v, &attributes) != nil {
		problems = append(problems, fmt.Errorf("attributes is %s, not an object", brief(string(v))))
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := s.mergeAttribute(name, attributes[name]); err != nil {
			problems = append(problems, err)
		}
	}
	return sorted(problems)
}

func (s *Spec) mergeAttribute(name string, raw json.RawMessage) error {
	if s.Attributes == nil {
		s.Attributes = Attributes{}
	}
	text := string(bytes.TrimSpace(raw))
	v, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		s.Attributes[name] = v
		return nil
	}
	if t, unknown := typeOf(s.Type); unknown == nil && errors.Is(err, strconv.ErrRange) {
		a, none := t.attribute(name)
		if none != nil {
			return none
		}
		return fmt.Errorf("attributes.%s is %s, not %d to %d", name, brief(text), a.Min, a.Max)
	}
	return fmt.Errorf("attributes.%s is %s, not a whole number in digits", brief(name), brief(text))
}

// filled returns the spec with its defaults and every attribute of its type, or
// all that is wrong with it.
func (s Spec) filled() (Spec, error) {
	var problems []error
	if s.Stream == "" {
		s.Stream = Downstream
	}
	if dir, err := stream.ParseDirection(s.Stream); err != nil {
		problems = append(problems, fmt.Errorf("stream %q is neither upstream nor downstream", brief(s.Stream)))
	} else {
		s.Stream = dir.String()
	}
	if !(s.Toxicity >= 0 && s.Toxicity <= 1) { // so that NaN is refused
		problems = append(problems, fmt.Errorf("toxicity is %v, not 0 to 1", s.Toxicity))
	}
	t, err := typeOf(s.Type)
	if err != nil {
		return Spec{}, sorted(append(problems, err))
	}
	if s.Name == "" {
		s.Name = s.Type + "_" + s.Stream
	}
	if len(s.Name) > MaxName {
		problems = append(problems, fmt.Errorf("name has %d bytes, not 1 to %d", len(s.Name), MaxName))
	}
	s.Attributes = maps.Clone(s.Attributes)
	if s.Attributes == nil {
		s.Attributes = Attributes{}
	}
	if wrong := t.check(s.Attributes); wrong != nil {
		return Spec{}, sorted(append(problems, wrong...))
	}
	return s, sorted(problems)
}

// check sets the attributes that are missing and tells what is wrong.
func (t *Type) check(a Attributes) []error {
	var problems []error
	for name := range a {
		if _, err := t.attribute(name); err != nil {
			problems = append(problems, err)
		}
	}
	for _, attr := range t.Attributes {
		v := a[attr.Name]
		a[attr.Name] = v
		if v < attr.Min || v > attr.Max {
			problems = append(problems, fmt.Errorf("attributes.%s is %d, not %d to %d", attr.Name, v, attr.Min, attr.Max))
		}
	}
	if problems == nil && t.odd != nil {
		if err := t.odd(a); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// sorted joins problems in an order that does not depend on maps.
func sorted(problems []error) error {
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// direction is the way of the bytes that a spec, filled, acts on.
func (s Spec) direction() frames.Direction {
	if s.Stream == Upstream {
		return frames.ClientToServer
	}
	return frames.ServerToClient
}
