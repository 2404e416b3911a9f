package verify

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tornwire/checker"
)

// TestUnsafeShowsTheApplication: an unsafe client shows who entered without a grant, or
// which two were inside, in the evidence, in the text and in the JSON report.
func TestUnsafeShowsTheApplication(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		defect, id, rule string
		want             []string // parts of one line
	}{
		{
			"enters-anyway", "ticketing/single/s2c.A.1@0:truncate-fin", "no-entry-unconfirmed",
			[]string{"call 1 of client c1 (token 0) entered at ", "without a grant: the server had granted no such token; the key was held by client c1, token 723401728380766730"},
		},
		{
			"partial-is-acquired", "ticketing/single/s2c.A.1@17:truncate-silence", "no-partial-frame",
			[]string{"call 1 of client c1 (token 723401728380766730) entered at ", "no whole A with it had been delivered"},
		},
		{
			"key-only", "ticketing/single/s2c.A.1@0:inject-stray", "match-triple",
			[]string{"call 1 of client c1 (token 6004514643816763211) entered at ", "the server had granted no such token"},
		},
		{
			"release-by-key", "ticketing-v0/expired/none", "release-own",
			[]string{"call 2 of client c2 (token 2) and call 3 of client c3 (token 3) were both inside from ", "a resource that checks tokens refuses token 2"},
		},
		{
			"release-by-key", "ticketing-v0/release-repeated/s2c.R.1@0:truncate-fin", "release-own",
			[]string{"call 2 of client c2 (token 2) and call 3 of client c3 (token 3) were both inside from ", "a resource that checks tokens refuses token 2"},
		},
		{
			"release-twice", "ticketing-v0/contended/none", "release-own",
			[]string{"call 2 of client c2 (token 18378380877408469058) entered at ", "its grant had been released at "},
		},
	} {
		t.Run(c.defect, func(t *testing.T) {
			t.Parallel()
			r := runPlan(t, Options{Cases: []string{c.id}, Profile: "official", Start: Library(wrong(t, c.defect))})
			says := func(line string) bool {
				return !slices.ContainsFunc(c.want, func(part string) bool { return !strings.Contains(line, part) })
			}
			var line string
			for _, f := range r.Findings {
				if i := slices.IndexFunc(f.Evidence.Application, says); f.Rule == c.rule && i >= 0 {
					line = f.Evidence.Application[i]
				}
			}
			data, err := json.Marshal(r)
			switch {
			case err != nil:
				t.Fatal(err)
			case r.Verdict != checker.Unsafe || line == "":
				t.Errorf("%s, and no line with %q:\n%s", r.Verdict, c.want, text(r))
			case !strings.Contains(text(r), "    application: "+line+"\n"):
				t.Errorf("%q is missing in\n%s", line, text(r))
			case !strings.Contains(string(data), `"application":[`+string(quoted(t, line))):
				t.Errorf("%q is missing in\n%s", line, data)
			}
		})
	}
}

func quoted(t *testing.T, s string) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFencingShowsWhatATokenCheckRefuses: where no client can know that its lease is
// over, the report names both holders and the token; the verdict stays.
func TestFencingShowsWhatATokenCheckRefuses(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{dialectCurrent, dialectV0} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			r := isSafe(t, Options{Cases: []string{dialect + "/late-reply/s2c.A.1@0:hold"}, Start: Library(wrong(t, ""))})
			if r.Fencing != 1 || len(r.Fenced) != 1 {
				t.Fatalf("%d entries need fencing: %q", r.Fencing, r.Fenced)
			}
			for _, part := range []string{
				`key "` + lateLongKey + `": call 2 of client c2 entered with token `, "the tool's own holder had been granted token ",
				"; a resource that checks tokens refuses token ",
			} {
				if !strings.Contains(r.Fenced[0], part) || !strings.Contains(text(r), r.Fenced[0]) {
					t.Errorf("%q is missing in %q, or that in the text", part, r.Fenced[0])
				}
			}
		})
	}
}
