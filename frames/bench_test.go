package frames_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"tornwire/frames"
)

// readSize is what a link reads at once.
const readSize = 32 << 10

// benchFrames are typical frames of 40 to 46 bytes, some with a newline byte in
// a fixed field, as a list and about 1 MiB of it.
func benchFrames(tb testing.TB, dir frames.Direction) [][]byte {
	tb.Helper()
	g := frames.MustBuiltin("ticketing")
	type row struct {
		op     string
		values []uint64
		key    int
	}
	rows := []row{
		{"A", []uint64{30, 10, 0x1122334455667788}, 30},
		{"R", []uint64{0x0A0B0C0D0E0F1011}, 33},
		{"A", []uint64{0, 255, 0x0A0A0A0A0A0A0A0A}, 34},
		{"R", []uint64{77}, 30},
	}
	if dir == frames.ServerToClient {
		rows = []row{
			{"A", []uint64{0x1122334455667788, 4711}, 25},
			{"R", []uint64{0x0A0B0C0D0E0F1011}, 33},
			{"A", []uint64{0x0A0A0A0A0A0A0A0A, 0x0A}, 28},
			{"T", []uint64{0x1122334455667788}, 30},
			{"B", []uint64{0x1122334455667788}, 36},
		}
	}
	var out [][]byte
	for size, i := 0, 0; size < 1<<20; i++ {
		r := rows[i%len(rows)]
		f, err := g.MustShape(dir, r.op).Append(nil, []byte(strings.Repeat("k", r.key)), r.values...)
		if err != nil || len(f) < 40 || len(f) > 46 {
			tb.Fatalf("frame of %d bytes, %v", len(f), err)
		}
		out = append(out, f)
		size += len(f)
	}
	return out
}

// benchReads gives the stream as reads of 32 KiB and as reads of one frame.
func benchReads(tb testing.TB, dir frames.Direction) map[string][][]byte {
	list := benchFrames(tb, dir)
	stream := bytes.Join(list, nil)
	one := make([][]byte, 0, len(list))
	for rest := stream; len(rest) > 0; rest = rest[len(list[len(one)-1]):] {
		one = append(one, rest[:len(list[len(one)])])
	}
	return map[string][][]byte{"32KiB": slices.Collect(slices.Chunk(stream, readSize)), "frame": one}
}

// handSplitter is the least that splits the current dialect by hand: it knows
// the header sizes, the limit and how to keep a partial frame.
type handSplitter struct {
	dir  frames.Direction
	part []byte
}

var errHand = errors.New("bad frame")

func (h *handSplitter) next(p []byte) (frame, rest []byte, err error) {
	if len(h.part) > 0 {
		return h.join(p)
	}
	n, err := h.end(p)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		h.part = append(h.part, p...)
		return nil, nil, nil
	}
	return p[:n], p[n:], nil
}

func (h *handSplitter) join(p []byte) (frame, rest []byte, err error) {
	had := len(h.part)
	h.part = append(h.part, p[:min(len(p), 256)]...)
	n, err := h.end(h.part)
	if err != nil || n == 0 {
		return nil, nil, err
	}
	frame = h.part[:n]
	h.part = h.part[:0]
	return frame, p[n-had:], nil
}

func (h *handSplitter) end(p []byte) (int, error) {
	head := 0
	if h.dir == frames.ClientToServer {
		switch p[0] {
		case 'A':
			head = 11
		case 'R':
			head = 9
		case '\n':
			return 1, nil
		default:
			return 0, errHand
		}
	} else {
		switch p[0] {
		case 'A':
			head = 17
		case 'T', 'B', 'R', 'N':
			head = 9
		case 'M', 'L', 'E':
			head = 1
		case '\n':
			return 1, nil
		default:
			return 0, errHand
		}
	}
	if len(p) <= head {
		return 0, nil
	}
	i := bytes.IndexByte(p[head:min(len(p), head+193)], '\n')
	if i < 0 {
		if len(p) > head+192 {
			return 0, errHand
		}
		return 0, nil
	}
	return head + i + 1, nil
}

var (
	directions = []frames.Direction{frames.ClientToServer, frames.ServerToClient}
	cuts       = []string{"32KiB", "frame"}
)

// eachStream runs f for both directions and both ways of reading.
func eachStream(b *testing.B, f func(b *testing.B, dir frames.Direction, reads [][]byte, frameCount int)) {
	for _, dir := range directions {
		all := benchReads(b, dir)
		for _, cut := range cuts {
			b.Run(dir.String()+"/"+cut, func(b *testing.B) {
				size := 0
				for _, r := range all[cut] {
					size += len(r)
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				f(b, dir, all[cut], len(all["frame"]))
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all["frame"])), "ns/frame")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	eachStream(b, func(b *testing.B, dir frames.Direction, reads [][]byte, want int) {
		d := frames.MustBuiltin("ticketing").Decoder(dir)
		d.Next([]byte("preface\n"))
		for b.Loop() {
			got := 0
			for _, rest := range reads {
				for len(rest) > 0 {
					var pc frames.Piece
					if pc, rest = d.Next(rest); pc.Last {
						got += len(pc.Whole) >> 5 // 40 to 46 bytes count as one
					}
				}
			}
			if got != want {
				b.Fatalf("%d frames, not %d", got, want)
			}
		}
	})
}

func BenchmarkHandSplitter(b *testing.B) {
	eachStream(b, func(b *testing.B, dir frames.Direction, reads [][]byte, want int) {
		h := handSplitter{dir: dir}
		for b.Loop() {
			got := 0
			for _, rest := range reads {
				for len(rest) > 0 {
					var f []byte
					var err error
					if f, rest, err = h.next(rest); err != nil {
						b.Fatal(err)
					}
					got += len(f) >> 5
				}
			}
			if got != want {
				b.Fatalf("%d frames, not %d", got, want)
			}
		}
	})
}

func BenchmarkMemmove(b *testing.B) {
	eachStream(b, func(b *testing.B, _ frames.Direction, reads [][]byte, _ int) {
		dst := make([]byte, readSize)
		for b.Loop() {
			for _, r := range reads {
				copy(dst, r)
			}
		}
	})
}
