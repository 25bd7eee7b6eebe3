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
// average, and EnvHold how many statements of its tests between two that stand still until the
// others have got far ahead. Without it, or below 1, none does.
const (
	EnvYield = "TENURE_YIELD"
	EnvHold  = "TENURE_YIELD_HOLD"
)

const yielder = `package %s

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
)

var (
	overlayYields = overlayEvery(%q)
	overlayHolds  = overlayEvery(%q)
	overlayHeld   atomic.Bool // a goroutine is
)

func overlayEvery(env string) int { n, _ := strconv.Atoi(os.Getenv(env)); return n }

func overlayTurns(most int) {
	for range 1 + rand.IntN(most) {
		runtime.Gosched()
	}
}

func overlayHold() {
	if overlayHeld.CompareAndSwap(false, true) { // no other one: they get far ahead
		overlayTurns(4000)
		overlayHeld.Store(false)
	}
}

func overlayYield() {
	switch {
	case overlayYields < 1 || rand.IntN(overlayYields) > 0:
	case rand.IntN(500) == 0:
		overlayHold()
	default:
		overlayTurns(4)
	}
}

func overlayYieldTest() {
	if overlayHolds > 0 && rand.IntN(overlayHolds) == 0 {
		overlayHold()
	}
}
`

// Yield lays over the packages in these folders ("": the root) and their tests what they are, with
// goroutines that yield at random before each of their statements, see EnvYield.
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
		for _, name := range slices.Concat(in.GoFiles, in.TestGoFiles, in.XTestGoFiles) {
			path := filepath.Join(folder, name)
			source, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			yield := "overlayYield"
			if strings.HasSuffix(name, "_test.go") {
				yield = "overlayYieldTest"
			}
			text, err := yielding(string(source), yield)
			if err != nil {
				return "", fmt.Errorf("%s: %w", path, err)
			}
			if err := l.write(path, text); err != nil {
				return "", err
			}
		}
		if err := l.write(filepath.Join(folder, "overlay_yield.go"), fmt.Sprintf(yielder, in.Name, EnvYield, EnvHold)); err != nil {
			return "", err
		}
		if len(in.XTestGoFiles) > 0 {
			if err := l.write(filepath.Join(folder, "overlay_yield_x_test.go"), fmt.Sprintf(yielder, in.Name+"_test", EnvYield, EnvHold)); err != nil {
				return "", err
			}
		}
	}
	return l.finish()
}

// yielding gives a source that yields before each statement of its functions. Lines stay where they
// are.
func yielding(source, yield string) (string, error) {
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
		b.WriteString(source[from:to] + yield + "(); ")
		from = to
	}
	return b.String() + source[from:], nil
}
