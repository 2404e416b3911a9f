//go:build linux

// Command soak measures a running tornwire from outside: client, proxy and server
// are processes of their own, and nothing is shared with what is measured.
//
//	soak -tornwire PATH [flags]
//	soak [flags] -- COMMAND...   another proxy with toxiproxy's API; {api}, {host} and {port} become its address
//	soak -direct [flags]         no proxy: what the client and the server make of each other
//
// It holds idle sessions and opens others beside them, twice, and compares what
// the proxy holds before, meanwhile and after; it ends sessions in every way and
// compares, byte by byte and end by end, what each side saw with what the other
// did; and it changes rules while that goes on. The exit code is 0 if everything
// held, 1 if not, 69 if something could not be started, 64 for a wrong flag.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 64
	exitUnavailable = 69
)

// config is a soak.
type config struct {
	command  []string // of the daemon; none for no proxy
	env      []string // of the daemon, besides our own
	grammar  string
	sessions int
	opens    int // a second
	during   time.Duration
	rounds   int
	proxies  int
	sources  int // loopback addresses of the client
	settle   time.Duration
	gone     time.Duration
	churn    time.Duration
	rate     int // sessions of the churn a second
	swap     time.Duration
	swaps    int // a second
	pace     float64
	idleKiB  float64
	margin   float64
	slack    int // KiB
	endMiB   float64
	seed     uint64
}

func (c *config) flags(fs *flag.FlagSet) (tornwire *string, direct *bool) {
	tornwire = fs.String("tornwire", "", "the binary whose serve --api is measured")
	direct = fs.Bool("direct", false, "no proxy")
	fs.StringVar(&c.grammar, "grammar", "ticketing", "grammar of the proxies; empty for none")
	fs.IntVar(&c.sessions, "sessions", 5000, "idle sessions, 1 or more")
	fs.IntVar(&c.opens, "opens", 500, "sessions a second that are opened, used and closed beside them")
	fs.DurationVar(&c.during, "for", time.Minute, "how long they are")
	fs.IntVar(&c.rounds, "rounds", 2, "how often all of that; 2 or more to judge whether memory is flat; 0 for not at all")
	fs.IntVar(&c.proxies, "proxies", 4, "proxies, each with a server address of its own, so that ports towards it do not run out (1 to 64)")
	fs.IntVar(&c.sources, "sources", 16, "loopback addresses that the client connects from (1 to 64)")
	fs.DurationVar(&c.settle, "settle", 10*time.Second, "wait before memory is read")
	fs.DurationVar(&c.gone, "gone", 10*time.Second, "how long the last sessions may take to be gone once their clients have ended them")
	fs.DurationVar(&c.churn, "churn", 30*time.Second, "how long sessions end in every way; 0 for not at all")
	fs.IntVar(&c.rate, "rate", 500, "such sessions a second")
	fs.DurationVar(&c.swap, "swap", 15*time.Second, "how long rules change under load; 0 for not at all")
	fs.IntVar(&c.swaps, "swaps", 50, "changes of rules a second")
	fs.Float64Var(&c.pace, "pace", 0.95, "what part of each rate has to be reached")
	fs.Float64Var(&c.idleKiB, "idle-kib", 24, "most KiB of RSS for an idle session; 0 judges nothing")
	fs.Float64Var(&c.margin, "margin", 0.1, "by what part the last round may hold more memory than the first; 0 or less judges nothing")
	fs.IntVar(&c.slack, "slack", 2048, "KiB that it may hold more besides")
	fs.Float64Var(&c.endMiB, "end-mib", 64, "most MiB of RSS over the fresh process behind the churn; 0 judges nothing")
	fs.Uint64Var(&c.seed, "seed", 1, "of all that is random")
	return tornwire, direct
}

// check refuses numbers that make no soak.
func (c *config) check() error {
	var errs []error
	for _, f := range []struct {
		name        string
		v, low, top int
	}{
		{"sessions", c.sessions, 1, 100_000},
		{"opens", c.opens, 1, 100_000},
		{"rounds", c.rounds, 0, 100},
		{"proxies", c.proxies, 1, 64},
		{"sources", c.sources, 1, 64},
		{"rate", c.rate, 1, 100_000},
		{"swaps", c.swaps, 1, 1000},
	} {
		if f.v < f.low || f.v > f.top {
			errs = append(errs, fmt.Errorf("-%s is %d, not %d to %d", f.name, f.v, f.low, f.top))
		}
	}
	return errors.Join(errs...)
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	fs.SetOutput(stderr)
	tornwire, direct := c.flags(fs)
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	c.command = fs.Args()
	if *tornwire != "" {
		c.command = append([]string{*tornwire, "serve", "--api", "{api}"}, c.command...)
	}
	err := c.check()
	if (len(c.command) == 0) != *direct {
		err = errors.Join(err, errors.New("one of -tornwire PATH, -direct and a command behind -- is needed"))
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return c, err
}

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		if err := playRole(role); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			os.Exit(exitFailed)
		}
		return
	}
	os.Exit(program(os.Args[1:], os.Stdout, os.Stderr))
}

// program is the driver. It returns the exit code.
func program(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if err != nil {
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := soak(ctx, c, stderr)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUnavailable
	}
	if !b.print(stdout) {
		return exitFailed
	}
	return 0
}
