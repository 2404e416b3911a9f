package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tornwire/adapter"
	"tornwire/checker"
	"tornwire/frames"
	"tornwire/internal/wrongclient"
	"tornwire/server"
	"tornwire/server/stub"
)

// servesTCP serves on a loopback port until the test is over.
func servesTCP(t *testing.T, serve func(context.Context, net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := serve(ctx, l); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

func stagingServer(t *testing.T, dialect, secret string) (*server.Server, string) {
	t.Helper()
	srv, err := server.New(server.Config{Dialect: dialect, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	return srv, servesTCP(t, srv.Serve)
}

// deafListener makes connections whose server never learns that the client has gone.
type deafListener struct {
	net.Listener
	over <-chan struct{}
}

type deafConn struct {
	*net.TCPConn
	over <-chan struct{}
}

func (l deafListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return deafConn{c.(*net.TCPConn), l.over}, nil
}

func (c deafConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		<-c.over
	}
	return n, err
}

// TestStaging runs the workloads in front of a right server whose table is not seen.
// What a case acquires there is released when it is over, also where the server has
// attempts queued whose connections have been reset: it does not notice.
func TestStaging(t *testing.T) {
	t.Parallel()
	for _, d := range []string{dialectCurrent, dialectV0} {
		t.Run(d, func(t *testing.T) {
			t.Parallel()
			for range busyTries {
				if stagedOn(t, d) {
					return
				}
			}
			t.Error("the machine is too busy")
		})
	}
}

// stagedOn is false if a case was late: a client then leaves its session when its grant
// may be under way, and what it was granted unseen is held until its lease ends.
func stagedOn(t *testing.T, dialect string) bool {
	t.Helper()
	srv, err := server.New(server.Config{Dialect: dialect, Secret: "s3"})
	if err != nil {
		t.Fatal(err)
	}
	addr := servesTCP(t, func(ctx context.Context, l net.Listener) error {
		return srv.Serve(ctx, deafListener{l, ctx.Done()})
	})
	r := runPlan(t, Options{
		Dialect: dialect, Faults: []string{NoFault}, Profile: "official", Upstream: addr, Secret: "s3", ClosedWorld: true,
		KeyPrefix: "tornwire/", Start: Library(referenceLibrary()), Alone: asProcess(referenceName),
	})
	left := srv.Table()
	if r.Verdict != checker.Safe || r.ExitCode != ExitSafe || len(r.Findings) > 0 || r.Cases.Safe < 8 {
		t.Errorf("%s, exit code %d, %+v:\n%s", r.Verdict, r.ExitCode, r.Cases, text(r))
	}
	for _, c := range r.Results {
		w, _ := WorkloadByID(strings.Split(c.Case, "/")[1])
		if skipped := c.Verdict == checker.Skipped; skipped == w.Anywhere || (w.Needs == "") == skipped || skipped && c.Reason != w.bound() {
			t.Errorf("%s: %s, %q", c.Case, c.Verdict, c.Reason)
		}
	}
	for _, n := range r.Rules {
		if n.ID == "release-own" && n.Checked > 0 {
			t.Error("release-own was judged without a table")
		}
	}
	late := r.Cases.Repeated > 0 || slices.ContainsFunc(r.Sanity, func(s SanityResult) bool { return s.Repeated > 0 })
	if len(left) > 0 && late {
		return t.Failed()
	}
	for _, k := range left {
		t.Errorf("left behind: %+v", k)
	}
	return true
}

// TestStagingTorn tears exchanges in front of it, with a client that is right and
// one that is not; an injected reply names the case's own key.
func TestStagingTorn(t *testing.T) {
	t.Parallel()
	_, addr := stagingServer(t, dialectCurrent, "")
	ids := append(cuts(dialectCurrent, "single", "s2c.A.1", []int{0, 25}, "truncate-fin", "truncate-rst"),
		"ticketing/late-reply/s2c.A.1@0:hold", "ticketing/late-grant/s2c.A.1@0:hold")
	o := Options{Cases: append(ids, cuts(dialectCurrent, "single", "s2c.A.1", []int{0}, "inject-stray")...), Upstream: addr, Profile: "official"}
	t.Run("reference", func(t *testing.T) {
		t.Parallel()
		o := o
		o.Start = Library(referenceLibrary())
		isSafe(t, o)
	})
	for _, name := range []string{"enters-anyway", "key-only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := o
			o.Start = Library(wrong(t, name))
			if r := runPlan(t, o); r.Verdict != checker.Unsafe || r.ExitCode != ExitUnsafe {
				t.Errorf("%s, exit code %d:\n%s", r.Verdict, r.ExitCode, text(r))
			}
		})
	}
}

// stagingShows names a client with a defect for workloads that ask more of the tool
// there: it holds keys, and has the server send a keep-alive or a FIN.
var stagingShows = map[string]string{
	"stray-reply": "stray-ignored", "wrong-key-reply": "key-blind", "reversed-replies": "fifo-connection", "duplicate-grant": "duplicate-released",
	"unknown-op": "unknown-skipped", "malformed": "malformed-skipped", "overlong": "overlong-skipped",
	"cancel": "cancel-keeps-session", "two-sessions": "close-all", "silent-server": "deadline-keeps-session", "late-grant": "enter-late", "release-lost": "close-is-release",
	"held-past-lease": "renew-by-resend", "hot-reconnect": "reconnect-hot", "frozen": "enters-after-thaw", "half-close": "owner-restarts", "keep-alive": "wait-rounded-down",
}

// TestStagingShows: in front of a right server these workloads show the defect that
// they show in front of the embedded one, and nothing of clients that are right.
func TestStagingShows(t *testing.T) {
	t.Parallel()
	_, addr := stagingServer(t, dialectCurrent, "")
	options := func(ids []string, name string, lib adapter.Library) Options {
		return Options{Cases: ids, Upstream: addr, Profile: "official", Busy: checker.BusyFinal, Strict: true, Start: Library(lib), Alone: asProcess(name)}
	}
	var all []string
	for workload, name := range stagingShows {
		ids := slices.DeleteFunc(shows(name, dialectCurrent), func(id string) bool { return strings.Split(id, "/")[1] != workload })
		all = append(all, ids...)
		t.Run(workload+"/"+name, func(t *testing.T) {
			t.Parallel()
			r := runPlan(t, options(ids, name, wrong(t, name)))
			i := slices.IndexFunc(wrongclient.Defects(), func(d wrongclient.Defect) bool { return d.Name == name })
			d := wrongclient.Defects()[i]
			rule, _ := checker.RuleByID(d.Rule)
			if r.Verdict != verdictOf[rule.Severity] || !slices.Contains(certain(r), d.Rule) {
				t.Errorf("%s with exit code %d, and certain are %v, not %s:\n%s", r.Verdict, r.ExitCode, certain(r), d.Rule, text(r))
			}
		})
	}
	for _, name := range []string{"", "odd-cancel-lingers"} {
		t.Run("right/"+name, func(t *testing.T) {
			t.Parallel()
			isSafe(t, options(all, name, wrong(t, name)))
		})
	}
	t.Run(referenceName, func(t *testing.T) {
		t.Parallel()
		isSafe(t, options(all, referenceName, referenceLibrary()))
	})
}

// TestStagingIsJudgedAgain: a record says that there was an upstream, and what was
// promised of it; check gives what verify gave, of a right server and of a wrong one.
func TestStagingIsJudgedAgain(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"", "mutual-exclusion"} {
		for _, closed := range []bool{false, true} {
			t.Run(fmt.Sprintf("breaks_%s/closed_%v", rule, closed), func(t *testing.T) {
				t.Parallel()
				r, dir := recorded(t, Options{
					Workloads: []string{"server-probe", "single", "moved"}, Faults: []string{NoFault}, ClosedWorld: closed, KeyPrefix: "tornwire/",
					Upstream: behindScript(t, broken()[rule]), SecretFile: "none.txt", Start: Library(referenceLibrary()), Grace: patience(time.Second),
				})
				again := checked(t, dir, CheckOptions{})
				if a, b := asJSON(t, r), asJSON(t, again); a != b {
					t.Errorf("the reports differ:\n%s\n%s", a, b)
				}
				if found := len(again.Findings) > 0; found != (rule != "") || (again.ExitCode == ExitUnsafe) != (found && closed) {
					t.Errorf("exit code %d:\n%s", again.ExitCode, text(again))
				}
				rec, err := OpenRecord(dir)
				if err != nil {
					t.Fatal(err)
				}
				if p := rec.from.Policy; p.SawTable || p.Embedded || p.ClosedWorld != closed || p.Grace == nil || *p.Grace != time.Second {
					t.Errorf("recorded is %+v", p)
				}
			})
		}
	}
}

// TestStagingGreeting: the upstream's greeting has its own length, at which the
// cases are not swept.
func TestStagingGreeting(t *testing.T) {
	t.Parallel()
	srv, err := server.New(server.Config{ServerID: "another"})
	if err != nil {
		t.Fatal(err)
	}
	r := runPlan(t, Options{
		Cases:    cuts(dialectCurrent, "single", "s2c.greeting.1", []int{0, 5}, "truncate-fin"),
		Upstream: servesTCP(t, srv.Serve), Start: Library(referenceLibrary()),
	})
	if r.Results[0].Verdict != checker.Safe || r.Results[1].Verdict != checker.Skipped || r.Results[1].Reason != "the upstream's greeting has 25 bytes, not 26" {
		t.Errorf("%+v", r.Results)
	}
}

func TestStagingNotReached(t *testing.T) {
	_, addr := stagingServer(t, dialectCurrent, "s3")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	for upstream, want := range map[string]string{addr: "is it the leader, and --secret-file right?", nobody: "cannot be reached"} {
		r := runPlan(t, Options{Cases: []string{controlCase}, Upstream: upstream, Start: Library(referenceLibrary())})
		if r.ExitCode != ExitUnreachable || !strings.Contains(r.Reason, want) {
			t.Errorf("%s: exit code %d, %q", upstream, r.ExitCode, r.Reason)
		}
	}
}

// leaving is a server that leaves when it has accepted so many connections.
type leaving struct {
	net.Listener
	after int
	leave func()
}

func (l *leaving) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if l.after--; l.after == 0 {
		l.leave()
	}
	return c, err
}

// TestStagingLost: an upstream that leaves in the course of a run ends it with the exit
// code of one that was never there, unless the client was caught before; a record says
// the same.
func TestStagingLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		after  int // connections
		defect string
		code   int
	}{{12, "", ExitUnreachable}, {40, "enters-anyway", ExitUnsafe}} {
		t.Run(fmt.Sprint(c.after, c.defect), func(t *testing.T) {
			t.Parallel()
			lib := referenceLibrary()
			if c.defect != "" {
				lib = wrong(t, c.defect)
			}
			addr := servesTCP(t, func(ctx context.Context, l net.Listener) error {
				srv, err := server.New(server.Config{})
				if err != nil {
					return err
				}
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				return srv.Serve(ctx, &leaving{l, c.after, cancel})
			})
			ids := cuts(dialectCurrent, "single", "s2c.A.1", []int{0, 1, 2, 3, 5, 8, 10, 11, 12, 16, 20, 22, 24, 25}, "truncate-fin", "truncate-rst", "truncate-fin-client", "stall")
			p := plan(t, Options{Cases: ids, Upstream: addr, Parallel: 4, Start: Library(lib)})
			dir := t.TempDir() + "/record"
			rec, err := CreateRecord(dir)
			if err != nil {
				t.Fatal(err)
			}
			p.Record = rec
			r := Run(t.Context(), p, nil)
			if r.ExitCode != c.code || r.Cases.NotRun == 0 || r.Interrupted {
				t.Errorf("exit code %d, %+v:\n%s", r.ExitCode, r.Cases, text(r))
			}
			if want := fmt.Sprintf(" of %d cases: the upstream ", len(ids)) + addr + " cannot be reached: "; !strings.HasPrefix(r.Reason, "the run ended after ") || !strings.Contains(r.Reason, want) || strings.Contains(r.Reason, "\n") {
				t.Errorf("%q, want … %q", r.Reason, want)
			}
			if again := checked(t, dir, CheckOptions{}); again.ExitCode != r.ExitCode || again.Reason != r.Reason {
				t.Errorf("checked again: exit code %d, %q", again.ExitCode, again.Reason)
			}
		})
	}
}

func TestUpstreamOptions(t *testing.T) {
	for want, o := range map[string]Options{
		`--upstream is "host", not HOST:PORT`:                     {Upstream: "host"},
		"there is no --upstream":                                  {ClosedWorld: true},
		"--key-prefix is for keys of the upstream":                {KeyPrefix: "x"},
		"--key-prefix has 65 bytes, over 64":                      {Upstream: "h:1", KeyPrefix: strings.Repeat("x", 65)},
		`--key-prefix "a b" cannot be in a key`:                   {Upstream: "h:1", KeyPrefix: "a b"},
		"--secret-file is the upstream's secret, and there is no": {Secret: "s"},
	} {
		if _, err := NewPlan(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	p, err := NewPlan(Options{Upstream: "h:1", SecretFile: "my secret", ClosedWorld: true, KeyPrefix: "t/", Cases: []string{"ticketing/single/c2s.A.1@22:truncate-fin"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "tornwire verify --case ticketing/single/c2s.A.1@22:truncate-fin --seed 0 --upstream h:1 --secret-file 'my secret' --closed-world --key-prefix t/ --profile any"
	if got := p.replay(p.Cases[0].ID); got != want {
		t.Errorf("replay %q", got)
	}
}

// TestWrongServerStaysUnsafe: what is accepted of the client makes no server right.
func TestWrongServerStaysUnsafe(t *testing.T) {
	p := plan(t, Options{Upstream: "h:1", Cases: []string{controlCase}})
	mine := checker.Finding{Rule: "exact-token", Severity: checker.Safety, Certainty: checker.Certain, Side: "client"}
	its := checker.Finding{Rule: "no-early-timeout", Severity: checker.Contract, Certainty: checker.Certain, Side: "server"}
	for _, c := range []struct {
		accepted []Accept
		want     checker.Verdict
	}{
		{nil, checker.Unsafe},
		{[]Accept{{Rule: mine.Rule}}, checker.Unsafe},
		{[]Accept{{Rule: its.Rule}}, checker.Unsafe},
		{[]Accept{{Rule: mine.Rule}, {Rule: its.Rule}}, checker.Safe},
	} {
		for i := range c.accepted {
			c.accepted[i].Reason, c.accepted[i].Expires = "known", time.Now().AddDate(1, 0, 0)
		}
		p.Baseline = &Baseline{Entries: c.accepted}
		if got := newReport(p).add(CaseResult{Case: p.Cases[0], Verdict: checker.Unsafe, Findings: []checker.Finding{mine, its}}); got != c.want {
			t.Errorf("%+v accepted: %s, want %s", c.accepted, got, c.want)
		}
	}
}

// TestFreshKeys: no two keys of a run are alike, and they have the workload's length.
func TestFreshKeys(t *testing.T) {
	s := newStaging(&Plan{Options: Options{KeyPrefix: "p/"}})
	seen := map[string]bool{}
	for i := range 20000 {
		k := s.fresh([]string{"free-1", "early-answer-1"}[i%2])
		if seen[k] || len(k) != 2+[]int{6, 14}[i%2] || !strings.HasPrefix(k, "p/") {
			t.Fatalf("key %d is %q", i, k)
		}
		seen[k] = true
	}
}

// broken are scripts of a server that breaks one rule each, in front of a right one:
// what the connections of server-probe ask for is told by their owners.
func broken() map[string][]stub.Step {
	const far = 1 << 40
	owner := func(n uint64) func(stub.Frame) bool {
		return func(f stub.Frame) bool { return f.Uint("owner") == n }
	}
	var first uint64
	return map[string][]stub.Step{
		"echo-matches": {{Dir: frames.ServerToClient, Op: "A", If: owner(4), Pass: func(f stub.Frame) []byte { return f.With("owner", 99) }}},
		"one-reply-per-attempt": {{Dir: frames.ServerToClient, Op: "T", If: owner(3), Pass: func(f stub.Frame) []byte {
			return append(f.Bytes, f.Bytes...)
		}}},
		"no-early-timeout":  {{Op: "A", If: owner(5), Write: func(f stub.Frame) []byte { return f.Answer("T", f.Key(), 0) }}},
		"zero-never-queues": {{Op: "A", If: owner(3), Pass: func(f stub.Frame) []byte { return f.With("wait", 9) }}},
		"no-grant-after-timeout-or-busy": {{Dir: frames.ServerToClient, Op: "T", If: owner(5), Pass: func(f stub.Frame) []byte {
			return append(f.Bytes, f.Answer("A", f.Key(), far)...)
		}}},
		"lease-ends":       {{Op: "A", If: owner(6), Pass: func(f stub.Frame) []byte { return f.With("lease", 60) }}},
		"mutual-exclusion": {{Op: "A", If: owner(7), Write: func(f stub.Frame) []byte { return f.Answer("A", f.Key(), far) }}},
		"repeat-is-new-attempt": {
			{Dir: frames.ServerToClient, Op: "A", If: owner(1), Pass: func(f stub.Frame) []byte {
				first = f.Uint("token")
				return f.Bytes
			}},
			{Op: "A", If: func(f stub.Frame) bool { return first > 0 && owner(1)(f) }, Write: func(f stub.Frame) []byte { return f.Answer("A", f.Key(), taken(&first)) }},
		},
		"token-increases": {{Dir: frames.ServerToClient, Op: "A", If: owner(2), Pass: func(f stub.Frame) []byte { return f.With("token", 0) }}},
		"release-needs-exact-token": {
			{Op: "R", If: func(f stub.Frame) bool { return f.Uint("token") >= far }, Pass: func(f stub.Frame) []byte {
				first = f.Uint("token") - far
				return f.With("token", first)
			}},
			{Dir: frames.ServerToClient, Op: "R", If: func(f stub.Frame) bool { return first > 0 && f.Uint("token") == first }, Pass: func(f stub.Frame) []byte {
				return f.With("token", taken(&first)+far)
			}},
		},
		"": nil,
	}
}

// taken returns a value that is then used up: the script does the same when the case
// is tried again.
func taken(v *uint64) uint64 {
	was := *v
	*v = 0
	return was
}

// behindScript is a right server behind a script, over TCP.
func behindScript(t *testing.T, steps []stub.Step) string {
	t.Helper()
	_, behind := stagingServer(t, dialectCurrent, "")
	s, err := stub.New(stub.Config{Steps: steps, Behind: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", behind)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return servesTCP(t, s.Serve)
}

// TestWrongServers: each rule about the server is broken by a script, and is found,
// for certain in a closed world; without a script there is nothing to find.
func TestWrongServers(t *testing.T) {
	t.Parallel()
	var rules []string
	for rule, steps := range broken() {
		rules = append(rules, rule)
		t.Run("breaks_"+rule, func(t *testing.T) {
			t.Parallel()
			wrongServer(t, rule, Options{
				Workloads: []string{"server-probe"}, Faults: []string{NoFault}, Upstream: behindScript(t, steps), ClosedWorld: true, Start: Library(referenceLibrary()),
			})
		})
	}
	for _, r := range checker.Rules() {
		if r.Side == "server" && !slices.Contains(rules, r.ID) {
			t.Errorf("no script breaks %s", r.ID)
		}
	}
}

func wrongServer(t *testing.T, rule string, o Options) {
	r := runPlan(t, o)
	verdict, code := checker.Unsafe, ExitUnsafe
	if rule == "" {
		verdict, code = checker.Safe, ExitSafe
	}
	if r.Verdict != verdict || r.ExitCode != code || rule != "" && !slices.Contains(certain(r), rule) || rule == "" && len(r.Findings) > 0 {
		t.Errorf("%s with exit code %d, and certain are %v:\n%s", r.Verdict, r.ExitCode, certain(r), text(r))
	}
	for _, f := range r.Findings {
		if f.Side != "server" {
			t.Errorf("%s is told of the client", f.Rule)
		}
	}
	if rule != "" {
		return
	}
	for _, n := range r.Rules {
		if n.Checked == 0 && slices.ContainsFunc(checker.Rules(), func(c checker.Rule) bool { return c.ID == n.ID && c.Side == "server" }) {
			t.Errorf("%s was not judged", n.ID)
		}
	}
}
