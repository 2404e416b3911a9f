package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"tornwire/faults"
	"tornwire/frames"
	"tornwire/internal/strict"
)

// Limits of one request.
const (
	// MaxBody is the most bytes of a body.
	MaxBody = 1 << 20
	// TurnLimit is how long a change waits for another change of the same proxy.
	TurnLimit = 20 * time.Second
)

// call is one request.
type call struct {
	m    *Manager
	ctx  context.Context
	vars map[string]string
	body io.Reader
}

// reply is the answer to a call: a body, or none.
type reply struct {
	status int
	body   any
}

// action answers a call. Errors become answers by asError.
type action func(*call) (reply, error)

// route is a path and what its methods do.
type route struct {
	path    string
	actions map[string]action
}

// stock are the routes of toxiproxy 2.12.0.
var stock = []route{
	{"/version", map[string]action{"GET": version}},
	{"/reset", map[string]action{"POST": reset}},
	{"/proxies", map[string]action{"GET": listProxies, "POST": createProxy}},
	{"/proxies/{proxy}", map[string]action{"GET": showProxy, "POST": updateProxy, "PATCH": updateProxy, "DELETE": deleteProxy}},
	{"/proxies/{proxy}/toxics", map[string]action{"GET": listToxics, "POST": createToxic}},
	{"/proxies/{proxy}/toxics/{toxic}", map[string]action{"GET": showToxic, "POST": updateToxic, "PATCH": updateToxic, "DELETE": deleteToxic}},
}

// ours are there under /v1 too.
var ours = []route{
	{"/proxies/{proxy}/rules", map[string]action{"GET": listRules, "POST": createRule}},
	{"/proxies/{proxy}/rules/{rule}", map[string]action{"GET": showRule, "PUT": putRule, "DELETE": deleteRule}},
	{"/proxies/{proxy}/gates/{gate}", map[string]action{"PUT": openGate, "DELETE": shutGate}},
}

// NewHandler answers the REST API of a manager. The routes of toxiproxy are refused
// to browsers, as toxiproxy does; those under /v1 to foreign origins and to names
// that could be made to point here.
func NewHandler(m *Manager) http.Handler {
	r := mux.NewRouter().UseEncodedPath().SkipClean(true)
	add := func(prefix string, list []route, guard func(http.Handler) http.Handler) {
		for _, t := range list {
			r.Handle(prefix+t.path, guard(m.serve(t)))
		}
	}
	add("", stock, refuseBrowsers)
	add("", ours, refuseBrowsers)
	add("/v1", ours, refuseForeigners)
	add("/v1", engine, refuseForeigners)
	r.Handle("/v1/runs/{run}/events", refuseForeigners(m.streamRun()))
	r.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		write(w, newError(http.StatusNotFound, "there is nothing here").reply())
	})
	return r
}

// serve makes a route's actions answer requests.
func (m *Manager) serve(t route) http.Handler {
	allow := strings.Join(slices.Sorted(maps.Keys(t.actions)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		act := t.actions[req.Method]
		if act == nil {
			w.Header().Set("Allow", allow)
			write(w, newError(http.StatusMethodNotAllowed, "%s is not possible here, only %s", req.Method, allow).reply())
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), TurnLimit)
		defer cancel()
		c := &call{m: m, ctx: ctx, vars: map[string]string{}, body: http.MaxBytesReader(w, req.Body, MaxBody)}
		for name, v := range mux.Vars(req) {
			c.vars[name], _ = url.PathUnescape(v) // the path was parsed, so it is escaped well
		}
		rep, err := act(c)
		if err != nil {
			rep = asError(err).reply()
		}
		m.opt.Log.Debug().Str("client", req.RemoteAddr).Str("method", req.Method).Str("path", req.URL.Path).Int("status", rep.status).Msg("request")
		write(w, rep)
	})
}

// reply is how an error is told. What is wrong with a body is told as toxiproxy does.
func (e *Error) reply() reply {
	told := *e
	if e.ofBody {
		told.Message = "bad request body: " + e.Message
	}
	return reply{e.Status, &told}
}

func write(w http.ResponseWriter, r reply) {
	if r.body == nil {
		w.WriteHeader(r.status)
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r.body); err != nil {
		panic(err) // all bodies are plain structs, maps and slices of ours
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_, _ = w.Write(b.Bytes()) // who asked has gone
}

// read reads the body of a request.
func (c *call) read() ([]byte, error) {
	b, err := io.ReadAll(c.body)
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, newError(http.StatusRequestEntityTooLarge, "bad request body: more than %d bytes", over.Limit)
	}
	if err != nil {
		return nil, badBody("%v", err)
	}
	return b, nil
}

func none(err error) (reply, error) { return reply{status: http.StatusNoContent}, err }

// compatible is the version of toxiproxy whose routes these are: clients compare
// it with the least that they need.
const compatible = "2.12.0"

func version(c *call) (reply, error) {
	return reply{http.StatusOK, struct {
		Version  string `json:"version"`
		Tornwire string `json:"tornwire"`
	}{compatible, c.m.opt.Version}}, nil
}

func reset(c *call) (reply, error) { return none(c.m.Reset(c.ctx)) }

func listProxies(c *call) (reply, error) {
	out := map[string]View{}
	for _, v := range c.m.Views() {
		out[v.Name] = v
	}
	return reply{http.StatusOK, out}, nil
}

func showProxy(c *call) (reply, error) {
	v, err := c.m.View(c.vars["proxy"])
	return reply{http.StatusOK, v}, err
}

func createProxy(c *call) (reply, error) {
	s := Settings{Enabled: true}
	if err := c.settings(&s, s.readToxics); err != nil {
		return reply{}, err
	}
	v, err := c.m.Create(s)
	return reply{http.StatusCreated, v}, err
}

// updateProxy changes what the body names. Toxics have their own routes; toxiproxy's
// client sends those that it knows, and does not mean them.
func updateProxy(c *call) (reply, error) {
	v, err := c.m.Update(c.ctx, c.vars["proxy"], func(s *Settings) error {
		was := s.Name
		return c.settings(s, func(o *strict.Object) {
			o.Raw("toxics")
			if s.Name != was {
				o.Problem("name", "is %q; the name %q cannot be changed", s.Name, was)
			}
		})
	})
	return reply{http.StatusOK, v}, err
}

// settings changes settings as the body says. What is wrong with the body is told
// together with what is wrong with the settings.
func (c *call) settings(s *Settings, also func(*strict.Object)) error {
	body, err := c.read()
	if err != nil {
		return err
	}
	o, bad, err := parse(body)
	if err != nil {
		return err
	}
	s.read(o)
	also(o)
	o.Done()
	if len(*bad) > 0 {
		s.check(bad)
	}
	return refusal(*bad)
}

func deleteProxy(c *call) (reply, error) { return none(c.m.Delete(c.ctx, c.vars["proxy"])) }

func listRules(c *call) (reply, error) {
	list, err := c.m.Rules(c.vars["proxy"])
	out := []RuleView{}
	for _, s := range list {
		out = append(out, viewRule(s))
	}
	return reply{http.StatusOK, out}, err
}

func showRule(c *call) (reply, error) {
	s, err := c.m.Rule(c.vars["proxy"], c.vars["rule"])
	return reply{http.StatusOK, viewRule(s)}, err
}

// rule reads a rule for the proxy that the path names.
func (c *call) rule(id string) (faults.Rule, error) {
	v, err := c.m.View(c.vars["proxy"])
	if err != nil {
		return faults.Rule{}, err
	}
	body, err := c.read()
	if err != nil {
		return faults.Rule{}, err
	}
	g, _ := frames.Builtin(v.Grammar)
	return readRule(body, id, v.Name, g)
}

func createRule(c *call) (reply, error) {
	r, err := c.rule("")
	if err != nil {
		return reply{}, err
	}
	s, err := c.m.Arm(c.ctx, c.vars["proxy"], r)
	return reply{http.StatusCreated, viewRule(s)}, err
}

func putRule(c *call) (reply, error) {
	if _, err := c.m.Rule(c.vars["proxy"], c.vars["rule"]); err != nil {
		return reply{}, err
	}
	r, err := c.rule(c.vars["rule"])
	if err != nil {
		return reply{}, err
	}
	s, err := c.m.Rearm(c.ctx, c.vars["proxy"], r)
	return reply{http.StatusOK, viewRule(s)}, err
}

func deleteRule(c *call) (reply, error) {
	return none(c.m.Disarm(c.ctx, c.vars["proxy"], c.vars["rule"]))
}

func openGate(c *call) (reply, error) {
	return none(c.m.Gate(c.ctx, c.vars["proxy"], c.vars["gate"], true))
}

func shutGate(c *call) (reply, error) {
	return none(c.m.Gate(c.ctx, c.vars["proxy"], c.vars["gate"], false))
}
