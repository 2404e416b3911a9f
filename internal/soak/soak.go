//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// run is a soak under way.
type run struct {
	config
	ctx      context.Context
	notes    io.Writer // progress
	d        *daemon   // nil without a proxy
	pid      int       // 0 without a proxy
	server   *child
	client   *child
	targets  []string
	baseline sample
	book
}

// soak does what the configuration says. The error is that of something that
// could not be started or asked; what did not hold is in the book.
func soak(ctx context.Context, c config, notes io.Writer) (b *book, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := enoughFiles(2 * (c.sessions + 2*flightLimit)); err != nil {
		return nil, err
	}
	r := &run{config: c, ctx: ctx, notes: notes}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(); err != nil {
		return nil, err
	}
	for n := 1; n <= c.rounds; n++ {
		if err := r.round(n); err != nil {
			return nil, r.why(err)
		}
	}
	r.judgeRounds()
	for _, phase := range []func() error{r.churning, r.swapping, r.atEnd} {
		if err := phase(); err != nil {
			return nil, r.why(err)
		}
	}
	return &r.book, nil
}

// why adds to an error what the daemon had to say.
func (r *run) why(err error) error {
	if r.d == nil {
		return err
	}
	return errors.Join(err, r.d.alive(), fmt.Errorf("the daemon said:\n%s", r.d.log))
}

func (r *run) start() error {
	var err error
	if r.server, err = startRole(r.ctx, "server"); err != nil {
		return err
	}
	if r.client, err = startRole(r.ctx, "client"); err != nil {
		return err
	}
	up, err := r.server.ask(order{Do: "listen", Count: r.proxies})
	if err != nil {
		return err
	}
	if r.targets = up.Addrs; len(r.command) == 0 {
		return nil
	}
	if r.d, err = startDaemon(r.ctx, r.command, r.env...); err != nil {
		return err
	}
	r.pid = r.d.cmd.Process.Pid
	r.targets = nil
	for i, addr := range up.Addrs {
		at, err := r.d.create(proxySpec{
			Name: proxyName(i), Listen: "127.0.0.1:0", Upstream: addr, Enabled: true, Grammar: r.grammar,
		})
		if err != nil {
			return r.why(err)
		}
		r.targets = append(r.targets, at)
	}
	return nil
}

func proxyName(i int) string { return fmt.Sprintf("soak-%d", i) }

// stop ends everything that start has started.
func (r *run) stop() error {
	var errs []error
	for _, c := range []*child{r.client, r.server} {
		if c != nil {
			errs = append(errs, c.stop())
		}
	}
	if r.d != nil {
		errs = append(errs, r.d.stop())
	}
	return errors.Join(errs...)
}

// pause waits, unless the soak is interrupted.
func (r *run) pause(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// sample reads what the proxy holds and keeps it for the table.
func (r *run) sample(when string) (sample, error) {
	s, err := takeSample(r.pid, when)
	if err == nil {
		r.samples = append(r.samples, s)
	}
	return s, err
}

// ask has the client do something, and reads meanwhile what the proxy holds at
// most.
func (r *run) ask(o order) (report, sample, error) {
	o.Targets, o.Sources, o.Seed = r.targets, r.sources, r.seed
	fmt.Fprintf(r.notes, "%s\n", o.Do)
	type result struct {
		report
		err error
	}
	done := make(chan result, 1)
	go func() {
		rep, err := r.client.ask(o)
		done <- result{rep, err}
	}()
	most, tick := sample{}, time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case res := <-done:
			s, err := takeSample(r.pid, "")
			return res.report, most.maximum(s), errors.Join(res.err, err)
		case <-tick.C:
			s, err := takeSample(r.pid, "")
			if err != nil {
				return report{}, most, errors.Join(err, context.Cause(r.ctx))
			}
			most = most.maximum(s)
		}
	}
}

// round holds the idle sessions, opens others beside them, and closes all.
func (r *run) round(n int) error {
	name := func(s string) string { return fmt.Sprintf("round %d, %s", n, s) }
	if err := r.warm(); err != nil {
		return err
	}
	before, err := r.sample(name("before"))
	if err != nil {
		return err
	}
	opened, _, err := r.ask(order{Do: "open-idle", Count: r.sessions})
	if err == nil {
		err = r.pause(r.settle)
	}
	if err != nil {
		return err
	}
	held, err := r.sample(name("idle sessions held"))
	if err != nil {
		return err
	}
	opens, most, err := r.ask(order{Do: "opens", Rate: r.opens, For: r.during})
	if err != nil {
		return err
	}
	most.when = name("opens beside them, most")
	r.samples = append(r.samples, most)
	checked, _, err := r.ask(order{Do: "check-idle"})
	if err != nil {
		return err
	}
	closed, _, err := r.ask(order{Do: "close-idle"})
	if err != nil {
		return err
	}
	after, left, err := r.settled(name("all closed"))
	if err != nil {
		return err
	}
	r.judgeRound(roundResult{
		n: n, before: before, held: held, most: most, after: after, left: left,
		opened: opened, opens: opens, checked: checked, closed: closed,
	})
	sent := append(opens.Ledger, closed.Ledger...)
	return r.compare(name("ledger"), sent, len(opens.Problems.First)+len(closed.Problems.First) == 0)
}

// warm has every proxy used once before anything is counted.
func (r *run) warm() error {
	if r.baseline.when != "" {
		return nil
	}
	rep, _, err := r.ask(order{Do: "open-idle", Count: 2 * r.proxies})
	if err != nil {
		return err
	}
	r.judge("warm-up", rep.Problems, rep.Done, 2*r.proxies)
	closed, _, err := r.ask(order{Do: "close-idle"})
	if err != nil {
		return err
	}
	if r.baseline, _, err = r.settled("fresh"); err != nil {
		return err
	}
	return r.compare("warm-up ledger", closed.Ledger, true)
}

// settled waits until nothing is left of the sessions, or it has taken too long, and
// then until memory has settled. It returns how many the server still has.
func (r *run) settled(when string) (sample, int, error) {
	for deadline := time.Now().Add(r.gone); ; {
		live, err := r.server.ask(order{Do: "live"})
		if err != nil {
			return sample{}, 0, err
		}
		s, err := takeSample(r.pid, when)
		if err != nil {
			return s, live.Live, err
		}
		gone := live.Live == 0 && (r.baseline.when == "" || s.files <= r.baseline.files)
		if gone || time.Now().After(deadline) {
			if err := r.pause(r.settle); err != nil {
				return s, live.Live, err
			}
			s, err = r.sample(when)
			return s, live.Live, err
		}
		if err := r.pause(50 * time.Millisecond); err != nil {
			return s, live.Live, err
		}
	}
}

// churning ends sessions in every way.
func (r *run) churning() error {
	if r.churn <= 0 {
		return nil
	}
	if err := r.warm(); err != nil {
		return err
	}
	rep, _, err := r.ask(order{Do: "churn", Rate: r.rate, For: r.churn})
	if err != nil {
		return err
	}
	return r.finished("churn", rep, int(r.churn.Seconds()*float64(r.rate)))
}

// finished judges a phase of which nothing may be left.
func (r *run) finished(name string, rep report, want int) error {
	after, left, err := r.settled("after " + name)
	if err != nil {
		return err
	}
	r.judge(name, rep.Problems, rep.Done, want)
	r.judgeLeft(name, after, left)
	r.say("%s: %d sessions, %d bytes of requests and the answers to each of them compared", name, rep.Done, rep.Bytes)
	return r.compare(name+" ledger", rep.Ledger, len(rep.Problems.First) == 0)
}

// atEnd looks at the daemon once more.
func (r *run) atEnd() error {
	if r.d == nil {
		return nil
	}
	r.judgeEnd()
	r.hold("the daemon still answers", func() error {
		if err := r.d.alive(); err != nil {
			return err
		}
		status, _, err := r.d.call(http.MethodGet, "/proxies", nil)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET /proxies has status %d", status)
		}
		return err
	}())
	return nil
}
