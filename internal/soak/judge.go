//go:build linux

package main

import (
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// book is what a soak has found.
type book struct {
	samples []sample
	results []roundResult
	said    []string
	checks  int
	failed  []string
}

// roundResult is one round.
type roundResult struct {
	n                              int
	before, held, most, after      sample
	left                           int
	opened, opens, checked, closed report
}

// hold counts one thing that must hold.
func (b *book) hold(what string, err error) {
	b.checks++
	if err != nil {
		b.failed = append(b.failed, fmt.Sprintf("%s: %v", what, err))
	}
}

func (b *book) say(format string, args ...any) { b.said = append(b.said, fmt.Sprintf(format, args...)) }

// judge holds a phase to no error, no wrong byte and all of it done.
func (b *book) judge(name string, p problemCount, done, want int) {
	var errs []error
	if p.Errors > 0 || p.Wrong > 0 {
		errs = append(errs, fmt.Errorf("%d errors and %d wrong answers, such as\n  %s", p.Errors, p.Wrong, strings.Join(p.First, "\n  ")))
	}
	if done != want {
		errs = append(errs, fmt.Errorf("%d of %d done", done, want))
	}
	b.hold(name, errors.Join(errs...))
}

// judgeLeft holds a phase to leaving nothing behind.
func (r *run) judgeLeft(name string, after sample, left int) {
	var errs []error
	if left > 0 {
		errs = append(errs, fmt.Errorf("the server still has %d sessions %v after the end", left, r.gone))
	}
	if after.files > r.baseline.files {
		errs = append(errs, fmt.Errorf("the proxy has %d descriptors, and had %d before", after.files, r.baseline.files))
	}
	r.hold(name+", none left", errors.Join(errs...))
}

func (r *run) judgeRound(res roundResult) {
	name := fmt.Sprintf("round %d", res.n)
	r.results = append(r.results, res)
	opens := int(r.during.Seconds() * float64(r.opens))
	r.judge(name+", idle sessions opened", res.opened.Problems, res.opened.Done, r.sessions)
	r.judge(name+", opens", res.opens.Problems, res.opens.Done, opens)
	r.judge(name+", idle sessions used again", res.checked.Problems, res.checked.Done, r.sessions)
	r.judge(name+", idle sessions closed", res.closed.Problems, res.closed.Done, r.sessions)
	var err error
	if floor := r.pace * float64(r.opens); res.opens.Rate < floor {
		err = fmt.Errorf("%.0f a second, under %.0f", res.opens.Rate, floor)
	}
	r.hold(name+", pace of the opens", err)
	if r.pid > 0 {
		err = nil
		if want := r.baseline.files + 2*r.sessions; res.held.files < want {
			err = fmt.Errorf("the proxy has %d descriptors while all are held, not %d", res.held.files, want)
		}
		r.hold(name+", sessions held", err)
	}
	r.judgeLeft(name, res.after, res.left)
	r.say("%s: %d opens, %.1f a second; %s", name, res.opens.Done, res.opens.Rate, spreadText(res.opens.Spread))
}

func spreadText(all []time.Duration) string {
	var parts []string
	for i, d := range all {
		parts = append(parts, fmt.Sprintf("p%g %v", 100*quantiles[i], d.Round(10*time.Microsecond)))
	}
	return strings.Join(parts, ", ")
}

// judgeRounds judges memory: of an idle session in the first round, and whether
// the last one leaves more than the first. Meanwhile nothing is compared: the first
// round finds a fresh process, and later ones the garbage of those before.
func (r *run) judgeRounds() {
	if len(r.results) == 0 || r.pid == 0 {
		return
	}
	first, last := r.results[0], r.results[len(r.results)-1]
	per := func(kib int) float64 { return float64(kib) / float64(r.sessions) }
	idle := per(first.held.rss - first.before.rss)
	r.say("an idle session: %.2f KiB of RSS, %.2f KiB of PSS", idle, per(first.held.pss-first.before.pss))
	if r.idleKiB > 0 {
		var err error
		if idle > r.idleKiB {
			err = fmt.Errorf("%.2f KiB of RSS, over %.2f", idle, r.idleKiB)
		}
		r.hold("memory of an idle session", err)
	}
	if r.margin <= 0 || last.n == first.n {
		return
	}
	var err error
	if top := int(float64(first.after.rss)*(1+r.margin)) + r.slack; last.after.rss > top {
		err = fmt.Errorf("%d KiB of RSS after round %d, %d after round %d, over %d", first.after.rss, first.n, last.after.rss, last.n, top)
	}
	r.hold("memory after all are closed is flat", err)
}

// judgeEnd judges whether memory was given back. Without traffic a Go process
// collects its garbage only after two minutes, so it is read behind the churn.
func (r *run) judgeEnd() {
	if r.pid == 0 || r.endMiB <= 0 || r.churn <= 0 {
		return
	}
	var err error
	last := r.samples[len(r.samples)-1]
	if more := float64(last.rss-r.baseline.rss) / 1024; more > r.endMiB {
		err = fmt.Errorf("%.1f MiB of RSS over the fresh process, over %.1f", more, r.endMiB)
	}
	r.hold("memory at the end", err)
}

// compare holds what the server has received against what the clients sent.
// complete says that the clients know of all their sessions.
func (r *run) compare(name string, sent []entry, complete bool) error {
	state, err := r.server.ask(order{Do: "state"})
	if err != nil {
		return err
	}
	got := map[uint64]entry{}
	var p problemCount
	p.join(state.Problems)
	for _, e := range state.Ledger {
		if _, twice := got[e.ID]; twice {
			p.add(wrongf("the server saw session %d twice", e.ID))
		}
		got[e.ID] = e
	}
	for _, e := range sent {
		g, ok := got[e.ID]
		if !ok {
			p.add(fmt.Errorf("the server never saw session %d", e.ID))
			continue
		}
		delete(got, e.ID)
		if err := e.received(g, r.seed); err != nil {
			p.add(fmt.Errorf("session %d: %w", e.ID, err))
		}
	}
	if complete {
		for id := range got {
			p.add(wrongf("only the server saw session %d", id))
		}
	}
	r.judge(name, p, len(sent), len(sent))
	return nil
}

// received tells why what the server has is not what the client did.
func (e entry) received(g entry, seed uint64) error {
	switch {
	case e.End != "" && e.End != g.End:
		return fmt.Errorf("the client's %s arrived as %q", e.End, g.End)
	case g.Bytes < e.Least || g.Bytes > e.Bytes:
		return wrongf("%d bytes arrived, of %d to %d", g.Bytes, e.Least, e.Bytes)
	case g.Bytes == e.Bytes && g.Sum != e.Sum, g.Bytes < e.Bytes && g.Sum != sumOf(newPlan(seed, e.ID), seed, g.Bytes):
		return wrongf("the %d bytes that arrived are not those that were sent", g.Bytes)
	}
	return nil
}

// sumOf is the checksum of the first n bytes of a session of the churn.
func sumOf(p plan, seed uint64, n int) uint64 {
	s := newStream(seed, p)
	var req []byte
	for range p.first + p.behind {
		req, _ = s.next(req, nil)
	}
	return crc64.Update(0, crcTable, req[:min(n, len(req))])
}

// print writes the table and the verdict, and tells whether all held.
func (b *book) print(w io.Writer) bool {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RSS MiB\tPSS MiB\tdescriptors\tthreads\tTIME_WAIT\t")
	for _, s := range b.samples {
		fmt.Fprintf(t, "%.1f\t%.1f\t%d\t%d\t%d\t  %s\n", float64(s.rss)/1024, float64(s.pss)/1024, s.files, s.threads, s.waiting, s.when)
	}
	_ = t.Flush()
	for _, lines := range [][]string{b.said, b.failed} {
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
	}
	verdict := "PASSED"
	if len(b.failed) > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "%s: %d of %d checks held\n", verdict, b.checks-len(b.failed), b.checks)
	return len(b.failed) == 0
}
