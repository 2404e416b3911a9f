// Command tornwire tears the wire between lock clients and a lock server at
// every byte, and proves whether a client entered on an Indeterminate result.
package main

import (
	"os"

	"tornwire/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
