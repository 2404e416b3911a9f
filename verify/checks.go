package verify

import (
	_ "embed"
	"encoding/json"
	"maps"
	"slices"

	"tornwire/frames"
)

//go:embed checks.json
var checksFile []byte

// Checks says in how many cases a standard run of the reference client really checks
// each rule: by rule, dialect and workload. It is measured, not computed; CI compares
// it with a run.
type Checks map[string]map[string]map[string]int

var checks = func() Checks {
	var c Checks
	if err := json.Unmarshal(checksFile, &c); err != nil {
		panic(err) // the file is compiled in
	}
	return c
}()

// Count is in how many cases of a workload a rule is checked.
type Count struct {
	Workload string
	Cases    int
}

// ChecksOf lists the workloads in which a rule is checked in a dialect, the most
// cases first.
func ChecksOf(rule, dialect string) []Count {
	by := checks[rule][dialect]
	var out []Count
	for _, w := range slices.Sorted(maps.Keys(by)) {
		out = append(out, Count{w, by[w]})
	}
	slices.SortStableFunc(out, func(a, b Count) int { return b.Cases - a.Cases })
	return out
}

// Swept tells whether a standard run checks a rule in some dialect.
func Swept(rule string) bool {
	return slices.ContainsFunc(frames.Names(), func(d string) bool { return len(checks[rule][d]) > 0 })
}

// ChecksIn adds what a report says to the checks.
func (c Checks) ChecksIn(r *Report) {
	for _, n := range r.Rules {
		if len(n.Workloads) == 0 {
			continue
		}
		if c[n.ID] == nil {
			c[n.ID] = map[string]map[string]int{}
		}
		c[n.ID][r.Dialect] = n.Workloads
	}
}
