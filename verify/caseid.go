package verify

import (
	"fmt"
	"strconv"
	"strings"

	"tornwire/frames"
)

// NoFault is the fault word of a workload's run without a fault.
const NoFault = "none"

// CaseID names a case (spec/cli.md): dialect, workload, and the frame, offset
// and fault. A run without a fault has only the fault word "none".
type CaseID struct {
	Dialect  string
	Workload string
	Frame    FrameID
	Offset   int
	Fault    string
}

// FrameID names a frame of a workload's exchange.
type FrameID struct {
	Session int // 0 where the session is not part of the name
	Dir     frames.Direction
	Op      string
	Nth     int // on any session, or on Session if that is set
}

// String returns the form used in case ids, "s2c.A.1" or "s2.s2c.greeting.1".
func (f FrameID) String() string {
	s := fmt.Sprintf("%s.%s.%d", f.Dir, f.Op, f.Nth)
	if f.Session > 0 {
		return fmt.Sprintf("s%d.%s", f.Session, s)
	}
	return s
}

// String returns the id.
func (c CaseID) String() string {
	if c.Fault == NoFault {
		return c.Dialect + "/" + c.Workload + "/" + NoFault
	}
	return fmt.Sprintf("%s/%s/%s@%d:%s", c.Dialect, c.Workload, c.Frame, c.Offset, c.Fault)
}

// inSession is the session in which the frame is counted, 0 for any: a preface
// line without one is the first session's.
func (f FrameID) inSession() int {
	if f.Session == 0 && len(f.Op) > 1 && f.Op != frames.OpKeepAlive {
		return 1
	}
	return f.Session
}

// plain is the id without a story, which has no short limit: a rule's id has.
func (c CaseID) plain() string {
	if parent, _, ok := splitStory(c.Workload); ok {
		c.Workload = parent
	}
	return c.String()
}

const caseForm = "dialect/workload/direction.op.nth@offset:fault"

// ParseCaseID reads an id. It checks the form only, not whether there is such a
// case.
func ParseCaseID(s string) (CaseID, error) {
	parts := caseParts(s)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return CaseID{}, fmt.Errorf("case id %q is not of the form %s", s, caseForm)
	}
	id := CaseID{Dialect: parts[0], Workload: parts[1]}
	if parts[2] == NoFault {
		id.Fault = NoFault
		return id, nil
	}
	frame, rest, ok := strings.Cut(parts[2], "@")
	off, fault, ok2 := strings.Cut(rest, ":")
	k, err := strconv.Atoi(off)
	if !ok || !ok2 || err != nil || k < 0 || fault == "" || fault == NoFault || strconv.Itoa(k) != off {
		return CaseID{}, fmt.Errorf("case id %q: %q is not of the form direction.op.nth@offset:fault", s, parts[2])
	}
	id.Offset, id.Fault = k, fault
	if id.Frame, err = parseFrameID(frame); err != nil {
		return CaseID{}, fmt.Errorf("case id %q: %w", s, err)
	}
	return id, nil
}

// caseParts splits an id. The story of a workload may have any key in it.
func caseParts(s string) []string {
	open, end := strings.IndexByte(s, '['), strings.LastIndexByte(s, ']')
	if open < 0 || end < open {
		return strings.Split(s, "/")
	}
	parts := strings.Split(s[:open], "/")
	parts[len(parts)-1] += s[open : end+1]
	rest := strings.Split(s[end+1:], "/")
	parts[len(parts)-1] += rest[0]
	return append(parts, rest[1:]...)
}

func parseFrameID(s string) (FrameID, error) {
	bad := fmt.Errorf("frame %q is not of the form direction.op.nth", s)
	parts := strings.Split(s, ".")
	var f FrameID
	if len(parts) == 4 {
		n, err := strconv.Atoi(strings.TrimPrefix(parts[0], "s"))
		if err != nil || n < 1 || parts[0] != fmt.Sprintf("s%d", n) {
			return f, bad
		}
		f.Session, parts = n, parts[1:]
	}
	if len(parts) != 3 || parts[1] == "" {
		return f, bad
	}
	var err error
	if f.Dir, err = frames.ParseDirection(parts[0]); err != nil {
		return f, err
	}
	f.Op = parts[1]
	if f.Nth, err = strconv.Atoi(parts[2]); err != nil || f.Nth < 1 || strconv.Itoa(f.Nth) != parts[2] {
		return f, bad
	}
	return f, nil
}
