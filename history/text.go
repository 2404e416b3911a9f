package history

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// line is an event as it is written: Bytes has each text that is not UTF-8, by the
// JSON name of its field.
type line struct {
	*Event
	Bytes map[string]Hex `json:"bytes,omitempty"`
}

// texts maps the JSON names of the text fields of an event to their places in it.
var texts = textsOf(reflect.TypeFor[Event](), "", nil)

// frameRef is the place of the one field of an event that can be missing.
var frameRef = func() int {
	f, _ := reflect.TypeFor[Event]().FieldByName("Frame")
	return f.Index[0]
}()

type text struct {
	name string
	at   []int
}

func textsOf(t reflect.Type, prefix string, at []int) []text {
	var out []text
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		here := append(append([]int{}, at...), i)
		switch {
		case f.Type.Kind() == reflect.String:
			out = append(out, text{prefix + name, here})
		case f.Type.Kind() == reflect.Pointer:
			out = append(out, textsOf(f.Type.Elem(), prefix+name+".", here)...)
		}
	}
	return out
}

// lineOf is the line of an event.
func lineOf(e *Event) line {
	l := line{Event: e}
	v := reflect.ValueOf(e).Elem()
	for _, x := range texts {
		if x.at[0] == frameRef && e.Frame == nil {
			continue
		}
		if s := v.FieldByIndex(x.at).String(); !utf8.ValidString(s) {
			if l.Bytes == nil {
				l.Bytes = map[string]Hex{}
			}
			l.Bytes[x.name] = Hex(s)
		}
	}
	return l
}

// restore puts the texts of Bytes into the event.
func (l *line) restore() error {
	v := reflect.ValueOf(l.Event).Elem()
	left := len(l.Bytes)
	for _, x := range texts {
		b, ok := l.Bytes[x.name]
		if !ok {
			continue
		}
		if x.at[0] == frameRef && l.Frame == nil {
			return fmt.Errorf("bytes of %q, which the event does not have", x.name)
		}
		v.FieldByIndex(x.at).SetString(string(b))
		left--
	}
	if left > 0 {
		return fmt.Errorf("bytes of a field that holds no text")
	}
	return nil
}
