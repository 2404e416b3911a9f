package verifytest

import (
	"os"
	"strings"
	"testing"
)

// TestDocs: the example of the documentation is the one that is compiled and run.
func TestDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/verifytest.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```go\n"+string(code)+"```\n") {
		t.Error("docs/verifytest.md does not have example_test.go as it is")
	}
}
