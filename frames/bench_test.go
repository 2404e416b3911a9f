package frames_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
	directions = []frames.Direction{c2s, s2c}
	cuts       = []string{"32KiB", "frame"}
)

// A pass goes once over the reads of a stream and returns the number of frames.
type pass func(reads [][]byte) int

func decodePass(dir frames.Direction) pass {
	d := frames.MustBuiltin("ticketing").Decoder(dir)
	d.Next([]byte("preface\n"))
	return func(reads [][]byte) (n int) {
		for _, rest := range reads {
			for len(rest) > 0 {
				pc, left := d.Next(rest)
				if pc.Last {
					n += len(pc.Whole) >> 5 // 40 to 46 bytes count as one
				}
				rest = left
			}
		}
		return n
	}
}

func handPass(dir frames.Direction) pass {
	h := handSplitter{dir: dir}
	return func(reads [][]byte) (n int) {
		for _, rest := range reads {
			for len(rest) > 0 {
				var f []byte
				var err error
				if f, rest, err = h.next(rest); err != nil {
					return -1
				}
				n += len(f) >> 5
			}
		}
		return n
	}
}

func movePass(frames.Direction) pass {
	dst := make([]byte, readSize)
	return func(reads [][]byte) (n int) {
		for _, r := range reads {
			n += copy(dst, r)
		}
		return n
	}
}

// eachStream runs f for both directions and both ways of reading.
func eachStream(b *testing.B, f func(b *testing.B, dir frames.Direction, reads [][]byte, list int)) {
	for _, dir := range directions {
		all := benchReads(b, dir)
		for _, cut := range cuts {
			b.Run(dir.String()+"/"+cut, func(b *testing.B) { f(b, dir, all[cut], len(all["frame"])) })
		}
	}
}

func benchPass(b *testing.B, of func(frames.Direction) pass, counts bool) {
	eachStream(b, func(b *testing.B, dir frames.Direction, reads [][]byte, list int) {
		size := 0
		for _, r := range reads {
			size += len(r)
		}
		p := of(dir)
		b.SetBytes(int64(size))
		b.ReportAllocs()
		for b.Loop() {
			if n := p(reads); counts && n != list {
				b.Fatalf("%d frames, not %d", n, list)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*list), "ns/frame")
	})
}

func BenchmarkDecode(b *testing.B)       { benchPass(b, decodePass, true) }
func BenchmarkHandSplitter(b *testing.B) { benchPass(b, handPass, true) }
func BenchmarkMemmove(b *testing.B)      { benchPass(b, movePass, false) }

// BenchmarkRatio takes the three in turn, pass by pass, so that whatever slows
// the machine slows all of them, and reports how many times the hand-written
// splitter's time the decoder takes, and how many times memmove's: the median
// and the quartiles of all passes.
func BenchmarkRatio(b *testing.B) {
	eachStream(b, func(b *testing.B, dir frames.Direction, reads [][]byte, _ int) {
		passes := [3]pass{decodePass(dir), handPass(dir), movePass(dir)}
		var hand, move []float64
		for b.Loop() {
			var took [3]float64
			for i, p := range passes {
				start := time.Now()
				p(reads)
				took[i] = float64(time.Since(start))
			}
			hand = append(hand, took[0]/took[1])
			move = append(move, took[0]/took[2])
		}
		for name, r := range map[string][]float64{"hand": hand, "memmove": move} {
			slices.Sort(r)
			for q, at := range map[string]int{"q1": len(r) / 4, "median": len(r) / 2, "q3": len(r) * 3 / 4} {
				b.ReportMetric(r[at], "x-"+name+"-"+q)
			}
		}
	})
}
