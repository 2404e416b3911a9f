package verify

import (
	"fmt"
	"slices"
	"strings"

	"tornwire/checker"
	"tornwire/frames"
	"tornwire/history"
)

// sane holds a run without a fault at the ends of a run to what must occur in it.
func (res *CaseResult) sane() {
	if res.sent != "" {
		res.Verdict, res.Findings = checker.Inconclusive, nil
		res.Reason = fmt.Sprintf("asked for key %q, the client sent %q: keys have to go onto the wire as they are, so let the adapter turn the library's prefix for keys off", res.asked, res.sent)
		return
	}
	// What the client is proved to have done wrong goes before what it did not do.
	if (res.Verdict == checker.Safe || res.Verdict == checker.NonStrict) && !(res.acquired && res.released) {
		res.Verdict = checker.Inconclusive
		res.Reason = "the client did not acquire and release a free key without a fault" + outcomesText(res.Outcomes)
		if res.acquired {
			res.Reason += "; no release was answered released"
		}
	}
}

// maxPieces bounds the requests that renamed puts together.
const maxPieces = 64

// renamed finds a key that a client put more into than it was asked for: of no
// request the key was one of those asked for, and that of one contains one. So does a
// library that puts its name before every key. None of its requests can be told to be
// a call's then, and the tool's own holder has other locks.
func renamed(dialect string, events []history.Event) (sent, asked string) {
	type frame struct {
		session int
		seq     uint64
	}
	var keys []string
	pieces := map[frame][]byte{}
	shape := frames.MustBuiltin(dialect).MustShape(frames.ClientToServer, "A")
	for _, e := range events {
		if e.Kind == history.CallAsked {
			keys = append(keys, e.Key)
		}
		if e.Kind != history.Received || e.Dir != frames.ClientToServer || e.Frame == nil || e.Frame.Op != "A" || len(pieces) >= maxPieces {
			continue
		}
		f := frame{e.Session, e.Frame.Seq}
		pieces[f] = append(pieces[f], e.Data...)
		if !e.Last || shape.Check(pieces[f]) != nil {
			continue
		}
		key := string(shape.TailOf(pieces[f]))
		if slices.Contains(keys, key) {
			return "", ""
		}
		if i := slices.IndexFunc(keys, func(k string) bool { return strings.Contains(key, k) }); i >= 0 && sent == "" {
			sent, asked = key, keys[i]
		}
	}
	return sent, asked
}
