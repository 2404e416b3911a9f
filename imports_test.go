// Package tornwire_test holds what is true of the whole tree: which package may import which.
package tornwire_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "tornwire"

// room is a package or, with a name ending in /*, all packages below it.
type room struct {
	name string
	may  []string // packages of ours that it may import; "*" is all
	why  string   // why no others
}

// rooms is the order of the house: imports only point up the table, and only where a row says so.
var rooms = []room{
	{"internal/memnet", nil, "a network knows nothing of what travels on it"},
	{"internal/words", nil, "whoever reads what people write may use it"},
	{"frames", nil, "grammars, decoder and encoder are used by all and so can use nobody"},
	{"history", []string{"frames"}, "the record must not depend on who writes it or who judges it"},
	{"faults", []string{"frames"}, "a fault is a pure decision about a frame; who carries it out is not its business"},
	{"faults/toxics", []string{"frames", "faults"}, "toxics are byte stages: of frames they know the direction alone"},
	{"proxy", []string{"frames", "faults", "history"}, "the data path knows neither lock servers, nor clients, nor verdicts"},
	{"server", []string{"frames"}, "the embedded server is a peer of its own; it shares the grammar with the client and nothing else"},
	{"server/stub", []string{"frames"}, "it says what its script says; the right server behind it is for whoever sets it up to bring"},
	{"client", []string{"frames"}, "people use it as a library without the rest of the tool"},
	{"checker", []string{"frames", "history"}, "an oracle judges what was recorded, never the code that made it"},
	{"adapter", nil, "it is copied or imported by strangers around their own library"},
	{"adapter/reference", []string{"adapter", "client"}, "it is an adapter like any other: what the protocol and the client do not give, it has not"},
	{"adapters/*", []string{"adapter", "adapter/reference"}, "an adapter program holds no test logic"},
	{"internal/wrongclient", []string{"adapter", "frames"}, "it must not share the reference client's code, or it would share its mistakes"},
	{
		"verify",
		[]string{
			"frames", "history", "faults", "proxy", "server", "server/stub", "client", "checker", "adapter", "adapter/reference",
			"internal/memnet", "internal/words",
		},
		"the sweep is driven by commands and tests, it does not know them",
	},
	{"proof", []string{"frames", "history", "checker"}, "a proof is text made of a record; it must not depend on what ran the case"},
	{"internal/strict", []string{"faults", "internal/words"}, "whoever reads strictly what people write may use it"},
	{
		"scenarios",
		[]string{"frames", "history", "faults", "proxy", "server", "checker", "adapter", "adapter/reference", "verify", "internal/strict", "internal/words"},
		"a scenario is run by the engine of the cases; reports, API and commands steer the scenario",
	},
	{
		"verifytest",
		[]string{
			"frames", "history", "faults", "proxy", "server", "client", "checker", "adapter", "adapter/reference",
			"verify", "scenarios", "internal/memnet",
		},
		"it is verify inside go test, without commands and without an API",
	},
	{"live", []string{"frames", "history", "checker", "proxy"}, "it watches proxies and judges what crossed; who asks it is not its business"},
	{
		"api",
		[]string{"frames", "history", "faults", "faults/toxics", "proxy", "checker", "scenarios", "live", "internal/strict", "internal/words"},
		"the API translates and decides nothing",
	},
	{"internal/cli", []string{"*"}, ""},
	{"cmd/tornwire", []string{"*"}, ""},
	{"internal/soak", nil, "it measures the program from outside, and what checks a proxy must share no code with it"},
}

// guest is an import path from outside, with all that lies below it, and the only packages that may use it.
type guest struct {
	path string
	in   []string
	why  string
}

var guests = []guest{
	{"github.com/rs/zerolog", []string{"proxy", "api", "scenarios", "internal/cli"}, "what is pure returns errors and events, and does not log"},
	{"github.com/BurntSushi/toml", []string{"frames", "scenarios", "internal/cli"}, "files are read at the edge and validated as a whole"},
	{"github.com/gorilla/mux", []string{"api"}, "routes belong to the API"},
	{"github.com/Shopify/toxiproxy/v2", []string{"faults/toxics"}, "its traps are fenced off in one place"},
	{"github.com/anishathalye/porcupine", []string{"checker"}, "what orders of operations are possible is for the oracle to say"},
	{"github.com/pires/go-proxyproto", []string{"proxy"}, "a PROXY header goes in front of the link's first byte, where only the data path is"},
	{"testing", []string{"verifytest"}, "it registers flags and pulls test code into the shipped binary"},
	{"pgregory.net/rapid", nil, "it is for tests only"},
	{"go.uber.org/goleak", nil, "it is for tests only"},
	{"github.com/rogpeppe/go-internal", nil, "it is for tests only"},
}

// source is what a file that is no test imports.
type source struct {
	file    string // relative to the root, with slashes
	imports []string
}

func (s source) pkg() string { return path.Dir(s.file) }

func TestImports(t *testing.T) {
	sources, err := readSources(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range forbidden(sources) {
		t.Error(problem)
	}
	// Proof that the walk saw the tree and the imports in it.
	for pkg, imported := range map[string]string{"history": module + "/frames", "frames": "github.com/BurntSushi/toml"} {
		if !slices.ContainsFunc(sources, func(s source) bool { return s.pkg() == pkg && slices.Contains(s.imports, imported) }) {
			t.Errorf("no file of %s was found to import %s", pkg, imported)
		}
	}
}

// readSources parses the imports of every file that is no test, whatever its build constraints. It leaves out what go leaves out: other
// modules, testdata, and names that begin with a dot or an underscore; and node_modules.
func readSources(root string) ([]source, error) {
	var sources []source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		base := d.Name()
		hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
		if d.IsDir() {
			nested, _ := filepath.Glob(filepath.Join(name, "go.mod"))
			if hidden || base == "testdata" || base == "node_modules" || len(nested) > 0 {
				return filepath.SkipDir
			}
			return nil
		}
		if hidden || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		s := source{file: filepath.ToSlash(relative)}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
		}
		sources = append(sources, s)
		return nil
	})
	return sources, err
}

// forbidden returns one line for every import that the tables do not allow, and for every package that they do not name.
func forbidden(sources []source) []string {
	var problems []string
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	unknown := map[string]bool{}
	for _, s := range sources {
		at, known := find(s.pkg())
		if !known && !unknown[s.pkg()] {
			unknown[s.pkg()] = true
			report("%s: package %s has no row in rooms: add it, with what it may import and why no more", s.file, s.pkg())
		}
		for _, imported := range s.imports {
			if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
				if known && !allowed(at.may, ours) {
					report("%s imports %s: %s (%s may import %s)", s.file, imported, at.why, at.name, list(at.may))
				}
				continue
			}
			for _, g := range guests {
				if covers(g.path, imported) && !slices.Contains(g.in, s.pkg()) {
					report("%s imports %s: %s (allowed in: %s)", s.file, imported, g.why, list(g.in))
				}
			}
		}
	}
	return problems
}

// find returns the row of a package.
func find(pkg string) (room, bool) {
	for _, r := range rooms {
		parent, isParent := strings.CutSuffix(r.name, "/*")
		if r.name == pkg || isParent && covers(parent, pkg) && parent != pkg {
			return r, true
		}
	}
	return room{}, false
}

func allowed(may []string, pkg string) bool {
	return slices.Contains(may, "*") || slices.Contains(may, pkg)
}

// covers tells whether an import path is root or lies below it.
func covers(root, imported string) bool {
	return imported == root || strings.HasPrefix(imported, root+"/")
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// TestForbidden shows that the check finds what it is there to find.
func TestForbidden(t *testing.T) {
	tests := []struct {
		file, imported string
		want           string // part of the one problem, or nothing for none
	}{
		{"proxy/link.go", "tornwire/frames", ""},
		{"proxy/link.go", "tornwire/server", "proxy/link.go imports tornwire/server: the data path knows neither"},
		{"frames/frames.go", "tornwire/history", "(frames may import none)"},
		{"history/event.go", "tornwire/faults", "(history may import frames)"},
		{"checker/owner.go", "tornwire/proxy", "an oracle judges"},
		{"client/call.go", "tornwire/internal/memnet", "as a library"},
		{"adapter/protocol.go", "tornwire/frames", "strangers"},
		{"adapter/reference/main.go", "tornwire/client", ""},
		{"adapter/reference/main.go", "tornwire/frames", "adapter, client"},
		{"adapters/go-reference/main.go", "tornwire/adapter/reference", ""},
		{"adapters/go-reference/main.go", "tornwire/client", "no test logic"},
		{"adapters/main.go", "fmt", "has no row"},
		{"internal/wrongclient/conn.go", "tornwire/client", "share its mistakes"},
		{"scenarios/run.go", "tornwire/verify", ""},
		{"verify/run.go", "tornwire/internal/cli", "driven by commands"},
		{"verify/run.go", "tornwire/internal/wrongclient", "(verify may import"},
		{"verifytest/sweep.go", "tornwire/verify", ""},
		{"api/routes.go", "tornwire/verify", "decides nothing"},
		{"internal/cli/verify.go", "tornwire/verify", ""},
		{"cmd/tornwire/main.go", "tornwire/internal/cli", ""},
		{"faults/toxics/list.go", "tornwire/frames", ""},
		{"faults/toxics/latency.go", "tornwire/history", "the direction alone"},
		{"nowhere/x.go", "fmt", "package nowhere has no row in rooms"},
		{"frames/sub/x.go", "fmt", "package frames/sub has no row in rooms"},
		{"main.go", "fmt", "package . has no row in rooms"},

		{"proxy/log.go", "github.com/rs/zerolog", ""},
		{"server/log.go", "github.com/rs/zerolog/log", "does not log (allowed in: proxy, api, scenarios, internal/cli)"},
		{"verify/log.go", "github.com/rs/zerolog", "does not log"},
		{"frames/grammar.go", "github.com/BurntSushi/toml", ""},
		{"faults/config.go", "github.com/BurntSushi/toml", "read at the edge"},
		{"api/routes.go", "github.com/gorilla/mux", ""},
		{"internal/cli/serve.go", "github.com/gorilla/mux", "routes belong"},
		{"faults/toxics/latency.go", "github.com/Shopify/toxiproxy/v2/toxics", ""},
		{"proxy/stage.go", "github.com/Shopify/toxiproxy/v2/stream", "fenced off"},
		{"proxy/reach.go", "github.com/pires/go-proxyproto", ""},
		{"api/routes.go", "github.com/pires/go-proxyproto", "where only the data path is"},
		{"verifytest/sweep.go", "testing", ""},
		{"verifytest/sweep.go", "testing/synctest", ""},
		{"client/helper.go", "testing", "allowed in: verifytest"},
		{"cmd/tornwire/main.go", "testing/iotest", "shipped binary"},
		{"client/helper.go", "testingx", ""},
		{"proxy/leak.go", "go.uber.org/goleak", "tests only"},
		{"proxy/gen.go", "pgregory.net/rapid", "tests only (allowed in: none)"},
		{"internal/cli/script.go", "github.com/rogpeppe/go-internal/testscript", "tests only"},
	}
	for _, test := range tests {
		got := forbidden([]source{{test.file, []string{test.imported}}})
		switch {
		case test.want == "" && len(got) > 0:
			t.Errorf("%s, %s: %q, wanted nothing", test.file, test.imported, got)
		case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
			t.Errorf("%s, %s: %q, wanted one problem with %q", test.file, test.imported, got, test.want)
		}
	}
}

// TestRoomsPointUp keeps the table itself in order: a row imports only rows above it, and gives its reason.
func TestRoomsPointUp(t *testing.T) {
	var above []string
	for _, r := range rooms {
		for _, pkg := range r.may {
			if pkg != "*" && !slices.Contains(above, pkg) {
				t.Errorf("%s may import %s, which is not above it", r.name, pkg)
			}
		}
		if r.why == "" && !slices.Contains(r.may, "*") {
			t.Errorf("%s has no reason", r.name)
		}
		above = append(above, r.name)
	}
}

// TestReadSources: what go would build is read, also under a build constraint, and nothing else.
func TestReadSources(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module "+module)
	write("a/a.go", "package a\nimport (\n\t_ \"embed\"\n\tx \"fmt\"\n)\nvar _ = x.Sprint")
	write("a/b/b_plan9.go", "//go:build plan9\n\npackage b\nimport . \"os\"")
	for _, name := range []string{"a/a_test.go", "testdata/t.go", "a/node_modules/n/n.go", ".hidden/h.go", "_old/o.go", "a/_x.go", "a/notes.txt"} {
		write(name, "package p\nimport \"net\"")
	}
	write("tools/go.mod", "module tools")
	write("tools/t.go", "package tools\nimport \"net\"")

	got, err := readSources(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []source{{"a/a.go", []string{"embed", "fmt"}}, {"a/b/b_plan9.go", []string{"os"}}}
	if !slices.EqualFunc(got, want, func(a, b source) bool { return a.file == b.file && slices.Equal(a.imports, b.imports) }) {
		t.Errorf("read %v, wanted %v", got, want)
	}
	write("a/broken.go", "not go")
	if _, err := readSources(root); err == nil {
		t.Error("a file that cannot be parsed is no error")
	}
}
