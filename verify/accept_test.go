package verify

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// brokenListener accepts nobody.
type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, errors.New("out of descriptors") }

// TestUnaccepted: a case in which a client waits for us to accept it is not judged.
func TestUnaccepted(t *testing.T) {
	w := Workloads()[0]
	id := CaseID{Dialect: "ticketing", Workload: w.ID, Fault: NoFault}
	r, err := newCaseRun(t.Context(), Case{ID: id, Workload: w}, &adapterConn{gone: make(chan struct{})}, 1, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.listen("")
	if err != nil {
		t.Fatal(err)
	}
	r.wg.Go(func() { _ = r.px.Serve(r.netCtx, brokenListener{l}, "c1") })
	<-r.ctx.Done()
	if err := context.Cause(r.ctx); !strings.Contains(err.Error(), "cannot accept client c1: out of descriptors") {
		t.Errorf("the case ended because %v", err)
	}
	r.finish()
}
