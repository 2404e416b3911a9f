package wrongclient

import (
	"math"
	"strings"
)

// nearlyMatches is matches for the defects that look at a part of an answer only; it is
// not known for the others.
func (d defect) nearlyMatches(f frame, x *exchange) (fits, known bool) {
	acquire := x.ops == acquireAnswers
	switch {
	case !strings.Contains(x.ops, f.shape.Op):
		return false, false
	case d == ownerHalved && acquire:
		return uint32(f.id()) == uint32(x.id) && f.tail() == x.key, true
	case d == keyCaseless && acquire:
		return f.id() == x.id && strings.EqualFold(f.tail(), x.key), true
	case d == keyPrefix && acquire:
		return f.id() == x.id && strings.HasPrefix(f.tail(), x.key), true
	case d == refusalByKey && acquire && f.shape.Op != "A", d == answerByKey && !acquire:
		return f.tail() == x.key, true
	case d == answerByToken && !acquire:
		return f.id() == x.id, true
	}
	return false, false
}

// tokenRead is what the client keeps of a token.
func (d defect) tokenRead(t uint64) uint64 {
	switch d {
	case tokenClamped:
		return min(t, math.MaxInt64)
	case tokenText:
		for i := 0; i < 64; i += 8 {
			if t>>i&0x80 != 0 {
				t |= 0xFF << i
			}
		}
	}
	return t
}
