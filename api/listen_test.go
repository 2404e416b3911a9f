package api

import (
	"os"
	"path/filepath"
	"testing"

	"tornwire/history"
)

// TestUnixSocketOfAnother: the socket of a proxy is no other one's, however its path
// is written, and nobody connects to find out.
func TestUnixSocketOfAnother(t *testing.T) {
	b := newBed(t)
	dir := t.TempDir()
	if err := os.Symlink(dir, dir+"/to"); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	b.must(201, "POST", "/proxies", `{"name":"p","listen":"unix:`+socket+`","upstream":"`+speaker(t, "one")+`"}`)
	b.must(201, "POST", "/proxies", `{"name":"q","upstream":"127.0.0.1:1"}`)
	for _, path := range []string{socket, dir + "/./s", dir + "/to/s"} {
		want := `{"error":"listen on unix:` + path + `: proxy p has it: address already in use","status":500,"field":"listen"}`
		if status, text := b.ask("POST", "/proxies", `{"name":"r","listen":"unix:`+path+`","upstream":"a:1"}`); status != 500 || text != want {
			t.Errorf("create: %d %s, want %s", status, text, want)
		}
		if status, text := b.ask("PATCH", "/proxies/q", `{"listen":"unix:`+path+`"}`); status != 500 || text != want {
			t.Errorf("move: %d %s, want %s", status, text, want)
		}
		b.must(200, "PATCH", "/proxies/p", `{"listen":"unix:`+path+`"}`) // it is there already
	}
	b.mu.Lock()
	for _, e := range b.events {
		if e.Kind == history.SessionOpened {
			t.Error("somebody connected")
		}
	}
	b.mu.Unlock()
	// Whoever leaves it, leaves it to others.
	b.must(200, "PATCH", "/proxies/p", `{"enabled":false}`)
	b.must(200, "PATCH", "/proxies/q", `{"listen":"unix:`+socket+`"}`)
	b.must(204, "DELETE", "/proxies/q", "")
	b.must(200, "PATCH", "/proxies/p", `{"enabled":true}`)
	b.must(200, "PATCH", "/proxies/p", `{"upstream":"127.0.0.1:1"}`)
	b.must(200, "PATCH", "/proxies/p", `{"listen":"127.0.0.1:0"}`)
	b.must(500, "PATCH", "/proxies/p", `{"listen":"unix:`+dir+`/none/s"}`)
	if len(b.m.unix) > 0 {
		t.Errorf("%v is taken", b.m.unix)
	}
}
