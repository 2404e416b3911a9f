package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// tree reads TOML as the JSON that says the same, and finds the lines of its keys.
func tree(file string, source []byte) ([]byte, lines, error) {
	if len(source) > MaxSource {
		return nil, nil, Problems{{File: file, Message: fmt.Sprintf("it has %d bytes, over %d", len(source), MaxSource)}}
	}
	var top map[string]any
	if err := toml.Unmarshal(source, &top); err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return nil, nil, Problems{{File: file, Line: syntax.Position.Line, Message: strings.TrimPrefix(syntax.Message, "toml: ")}}
		}
		return nil, nil, Problems{{File: file, Message: err.Error()}}
	}
	at := linesOf(string(source))
	if bad := strange("", top); len(bad) > 0 {
		sort.Strings(bad)
		var out Problems
		for _, path := range bad {
			out = append(out, Problem{File: file, Line: at.of(path), Path: path, Message: path + " is a date, a time or no finite number, which nothing here can be"})
		}
		return nil, nil, out
	}
	b, err := json.Marshal(top)
	return b, at, err
}

// strange lists the paths of values that JSON has no form for, or another one.
func strange(path string, v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			out = append(out, strange(join(path, name), below)...)
		}
	case []map[string]any:
		for i, below := range v {
			out = append(out, strange(join(path, strconv.Itoa(i)), below)...)
		}
	case []any:
		for i, below := range v {
			out = append(out, strange(join(path, strconv.Itoa(i)), below)...)
		}
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			out = append(out, path)
		}
	case time.Time:
		out = append(out, path)
	case string, bool, int64:
	default: // local dates and times
		out = append(out, path)
	}
	return out
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// lines has the line of each key and table, from 1, by its path, such as "steps.3.when".
type lines map[string]int

// of finds the line of a path: its own, or that of what it is part of.
func (l lines) of(path string) int {
	for {
		if n, ok := l[path]; ok {
			return n
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return 1
		}
		path = path[:i]
	}
}

// linesOf reads where keys stand in TOML that is right.
func linesOf(source string) lines {
	s := scanner{rest: source, line: 1, at: lines{}, arrays: map[string]int{}}
	for s.rest != "" {
		s.statement()
	}
	return s.at
}

// scanner goes through TOML that was found to be right, a statement at a time.
type scanner struct {
	rest   string
	line   int
	table  string         // path of the table that keys belong to
	arrays map[string]int // elements of arrays of tables so far
	at     lines
}

// next takes a byte.
func (s *scanner) next() byte {
	c := s.rest[0]
	if s.rest = s.rest[1:]; c == '\n' {
		s.line++
	}
	return c
}

func (s *scanner) has(prefix string) bool { return strings.HasPrefix(s.rest, prefix) }

// blank skips spaces, and with newlines also those and comments.
func (s *scanner) blank(newlines bool) {
	for s.rest != "" {
		switch c := s.rest[0]; {
		case c == ' ' || c == '\t' || c == '\r', newlines && c == '\n':
			s.next()
		case c == '#' && newlines:
			s.comment()
		default:
			return
		}
	}
}

func (s *scanner) comment() {
	for s.rest != "" && s.rest[0] != '\n' {
		s.next()
	}
}

// statement takes a table's header, or a key and its value.
func (s *scanner) statement() {
	s.blank(true)
	line := s.line
	switch {
	case s.rest == "":
	case s.has("[["):
		s.rest = s.rest[2:]
		path := s.resolve(s.key())
		n := s.arrays[path]
		s.arrays[path] = n + 1
		if n == 0 {
			s.note(path, line)
		}
		s.table = join(path, strconv.Itoa(n))
		s.note(s.table, line)
		s.rest = strings.TrimPrefix(s.rest, "]]")
	case s.has("["):
		s.next()
		s.table = s.resolve(s.key())
		s.note(s.table, line)
		s.rest = strings.TrimPrefix(s.rest, "]")
	default:
		s.pair(s.table)
	}
}

// note remembers the first line of a path.
func (s *scanner) note(path string, line int) {
	if _, ok := s.at[path]; !ok {
		s.at[path] = line
	}
}

// resolve makes the path of a table: an array of tables in it means its last element.
func (s *scanner) resolve(key []string) string {
	path := ""
	for i, name := range key {
		path = join(path, name)
		if n := s.arrays[path]; n > 0 && i < len(key)-1 {
			path = join(path, strconv.Itoa(n-1))
		}
	}
	return path
}

// pair takes a key and its value, which belong to a table.
func (s *scanner) pair(table string) {
	line := s.line
	path := table
	for _, name := range s.key() {
		path = join(path, name)
		s.note(path, line)
	}
	if s.has("=") {
		s.next()
		s.blank(false)
		s.value(path)
		return
	}
	if s.rest != "" { // not TOML after all
		s.next()
	}
}

// key takes a dotted key.
func (s *scanner) key() (out []string) {
	for {
		s.blank(false)
		var name string
		switch {
		case s.has(`"`), s.has("'"):
			quoted := s.text()
			if name = strings.Trim(quoted, `'"`); strings.HasPrefix(quoted, `"`) {
				if plain, err := strconv.Unquote(quoted); err == nil {
					name = plain
				}
			}
		default:
			i := strings.IndexAny(s.rest, ".=] \t\n")
			if i < 0 {
				i = len(s.rest)
			}
			name, s.rest = s.rest[:i], s.rest[i:]
		}
		out = append(out, name)
		s.blank(false)
		if !s.has(".") {
			return out
		}
		s.next()
	}
}

// text takes a string, and returns it with its quotes.
func (s *scanner) text() string {
	from := s.rest
	mark := s.rest[:1]
	if long := strings.Repeat(mark, 3); s.has(long) {
		mark = long
	}
	for range mark {
		s.next()
	}
	for s.rest != "" && !s.has(mark) {
		if c := s.next(); c == '\\' && mark[0] == '"' && s.rest != "" {
			s.next()
		}
	}
	for i := 0; i < len(mark) && s.rest != ""; i++ {
		s.next()
	}
	for len(mark) == 3 && s.has(mark[:1]) { // up to two quotes at the end belong to the text
		s.next()
	}
	return from[:len(from)-len(s.rest)]
}

// value takes a value. The keys of inline tables have lines, too.
func (s *scanner) value(path string) {
	switch {
	case s.rest == "":
	case s.has(`"`), s.has("'"):
		s.text()
	case s.has("["):
		s.next()
		for n := 0; ; n++ {
			if s.blank(true); s.rest == "" || s.has("]") {
				break
			}
			s.note(join(path, strconv.Itoa(n)), s.line)
			s.value(join(path, strconv.Itoa(n)))
			if s.blank(true); s.has(",") {
				s.next()
			}
		}
		s.close()
	case s.has("{"):
		s.next()
		for {
			if s.blank(true); s.rest == "" || s.has("}") {
				break
			}
			s.pair(path)
			if s.blank(true); s.has(",") {
				s.next()
			}
		}
		s.close()
	default:
		i := strings.IndexAny(s.rest, ",]}#\n")
		switch {
		case i < 0:
			s.rest = ""
		case i == 0:
			s.next()
		default:
			s.rest = s.rest[i:]
		}
	}
}

func (s *scanner) close() {
	if s.rest != "" {
		s.next()
	}
}
