// Package verifytest runs tornwire's cases against a Go client library inside go test.
//
// It is what tornwire verify does (the same workloads, faults and offsets, the same
// embedded lock server, proxy and oracle), but each case has a network in memory and a
// testing/synctest bubble of its own: waits, leases and back-offs cost no time, and
// nothing is ever late. Requests that are cut are taken from the client a byte at a time,
// so that its write is cut short and says how many bytes went out, which real sockets
// hardly ever show. docs/verifytest.md has a whole example.
//
//	func TestTorn(t *testing.T) {
//		verifytest.Run(t, func(env verifytest.Env) verifytest.Client {
//			return binding{mylocks.New(env.Addresses, mylocks.WithDialer(env.Dial))}
//		})
//	}
//
// Each case is a subtest named by its case id, DIALECT/WORKLOAD/FRAME@OFFSET:FAULT, and
// can be run alone:
//
//	go test -run 'TestTorn/^ticketing$/^single$/^s2c\.A\.1@25:truncate-rst$'
//
// A case that is UNSAFE or NONCONFORMING fails, and so does one that is INCONCLUSIVE; one
// that is SKIPPED is skipped, and one that is NON-STRICT fails only under
// Options.Strict.
//
// Time stands still in a bubble while something in it can go on. So nothing of the client
// may wait for what is outside: a connection that it did not make with Env.Dial, a
// process, or a goroutine or channel that a test before it has left. What an act of the
// tool's application causes takes a few microseconds, and the next act waits for it: so
// a client whose owners and pauses come from Env.Seed puts the same bytes on the wire at
// the same times whenever the case is run.
package verifytest

import (
	"context"
	"net"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tornwire/adapter"
	"tornwire/checker"
	"tornwire/verify"
)

// Client is a client of the library under test; its results are said in the words of
// spec/adapter.md. Its methods are called concurrently. After Close nothing of it may go
// on: a bubble waits for what does, and a case does not end.
type Client = adapter.Client

// Result is how an acquire or a release ended.
type Result = adapter.Result

// Ticket is a held grant.
type Ticket = adapter.Ticket

// Unopened stands for a client that could not be opened, with the reason. A case goes on
// without it, where that is for its fault to bring about.
func Unopened(err error) Client { return unopened{err: err} }

type unopened struct {
	Client
	err error
}

// Env is what a case gives the library to connect with.
type Env struct {
	// Dialect is the one that is spoken, "ticketing" or "ticketing-v0".
	Dialect string
	// Addresses are the cluster as the client knows it, and its redirect allowlist:
	// HOST:PORT, one or more.
	Addresses []string
	// Secret is that of the preface; it may be empty.
	Secret string
	// Dial connects to these addresses, like net.Dialer.DialContext; there is no other way
	// to reach them. What it returns has the half-close and reset of a *net.TCPConn
	// (CloseWrite, SetLinger), but is none.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Seed is another for each client of a run, and the same each time the case is run: a
	// library that draws its owners and pauses from it puts the same bytes on the wire
	// every time.
	Seed uint64
}

// Options say which cases are run, and by what they are judged. The zero value is the
// standard sweep of the dialect ticketing.
type Options struct {
	Dialect   string   // "ticketing" or "ticketing-v0"; "": ticketing
	Workloads []string // ids; empty: all
	Faults    []string // ids or families, or "none"; empty: all that the sweep has
	Rules     []string // ids of the rules that are judged; empty: all
	Cases     []string // case ids; empty: all that the other fields select
	Sweep     string   // "smoke", "standard" or "full"; "": standard
	Seed      uint64   // of everything random in the tool
	Profile   string   // "any" or "official"; "": any
	Busy      string   // "unsettled", "final" or "retry"; "": unsettled
	Outcomes  []string // words of spec/adapter.md that the library can say; empty: all
	Strict    bool     // what is NON-STRICT fails
}

// Run runs the standard sweep of the dialect ticketing as subtests of t. open opens a
// client of the library; it is called in the bubble of a case, as often as the case has
// clients.
func Run(t *testing.T, open func(Env) Client) {
	t.Helper()
	RunWith(t, Options{}, open)
}

// RunWith is Run with options. Wrong options are fatal for t.
func RunWith(t *testing.T, o Options, open func(Env) Client) {
	t.Helper()
	if open == nil {
		t.Fatal("verifytest: there is no function that opens a client")
	}
	RunLibrary(t, o, func(in Inside) adapter.Library {
		return &library{o: o, name: t.Name(), open: open, in: in}
	})
}

// Inside is what a case gives to a library that has an adapter in Go.
type Inside = verify.Inside

// RunLibrary is RunWith for a library that has an adapter in Go already.
func RunLibrary(t *testing.T, o Options, lib func(Inside) adapter.Library) {
	t.Helper()
	if lib == nil {
		t.Fatal("verifytest: there is no function that makes a library")
	}
	b, err := verify.NewBubble(verify.Options{
		Dialect: o.Dialect, Workloads: o.Workloads, Faults: o.Faults, Rules: o.Rules, Cases: o.Cases, Sweep: o.Sweep,
		Seed: o.Seed, Profile: o.Profile, Busy: o.Busy, Strict: o.Strict,
	}, synctest.Wait)
	if err != nil {
		t.Fatalf("verifytest: %v", err)
	}
	cases := b.Cases()
	if len(cases) == 0 {
		t.Fatal("verifytest: the options select no case")
	}
	s := sweep{count: &count{}, b: b, lib: lib, strict: o.Strict, told: func(verify.CaseResult) {}}
	t.Run(cases[0].ID.Dialect, s.run)
}

// garbage is how much more than what lives the heap may hold meanwhile, in percent: little
// lives, and for a short time, so that it is worth more than the memory.
const garbage = 400

// count is of the cases that were run.
type count struct{ safe, checked atomic.Int64 }

type sweep struct {
	*count
	b      *verify.Bubble
	lib    func(Inside) adapter.Library
	strict bool
	told   func(verify.CaseResult) // of every case
}

// run runs all cases, those of each workload as subtests of one.
func (s sweep) run(t *testing.T) {
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	}
	var sane verify.CaseResult
	synctest.Test(t, func(t *testing.T) { sane = s.b.Sane(t.Context(), s.lib) })
	if sane.Verdict == checker.Inconclusive || sane.Verdict == checker.Skipped {
		t.Fatalf("nothing can be proved of this client: %s", verify.Describe(sane))
	}
	s.report(t, sane)
	var order []*verify.Workload
	of := map[*verify.Workload][]verify.Case{}
	for _, c := range s.b.Cases() {
		if of[c.Workload] == nil {
			order = append(order, c.Workload)
		}
		of[c.Workload] = append(of[c.Workload], c)
	}
	for _, w := range order {
		t.Run(w.ID, func(t *testing.T) { s.workload(t, w, of[w]) })
	}
	if s.safe.Load() > 0 && s.checked.Load() == 0 {
		t.Error("no rule was checked in any case")
	}
}

// workload runs the cases of one workload, which need its run without a fault before;
// as many at once as there are processors. Parallel subtests would all be there at once,
// thousands of them, and be looked at in each garbage collection.
func (s sweep) workload(t *testing.T, w *verify.Workload, cases []verify.Case) {
	synctest.Test(t, func(t *testing.T) { s.b.Control(t.Context(), w, s.lib) })
	next := make(chan verify.Case)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for c := range next {
				t.Run(nameOf(c.ID), func(t *testing.T) { s.one(t, c) })
			}
		})
	}
	for _, c := range cases {
		next <- c
	}
	close(next)
	wg.Wait()
}

func (s sweep) one(t *testing.T, c verify.Case) {
	var res verify.CaseResult
	synctest.Test(t, func(t *testing.T) { res = s.b.Run(t.Context(), c, s.lib) })
	s.told(res)
	if res.Verdict == checker.Safe {
		s.safe.Add(1)
	}
	if len(res.Checked) > 0 {
		s.checked.Add(1)
	}
	s.report(t, res)
}

// nameOf is the last element of a case id.
func nameOf(id verify.CaseID) string {
	s := id.String()
	return s[strings.LastIndexByte(s, '/')+1:]
}

func (s sweep) report(t *testing.T, res verify.CaseResult) {
	text := func() string {
		return strings.ToUpper(string(res.Verdict)) + "\n" + verify.Describe(res) + "\nalone: go test -run " + inShell(alone(t.Name()))
	}
	switch res.Verdict {
	case checker.Safe:
	case checker.Skipped:
		t.Skip(res.Reason)
	case checker.NonStrict:
		if s.strict {
			t.Error(text())
		} else {
			t.Log(text())
		}
	default:
		t.Error(text())
	}
}

// inShell quotes a word for a POSIX shell.
func inShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// alone is a pattern for go test -run that only one test matches.
func alone(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// library is an adapter.Library of the function that opens a client.
type library struct {
	o    Options
	name string
	open func(Env) Client
	in   Inside

	opens atomic.Uint64
}

// Info implements adapter.Library.
func (l *library) Info() adapter.Info {
	return adapter.Info{
		Client: l.name, Dialects: []string{"ticketing", "ticketing-v0"}, Features: []string{"cancel", "close"}, Outcomes: l.o.Outcomes,
	}
}

// Open implements adapter.Library.
func (l *library) Open(dialect string, addresses []string, secret string) (adapter.Client, error) {
	c := l.open(Env{Dialect: dialect, Addresses: addresses, Secret: secret, Dial: l.in.Dial, Seed: l.in.Seed ^ l.opens.Add(1)<<32})
	if f, ok := c.(unopened); ok {
		return nil, f.err
	}
	return c, nil
}
