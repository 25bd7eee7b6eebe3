package overlay

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnvYield is how many statements a process built with Yield runs between two that yield, on
// average. Without it, or below 1, none does.
const EnvYield = "TENURE_YIELD"

const yielder = `package %s

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
)

var overlayYields, _ = strconv.Atoi(os.Getenv(%q))

func overlayYield() {
	if overlayYields > 0 && rand.IntN(overlayYields) == 0 {
		for range 1 + rand.IntN(4) {
			runtime.Gosched()
		}
	}
}
`

// Yield lays over the packages in these folders ("": the root) what they are, with goroutines that
// yield at random before each of their statements, see EnvYield. Tests stay as they are.
func Yield(dir string, folders []string) (overlay string, err error) {
	l, err := newLayer(dir)
	if err != nil {
		return "", err
	}
	for _, folder := range folders {
		folder = filepath.FromSlash(folder)
		in, err := build.ImportDir(filepath.Join(l.root, folder), 0)
		if err != nil {
			return "", err
		}
		for _, name := range in.GoFiles {
			path := filepath.Join(folder, name)
			source, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text, err := yielding(string(source))
			if err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
			if err := l.write(path, text); err != nil {
				return "", err
			}
		}
		if err := l.write(filepath.Join(folder, "overlay_yield.go"), fmt.Sprintf(yielder, in.Name, EnvYield)); err != nil {
			return "", err
		}
	}
	return l.finish()
}

// yielding gives a source that yields before each statement of its functions. Lines stay where they
// are.
func yielding(source string) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var at []int
	before := func(statements []ast.Stmt) {
		for _, s := range statements {
			switch s.(type) {
			case *ast.CaseClause, *ast.CommClause: // of a switch or a select
			default:
				at = append(at, files.Position(s.Pos()).Offset)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			before(n.List)
		case *ast.CaseClause:
			before(n.Body)
		case *ast.CommClause:
			before(n.Body)
		}
		return true
	})
	slices.Sort(at)
	var b strings.Builder
	from := 0
	for _, to := range at {
		b.WriteString(source[from:to] + "overlayYield(); ")
		from = to
	}
	return b.String() + source[from:], nil
}
