package api

import (
	"net/http"
	"slices"
	"strings"

	"tornwire/internal/strict"
)

// Problem is what is wrong with one field.
type Problem = strict.Problem

// parse reads a body, which must be one JSON object and no more.
func parse(body []byte) (*strict.Object, *strict.Problems, error) {
	o, bad, err := strict.Parse(body)
	if err != nil {
		return nil, nil, badBody("%v", err)
	}
	return o, bad, nil
}

func badBody(format string, args ...any) error {
	return newError(http.StatusBadRequest, "bad request body: "+format, args...)
}

// refusal is one error for all problems, or nil.
func refusal(p strict.Problems) error {
	if len(p) == 0 {
		return nil
	}
	var texts []string
	for _, o := range p {
		texts = append(texts, o.Reason)
	}
	e := newError(http.StatusBadRequest, "%s", strings.Join(texts, "; "))
	e.Field, e.ofBody = p[0].Field, true
	if !slices.ContainsFunc(texts, func(s string) bool { return !strings.HasPrefix(s, strict.MissingText) }) {
		e.Message, e.ofBody = texts[0], false // toxiproxy tells of one, and of nothing else
	}
	if len(p) > 1 {
		e.Problems = p
	}
	return e
}
