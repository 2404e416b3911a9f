package verify

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"sync"

	"tornwire/checker"
	"tornwire/internal/memnet"
	"tornwire/proxy"
	"tornwire/server"
	"tornwire/server/stub"
)

// idHash is the part of what is random in a case that its id gives.
func idHash(id CaseID) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id.String()) // never fails
	return h.Sum64()
}

// randomOf is where what is random in a run of a case comes from: the seed, the id of the
// case and which of its runs this is.
func randomOf(seed uint64, c Case) *rand.Rand {
	const apart = 0x9e3779b97f4a7c15
	return rand.New(rand.NewPCG(seed, idHash(c.ID)+uint64(max(c.rep-1, 0))*apart))
}

// embed makes the case's own server, in front of it what scripts it, and lets the
// proxy dial there. The function returned starts them.
func (r *caseRun) embed(cfg *proxy.Config, seed uint64) (serve func(), err error) {
	id, w := r.id, r.of.Workload
	random := randomOf(seed, r.of)
	var rmu sync.Mutex
	scfg := server.Config{
		Dialect: id.Dialect, FirstToken: w.FirstToken, QueueLimit: w.QueueLimit, PrefaceTimeout: prefaceLimit,
		OnEvent: r.tableEvent, ServerID: serverID,
		Nonce: func() string {
			rmu.Lock()
			defer rmu.Unlock()
			return fmt.Sprintf("%016x", random.Uint64())
		},
	}
	// The embedded server is ours and in this process: the leg to it needs no
	// sockets, which are a third of what a case costs.
	inside := memnet.New(memnet.Options{})
	nodes, err := r.startServer(scfg, w.Nodes, inside)
	if err != nil {
		return nil, err
	}
	front, err := r.scripted(inside, nodeName(0))
	if err != nil {
		return nil, err
	}
	upstream := nodeName(0)
	if front != nil {
		upstream = front.l.Addr().String()
	}
	cfg.Upstream, cfg.Dial = upstream, inside.Dial
	return func() {
		if front != nil {
			r.wg.Go(func() { _ = front.Serve(r.netCtx, front.l) })
		}
		for i, l := range nodes {
			r.wg.Go(func() { _ = r.node(i).Serve(r.netCtx, l) })
		}
	}, nil
}

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
	if w.play != nil {
		return w.play.policy(p)
	}
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
