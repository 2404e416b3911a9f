package adapter

import (
	"context"
	"fmt"
	"sync"
)

// book knows the open clients, and the calls that run or hold a ticket. A call
// that ended without a ticket is forgotten: to cancel or release it is answered
// like an unknown one.
type book struct {
	mu      sync.Mutex
	clients map[string]*entry
	calls   map[uint64]*call
	spent   []uint64 // calls whose tickets may be forgotten, oldest first from next
	next    int
	ended   bool
}

type entry struct {
	client Client // nil while it is being opened
	gone   bool
	held   map[uint64]*call // tickets never released
}

type call struct {
	name   string // of its client
	entry  *entry
	cancel context.CancelFunc // nil when the call is over
	ticket Ticket             // nil while it runs
	spent  bool
}

func newBook() *book {
	return &book{clients: map[string]*entry{}, calls: map[uint64]*call{}}
}

func (b *book) clientCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.clients)
}

// reserve takes a name for a client that is about to be opened.
func (b *book) reserve(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.clients[name]; ok {
		return fmt.Errorf("client %q is already open", clip(name, 100))
	}
	if len(b.clients) >= maxClients {
		return fmt.Errorf("more than %d clients open at once", maxClients)
	}
	b.clients[name] = &entry{held: map[uint64]*call{}}
	return nil
}

func (b *book) drop(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clients, name)
}

// opened stores the client, or refuses it because the book has ended.
func (b *book) opened(name string, c Client) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.clients[name].client = c
	return true
}

// client returns the open client of that name.
func (b *book) client(name string) (Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.clients[name]
	if e == nil || e.client == nil {
		return nil, fmt.Errorf("client %q is not open", clip(name, 100))
	}
	return e.client, nil
}

// closed forgets a client. Its running calls go on; its tickets can be released
// until they are pushed out.
func (b *book) closed(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.clients[name]
	delete(b.clients, name)
	e.gone = true
	for id, c := range e.held {
		b.spend(id, c)
	}
}

// end returns the clients that are open and refuses those that come later.
func (b *book) end() []Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	var open []Client
	for _, e := range b.clients {
		if e.client != nil {
			open = append(open, e.client)
		}
	}
	return open
}

func (b *book) begin(id uint64, name string, cancel context.CancelFunc) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.calls[id]; ok {
		return fmt.Errorf("id %d is a call already", id)
	}
	if len(b.calls) >= maxCalls {
		return fmt.Errorf("more than %d calls that run or hold a ticket", maxCalls)
	}
	b.calls[id] = &call{name: name, entry: b.clients[name], cancel: cancel}
	return nil
}

func (b *book) finish(id uint64, res Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if res.Outcome != "acquired" || res.Ticket == nil {
		delete(b.calls, id)
		return
	}
	c := b.calls[id]
	c.cancel, c.ticket = nil, res.Ticket
	c.entry.held[id] = c
	if c.entry.gone {
		b.spend(id, c)
	}
}

func (b *book) cancel(id uint64) {
	b.mu.Lock()
	var cancel context.CancelFunc
	if c := b.calls[id]; c != nil {
		cancel = c.cancel
	}
	b.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// ticket returns the ticket of a call for a release, the first or a later one.
func (b *book) ticket(id uint64, client string) (Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.calls[id]
	if c == nil || c.ticket == nil {
		return nil, fmt.Errorf("call %d holds no ticket", id)
	}
	if c.name != client {
		return nil, fmt.Errorf("call %d is not one of client %q", id, clip(client, 100))
	}
	b.spend(id, c)
	return c.ticket, nil
}

// spend puts a call into the ring of those that may be forgotten.
func (b *book) spend(id uint64, c *call) {
	if c.spent {
		return
	}
	c.spent = true
	delete(c.entry.held, id)
	if len(b.spent) < maxSpent {
		b.spent = append(b.spent, id)
		return
	}
	delete(b.calls, b.spent[b.next])
	b.spent[b.next] = id
	b.next = (b.next + 1) % maxSpent
}
