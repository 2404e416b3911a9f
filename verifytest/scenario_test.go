package verifytest

import (
	"strings"
	"testing"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/internal/wrongclient"
	"tornwire/scenarios"
)

// TestScenarios: all that are built in pass with the reference client in virtual time.
func TestScenarios(t *testing.T) {
	RunScenarios(t, Options{Profile: "official"}, scenarios.Library(), func(e Env) Client {
		c, err := reference.WithDial(e.Dial, e.Seed).Open(e.Dialect, e.Addresses, e.Secret)
		if err != nil {
			return Unopened(err)
		}
		return c
	})
}

// TestScenarioFails: a wrong client fails with the finding, what was expected, and the line.
func TestScenarioFails(t *testing.T) {
	s, _ := scenarios.ByName("lost-grant")
	text := story(t, Options{}, s, func(in Inside) adapter.Library {
		lib, err := wrongclient.WithDial("eof-is-timeout", in.Dial)
		if err != nil {
			t.Fatal(err)
		}
		return lib
	})
	for _, want := range []string{"NONCONFORMING: The server grants,", "indeterminate-stays (contract, certain)", "lost-grant.toml:34: expected: call order ends indeterminate or error; it ended timeout"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
