package verify

import (
	"os"
	"testing"
)

func TestShrinkDev(t *testing.T) {
	for defect, id := range map[string]string{
		"resend-new-owner":     "ticketing/single/s2c.A.1@17:truncate-rst",
		"release-by-key":       "ticketing-v0/expired/none",
		"enters-anyway":        "ticketing/single/s2c.A.1@17:truncate-fin",
		"partial-is-acquired":  "ticketing/single/s2c.A.1@25:truncate-silence",
		"fifo-key":             "ticketing-v0/pipelined/none",
		"wrong-token-released": "ticketing/single/c2s.R.1@18:truncate-fin",
		"enter-late":           "ticketing/late-grant/s2c.A.1@0:hold",
		"stale-zero":           "ticketing/late-reply/s2c.A.1@0:hold",
		"key-only":             "ticketing/single/s2c.A.1@0:inject-stray",
		"op-blind":             "ticketing/single/s2c.R.1@0:inject-stray",
	} {
		if d := os.Getenv("DEFECT"); d != "" && d != defect {
			continue
		}
		p, err := NewPlan(Options{Cases: []string{id}, Profile: "official", Start: Library(wrong(t, defect))})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Shrink(t.Context(), p, ShrinkOptions{Step: func(s Shrunk) { t.Logf("%d %s", s.Runs, s.Case) }})
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%s: %s %s: %d calls %d/%d, %d runs, %s\n%s", defect, s.Finding.Rule, s.Finding.Message, s.Calls, s.Found, s.Confirmed, s.Runs, s.Stopped, s.Replay)
	}
}
