package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tornwire/faults"
)

// Error is a request that was refused, as it is told to who made it. The texts
// and codes are those of toxiproxy 2.12.0 where it has one for the same thing.
type Error struct {
	Message string `json:"error"`
	Status  int    `json:"status"`
	// Field is the first field that is wrong, as a path such as "fault.at".
	Field string `json:"field,omitempty"`
	// Problems are all of them, if there are several.
	Problems []Problem `json:"problems,omitempty"`

	cause  error
	ofBody bool // it is about the body of the request
}

// Problem is what is wrong with one field.
type Problem struct {
	Field  string `json:"field"`
	Reason string `json:"error"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what has caused the error, or nil.
func (e *Error) Unwrap() error { return e.cause }

func newError(status int, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Status: status}
}

// The errors that toxiproxy has too.
var (
	errProxyNotFound = newError(http.StatusNotFound, "proxy not found")
	errProxyExists   = newError(http.StatusConflict, "proxy already exists")
)

var (
	errRuleNotFound = newError(http.StatusNotFound, "rule not found")
	errRuleExists   = newError(http.StatusConflict, "rule already exists")
	errBusy         = newError(http.StatusServiceUnavailable, "another change of this proxy is not over yet; try again")
	errClosed       = newError(http.StatusServiceUnavailable, "the daemon is stopping")
)

// problems collects what is wrong with a request.
type problems []Problem

// add adds one whose text goes on behind the name of the field.
func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, Problem{field, field + " " + fmt.Sprintf(format, args...)})
}

// missingText is how toxiproxy says that a field has to be there.
const missingText = "missing required field: "

// missing adds a field that has to be there.
func (p *problems) missing(field string) {
	*p = append(*p, Problem{field, missingText + field})
}

// has tells whether there is a problem with a field or with a part of it.
func (p problems) has(field string) bool {
	for _, o := range p {
		if o.Field == field || strings.HasPrefix(o.Field, field+".") {
			return true
		}
	}
	return false
}

// merge adds the field errors that err is made of, but one for a field that has
// a problem already. It returns what is no field error.
func (p *problems) merge(err error) error {
	var field *faults.FieldError
	many, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		var rest []error
		for _, e := range many.Unwrap() {
			rest = append(rest, p.merge(e))
		}
		return errors.Join(rest...)
	case errors.As(err, &field):
		if !p.has(field.Field) {
			*p = append(*p, Problem{field.Field, field.Reason})
		}
		return nil
	}
	return err
}

// err returns one error for all problems, or nil.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	var texts []string
	for _, o := range p {
		texts = append(texts, o.Reason)
	}
	e := newError(http.StatusBadRequest, "%s", strings.Join(texts, "; "))
	e.Field, e.ofBody = p[0].Field, true
	if !slices.ContainsFunc(texts, func(s string) bool { return !strings.HasPrefix(s, missingText) }) {
		e.Message, e.ofBody = texts[0], false // toxiproxy tells of one, and of nothing else
	}
	if len(p) > 1 {
		e.Problems = p
	}
	return e
}

// asError returns what is told about an error.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return newError(http.StatusInternalServerError, "%s", err)
}
