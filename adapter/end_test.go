package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEndOfInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		s := start(t, lib)
		s.open("c", "d")
		s.send(`{"type":"acquire","id":1,"client":"c","key":"grant","wait":1,"lease":1}`,
			`{"type":"acquire","id":2,"client":"d","key":"block","wait":60,"lease":1}`,
			`{"type":"acquire","id":3,"client":"d","key":"race","wait":60,"lease":1}`) // ends by its cancel only
		s.answers()
		if err := s.end(0); err != nil {
			t.Error(err)
		}
		outcomes := map[uint64]string{}
		for _, text := range s.answers() {
			r := decode(t, text)
			outcomes[*r.ID] = r.Outcome
		}
		if want := map[uint64]string{2: "indeterminate", 3: "acquired"}; !maps.Equal(outcomes, want) {
			t.Errorf("outcomes %v, want %v", outcomes, want)
		}
		if lib.closes != 2 || len(lib.releases) != 0 {
			t.Errorf("%d of 2 clients closed, %d tickets released", lib.closes, len(lib.releases))
		}
	})
}

func TestEndWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		lib.opening = make(chan struct{})
		s := start(t, lib)
		s.expect(`{"type":"open","id":1,"client":"c","addresses":["h:1"]}`)
		s.expect(`{"type":"acquire","id":2,"client":"c","key":"grant","wait":1,"lease":1}`,
			`{"type":"result","id":2,"outcome":"error","raw":"adapter: client \"c\" is not open"}`)
		time.AfterFunc(time.Second, func() { close(lib.opening) })
		if err := s.end(time.Second); err != nil {
			t.Error(err)
		}
		if lib.closes != 1 {
			t.Error("the client opened late was not closed")
		}
	})
}

func TestEndWithAStuckLibrary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		s := start(t, lib)
		s.open("c")
		lib.opening = make(chan struct{})
		s.send(`{"type":"acquire","id":1,"client":"c","key":"stuck","wait":1,"lease":1}`)
		s.answers()
		err := s.end(5 * time.Second)
		if err == nil || !strings.Contains(err.Error(), "1 calls of the library had not returned") {
			t.Errorf("err = %v", err)
		}
		close(lib.opening)
	})
}

func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := newFake()
		s := start(t, lib)
		s.open("c")
		s.send(`{"type":"acquire","id":1,"client":"c","key":"block","wait":1,"lease":1}`)
		s.answers()
		s.cancel()
		if err := <-s.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if lib.closes != 1 {
			t.Error("client not closed")
		}
	})
}

// A tool that does not read must not stop its requests from being taken, and
// not the end of the process either.
func TestUnreadOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- serve(t.Context(), inR, outW, io.Discard, newFake()) }()
		for i := range 5000 {
			_, _ = fmt.Fprintf(inW, "{\"type\":\"ping\",\"id\":%d}\n", i)
		}
		began := time.Now()
		_ = inW.Close()
		if err := <-ended; err == nil || time.Since(began) > 5*time.Second {
			t.Errorf("err = %v after %v", err, time.Since(began))
		}
		_ = outR.Close()
	})
}

func TestOutputFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		_ = outR.CloseWithError(errors.New("tool is gone"))
		ended := make(chan error, 1)
		go func() { ended <- serve(t.Context(), inR, outW, io.Discard, newFake()) }()
		_, _ = io.WriteString(inW, `{"type":"ping","id":1}`+"\n")
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "write answers: tool is gone") {
			t.Errorf("err = %v", err)
		}
	})
}

func TestInputFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newFake())
		_ = s.in.CloseWithError(errors.New("boom"))
		if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "read requests: boom") {
			t.Errorf("err = %v", err)
		}
	})
}
