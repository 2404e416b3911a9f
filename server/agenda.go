package server

import "container/heap"

// agenda holds every attempt that time will end: queued ones with a deadline and
// granted ones, the next first. At one instant deadlines come before lease ends,
// so an attempt is never granted at or after its own deadline; among equals the
// older attempt comes first.
type agenda []*attempt

func (g *agenda) add(a *attempt) { heap.Push((*agendaHeap)(g), a) }

func (g *agenda) remove(a *attempt) {
	if a.slot >= 0 {
		heap.Remove((*agendaHeap)(g), a.slot)
	}
}

// agendaHeap keeps the heap's methods out of agenda's.
type agendaHeap []*attempt

func (h agendaHeap) Len() int { return len(h) }

func (h agendaHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case !a.due.Equal(b.due):
		return a.due.Before(b.due)
	case a.held != b.held:
		return b.held
	}
	return a.seq < b.seq
}

func (h agendaHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h *agendaHeap) Push(x any) {
	a := x.(*attempt)
	a.slot = len(*h)
	*h = append(*h, a)
}

func (h *agendaHeap) Pop() any {
	old := *h
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	a.slot = -1
	return a
}
