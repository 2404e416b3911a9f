package verify

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// MaxShards is into how many shards a run may be divided.
const MaxShards = 1024

// Shard is a part of a run: the cases whose ids fall to it. A case falls to a shard by the
// FNV-1a hash (64 bits) of its id, modulo Of: the same one in every version, whatever else
// is selected.
type Shard struct {
	Index int `json:"index"` // from 1
	Of    int `json:"of"`
}

func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Of) }

// Has tells whether a case falls to the shard.
func (s Shard) Has(id string) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return h.Sum64()%uint64(s.Of) == uint64(s.Index-1)
}

// Names of the variables that tell a job which of how many it is.
const (
	envNodeIndex  = "CI_NODE_INDEX" // from 1
	envNodeTotal  = "CI_NODE_TOTAL"
	envCompletion = "JOB_COMPLETION_INDEX" // from 0; it comes without a total
)

// shardForms says how a shard is named.
const shardForms = "I/N with I from 1 to N, auto (from CI_NODE_INDEX and CI_NODE_TOTAL), or auto/N (from JOB_COMPLETION_INDEX or CI_NODE_INDEX)"

// ParseShard reads "I/N", or "auto" or "auto/N", for which the variables of the job say what is
// left out: CI_NODE_INDEX, which counts from 1, with CI_NODE_TOTAL, or JOB_COMPLETION_INDEX,
// which counts from 0 and comes without a total. Errors are UsageErrors.
func ParseShard(text string, getenv func(string) string) (Shard, error) {
	index, total, divided := strings.Cut(text, "/")
	if index == "auto" {
		return autoShard(total, divided, getenv)
	}
	i, err := strconv.Atoi(index)
	n, err2 := strconv.Atoi(total)
	if !divided || err != nil || err2 != nil {
		return Shard{}, usagef("--shard %q is not of the form %s", text, shardForms)
	}
	return Shard{i, n}, Shard{i, n}.check("--shard " + text)
}

func (s Shard) check(what string) error {
	switch {
	case s.Of < 1 || s.Of > MaxShards:
		return usagef("%s: there are 1 to %d shards, not %d", what, MaxShards, s.Of)
	case s.Index < 1 || s.Index > s.Of:
		return usagef("%s: the shards of %d are 1 to %d, and there is no %d", what, s.Of, s.Of, s.Index)
	}
	return nil
}

func autoShard(total string, divided bool, getenv func(string) string) (Shard, error) {
	number := func(name, text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, usagef("--shard auto: %s is %q, not a number", name, text)
		}
		return n, nil
	}
	var s Shard
	var err error
	if divided {
		if s.Of, err = number("the number of shards", total); err != nil {
			return s, err
		}
	}
	index, name := getenv(envNodeIndex), envNodeIndex
	first := 1
	if index == "" {
		index, name, first = getenv(envCompletion), envCompletion, 0
	}
	if index == "" {
		return s, usagef("--shard auto: neither %s nor %s is set", envNodeIndex, envCompletion)
	}
	if s.Index, err = number(name, index); err != nil {
		return s, err
	}
	s.Index += 1 - first
	if of := getenv(envNodeTotal); of != "" && name == envNodeIndex {
		n, err := number(envNodeTotal, of)
		if err != nil {
			return s, err
		}
		if divided && n != s.Of {
			return s, usagef("--shard auto/%d: %s says that there are %d", s.Of, envNodeTotal, n)
		}
		s.Of = n
	}
	if s.Of == 0 && !divided {
		return s, usagef("--shard auto: %s comes without the number of shards; say it as auto/N", name)
	}
	return s, s.check(fmt.Sprintf("--shard auto with %s=%s", name, index))
}

// AutoShard is the shard that "auto" would be, for those who may have forgotten it.
func AutoShard(getenv func(string) string) (Shard, bool) {
	s, err := ParseShard("auto", getenv)
	return s, err == nil && s.Of > 1
}

// take leaves the shard's cases in the plan.
func (p *Plan) take(s Shard) {
	p.whole = len(p.Cases)
	p.Cases = slices.DeleteFunc(p.Cases, func(c Case) bool { return !s.Has(c.ID.String()) })
}
