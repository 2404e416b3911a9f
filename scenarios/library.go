package scenarios

import (
	"embed"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed library/*.toml
var library embed.FS

// Library lists the scenarios that are built in, by clause and name.
func Library() []*Scenario { return slices.Clone(builtins()) }

var builtins = sync.OnceValue(func() []*Scenario {
	files, err := library.ReadDir("library")
	if err != nil {
		panic(err) // it is part of the program
	}
	var out []*Scenario
	for _, f := range files {
		source, err := library.ReadFile("library/" + f.Name())
		if err != nil {
			panic(err)
		}
		s, err := Parse(f.Name(), source)
		if err != nil {
			panic(err) // a test parses them all
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b *Scenario) int { return clauseOf(a) - clauseOf(b) })
	return out
})

// clauseOf is the number of a clause, such as 5 of 3.5.
func clauseOf(s *Scenario) int {
	n := 0
	for _, c := range strings.TrimPrefix(path.Ext(s.Clause), ".") {
		n = n*10 + int(c-'0')
	}
	return n
}

// ByName finds a scenario that is built in.
func ByName(name string) (*Scenario, bool) {
	for _, s := range builtins() {
		if s.Name == name {
			return s, true
		}
	}
	return nil, false
}
