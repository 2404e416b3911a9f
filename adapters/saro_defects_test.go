package adapters_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tornwire/checker"
	"tornwire/verify"
)

// saroDefect is a known defect of saro-ticketing 0.1.0, and how it must be found.
type saroDefect struct {
	name     string
	rule     string
	severity checker.Severity
	in       string // the case
	verdict  checker.Verdict
	says     []string // parts of the message
	inside   []string // parts of a line about the application; empty: nobody went in wrongly
}

// saroDefects has the rows of docs/saro-ticketing.md.
var saroDefects = []saroDefect{
	{
		"the acquire is sent again", "one-attempt", checker.Contract,
		"single/s2c.A.1@0:truncate-fin", checker.Nonconforming,
		[]string{"call 1 ", "sent c2s.A.2 on session 2 although 14 bytes of c2s.A.1 on session 1 had been received"},
		nil,
	},
	{
		"answers are matched in order", "no-fifo", checker.Safety,
		"pipelined/none", checker.Unsafe,
		[]string{"was told acquired (token 4) by s2c.A.3 on session 1, the answer to call 3, which was told timeout"},
		[]string{"call 5 of client c1 (token 4) and call 6 of client c1 (token 5) were both inside"},
	},
	{
		"the key is released, whoever holds it", "release-own", checker.Safety,
		"expired/none", checker.Unsafe,
		[]string{"(own token 1, expired ", "ended token 2, which call 2 of client c2 held"},
		[]string{"call 2 of client c2 (token 2) and call 3 of client c3 (token 3) were both inside"},
	},
	{
		"the release is sent again", "release-own", checker.Safety,
		"release-repeated/s2c.R.1@0:truncate-fin", checker.Unsafe,
		[]string{"a repetition, since 12 bytes of c2s.R.1 on session 1 had been received", "ended token 2, which call 2 of client c2 held"},
		[]string{"call 2 of client c2 (token 2) and call 3 of client c3 (token 3) were both inside"},
	},
	{
		"timeout, though the key was granted", "indeterminate-stays", checker.Contract,
		"single/s2c.A.1@17:truncate-rst", checker.Nonconforming,
		[]string{"was told timeout although 14 bytes of c2s.A.1 had been received", "the server had granted it token 723401728380766730", "still held the key"},
		nil,
	},
	{
		"a grant that comes after the deadline is a ticket", "late-grant", checker.Hygiene,
		"late-grant/s2c.A.1@0:hold", checker.NonStrict,
		[]string{"call 1 on key \"after-1\" was told acquired (token 1) by s2c.A.1, written at ", "although its deadline had passed by "},
		nil,
	},
	{
		"so is one that comes after its lease", "entry-after-lease", checker.Hygiene,
		"late-reply/s2c.A.1@0:hold", checker.Unsafe,
		[]string{"call 1 on key \"late-1\" was told acquired (token 1) by s2c.A.1, written ", "after the lease of that grant had ended"},
		[]string{"call 1 of client c1 (token 1) entered at ", "without a grant: its lease had ended at ", "the key was held by the tool's own holder"},
	},
	{
		"a call without an answer never ends", "settles", checker.Hygiene,
		"silent-server/c2s.A.1@0:drop", checker.NonStrict,
		[]string{"call 1 on key \"silent-1\" had no outcome 60", "with a wait of 1s"},
		nil,
	},
}

func TestSaroTicketingDefects(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("node")
	need(t, err == nil, "node is needed: %v", err)
	_, err = os.Stat("saro-ticketing/node_modules/saro-ticketing")
	need(t, !errors.Is(err, os.ErrNotExist), "run npm ci in adapters/saro-ticketing first: %v", err)
	command := []string{"node", "saro-ticketing/adapter.mjs"}
	o := verify.Options{Start: verify.Command(command...), Command: command}
	for _, d := range saroDefects {
		o.Cases = append(o.Cases, "ticketing-v0/"+d.in)
	}
	plan, err := verify.NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	// On a machine that was too busy to judge a case, it is no defect of anybody.
	for range 3 {
		r := verify.Run(t.Context(), plan, nil)
		if !slices.ContainsFunc(r.Results, func(x verify.Result) bool {
			return x.Verdict == checker.Inconclusive && strings.Contains(x.Reason, "too busy")
		}) {
			for _, d := range saroDefects {
				d.found(t, r)
			}
			return
		}
	}
	t.Fatal("the machine was too busy three times")
}

// found holds a report to what is known of a defect.
func (d saroDefect) found(t *testing.T, r *verify.Report) {
	t.Helper()
	id := "ticketing-v0/" + d.in
	i := slices.IndexFunc(r.Results, func(x verify.Result) bool { return x.Case == id })
	if i < 0 || r.Results[i].Verdict != d.verdict {
		t.Errorf("%s: %s is not %s: %+v", d.name, id, d.verdict, r.Results)
		return
	}
	has := func(s string, parts []string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
	}
	var seen []string
	for _, f := range r.Findings {
		if f.Case != id || f.Rule != d.rule {
			continue
		}
		seen = append(seen, f.Message)
		seen = append(seen, f.Evidence.Application...)
		inside := len(d.inside) == 0 || slices.ContainsFunc(f.Evidence.Application, func(l string) bool { return has(l, d.inside) })
		if f.Severity == d.severity && f.Certainty == checker.Certain && f.Side == "client" && has(f.Message, d.says) && inside {
			return
		}
	}
	t.Errorf("%s: no finding of %s (%s, certain) in %s says %q and %q, only:\n%s", d.name, d.rule, d.severity, id, d.says, d.inside, strings.Join(seen, "\n"))
}
