package checker

import "slices"

// Sides of a rule.
const (
	sideClient = "client"
	sideServer = "server"
)

// Rule is one row of spec/rules.md, in words fit for a report.
type Rule struct {
	ID       string
	Side     string   // "client" or "server"
	Severity Severity // the gravest that the rule can give
	Sentence string   // what must hold
	Source   string   // the statement it comes from
	Certain  string   // when a finding is certain
	Provoked string   // how the sweep provokes it
}

type implemented struct {
	Rule
	judge func(*judge)
}

// Rules lists the implemented rules: client rules first, in the order of
// spec/rules.md. The order is stable.
func Rules() []Rule {
	out := make([]Rule, len(rules))
	for i := range rules {
		out[i] = rules[i].Rule
	}
	return out
}

// RuleByID finds an implemented rule.
func RuleByID(id string) (Rule, bool) {
	i := slices.IndexFunc(rules, func(r implemented) bool { return r.ID == id })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i].Rule, true
}

// order is that of spec/rules.md, in which rules are judged and listed.
var order = []string{
	"no-entry-unconfirmed", "no-partial-frame", "match-triple", "no-fifo", "header-by-count", "exact-token",
	"release-own", "moved-uncorrelated", "leader-uncorrelated", "indeterminate-stays", "no-resend", "one-attempt",
	"owner-fresh", "no-renewal", "deadline-once", "wait-recomputed", "wait-rounded-up", "wait-range",
	"expired-unsent", "deadline-closes", "exact-session", "late-gate", "late-grant", "entry-after-lease",
	"timeout-final", "busy-final", "busy-not-retried", "zero-is-immediate", "register-first", "release-known",
	"unmatched-closes", "unmatched-released", "moved-closes", "moved-allowlist", "leader-stays", "error-closes",
	"error-backs-off", "no-leader-drops-hint", "unknown-fatal", "cancel-closes", "framing-closes",
	"close-proves-nothing", "no-overstay", "settles",
	"echo-matches", "one-reply-per-attempt", "no-early-timeout", "zero-never-queues", "no-grant-after-timeout-or-busy",
	"lease-ends", "mutual-exclusion", "repeat-is-new-attempt", "token-increases", "release-needs-exact-token",
}

var rules = inOrder(clientRules(), timingRules(), matchRules(), serverRules(), replyRules(),
	clusterRules(), strayRules(), sessionRules(), paceRules(), tableRules())

// inOrder sorts the rules of several files. A rule that has no place in the order
// is a mistake in this package.
func inOrder(lists ...[]implemented) []implemented {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b implemented) int {
		return slices.Index(order, a.ID) - slices.Index(order, b.ID)
	})
	if len(all) > 0 && !slices.Contains(order, all[0].ID) {
		panic("checker: rule " + all[0].ID + " has no place in the order")
	}
	return all
}

func clientRules() []implemented {
	return []implemented{
		{Rule{
			"no-entry-unconfirmed", sideClient, Safety,
			"No critical section without a complete, matching A on the session that carried the request.",
			"spec/ticketing.md §3.1",
			"The client's acquired was read before the write of the last byte of any matching A had begun.",
			"Every frame is cut before and at each of its bytes, so that a call ends with no A or with a part of one.",
		}, noEntryUnconfirmed},
		{Rule{
			"no-partial-frame", sideClient, Safety,
			"Nothing is acted on before its final newline.",
			"spec/ticketing.md §1",
			"The client's acquired was read while bytes of the matching A, but not its newline, had begun to be written.",
			"The A is truncated, stalled or split at each byte, its newline included.",
		}, noPartialFrame},
		{Rule{
			"header-by-count", sideClient, Safety,
			"The fixed fields of a frame are consumed by count; a newline byte inside token or owner is harmless.",
			"spec/ticketing.md §1",
			"A whole frame with 0x0A in its fixed fields was delivered, nothing was torn, and the client told another token or outcome, acted on a part of it, or closed the session.",
			"The server grants tokens that contain 0x0A, up to eight of them.",
		}, headerByCount},
		{Rule{
			"exact-token", sideClient, Safety,
			"The token that is told and released is the 64-bit token of the delivered A.",
			"spec/ticketing.md §3.16",
			"The told token differs from that of every matching A delivered, or an R carries a token whose eight bytes had not all begun to be written to this client.",
			"Every workload that acquires and releases, with tokens that use all eight bytes.",
		}, exactToken},
		{Rule{
			"release-own", sideClient, Safety,
			"A release never frees a lock that another client or call holds.",
			"spec/ticketing.md §1.3, §3.16",
			"The server's table shows that this R ended a grant of another, and the R was sent after the own lease had passed, or repeated, or without a grant of its own.",
			"The lease passes before the release and another client is granted; the reply to an R is cut so that a client may repeat it.",
		}, releaseOwn},
		{Rule{
			"indeterminate-stays", sideClient, Safety,
			"After a possible send without a final response the outcome is indeterminate or a plain error; acquired is a safety finding, any other definite word one against the contract.",
			"spec/ticketing.md §3.1",
			"At least one byte of the call's A was received and no complete A, T or B for it ever began to be written to the client; an answer to another attempt, on another session, is none.",
			"The request and its reply are cut at each byte, with FIN, RST and silence.",
		}, indeterminateStays},
		{Rule{
			"no-resend", sideClient, Contract,
			"No second A carries an owner whose first A was possibly sent.",
			"spec/ticketing.md §3.2",
			"The owner of an A was received whole, then another A with the same owner and key, on any session.",
			"The connection is cut after the owner's bytes, after the whole request, and in the reply.",
		}, noResend},
		{Rule{
			"one-attempt", sideClient, Contract,
			"At most one A for each call reaches the wire, whatever its owner.",
			"spec/ticketing.md §3.2",
			"At least one byte of the call's A was received, then another A while no other call of the client could have sent it.",
			"The connection is cut at each byte of the request and of its reply.",
		}, oneAttempt},
		{Rule{
			"entry-after-lease", sideClient, Contract,
			"No entry on a grant whose lease had ended when its A was written; where the wait was longer than the lease no client can know, and the entry is counted as needing fencing.",
			"spec/ticketing.md §3.3, §3.8",
			"The server's table ended the grant at its lease before the write of the A's last byte had begun, and the client told acquired.",
			"The A is held back until its lease has passed, for wait 0, a wait up to the lease and a wait over it.",
		}, entryAfterLease},
		{Rule{
			"settles", sideClient, Hygiene,
			"Every acquire ends.",
			"spec/ticketing.md §3.4",
			"There was no outcome five seconds after the call's deadline, while the client was alive.",
			"Every cut, with silence above all.",
		}, settles},
	}
}

func serverRules() []implemented {
	return []implemented{
		{Rule{
			"mutual-exclusion", sideServer, Safety,
			"A key has at most one live grant.",
			"spec/ticketing.md §2",
			"The table shows two live grants of one key; without a table, and in a closed world, the bytes show that the later token was granted before the earlier grant could have ended; or no order of the operations on the key explains their answers (for the contract if only those to releases are wrong).",
			"Every workload with two clients on a key.",
		}, mutualExclusion},
		{Rule{
			"echo-matches", sideServer, Safety,
			"A reply names only an owner or a token that was sent on its session.",
			"spec/ticketing.md §1.2, §3.9",
			"The owner or token of a reply was received from the server and is in no request of which those bytes had begun to be written on that session.",
			"Every workload.",
		}, echoMatches},
	}
}
