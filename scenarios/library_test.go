package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLibraryIsRight: each scenario that is built in is read, is named like its file, and says
// in comments or steps what it shows.
func TestLibraryIsRight(t *testing.T) {
	files, err := filepath.Glob("library/*.toml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(f, source)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if s.Name+".toml" != filepath.Base(f) || s.Clause == "" || len(s.Expect) == 0 || !strings.HasSuffix(s.About, ".") {
			t.Errorf("%s: name %q, clause %q, %d expectations, %q", f, s.Name, s.Clause, len(s.Expect), s.About)
		}
	}
}
