package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"tornwire/frames"
	"tornwire/server"
)

// secretFileLimit is the most bytes of a secret's file, the newline at the end
// included.
const secretFileLimit = 4096

const maxPort = 65535

// lockserverFlags are the command line of tornwire lockserver.
type lockserverFlags struct {
	listen     string
	nodes      int
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
			"Locks live in memory only.\n\n" +
			"With --nodes it is a cluster with one lock table, and there is such a line for each node.\n" +
			"The first leads; the others listen on the ports behind its own, and answer every request\n" +
			"with M and its address.",
		Example: "  tornwire lockserver\n" +
			"  tornwire lockserver --listen 127.0.0.1:0 --dialect ticketing-v0 --secret-file secret.txt --verbose\n" +
			"  tornwire lockserver --listen 127.0.0.1:0 --nodes 3",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c, flags := &f.config, cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7070", "`HOST:PORT` to listen on; port 0 takes a free one")
	flags.IntVar(&f.nodes, "nodes", 1, "nodes of the cluster, the first of which leads")
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
	c, err := f.server()
	if err != nil {
		return err
	}
	ls, err := f.listeners(ctx)
	if err != nil {
		return err
	}
	if events != nil {
		defer events.start()()
	}
	for _, l := range ls {
		if _, err := fmt.Fprintln(stdout, "listening on "+l.Addr().String()); err != nil {
			return errors.Join(fmt.Errorf("stdout: %w", err), closeAll(ls))
		}
	}
	if a, ok := ls[0].Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && f.config.Secret == "" {
		log.Warn().Msg("anyone who reaches this address may take and free locks; set a secret with --secret-file")
	}
	log.Info().Str("address", ls[0].Addr().String()).Int("nodes", f.nodes).Str("dialect", f.config.Dialect).Msg("serving")
	err = serveNodes(ctx, c, ls)
	log.Info().Msg("stopped")
	return err
}

// listeners opens an address for each node: the ports behind the first one's, or free
// ones if that was to be free.
func (f *lockserverFlags) listeners(ctx context.Context) ([]net.Listener, error) {
	host, port, _ := net.SplitHostPort(f.listen) // it was resolved
	first, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, err
	}
	var ls []net.Listener
	for i := range f.nodes {
		n := first
		if first > 0 {
			n += i
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(n)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w; choose another address with --listen", err), closeAll(ls))
		}
		ls = append(ls, l)
	}
	return ls, nil
}

func closeAll(ls []net.Listener) error {
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// serveNodes serves each node on its listener; the first leads. It ends with the first
// listener that fails.
func serveNodes(ctx context.Context, c *server.Cluster, ls []net.Listener) error {
	if err := c.Lead(0, ls[0].Addr().String()); err != nil {
		return errors.Join(err, closeAll(ls))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() {
			defer cancel()
			errs[i] = c.Node(i).Serve(ctx, l)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// server checks all flags and makes the nodes they describe.
func (f *lockserverFlags) server() (*server.Cluster, error) {
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
		{"nodes", f.nodes == 0},
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
	c, err := server.NewCluster(f.config, max(f.nodes, 1))
	if f.nodes < 0 {
		bad("%d nodes, not 1 to %d", f.nodes, server.MaxNodes)
	}
	if a, err := net.ResolveTCPAddr("tcp", f.listen); err == nil && f.nodes > 1 {
		if last := a.Port + f.nodes - 1; a.Port > 0 && last > maxPort {
			bad("--listen %s with --nodes %d: the last port would be %d, over %d", f.listen, f.nodes, last, maxPort)
		}
		if len(a.IP) == 0 || a.IP.IsUnspecified() {
			bad("--listen %s with --nodes %d: there is no address to name in M; write one that clients can reach", f.listen, f.nodes)
		}
	}
	if err != nil {
		bad("%v", err)
	}
	if len(problems) > 0 {
		return nil, usagef("%s", strings.Join(problems, "\n"))
	}
	return c, nil
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
