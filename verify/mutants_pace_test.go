package verify

import (
	"context"
	"fmt"
	"os"

	"tornwire/adapter"
	"tornwire/internal/wrongclient"
)

// paceShows lists the cases that show a defect of its list.
func paceShows(defect, dialect string) []string {
	switch defect {
	case "reconnect-hot":
		return []string{dialect + "/hot-reconnect/c2s.open.1@0:accept-fin"}
	case "enters-after-thaw", "forgets-after-thaw":
		return []string{dialect + "/frozen/none"}
	}
	return nil
}

// aloneWord makes this binary an adapter of the client with a defect, or of the
// reference client.
const aloneWord = "client-alone"

const referenceName = "reference"

// asProcess is a client as an adapter that is a process of its own.
func asProcess(name string) Starter {
	return func() (transport, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return Command(self, aloneWord, name)()
	}
}

func aloneMain(name string) int {
	lib := referenceLibrary()
	if name != referenceName {
		var err error
		if lib, err = wrongclient.Library(name); err != nil {
			panic(err)
		}
	}
	if err := adapter.Serve(context.Background(), os.Stdin, os.Stdout, lib); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
