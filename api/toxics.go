package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tornwire/faults/toxics"
	"tornwire/internal/strict"
	"tornwire/scenarios"
)

var (
	errToxicNotFound = newError(http.StatusNotFound, "toxic not found")
	errToxicExists   = newError(http.StatusConflict, "toxic already exists")
)

// stockToxic are the words that toxiproxy has for a field that is wrong.
var stockToxic = map[string]string{
	"type":   "invalid toxic type",
	"stream": "stream was invalid, can be either upstream or downstream",
}

// toxicError tells why package toxics refused something.
func toxicError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, toxics.ErrUnknown):
		return errToxicNotFound
	case errors.Is(err, toxics.ErrExists):
		return errToxicExists
	}
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	var bad strict.Problems
	toxicProblem(&bad, "", err)
	stock := stockToxic[bad[0].Field]
	if stock == "" || len(bad) > 1 {
		return refusal(bad)
	}
	e := newError(http.StatusBadRequest, "%s", stock)
	e.Field, e.Problems = bad[0].Field, bad
	return e
}

// toxicProblem adds what package toxics has told, a line each, which begins with the field.
func toxicProblem(p *strict.Problems, path string, err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		field, _, _ := strings.Cut(line, " ")
		if field == "field" { // one that there is not
			_, rest, _ := strings.Cut(line, `"`)
			field, _, _ = strings.Cut(rest, `"`)
		}
		*p = append(*p, Problem{Field: path + strings.TrimSuffix(field, ":"), Reason: path + line})
	}
}

// readToxic reads a toxic, or what changes on one.
func readToxic(body []byte, into func([]byte) error) error {
	o, bad, err := parse(body)
	if err != nil {
		return err
	}
	if raw := o.Raw("attributes"); raw != nil && raw[0] == '{' {
		o.Object("attributes") // for members that are there twice
	}
	if err := refusal(*bad); err != nil {
		return err
	}
	return toxicError(into(body))
}

// readToxics reads the toxics that a proxy begins with.
func (s *Settings) readToxics(o *strict.Object) {
	var list []json.RawMessage
	strict.Read(o, "toxics", "a list", &list)
	for i, raw := range list {
		path := fmt.Sprintf("toxics.%d.", i)
		if raw[0] != '{' {
			o.Problem("toxics", "has %s, not an object", strict.Excerpt(raw))
			continue
		}
		strict.NewObject(path, raw, o.Bad)
		var spec toxics.Spec
		if err := json.Unmarshal(raw, &spec); err != nil {
			toxicProblem(o.Bad, path, err)
			continue
		}
		if reason := scenarios.BadName(spec.Name); reason != "" {
			o.Bad.Add(path+"name", "%s", reason)
		}
		s.Toxics = append(s.Toxics, spec)
	}
}

// Toxics lists the toxics of a proxy as toxiproxy does: those of the upstream
// direction first, each direction in the order in which bytes go through them.
func (m *Manager) Toxics(name string) ([]toxics.Spec, error) {
	d, err := m.find(name)
	if err != nil {
		return nil, err
	}
	return d.toxics(), nil
}

func (d *member) toxics() []toxics.Spec {
	specs := d.stages().Specs()
	slices.SortStableFunc(specs, func(a, b toxics.Spec) int { return strings.Compare(b.Stream, a.Stream) })
	return specs
}

// Toxic finds a toxic of a proxy.
func (m *Manager) Toxic(name, toxic string) (toxics.Spec, error) {
	d, err := m.find(name)
	if err != nil {
		return toxics.Spec{}, err
	}
	spec, ok := d.stages().Spec(toxic)
	if !ok {
		return toxics.Spec{}, errToxicNotFound
	}
	return spec, nil
}

// AddToxic puts a toxic behind those of a proxy, at most toxics.MaxStages.
func (m *Manager) AddToxic(ctx context.Context, name string, spec toxics.Spec) (toxics.Spec, error) {
	return spec, m.setToxics(ctx, name, "toxic added", spec.Name, func(l *toxics.List) (*toxics.List, error) {
		if n := len(l.Specs()); n >= toxics.MaxStages {
			return nil, newError(statusFull, "there are %d toxics, and no more are possible", n)
		}
		return l.With(spec)
	})
}

// ChangeToxic changes a toxic of a proxy.
func (m *Manager) ChangeToxic(ctx context.Context, name, toxic string, change func(toxics.Spec) (toxics.Spec, error)) (toxics.Spec, error) {
	var spec toxics.Spec
	err := m.setToxics(ctx, name, "toxic changed", toxic, func(l *toxics.List) (*toxics.List, error) {
		was, ok := l.Spec(toxic)
		if !ok {
			return nil, errToxicNotFound
		}
		var err error
		if spec, err = change(was); err != nil {
			return nil, err
		}
		return l.Replace(toxic, spec)
	})
	return spec, err
}

// RemoveToxic removes a toxic from a proxy.
func (m *Manager) RemoveToxic(ctx context.Context, name, toxic string) error {
	return m.setToxics(ctx, name, "toxic removed", toxic, func(l *toxics.List) (*toxics.List, error) { return l.Without(toxic) })
}

func (m *Manager) setToxics(ctx context.Context, name, done, toxic string, next func(*toxics.List) (*toxics.List, error)) error {
	return m.change(ctx, name, func(d *member) error {
		l, err := next(d.stages())
		if err != nil {
			return toxicError(err)
		}
		d.setStages(l)
		m.opt.Log.Info().Str("proxy", name).Str("toxic", toxic).Msg(done)
		return nil
	})
}

// stages are the toxics that the proxy has.
func (d *member) stages() *toxics.List {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list
}

func (d *member) setStages(l *toxics.List) {
	d.mu.Lock()
	p := d.prx
	d.list = l
	d.mu.Unlock()
	p.SetStages(l)
}

func listToxics(c *call) (reply, error) {
	list, err := c.m.Toxics(c.vars["proxy"])
	return reply{http.StatusOK, list}, err
}

func showToxic(c *call) (reply, error) {
	spec, err := c.m.Toxic(c.vars["proxy"], c.vars["toxic"])
	return reply{http.StatusOK, spec}, err
}

func createToxic(c *call) (reply, error) {
	if _, err := c.m.View(c.vars["proxy"]); err != nil {
		return reply{}, err
	}
	body, err := c.read()
	if err != nil {
		return reply{}, err
	}
	var spec toxics.Spec
	if err := readToxic(body, func(b []byte) error { return json.Unmarshal(b, &spec) }); err != nil {
		return reply{}, err
	}
	if reason := scenarios.BadName(spec.Name); reason != "" {
		var bad strict.Problems
		bad.Add("name", "%s", reason)
		return reply{}, refusal(bad)
	}
	spec, err = c.m.AddToxic(c.ctx, c.vars["proxy"], spec)
	return reply{http.StatusOK, spec}, err
}

func updateToxic(c *call) (reply, error) {
	if _, err := c.m.Toxic(c.vars["proxy"], c.vars["toxic"]); err != nil {
		return reply{}, err
	}
	body, err := c.read()
	if err != nil {
		return reply{}, err
	}
	spec, err := c.m.ChangeToxic(c.ctx, c.vars["proxy"], c.vars["toxic"], func(was toxics.Spec) (is toxics.Spec, err error) {
		err = readToxic(body, func(b []byte) error {
			is, err = was.Patched(b)
			return err
		})
		return is, err
	})
	return reply{http.StatusOK, spec}, err
}

func deleteToxic(c *call) (reply, error) {
	return none(c.m.RemoveToxic(c.ctx, c.vars["proxy"], c.vars["toxic"]))
}
