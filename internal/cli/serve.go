package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"tornwire/api"
	"tornwire/frames"
	"tornwire/history"
	"tornwire/verify"
)

// serveFlags are the command line of tornwire serve.
type serveFlags struct {
	api         string
	allowRemote bool
	level       string
	seed        uint64
	proxies     []string
}

var logLevels = []string{"debug", "info", "warn", "error"}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Runs proxies that are steered over a REST API",
		Long: "Runs proxies, and a REST API that creates them and arms faults on them, until it is interrupted.\n" +
			"The line \"listening on HOST:PORT\" on stdout tells that the API answers; logs go to stderr.\n\n" +
			"The routes are /version, /reset, /proxies, /proxies/NAME and /proxies/NAME/toxics as toxiproxy 2.12.0\n" +
			"has them (its /populate and /metrics are not there), and /proxies/NAME/rules and /proxies/NAME/gates.\n\n" +
			"Exit codes: 130 or 143 after a signal, 64 usage, 70 an address that cannot be had or another failure.",
		Example: "  tornwire serve --proxy locks,127.0.0.1:7071,127.0.0.1:7070,ticketing\n" +
			"  curl -X POST localhost:8474/proxies/locks/rules -d '{\"id\":\"cut\",\"dir\":\"s2c\",\"op\":\"A\",\"fault\":{\"type\":\"truncate-rst\",\"at\":13}}'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.api, "api", "127.0.0.1:8474", "`HOST:PORT` of the API; port 0 takes a free one")
	flags.BoolVar(&f.allowRemote, "allow-remote", false, "let --api be an address that other machines reach; whoever does may steer everything")
	flags.StringVar(&f.level, "log-level", "info", "what to log: "+strings.Join(logLevels, ", "))
	flags.Uint64Var(&f.seed, "seed", 1, "of what is random on proxies that have no seed of their own")
	flags.StringArrayVar(&f.proxies, "proxy", nil,
		"`NAME,LISTEN,UPSTREAM[,GRAMMAR]` of a proxy to begin with (repeatable); grammars are "+strings.Join(frames.Names(), ", "))
	return cmd
}

func (f *serveFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	proxies, err := f.check()
	if err != nil {
		return err
	}
	level, _ := zerolog.ParseLevel(f.level)
	// Who reads stdout or stderr may leave; the sessions go on.
	signal.Ignore(syscall.SIGPIPE)
	log, flush := newLogger(stderr, level)
	defer flush()
	events := newEventLog(log, logWire)
	m := api.NewManager(api.Options{
		Version: Version(), Seed: f.seed, Log: log,
		Observe: func(proxy string, e history.Event) {
			if wireLevel(&e) >= level {
				events.put(wireEvent{proxy, e})
			}
		},
	})
	defer events.start()()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.api)
	if err != nil {
		return fmt.Errorf("%w; choose another address with --api", err)
	}
	for _, s := range proxies {
		if _, err := m.Create(s); err != nil {
			m.Close()
			return errors.Join(fmt.Errorf("--proxy %s: %w", s.Name, err), l.Close())
		}
	}
	if _, err := fmt.Fprintln(stdout, "listening on "+l.Addr().String()); err != nil {
		m.Close()
		return errors.Join(fmt.Errorf("stdout: %w", err), l.Close())
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		log.Warn().Str("address", a.String()).Msg("anyone who reaches this address may steer the proxies and reach what they reach")
	}
	log.Info().Str("api", l.Addr().String()).Uint64("seed", f.seed).Msg("serving")
	if err := api.Serve(ctx, l, m); err != nil {
		log.Error().Err(err).Msg("the API has ended")
		return exitError{verify.ExitInternal}
	}
	log.Info().Msg("stopped")
	if code, stopped := signalCode(ctx); stopped {
		return exitError{code}
	}
	return nil
}

// check finds everything that is wrong with the flags.
func (f *serveFlags) check() ([]api.Settings, error) {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	a, err := net.ResolveTCPAddr("tcp", f.api)
	switch {
	case err != nil:
		bad("%s", wrongAddress("--api", f.api, err))
	case !a.IP.IsLoopback() && !f.allowRemote:
		bad("--api %q is reached by other machines, and there is no password yet; choose a loopback address, or say --allow-remote", f.api)
	}
	if !slices.Contains(logLevels, f.level) {
		bad("there is no log level %q%s; levels are %s", f.level, verify.DidYouMean(f.level, logLevels), strings.Join(logLevels, ", "))
	}
	var out []api.Settings
	for _, p := range f.proxies {
		parts := strings.Split(p, ",")
		if len(parts) < 3 || len(parts) > 4 {
			bad("--proxy %q is not NAME,LISTEN,UPSTREAM[,GRAMMAR]", p)
			continue
		}
		s := api.Settings{Name: parts[0], Listen: parts[1], Upstream: parts[2], Enabled: true}
		if len(parts) == 4 {
			s.Grammar = parts[3]
		}
		if err := s.Check(); err != nil {
			bad("--proxy %q: %v", p, err)
		}
		if slices.ContainsFunc(out, func(o api.Settings) bool { return o.Name == s.Name }) && s.Name != "" {
			bad("--proxy %q: there is a proxy of this name already", p)
		}
		out = append(out, s)
	}
	if len(problems) > 0 {
		return nil, usagef("%s", strings.Join(problems, "\n"))
	}
	return out, nil
}

// wrongAddress tells why the address of a flag cannot be listened on.
func wrongAddress(flag, address string, err error) string {
	var lookup *net.DNSError
	if host, _, _ := net.SplitHostPort(address); errors.As(err, &lookup) && lookup.Name == host {
		return fmt.Sprintf("%s %q: the host has no address: %v", flag, address, err)
	}
	return fmt.Sprintf("%s %q is not HOST:PORT: %v", flag, address, err)
}

// wireEvent is what happened on a proxy.
type wireEvent struct {
	proxy string
	history.Event
}

func notReached(e *history.Event) bool {
	return e.Kind == history.ServerDialed && e.Detail != ""
}

// wireLevel is how important an event is.
func wireLevel(e *history.Event) zerolog.Level {
	switch {
	case notReached(e), e.Kind == history.AcceptFailed, e.Kind == history.ServerLost:
		return zerolog.WarnLevel
	case e.Kind == history.Fired, e.Kind == history.WentOpaque, e.Kind == history.ServerBack:
		return zerolog.InfoLevel
	}
	return zerolog.DebugLevel
}

// logWire logs an event of a proxy.
func logWire(log zerolog.Logger, e wireEvent) {
	w := log.WithLevel(wireLevel(&e.Event)).Str("proxy", e.proxy)
	if e.Session != 0 {
		w.Int("session", e.Session)
	}
	if e.Frame != nil {
		w.Stringer("frame", e.Frame).Int("offset", e.Off)
	}
	for _, s := range []struct{ name, value string }{{"rule", e.Rule}, {"fault", e.Fault}, {"peer", e.Peer}, {"detail", e.Detail}} {
		if s.value != "" {
			w.Str(s.name, s.value)
		}
	}
	if notReached(&e.Event) {
		w.Msg("server not reached")
		return
	}
	w.Msg(strings.ReplaceAll(string(e.Kind), "_", " "))
}
