package proxy

import (
	"slices"
	"sync"
)

// maxRecords is how many ends of records a ledger keeps. Of more, every second is
// forgotten: what was acknowledged is then rounded down to one that is left.
const maxRecords = 1024

// ledger tells how much plaintext a number of acknowledged bytes of ciphertext is.
// A record counts when all of it is acknowledged: a receiver can make nothing of a
// part.
type ledger struct {
	mu    sync.Mutex
	plain int         // in the records written
	ends  []recordEnd // those that may not have been acknowledged
	acked int         // plaintext in the records before them
}

// recordEnd is where a record ends, counted in bytes from the connection's start.
type recordEnd struct{ plain, cipher int }

// add notes a record of n bytes that ends at cipher.
func (l *ledger) add(n, cipher int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends) == maxRecords {
		kept := l.ends[:0]
		for i := 1; i < maxRecords; i += 2 {
			kept = append(kept, l.ends[i])
		}
		l.ends = kept
	}
	l.plain += n
	l.ends = append(l.ends, recordEnd{l.plain, cipher})
}

// unacked returns how much plaintext is not acknowledged if cipher bytes are.
func (l *ledger) unacked(cipher int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.ends) && l.ends[n].cipher <= cipher {
		l.acked = l.ends[n].plain
		n++
	}
	l.ends = slices.Delete(l.ends, 0, n)
	return l.plain - l.acked
}
