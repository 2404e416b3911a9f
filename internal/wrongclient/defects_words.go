package wrongclient

import (
	"context"
	"time"
)

// Oddities about what a client tells, when it does, and how it writes.
const (
	oddFewWords   defect = "odd-few-words"    // can say only acquired, released and error; has a session for each call
	oddTellsLate  defect = "odd-tells-late"   // tells the end of an acquire 0.4 s late
	oddShortZero  defect = "odd-short-zero"   // has 2 s for an immediate attempt
	oddByteByByte defect = "odd-byte-by-byte" // writes each byte by itself
	oddKeepAlives defect = "odd-keep-alives"  // sends a lone newline every 0.1 s
)

var wordsOdd = []defect{oddFewWords, oddTellsLate, oddShortZero, oddByteByByte, oddKeepAlives}

const (
	shortZero  = 2 * time.Second
	toldLate   = 400 * time.Millisecond
	aliveEvery = 100 * time.Millisecond
)

// words are the outcomes that the client can tell; nil for all.
func (d defect) words() []string {
	if d == oddFewWords {
		return []string{acquired, released, failed}
	}
	return nil
}

// word is how an outcome is told.
func (d defect) word(outcome string) string {
	if d == oddFewWords && outcome != acquired && outcome != released {
		return failed
	}
	return outcome
}

// tellsAfter is how long the end of an acquire is kept back.
func (d defect) tellsAfter() time.Duration {
	if d == oddTellsLate {
		return toldLate
	}
	return 0
}

// atOnce is how many of n bytes are written together.
func (d defect) atOnce(n int) int {
	if d == oddByteByByte {
		return min(n, 1)
	}
	return n
}

// keepAlive sends lone newlines until the session ends, if the client does that.
func (s *session) keepAlive() {
	if s.c.defect != oddKeepAlives {
		return
	}
	s.c.start(func() {
		for sleep(s.c.root, time.Now().Add(aliveEvery)) && s.takeTurn(s.c.root) {
			s.write(context.Background(), []byte("\n"))
			s.endTurn()
		}
	})
}
