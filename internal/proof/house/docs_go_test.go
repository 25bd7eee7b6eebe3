package house

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"go/version"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/surface"
)

// world are the names that snippets may use without saying where they come from, with the types
// that they have.
var world = map[string]string{
	"c": "*tenure.Coordinator", "coordinator": "*tenure.Coordinator", "e": "*tenure.Elector", "rdb": "*redis.Client", "client": "*redis.Client",
	"options": "tenure.Options", "ctx": "context.Context", "err": "error", "term": "tenure.Term", "run": "tenure.TaskRun",
	"w": "http.ResponseWriter", "r": "*http.Request", "mux": "*http.ServeMux", "server": "*http.Server", "listener": "net.Listener",
	"db": "*sql.DB", "t": "*testing.T", "id": "string", "amount": "int64",
	// what an application has
	"orders": "interface { http.Handler; Take(context.Context, int64) error }", "changes": "chan string",
	"store": "interface { Write(context.Context, int64, string) error }", "pay": "func(context.Context) error",
	"report": "func(context.Context, tenure.TaskRun) error", "work": "func(context.Context) error", "consume": "func(context.Context, tenure.Term) error",
	"errRateLimit": "error", "errInput": "error",
	"takeOrder": "func(*tenure.Coordinator) http.HandlerFunc", "copyRows": "func(context.Context, tenure.TaskRun) error",
	"poll": "func(context.Context, tenure.Term) error", "app": "http.Handler",
}

// libraries are the packages that snippets may use without importing them. Those of another module
// are looked up there.
var libraries = map[string]struct{ path, module string }{
	"tenurehttp": {"github.com/tenure-go/tenure/tenurehttp", "."}, "tenuretest": {"github.com/tenure-go/tenure/tenuretest", "."},
	"tenureprom":   {"github.com/tenure-go/tenure/tenureprom", "tenureprom"},
	"prometheus":   {"github.com/prometheus/client_golang/prometheus", "tenureprom"},
	"promhttp":     {"github.com/prometheus/client_golang/prometheus/promhttp", "tenureprom"},
	"tenureotel":   {"github.com/tenure-go/tenure/tenureotel", "tenureotel"},
	"gocron":       {"github.com/go-co-op/gocron/v2", "adapters/gocron"},
	"tenuregocron": {"github.com/tenure-go/tenure/adapters/gocron", "adapters/gocron"},
	"asynq":        {"github.com/hibiken/asynq", "adapters/asynq"},
	"tenureasynq":  {"github.com/tenure-go/tenure/adapters/asynq", "adapters/asynq"},
	"tenure":       {"github.com/tenure-go/tenure", "."},
	"redis":        {"github.com/redis/go-redis/v9", "."},
	"redsync":      {"github.com/go-redsync/redsync/v4", "bench"},
	"goredis":      {"github.com/go-redsync/redsync/v4/redis/goredis/v9", "bench"},
	"rueidis":      {"github.com/redis/rueidis", "bench"},
	"rueidislock":  {"github.com/redis/rueidis/rueidislock", "bench"},
	"redislock":    {"github.com/bsm/redislock", "bench"},
	"require":      {"github.com/stretchr/testify/require", "."},
	"miniredis":    {"github.com/alicebob/miniredis/v2", "."},
	"cron":         {"github.com/robfig/cron/v3", "."},
	"http":         {"net/http", "."},
	"httptest":     {"net/http/httptest", "."},
	"sql":          {"database/sql", "."},
	"slog":         {"log/slog", "."},
	"rand":         {"math/rand/v2", "."},
	"signal":       {"os/signal", "."},
	"atomic":       {"sync/atomic", "."},
	"synctest":     {"testing/synctest", "."},
	"cmp":          {"cmp", "."},
	"context":      {"context", "."},
	"errors":       {"errors", "."},
	"fmt":          {"fmt", "."},
	"log":          {"log", "."},
	"net":          {"net", "."},
	"os":           {"os", "."},
	"syscall":      {"syscall", "."},
	"testing":      {"testing", "."},
	"time":         {"time", "."},
	"tls":          {"crypto/tls", "."},
	"slices":       {"slices", "."},
}

// room is a module of the repository: its packages as they are compiled.
type room struct {
	exports  map[string]string // package path → file
	importer types.Importer
}

// openRoom has the go command compile what the snippets of a module may use. It takes what is in
// its cache.
func openRoom(t *testing.T, set *token.FileSet, module string) *room {
	t.Helper()
	paths := []string{}
	for _, library := range libraries {
		if library.module == module || library.module == "." && !strings.HasPrefix(library.path, "github.com/") {
			paths = append(paths, library.path)
		}
	}
	ways := [][]string{nil}
	if module == "." && newestGo() {
		newest, err := filepath.Abs("tools/newest.mod")
		require.NoError(t, err)
		ways = [][]string{{"-modfile=" + newest}, nil} // the one that `make test` has compiled
	}
	if module != "." {
		paths = append(paths, "github.com/tenure-go/tenure", "github.com/redis/go-redis/v9")
	}
	var out []byte
	var err error
	for _, flags := range ways {
		cmd := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"list"}, flags, []string{"-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths)...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		var problems bytes.Buffer
		cmd.Stderr = &problems
		if out, err = cmd.Output(); err == nil {
			break
		}
		err = fmt.Errorf("go list in %s: %w\n%s", module, err, problems.String())
	}
	require.NoError(t, err)
	r := &room{exports: map[string]string{}}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		r.exports[path] = file
	}
	r.importer = importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		file, found := r.exports[path]
		if !found || file == "" {
			return nil, fmt.Errorf("package %s is not among those that snippets may use", path)
		}
		return os.Open(file)
	})
	return r
}

// newestGo reports whether this is not the lowest Go, which go.mod asks for, but that of
// tools/newest.mod and of the other modules.
func newestGo() bool { return version.Compare(runtime.Version(), "go1.26") >= 0 }

// snippet is a Go block that was made a file.
type snippet struct {
	block
	file  *ast.File
	whole bool // a program that is complete in itself
}

// read parses a Go block: a file, declarations, or statements, which become the body of a function.
func read(set *token.FileSet, b block) (snippet, error) {
	at := fmt.Sprintf("/*line %s:%d:1*/", filepath.Base(b.page), b.line) // beside the name that the parser gets
	if strings.HasPrefix(b.text, "package ") {
		file, err := parser.ParseFile(set, b.page, at+b.text, parser.ParseComments)
		return snippet{block: b, file: file, whole: true}, err
	}
	file, errDeclarations := parser.ParseFile(set, b.page, "package p; "+at+b.text, parser.ParseComments)
	if errDeclarations == nil {
		return snippet{block: b, file: file}, nil
	}
	file, err := parser.ParseFile(set, b.page, "package p; func _() (_ error) { "+at+b.text+"\npanic(0) }", parser.ParseComments)
	if err != nil && strings.HasPrefix(b.text, "func ") {
		err = errDeclarations
	}
	return snippet{block: b, file: file}, err
}

// surroundings is the file that declares what a snippet uses without declaring it, and the imports
// of both; it says from which module those are.
func (s *snippet) surroundings(t *testing.T) (source, module string) {
	t.Helper()
	module = "."
	var names []string
	imported := map[string]bool{}
	note := func(name string) {
		library, found := libraries[name]
		if !found {
			return
		}
		imported[name] = true
		if library.module != "." {
			module = library.module
		}
	}
	for _, ident := range s.file.Unresolved {
		if kind, found := world[ident.Name]; found && !s.whole && !slices.Contains(names, ident.Name) {
			names = append(names, ident.Name)
			for _, used := range regexp.MustCompile(`(\w+)\.`).FindAllStringSubmatch(kind, -1) {
				note(used[1])
			}
			continue
		}
		note(ident.Name)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(imported)) {
		fmt.Fprintf(&text, "import %s %q\n", name, libraries[name].path)
	}
	for _, name := range names {
		fmt.Fprintf(&text, "var %s %s\n", name, world[name])
	}
	return text.String(), module
}

// check compiles a snippet with what stands around it.
func (s *snippet) check(t *testing.T, set *token.FileSet, rooms map[string]*room) (problems []error) {
	t.Helper()
	around, module := s.surroundings(t)
	for _, spec := range s.file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		for _, library := range libraries {
			if library.path == path && library.module != "." {
				module = library.module
			}
		}
	}
	if module != "." && !newestGo() {
		return nil // those modules ask for more: they are checked in every other run
	}
	if rooms[module] == nil {
		rooms[module] = openRoom(t, set, module)
	}
	files := []*ast.File{s.file}
	if !s.whole {
		frame, err := parser.ParseFile(set, "around", "package p\n"+around, 0)
		require.NoError(t, err, around)
		lines := []string{}
		for line := range strings.Lines(around) {
			if strings.HasPrefix(line, "import ") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		imports, err := parser.ParseFile(set, "imports", "package p; "+strings.Join(lines, ";"), parser.ImportsOnly)
		require.NoError(t, err)
		s.file.Decls = slices.Concat(imports.Decls, s.file.Decls)
		files = append(files, frame)
	}
	config := types.Config{Importer: rooms[module].importer, Error: func(err error) {
		var problem types.Error
		if errors.As(err, &problem) && problem.Soft && !s.whole {
			return // a fragment need not use what it declares
		}
		problems = append(problems, err)
	}}
	_, _ = config.Check("p", set, files, nil)
	return problems
}

// TestDocsSnippetsCompile: each Go snippet of the documents compiles. A fragment may use the names
// of world. Those of other libraries, "go before", are compiled in a run that is not short, and
// parsed in any; those under "go parsed" are only parsed, since their library takes minutes.
func TestDocsSnippetsCompile(t *testing.T) {
	set := token.NewFileSet()
	rooms := map[string]*room{}
	all := blocks(t, "go", "go before", "go parsed")
	require.Greater(t, len(all), 10)
	for _, b := range all {
		s, err := read(set, b)
		if err != nil {
			t.Errorf("%s:%d: %v", b.page, b.line, err)
			continue
		}
		if b.kind == "go parsed" || b.kind == "go before" && testing.Short() {
			continue
		}
		for _, problem := range s.check(t, set, rooms) {
			t.Error(problem)
		}
	}
}

// TestDocsSnippetsReadTheirErrors: what a snippet has as err it looks at before it goes on, since
// it is copied as it is. The last call of a fragment may leave that to what follows.
func TestDocsSnippetsReadTheirErrors(t *testing.T) {
	for _, b := range blocks(t, "go") {
		s, err := read(token.NewFileSet(), b)
		if err != nil {
			continue // see TestDocsSnippetsCompile
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			block, isBlock := node.(*ast.BlockStmt)
			if !isBlock {
				return true
			}
			for i, statement := range block.List[:max(0, len(block.List)-1)] {
				assigned, isAssignment := statement.(*ast.AssignStmt)
				if !isAssignment || !slices.ContainsFunc(assigned.Lhs, isErr) {
					continue
				}
				next := block.List[i+1]
				if last, isCall := next.(*ast.ExprStmt); isCall && types.ExprString(last.X) == "panic(0)" {
					continue // the end of the function that read has put around it
				}
				reads := false
				ast.Inspect(next, func(node ast.Node) bool {
					expression, isExpression := node.(ast.Expr)
					reads = reads || isExpression && isErr(expression)
					return true
				})
				if !reads {
					t.Errorf("%s:%d: the error of statement %d is not looked at", b.page, b.line, i+1)
				}
			}
			return true
		})
	}
}

func isErr(e ast.Expr) bool {
	ident, isIdent := e.(*ast.Ident)
	return isIdent && ident.Name == "err"
}

// TestDocsNames: a name of the library that a page writes as code is one that there is: a member of
// one of its types, or one whose prefix its errors, events and states have. Decisions may name what
// never came to be.
func TestDocsNames(t *testing.T) {
	types, names := map[string]bool{}, map[string]bool{}
	for _, dir := range []string{".", "tenurehttp", "tenuretest"} {
		list, err := surface.List(dir)
		require.NoError(t, err)
		for _, line := range list {
			name := surfaceName.FindStringSubmatch(line)
			of, member := name[1]+name[2], name[3]
			types[of], names[member], names[of+"."+member] = true, true, true
			if rest, isOption := strings.CutSuffix(of, "Options"); isOption {
				names[rest+"."+member] = true // by its way from Options: Registry.DownAfter
			}
		}
	}
	known := 0
	for page, text := range pages(t) {
		if strings.HasPrefix(page, "docs/adr/") {
			continue
		}
		text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
		for _, code := range writtenName.FindAllStringSubmatch(text, -1) {
			switch of, _, isMember := strings.Cut(code[1], "."); {
			case names[code[1]]:
				known++
			case !isMember || types[of]:
				t.Errorf("%s: there is no %s", page, code[1])
			}
		}
	}
	require.Greater(t, known, 500)
}

var (
	// A line of the surface: a method, a field, or another name.
	surfaceName = regexp.MustCompile(`^(?:func \(\w+ \*?(\w+)(?:\[\w+\])?\) |(\w+)\.|(?:const|func|type|var) )(\w+)`)
	writtenName = regexp.MustCompile("`(?:tenure\\.)?((?:Err|Event|Missed|Wait)[A-Z]\\w*|[A-Z]\\w*\\.[A-Z]\\w*)(?:\\(\\w*\\))?`")
)
