package scenarios

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a scenario.
type Problem struct {
	File    string // "" where it came in a request
	Line    int    // from 1; 0 where there is none
	Path    string // of the key, such as "steps.3.when.frame"; "" for the whole
	Message string
}

// String is "FILE:LINE: message", with as much of the place as there is.
func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Message
	case p.Line == 0:
		return fmt.Sprintf("%s: %s", p.File, p.Message)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// Problems are all that is wrong with a scenario, in the order of their lines.
type Problems []Problem

// Error has a line for each.
func (p Problems) Error() string {
	out := make([]string, len(p))
	for i, o := range p {
		out[i] = o.String()
	}
	return strings.Join(out, "\n")
}
