package client_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"tornwire/client"
	"tornwire/server"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv, err := server.New(server.Config{FirstToken: 41})
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(ctx, l)
	}()

	c, err := client.New(client.Config{Addresses: []string{l.Addr().String()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	enter := func() {
		out, err := c.Acquire(ctx, "order-42", 0, 30*time.Second)
		if err != nil {
			fmt.Println(err)
			return
		}
		switch o := out.(type) {
		case client.Acquired:
			// The critical section: pass the token along with every write.
			fmt.Println("inside with token", o.Ticket.Token())
			fmt.Println(o.Ticket.Release(ctx))
		case client.TimedOut, client.Busy:
			fmt.Println("somebody else is inside")
		case client.Unsent:
			fmt.Println("nothing was sent:", o.Cause)
		case client.Indeterminate:
			fmt.Println("perhaps granted until", o.UntilAtMost, "- stay out:", o.Cause)
		}
	}
	enter()
	srv.Acquire("order-42", time.Minute)
	enter()
	_ = c.Close()
	cancel()
	<-served
	// Output:
	// inside with token 41
	// released
	// somebody else is inside
}
