package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"tornwire/frames"
	"tornwire/server"
)

// secretFileLimit is the most bytes of a secret's file, the newline at the end
// included.
const secretFileLimit = 4096

// lockserverFlags are the command line of tornwire lockserver.
type lockserverFlags struct {
	listen     string
	secretFile string
	verbose    bool
	config     server.Config
}

func lockserverCommand() *cobra.Command {
	var f lockserverFlags
	cmd := &cobra.Command{
		Use:   "lockserver",
		Short: "Runs the embedded lock server alone",
		Long: "Runs the embedded Ticketing lock server on one address until it is interrupted. The line\n" +
			"\"listening on HOST:PORT\" on stdout tells that it accepts connections; logs go to stderr.\n" +
			"Locks live in memory only.",
		Example: "  tornwire lockserver\n" +
			"  tornwire lockserver --listen 127.0.0.1:0 --dialect ticketing-v0 --secret-file secret.txt --verbose",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c, flags := &f.config, cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7070", "`HOST:PORT` to listen on; port 0 takes a free one")
	flags.StringVar(&c.Dialect, "dialect", server.DefaultDialect, "what to speak: "+strings.Join(frames.Names(), " or "))
	flags.StringVar(&f.secretFile, "secret-file", "", "`FILE` with the shared secret, without its last newline (default no secret)")
	flags.IntVar(&c.QueueLimit, "queue", server.DefaultQueueLimit, "attempts that may wait for one key")
	flags.IntVar(&c.Capacity, "capacity", server.DefaultCapacity, "attempts held or waiting over all keys")
	flags.Uint64Var(&c.FirstToken, "first-token", 1, "token of the first grant")
	flags.DurationVar(&c.PrefaceTimeout, "preface-timeout", server.DefaultPrefaceTimeout, "how long a client may take to authenticate")
	flags.BoolVar(&f.verbose, "verbose", false, "log every grant, and every other change of the lock table")
	return cmd
}

func (f *lockserverFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	level := zerolog.InfoLevel
	if f.verbose {
		level = zerolog.DebugLevel
	}
	log, flush := newLogger(stderr, level)
	defer flush()
	var events *eventLog[server.Event]
	if f.verbose {
		events = newEventLog(log, logTable)
		f.config.OnEvent = events.put
	}
	s, err := f.server()
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	if events != nil {
		defer events.start()()
	}
	if _, err := fmt.Fprintln(stdout, "listening on "+l.Addr().String()); err != nil {
		return errors.Join(fmt.Errorf("stdout: %w", err), l.Close())
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && f.config.Secret == "" {
		log.Warn().Msg("anyone who reaches this address may take and free locks; set a secret with --secret-file")
	}
	log.Info().Str("address", l.Addr().String()).Str("dialect", f.config.Dialect).Msg("serving")
	err = s.Serve(ctx, l)
	log.Info().Msg("stopped")
	return err
}

// server checks all flags and makes the server they describe.
func (f *lockserverFlags) server() (*server.Server, error) {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if _, err := net.ResolveTCPAddr("tcp", f.listen); err != nil {
		bad("%s", wrongAddress("--listen", f.listen, err))
	}
	// The server takes 0 for its default; here it was written on purpose.
	for _, z := range []struct {
		flag string
		zero bool
	}{
		{"dialect", f.config.Dialect == ""},
		{"queue", f.config.QueueLimit == 0},
		{"capacity", f.config.Capacity == 0},
		{"first-token", f.config.FirstToken == 0},
		{"preface-timeout", f.config.PrefaceTimeout == 0},
	} {
		if z.zero {
			bad("--%s is empty or 0; leave it out for its default", z.flag)
		}
	}
	if f.secretFile != "" {
		secret, err := readSecret(f.secretFile)
		if err != nil {
			bad("--secret-file: %v", err)
		}
		f.config.Secret = secret
	}
	s, err := server.New(f.config)
	if err != nil {
		bad("%v", err)
	}
	if len(problems) > 0 {
		return nil, usagef("%s", strings.Join(problems, "\n"))
	}
	return s, nil
}

// readSecret returns the content of a file without its last newline.
func readSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, secretFileLimit+1))
	if err != nil {
		return "", err
	}
	if len(b) > secretFileLimit {
		return "", fmt.Errorf("%s has over %d bytes", file, secretFileLimit)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

// logTable logs a change of the lock table.
func logTable(log zerolog.Logger, e server.Event) {
	w := log.Debug().Str("key", e.Key)
	if e.Token != 0 {
		w.Uint64("token", e.Token)
	}
	if e.HasOwner {
		w.Uint64("owner", e.Owner)
	}
	if e.How != "" {
		w.Str("how", e.How)
	}
	if e.Peer != "" {
		w.Str("peer", e.Peer)
	}
	w.Stringer("wait", e.Wait).Stringer("lease", e.Lease).Msg(string(e.Kind))
}
