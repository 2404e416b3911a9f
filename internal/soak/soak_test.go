//go:build linux

package main

import (
	"bytes"
	"fmt"
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
		settle: 20 * time.Millisecond, rate: 200, swaps: 50, seed: 1,
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
	var help bytes.Buffer
	if cli.Main([]string{"serve", "--help"}, strings.NewReader(""), &help, &help) != 0 || !strings.Contains(help.String(), "--api") {
		t.Skip("tornwire serve does not exist")
	}
	c := short(t, tornwireRole, "serve", "--api", "{api}")
	c.sessions, c.during = 200, time.Second
	c.churn, c.swap = time.Second, time.Second
	if out, held := played(t, c); !held {
		t.Error(out)
	}
}

// TestDefects: a relay without a defect passes, and every defect is found where it
// has to be.
func TestDefects(t *testing.T) {
	churn := func(c *config) { c.rounds, c.churn = 0, time.Second/2 }
	swap := func(c *config) { c.rounds, c.swap = 0, time.Second/2 }
	for _, test := range []struct {
		defect string
		setup  func(*config)
		want   string // in what is printed
	}{
		{defectNone, func(c *config) {
			c.churn, c.swap = time.Second/2, time.Second/2
			c.idleKiB, c.margin, c.slack = 1024, 0.1, 32<<10
		}, "PASSED: 32 of 32 checks held, 0 skipped"},
		{defectFlip, churn, "wrong answers"},
		{defectHarsh, churn, `a FIN arrived as read`},
		{defectHalf, churn, "client-fin: answer "},
		{defectRst, churn, `the client's rst arrived as "fin"`},
		{defectRst, churn, "server-rst: a reset arrived as EOF"},
		{defectKeep, func(c *config) { c.rounds = 1 }, "round 1, none left: the proxy has "},
		{defectHush, func(c *config) { c.rounds = 1 }, "round 1, none left: the server still has "},
		{defectIdle, func(c *config) { c.rounds, c.during = 1, 1300*time.Millisecond }, "round 1, idle sessions used again: 20 errors"},
		{defectLeak, func(c *config) { c.margin, c.slack = 0.1, 8<<10 }, "memory after all are closed is flat: "},
		{defectFat, func(c *config) { c.rounds, c.idleKiB = 1, 512 }, "memory of an idle session: "},
		{defectRule, swap, "rules under load: "},
		{defectDeaf, swap, "rules that delay have acted: not once"},
		{defectSlowRule, swap, "pace of the changes: "},
	} {
		t.Run(test.defect, func(t *testing.T) {
			t.Parallel()
			c := short(t, relayRole, "{api}", test.defect)
			c.gone = 300 * time.Millisecond
			test.setup(&c)
			out, held := played(t, c)
			if held != (test.defect == defectNone) || !strings.Contains(out, test.want) {
				t.Errorf("wanted %q in:\n%s", test.want, out)
			}
		})
	}
}
