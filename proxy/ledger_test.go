package proxy

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLedger: it never tells more than was acknowledged in whole records, exactly
// that as long as it keeps all records, and all when all is acknowledged.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l ledger
		var ends []recordEnd
		cipher, plain := rapid.IntRange(0, 3000).Draw(t, "handshake"), 0
		acked := 0
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for range rapid.SampledFrom([]int{0, 1, 2, 50, maxRecords, 3 * maxRecords}).Draw(t, "records") {
				n := rapid.SampledFrom([]int{1, 7, maxRecord}).Draw(t, "n")
				plain, cipher = plain+n, cipher+n+22
				l.add(n, cipher)
				ends = append(ends, recordEnd{plain, cipher})
			}
			acked = rapid.IntRange(acked, cipher).Draw(t, "acked")
			want := 0
			for _, e := range ends {
				if e.cipher <= acked {
					want = e.plain
				}
			}
			got := plain - l.unacked(acked)
			if got > want || got < want && len(ends) <= maxRecords || got < 0 {
				t.Fatalf("%d acknowledged, wanted %d", got, want)
			}
			if len(l.ends) > maxRecords {
				t.Fatalf("%d records are kept", len(l.ends))
			}
		}
		if n := l.unacked(cipher); n != 0 {
			t.Fatalf("%d not acknowledged in the end", n)
		}
	})
}
