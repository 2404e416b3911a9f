package toxics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
)

// FuzzJSON: what is refused is refused with words; what is accepted comes back
// the same, and runs to its end.
func FuzzJSON(f *testing.F) {
	for _, s := range every {
		f.Add(must(json.Marshal(s)))
	}
	f.Add([]byte(`{"type":"latency","stream":"UP","toxicity":1e-9,"attributes":{"latency":-1,"x":1e3}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s, again Spec
		if json.Unmarshal(data, &s) != nil {
			return
		}
		l, err := New(1, s)
		if err != nil {
			t.Fatalf("read, and then refused: %v", err)
		}
		text := must(json.Marshal(l.Specs()[0]))
		if err := json.Unmarshal(text, &again); err != nil || string(must(json.Marshal(again))) != string(text) {
			t.Fatalf("%s does not come back: %v", text, err)
		}
		synctest.Test(t, func(t *testing.T) {
			p := l.Open(1, s.direction())
			if s.Type == "bandwidth" && s.Attributes["rate"] < 10 {
				p.Send(data[:min(len(data), 100)], nil)
			} else {
				p.Send(bytes.Repeat(data, 10), nil)
			}
			p.Send(data, nil)
			p.End()
			for ok := true; ok; {
				_, ok = p.Next()
			}
		})
	})
}

// BenchmarkNoop is the cost of one hosted stage, by chunks of 64 bytes and of 32 KiB.
func BenchmarkNoop(b *testing.B) {
	for _, size := range []int{64, MaxChunk} {
		for _, l := range []*List{nil, must(New(1, toxic("noop")))} {
			b.Run(fmt.Sprintf("stages=%d/bytes=%d", l.Len(s2c), size), func(b *testing.B) {
				p := l.Open(1, s2c)
				data := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				go func() {
					for range b.N {
						p.Send(data, nil)
					}
					p.End()
				}()
				for ok := true; ok; {
					_, ok = p.Next()
				}
			})
		}
	}
}
