package adapters_test

import (
	"fmt"
	"os/exec"
	"testing"

	_ "tornwire/adapter/reference" // the test depends on it, go test should know
)

func TestGoReference(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("go")
	need(t, err == nil, "go is needed: %v", err)
	srv, addr := serve(t, "ticketing", "s3cret")
	p := start(t, "go-reference/main.go", "..", "go", "run", "./adapters/go-reference")

	p.ask(0, `"type":"init","version":1,"dialect":"ticketing"`, "init_ok")
	p.ask(1, fmt.Sprintf(`"type":"open","client":"c","addresses":[%q],"secret":"s3cret"`, addr), "open_ok")
	p.ask(2, `"type":"ping"`, "pong")
	p.ask(3, `"type":"acquire","client":"c","key":"order-42","wait":5,"lease":30`, "started")
	r := p.expect(3, "result acquired")
	checkToken(t, srv, "order-42", r)
	if g, _ := srv.Holder("order-42"); r.Owner != fmt.Sprint(g.Owner) {
		t.Errorf("owner %q, the server says %d", r.Owner, g.Owner)
	}
	p.ask(4, `"type":"acquire","client":"c","key":"order-42","wait":0,"lease":30`, "started")
	p.expect(4, "result timeout")
	p.ask(5, `"type":"acquire","client":"c","key":"order-42","wait":60,"lease":30`, "started")
	p.ask(6, `"type":"acquire","client":"c","key":"other","wait":5,"lease":30`, "started")
	p.expect(6, "result acquired") // while 5 waits
	p.ask(7, `"type":"cancel","call":5`, "cancel_ok")
	if r := p.await(5, answerLimit); r.Outcome != "indeterminate" && r.Outcome != "unsent" {
		t.Errorf("cancelled call: %+v", r)
	}
	p.ask(8, `"type":"release","client":"c","call":3`, "result released")
	// The cancelled call may still have been in the queue.
	if g, held := srv.Holder("order-42"); held && fmt.Sprint(g.Token) == r.Token {
		t.Error("the key is held after its release")
	}
	p.ask(9, `"type":"acquire","client":"c","key":"a b","wait":5,"lease":30`, "started")
	p.expect(9, "result error")
	p.ask(10, `"type":"close","client":"c"`, "close_ok")
	if _, held := srv.Holder("other"); !held {
		t.Error("close released a held ticket")
	}
	p.ask(11, `"type":"acquire","client":"c","key":"k","wait":5,"lease":30`, "result error")
	p.end()
	if p.stderr.Len() > 0 {
		t.Errorf("stderr: %s", p.stderr.String())
	}
}
