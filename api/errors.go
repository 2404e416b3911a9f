package api

import (
	"errors"
	"fmt"
	"net/http"
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

// asError returns what is told about an error.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return newError(http.StatusInternalServerError, "%s", err)
}
