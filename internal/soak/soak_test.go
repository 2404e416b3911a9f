//go:build linux

package main

import (
	"bytes"
	"fmt"
	"hash/crc64"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tornwire/internal/cli"
)

// Roles of the test binary besides those of the program.
const (
	relayRole    = "relay"    // ADDR DEFECT
	tornwireRole = "tornwire" // ARGUMENT...
)

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		goleak.VerifyTestMain(m)
	case relayRole:
		err = serveRelay(os.Args[1], os.Args[2])
	case tornwireRole:
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	default:
		err = playRole(role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

// short is a soak of a second or two. Memory of so few sessions is that of the
// process, so it is judged only where a test says so.
func short(t *testing.T, role string, command ...string) config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return config{
		command: append([]string{self}, command...), env: []string{roleVariable + "=" + role},
		grammar: "ticketing", sessions: 20, opens: 50, during: 300 * time.Millisecond, rounds: 2, proxies: 2, sources: 4,
		settle: 20 * time.Millisecond, gone: 5 * time.Second, rate: 200, swaps: 50, pace: 0.5, seed: 1,
	}
}

// played runs a soak and returns what it prints.
func played(t *testing.T, c config) (out string, held bool) {
	t.Helper()
	b, err := soak(t.Context(), c, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var w bytes.Buffer
	held = b.print(&w)
	return w.String(), held
}

// TestTornwire is the soak's short form of the real program.
func TestTornwire(t *testing.T) {
	c := short(t, tornwireRole, "serve", "--api", "{api}")
	c.sessions, c.rounds, c.during = 200, 1, time.Second
	c.churn, c.swap = time.Second, time.Second/2
	if out, held := played(t, c); !held {
		t.Error(out)
	}
}

// TestDefects: a relay without a defect passes, and every defect is found where it
// has to be.
func TestDefects(t *testing.T) {
	churn := func(c *config) { c.rounds, c.churn = 0, time.Second/2 }
	swap := func(c *config) { c.rounds, c.swap = 0, time.Second/2 }
	left := func(c *config) { c.rounds, c.gone = 1, 300*time.Millisecond }
	for _, test := range []struct {
		defect string
		setup  func(*config)
		want   string // in what is printed
	}{
		{defectNone, func(c *config) {
			c.churn, c.swap = time.Second/2, time.Second/2
			c.idleKiB, c.margin, c.slack, c.endMiB = 1024, 0.1, 32<<10, 32
		}, "PASSED: 31 of 31 checks held"},
		{defectFlip, churn, "wrong answers"},
		{defectHarsh, churn, `a FIN arrived as read`},
		{defectHalf, churn, "client-fin: answer "},
		{defectRst, churn, `the client's rst arrived as "fin"`},
		{defectRst, churn, "server-rst: a reset arrived as EOF"},
		{defectKeep, left, "round 1, none left: the proxy has "},
		{defectHush, left, "round 1, none left: the server still has "},
		{defectIdle, func(c *config) { c.rounds, c.during = 1, 1300*time.Millisecond }, "round 1, idle sessions used again: 20 errors"},
		{defectLeak, func(c *config) { c.margin, c.slack = 0.1, 8<<10 }, "memory after all are closed is flat: "},
		{defectLeak, func(c *config) { churn(c); c.endMiB = 32 }, "memory at the end: "},
		{defectFat, func(c *config) { c.rounds, c.idleKiB = 1, 512 }, "memory of an idle session: "},
		{defectRule, swap, "rules under load: "},
		{defectDeaf, swap, "rules that delay have acted: not once"},
		{defectSlowRule, swap, "pace of the changes: "},
	} {
		t.Run(test.defect, func(t *testing.T) {
			t.Parallel()
			c := short(t, relayRole, "{api}", test.defect)
			test.setup(&c)
			out, held := played(t, c)
			if held != (test.defect == defectNone) || !strings.Contains(out, test.want) {
				t.Errorf("wanted %q in:\n%s", test.want, out)
			}
		})
	}
}

// TestProgram: the exit codes of the command line.
func TestProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tiny := "-sessions 5 -opens 20 -for 100ms -rounds 1 -settle 1ms -pace 0 -churn 0 -swap 0 "
	for _, test := range []struct {
		args string
		code int
		want string // in what is printed
	}{
		{"", exitUsage, "one of -tornwire PATH, -direct and a command"},
		{"-direct -- " + self, exitUsage, "one of -tornwire PATH, -direct and a command"},
		{"-direct -sessions 0 -proxies 65", exitUsage, "-sessions is 0, not 1 to 100000\n-proxies is 65, not 1 to 64"},
		{"-direct -no-such", exitUsage, "no-such"},
		{tiny + "-- /no/such/program", exitUnavailable, "/no/such/program"},
		{tiny + "-direct", 0, "PASSED: "},
		{tiny + "-direct -opens 100000 -for 1ms -pace 1000", exitFailed, "FAILED: "},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out bytes.Buffer
			if code := program(strings.Fields(test.args), &out, &out); code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("exit code %d, wanted %d with %q in:\n%s", code, test.code, test.want, &out)
			}
		})
	}
}

// TestEnoughFiles: Linux lets no process have 2^40 files.
func TestEnoughFiles(t *testing.T) {
	if err := enoughFiles(1); err != nil {
		t.Error(err)
	}
	if err := enoughFiles(1 << 40); err == nil || !strings.Contains(err.Error(), "the proxy needs 1099511627840; raise it with") {
		t.Errorf("%v", err)
	}
}

// TestReceived: what a server may have received of a session, and what not.
func TestReceived(t *testing.T) {
	const seed = 7
	var reset plan
	for id := uint64(1); reset.end != clientRst || reset.behind < 2; id++ {
		reset = newPlan(seed, id)
	}
	s := newStream(seed, reset)
	var req []byte
	for range reset.first {
		req, _ = s.next(req, nil)
	}
	least := s.n
	for range reset.behind {
		req, _ = s.next(req, nil)
	}
	sum := func(n int) uint64 { return crc64.Checksum(req[:n], crcTable) }
	rst := entry{ID: reset.id, Bytes: s.n, Sum: s.sum, End: endRst, Least: least}
	fin := rst
	fin.End, fin.Least = endFin, fin.Bytes
	for _, test := range []struct {
		name string
		sent entry
		n    int
		sum  uint64
		end  string
		want string // part of the error; none if empty
	}{
		{"all", rst, s.n, sum(s.n), endRst, ""},
		{"cut by the reset", rst, least + 3, sum(least + 3), endRst, ""},
		{"no more than was answered", rst, least, sum(least), endRst, ""},
		{"less than was answered", rst, least - 1, sum(least - 1), endRst, "bytes arrived, of"},
		{"more than was sent", rst, s.n + 1, sum(s.n), endRst, "bytes arrived, of"},
		{"other bytes", rst, s.n, sum(s.n) ^ 1, endRst, "are not those"},
		{"other bytes before a cut", rst, least + 3, sum(least + 2), endRst, "are not those"},
		{"another end", rst, s.n, sum(s.n), endFin, `the client's rst arrived as "fin"`},
		{"all and a FIN", fin, s.n, sum(s.n), endFin, ""},
		{"short before a FIN", fin, s.n - 1, sum(s.n - 1), endFin, "bytes arrived, of"},
	} {
		err := test.sent.received(entry{ID: reset.id, Bytes: test.n, Sum: test.sum, End: test.end}, seed)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, wanted %q", test.name, err, test.want)
		}
	}
}
