package verify

import (
	"strconv"
	"strings"

	"tornwire/checker"
)

// replay is the command line that runs a case again.
func (p *Plan) replay(id CaseID) string {
	words := []string{"tornwire", "verify"}
	if id.Workload == sanity.ID {
		words = append(words, "--dialect", id.Dialect, "--workload", workloads[0].ID, "--fault", NoFault)
	} else {
		words = append(words, "--case", shellWord(id.String()))
		if p.Repeat > 1 {
			words = append(words, "--repeat", strconv.Itoa(p.Repeat))
		}
	}
	if p.Seed != DefaultSeed {
		words = append(words, "--seed", strconv.FormatUint(p.Seed, 10))
	}
	if p.Busy != checker.BusyUnsettled {
		words = append(words, "--busy", p.Busy)
	}
	if p.Grace != nil && *p.Grace != checker.DefaultGrace {
		words = append(words, "--grace", p.Grace.String())
	}
	if p.Tolerance != nil && *p.Tolerance != checker.DefaultTolerance {
		words = append(words, "--tolerance", p.Tolerance.String())
	}
	if p.Timeout != DefaultTimeout && p.Timeout != 0 {
		words = append(words, "--timeout", p.Timeout.String())
	}
	words = append(words, p.upstreamWords()...)
	if len(p.Command) == 0 {
		if p.Profile != "official" {
			words = append(words, "--profile", p.Profile)
		}
		return strings.Join(words, " ")
	}
	if p.Profile != "any" {
		words = append(words, "--profile", p.Profile)
	}
	words = append(words, "--")
	for _, w := range p.Command {
		words = append(words, shellWord(w))
	}
	return strings.Join(words, " ")
}

// DefaultSeed is the seed of a run that names none.
const DefaultSeed = 1

// shellWord quotes a word for a POSIX shell if it needs it.
func shellWord(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=@%+,", c)
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
