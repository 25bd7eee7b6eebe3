package tenure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsNameTests: every test, fuzz target and benchmark that the documents name is there.
func TestDocsNameTests(t *testing.T) {
	there := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, "_test.go") {
			source, err := os.ReadFile(path)
			for _, found := range definition.FindAllStringSubmatch(string(source), -1) {
				there[found[1]] = true
			}
			return err
		}
		return err
	})
	require.NoError(t, err)
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, path := range append(documents, "README.md", "SECURITY.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w*)`").FindAllStringSubmatch(string(text), -1) {
			named++
			require.True(t, there[found[1]], "%s names %s", path, found[1])
		}
	}
	require.Greater(t, named, 80)
}
