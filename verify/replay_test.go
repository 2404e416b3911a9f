package verify

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"tornwire/checker"
)

// TestReplay: a finding's replay line runs its case again.
func TestReplay(t *testing.T) {
	const id = "ticketing/single/s2c.A.1@25:truncate-fin"
	node := []string{"node", "my adapter.mjs", "--name=it's $HOME", "", "50%"}
	for want, o := range map[string]Options{
		"tornwire verify --case " + id:                                   {Seed: DefaultSeed, Profile: "official"},
		"tornwire verify --case " + id + " --profile any":                {Seed: DefaultSeed},
		"tornwire verify --case " + id + " --seed 7":                     {Seed: 7, Profile: "official"},
		"tornwire verify --case " + id + " -- ./a":                       {Seed: DefaultSeed, Command: []string{"./a"}},
		"tornwire verify --case " + id + " --profile official -- ./a -b": {Seed: DefaultSeed, Profile: "official", Command: []string{"./a", "-b"}},
		"tornwire verify --case " + id + ` -- node 'my adapter.mjs' '--name=it'\''s $HOME' '' 50%`: {
			Seed: DefaultSeed, Command: node,
		},
	} {
		o.Cases = []string{id}
		p := plan(t, o)
		if got := p.replay(p.Cases[0].ID); got != want {
			t.Errorf("replay\n%s\nwant\n%s", got, want)
		}
	}
	grace, tolerance := 0*time.Second, 90*time.Millisecond
	usual := checker.DefaultTolerance
	for want, o := range map[string]Options{
		" --grace 0s --tolerance 90ms": {Grace: &grace, Tolerance: &tolerance},
		" --grace 0s":                  {Grace: &grace, Tolerance: &usual},
	} {
		o.Cases, o.Profile, o.Seed = []string{id}, "official", DefaultSeed
		p := plan(t, o)
		if got := p.replay(p.Cases[0].ID); got != "tornwire verify --case "+id+want {
			t.Errorf("replay\n%s\nwant%s", got, want)
		}
	}
	want := "tornwire verify --dialect ticketing --workload single --fault none --profile any"
	if got := threeCases(t).replay(sanityCase.ID); got != want {
		t.Errorf("replay of the sanity run\n%s\nwant\n%s", got, want)
	}
}

// TestShellWord has a shell read the words back.
func TestShellWord(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	words := []string{"plain-1_./:=@%+,", "", " ", "two words", "it's", `"$HOME" \n`, "*", "~", "#x", "a;b&c|d", "(x)", "`id`", "é", "new\nline", "''"}
	line := `printf '%s\0'`
	for _, w := range words {
		line += " " + shellWord(w)
	}
	out, err := exec.Command(sh, "-c", line).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("the shell reads %q as %q", line, got)
	}
	if got := shellWord(words[0]); got != words[0] {
		t.Errorf("%s is quoted without need: %s", words[0], got)
	}
}
