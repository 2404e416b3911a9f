package verifytest

import (
	"testing"

	"tornwire/adapter"
	"tornwire/adapter/reference"
)

// TestReference: the reference client is SAFE in the standard sweep.
func TestReference(t *testing.T) {
	for _, d := range []string{"ticketing", "ticketing-v0"} {
		RunLibrary(t, Options{Dialect: d, Profile: "official", Strict: true}, func(in Inside) adapter.Library { return reference.WithDial(reference.Dial(in.Dial), in.Seed) })
	}
}
