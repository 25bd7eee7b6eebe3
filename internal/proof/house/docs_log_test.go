package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notTheLibrary are the folders whose log is not that of the library.
var notTheLibrary = []string{"cmd", "examples", "bench", "deploy", "tools", "bin", "internal/proof", "tenurehttp/browsertest"}

// loudLines are the messages that the library logs at Warn or above, found by where the level is
// named: beside the message, in a return or in a call. It fails at a level that is named elsewhere,
// so that none is overlooked, but for that of clusterLine, whose message begins as summary.
func loudLines(t *testing.T) map[string]string {
	t.Helper()
	const summary = "cluster status: "
	lines := map[string]string{}
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains(notTheLibrary, filepath.ToSlash(path)) || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && path != "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		named, understood := 0, 0
		ast.Inspect(file, func(node ast.Node) bool {
			if level(node) != "" {
				named++
			}
			var beside []ast.Expr
			switch node := node.(type) {
			case *ast.ReturnStmt:
				beside = node.Results
			case *ast.CallExpr:
				beside = node.Args
				if name, ok := node.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Warn", "WarnContext", "ErrorContext"}, name.Sel.Name) {
					t.Errorf("%s: a log line that this test does not read", set.Position(node.Pos()))
				}
			case *ast.AssignStmt:
				if level(node.Rhs[0]) == "Warn" && strings.HasSuffix(path, "events_log.go") {
					understood++
					lines[summary] = "Warn"
				}
			}
			for i, expression := range beside {
				if level(expression) == "" || i+1 == len(beside) {
					continue
				}
				literal, ok := beside[i+1].(*ast.BasicLit)
				require.True(t, ok, "%s: the message is not written out", set.Position(node.Pos()))
				message, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				lines[message] = level(expression)
				understood++
			}
			return true
		})
		require.Equal(t, named, understood, "%s names a level of the log that this test does not read", path)
		return nil
	})
	require.NoError(t, err)
	return lines
}

// level is Warn or Error, if that is what an expression is.
func level(node ast.Node) string {
	if selector, ok := node.(*ast.SelectorExpr); ok {
		if name, found := strings.CutPrefix(selector.Sel.Name, "Level"); found && (name == "Warn" || name == "Error") {
			return name
		}
	}
	return ""
}

// TestDocsLogLines: docs/troubleshooting.md has a row for each message that the library logs at
// Warn or above, with its level, and for no other.
func TestDocsLogLines(t *testing.T) {
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (Warn|Error) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(pages(t)["docs/troubleshooting.md"], -1) {
		require.NotContains(t, documented, row[1], "there twice")
		documented[row[1]] = row[2]
	}
	expected := map[string]string{}
	for message, level := range loudLines(t) {
		expected[strings.TrimSuffix(message, ": ")] = level
	}
	require.Greater(t, len(expected), 35)
	require.Equal(t, expected, documented)
}
