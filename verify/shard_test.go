package verify

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestShardsAreAPartition: each case of either dialect falls to one shard of N, and the
// shards are of like size.
func TestShardsAreAPartition(t *testing.T) {
	for _, d := range []string{dialectCurrent, dialectV0} {
		all := plan(t, Options{Sweep: SweepFull, Dialect: d, Faults: []string{"all", "byzantine"}}).Cases
		for n := 1; n <= 16; n++ {
			size := make([]int, n)
			for _, c := range all {
				id, in := c.ID.String(), 0
				for i := range n {
					if (Shard{i + 1, n}).Has(id) {
						size[i]++
						in++
					}
				}
				if in != 1 {
					t.Fatalf("of %d shards %d have %s", n, in, id)
				}
			}
			if spread := slices.Max(size) - slices.Min(size); float64(spread) > 0.25*float64(len(all)/n) {
				t.Errorf("%d shards of %d cases have %v", n, len(all), size)
			}
		}
	}
}

// TestShardedPlans: the plans of the shards have the cases of the whole one, in its order.
func TestShardedPlans(t *testing.T) {
	for _, o := range []Options{
		{Workloads: []string{"single", "busy"}, Sweep: SweepSmoke},
		{Cases: []string{"ticketing/single/none"}},
	} {
		all := plan(t, o).Cases
		for _, n := range []int{1, 3, 16} {
			var parts [][]Case
			for i := range n {
				o.Shard = &Shard{i + 1, n}
				p := plan(t, o)
				if p.whole != len(all) {
					t.Errorf("shard %s says that there are %d cases of %d", o.Shard, p.whole, len(all))
				}
				parts = append(parts, p.Cases)
			}
			o.Shard = nil
			for _, c := range all {
				i := slices.IndexFunc(parts, func(p []Case) bool { return len(p) > 0 && p[0].ID == c.ID })
				if i < 0 {
					t.Fatalf("no shard of %d has %s next", n, c.ID)
				}
				parts[i] = parts[i][1:]
			}
			for i, left := range parts {
				if len(left) > 0 {
					t.Errorf("shard %d of %d has %s, too", i+1, n, left[0].ID)
				}
			}
		}
	}
}

// TestShardIsStable: a case falls to the same shard in every version.
func TestShardIsStable(t *testing.T) {
	for id, want := range map[string]int{
		"ticketing/single/s2c.A.1@25:truncate-rst": 5,
		"ticketing-v0/expired/none":                2,
		"":                                         8,
	} {
		for i := 1; i <= 10; i++ {
			if (Shard{i, 10}).Has(id) != (i == want) {
				t.Errorf("%q in shard %d of 10: %v", id, i, i != want)
			}
		}
	}
}

func TestParseShard(t *testing.T) {
	gitlab := map[string]string{"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"}
	kubernetes := map[string]string{"JOB_COMPLETION_INDEX": "0"}
	for _, c := range []struct {
		text string
		env  map[string]string
		want Shard
		err  string
	}{
		{text: "1/1", want: Shard{1, 1}},
		{text: "3/16", want: Shard{3, 16}},
		{text: "3/16", env: gitlab, want: Shard{3, 16}},
		{text: "auto", env: gitlab, want: Shard{2, 4}},
		{text: "auto/4", env: gitlab, want: Shard{2, 4}},
		{text: "auto/8", env: kubernetes, want: Shard{1, 8}},
		{text: "auto/8", env: gitlab, err: "CI_NODE_TOTAL says that there are 4"},
		{text: "auto", env: kubernetes, err: "JOB_COMPLETION_INDEX comes without the number of shards; say it as auto/N"},
		{text: "auto", err: "neither CI_NODE_INDEX nor JOB_COMPLETION_INDEX is set"},
		{text: "auto/x", env: kubernetes, err: `the number of shards is "x", not a number`},
		{text: "auto", env: map[string]string{"CI_NODE_INDEX": "two", "CI_NODE_TOTAL": "4"}, err: `CI_NODE_INDEX is "two", not a number`},
		{text: "auto", env: map[string]string{"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "four"}, err: `CI_NODE_TOTAL is "four", not a number`},
		{text: "auto", env: map[string]string{"CI_NODE_INDEX": "0", "CI_NODE_TOTAL": "4"}, err: "the shards of 4 are 1 to 4, and there is no 0"},
		{text: "auto/2", env: map[string]string{"JOB_COMPLETION_INDEX": "2"}, err: "the shards of 2 are 1 to 2, and there is no 3"},
		{text: "0/4", err: "the shards of 4 are 1 to 4, and there is no 0"},
		{text: "5/4", err: "there is no 5"},
		{text: "1/0", err: "1 to 1024 shards, not 0"},
		{text: "1/1025", err: "1 to 1024 shards, not 1025"},
		{text: "1", err: "is not of the form I/N"},
		{text: "a/b", err: "is not of the form I/N"},
		{text: "1/2/3", err: "is not of the form I/N"},
		{text: "", err: "is not of the form I/N"},
	} {
		got, err := ParseShard(c.text, func(name string) string { return c.env[name] })
		var usage *UsageError
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%q with %v: %v, %v", c.text, c.env, got, err)
		case c.err != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q with %v: %v, want %q", c.text, c.env, err, c.err)
		}
	}
	if s, ok := AutoShard(func(name string) string { return gitlab[name] }); !ok || s != (Shard{2, 4}) {
		t.Errorf("the job is %v, %v", s, ok)
	}
	if _, ok := AutoShard(func(string) string { return "" }); ok {
		t.Error("a job without variables is a shard")
	}
}
