package checker

import (
	"slices"

	"tornwire/frames"
)

// official lists the rules that come from clauses for official clients (spec/rules.md,
// marked °), and entry-after-lease, which such a client breaks against its contract
// where it entered on a wait of 0.
var official = []string{
	"deadline-once", "wait-recomputed", "wait-rounded-up", "expired-unsent", "deadline-closes", "exact-session",
	"late-gate", "late-grant", "entry-after-lease",
}

// unpromised lists the contract rules that the documents of the older dialect never
// promised.
var unpromised = []string{
	"moved-closes", "error-closes", "unmatched-closes", "unmatched-released", "cancel-closes", "framing-closes",
}

// Severity is the gravest finding that a rule can give under the policy: the profile
// decides about clauses for official clients, Busy about attempts after a B, and the
// dialect about what it has promised (spec/rules.md, Policies).
func (p Policy) Severity(r Rule) Severity {
	g, ok := frames.Builtin(p.Dialect)
	owners := ok && hasOwners(g)
	switch {
	case r.Severity != Contract:
		return r.Severity
	case slices.Contains(official, r.ID) && !(owners && p.Profile == ProfileOfficial),
		slices.Contains(unpromised, r.ID) && !owners,
		r.ID == "busy-not-retried" && p.Busy != BusyFinal:
		return Hygiene
	}
	return r.Severity
}

// Depends says on which words of a policy the severity of a rule depends, "" for none.
func Depends(r Rule) string {
	switch {
	case r.Severity != Contract:
	case slices.Contains(official, r.ID):
		return "contract under --profile official, hygiene under --profile any and in ticketing-v0"
	case slices.Contains(unpromised, r.ID):
		return "contract, hygiene in ticketing-v0"
	case r.ID == "busy-not-retried":
		return "contract under --busy final, hygiene under --busy unsettled, allowed under --busy retry"
	}
	return ""
}

// hasOwners tells whether requests of a dialect name an owner, as those of the older
// one do not.
func hasOwners(g *frames.Grammar) bool {
	s, ok := g.Shape(frames.ClientToServer, opAcquire)
	if !ok {
		return false
	}
	_, ok = s.Field(fieldOwner)
	return ok
}
