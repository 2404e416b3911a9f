package verify

import (
	"context"
	"net"

	"tornwire/checker"
	"tornwire/internal/memnet"
	"tornwire/server/stub"
)

// script is the scripted server in front of a case's embedded one, and where it is
// reached.
type script struct {
	*stub.Server
	l net.Listener
}

// scripted makes the scripted server that the case's workload asks for, nil if it
// asks for none.
func (r *caseRun) scripted(inside *memnet.Network, behind string) (*script, error) {
	if r.of.Workload.Stub == nil {
		return nil, nil
	}
	s, err := stub.New(stub.Config{
		Dialect: r.grammar.Name, Steps: r.of.Workload.Stub(r.grammar),
		Behind: func(ctx context.Context) (net.Conn, error) { return inside.Dial(ctx, "tcp", behind) },
	})
	if err != nil {
		return nil, err
	}
	l, err := inside.Listen("tcp", serverID+":1000")
	return &script{s, l}, err
}

// policyOf is the policy by which a case of the workload is judged. With a script in
// the server's place the table was not asked all, and no rule about the server is
// judged: what breaks it is ours. Where the tool alone speaks, no rule about the client
// is.
func policyOf(w *Workload, p checker.Policy) checker.Policy {
	side := "client"
	switch {
	case w.Probe:
		side = "server"
	case w.Stub == nil:
		return p
	default:
		p.SawTable, p.Embedded = false, false
	}
	only := map[string]bool{}
	for _, rule := range checker.Rules() {
		only[rule.ID] = rule.Side == side && (p.Only == nil || p.Only[rule.ID])
	}
	p.Only = only
	return p
}
