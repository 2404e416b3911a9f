// Command go-reference is the tornwire adapter of the reference client:
//
//	tornwire verify -- go run ./adapters/go-reference
//
// It is also the pattern for an adapter of another Go library: replace
// reference.Library() by your own adapter.Library.
package main

import (
	"context"
	"fmt"
	"os"

	"tornwire/adapter"
	"tornwire/adapter/reference"
)

func main() {
	if err := adapter.Serve(context.Background(), os.Stdin, os.Stdout, reference.Library()); err != nil {
		fmt.Fprintln(os.Stderr, "go-reference:", err)
		os.Exit(1)
	}
}
