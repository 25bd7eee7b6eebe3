package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/surface"
)

// TestMain has all paths begin in the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.FromSlash("../../..")); err != nil {
		panic(err)
	}
	m.Run()
}

// floors are the files of the root from the ground up. A file may name what files below it
// have, and what the others of its own floor have.
var floors = [][]string{
	{"doc.go"},
	{"errors.go"},
	{"bounded.go", "env_tls.go"},
	{"observers.go"},
	{"ride.go"},
	{"term.go"},
	{"tasks_schedule.go"},
	{"events.go"},
	{"calls.go"},
	{"scripts.go"},
	{"instance.go"},
	{"options.go", "options_check.go"},
	{"transfer.go"},
	{"guarantees.go"},
	{"election_status.go"},
	{"election_work.go"},
	{"tasks_bounds.go"},
	{"tasks.go", "tasks_roles.go"},
	{"tasks_status.go"},
	{"tasks_control.go"},
	{"events_log.go"},
	{"election_calls.go", "election_loop.go", "election_term.go"},
	{"election.go"},
	{"registry.go"},
	{"registry_status.go"},
	{"registry_log.go"},
	{"registry_sweep.go"},
	{"registry_metrics.go"},
	{"heartbeat.go"},
	{"tasks_loop.go", "tasks_calls.go", "tasks_run.go", "tasks_wait.go"}, // one loop
	{"snapshots.go"},
	{"control.go"},
	{"roles.go"},
	{"coordinator.go", "coordinator_roles.go", "control_run.go"}, // commands come by a hint, and drain
	{"doctor.go"},
	{"standalone.go"},
	{"env.go", "env_access.go", "env_redis.go"},
}

// upward are the names that a file may use of one above it.
var upward = map[string][]string{
	"events.go → tasks_status.go": {"RunState"}, // words of the public surface
	"options.go → tasks.go":       {"TaskFunc"},
	"events.go → instance.go":     {"Counts"},
}

// TestFilesReferDownwards: the files of the root have an order, so that each can be read with those
// below it alone. It holds for functions and types, and for methods and fields as well.
func TestFilesReferDownwards(t *testing.T) {
	floor := make(map[string]int)
	for i, files := range floors {
		for _, file := range files {
			floor[file] = i
		}
	}
	used := make(map[string]bool)
	for _, r := range references(t, floor) {
		if floor[r.from] >= floor[r.to] {
			continue
		}
		pair := r.from + " → " + r.to
		if slices.Contains(upward[pair], r.name) {
			used[pair+": "+r.name] = true
			continue
		}
		t.Errorf("%s: %s stands in %s, which is above", r.at, r.name, r.to)
	}
	for pair, names := range upward {
		for _, name := range names {
			require.True(t, used[pair+": "+name], "%s: %s is not used any more", pair, name)
		}
	}
}

// reference is a place in one file of the root that names something of another.
type reference struct {
	from, to string
	name     string
	at       token.Position
}

// references are those of all files, which the given table must have.
func references(t *testing.T, floor map[string]int) (all []reference) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		require.Contains(t, floor, path, "a file without a floor")
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: empty{}, Error: func(error) {}}
	pkg, _ := config.Check("tenure", set, files, info) // what other packages have is not known, and not asked for
	for ident, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		at := set.Position(ident.Pos())
		if to := set.Position(object.Pos()).Filename; to != at.Filename {
			all = append(all, reference{from: at.Filename, to: to, name: ident.Name, at: at})
		}
	}
	require.Greater(t, len(all), 1000)
	slices.SortFunc(all, func(a, b reference) int { return strings.Compare(a.at.String(), b.at.String()) })
	return all
}

// empty imports every package as one without anything in it: reading them would take seconds.
type empty struct{}

func (empty) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}

// tests are the folders of every test, fuzz target, benchmark and example.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	there := map[string][]string{}
	definition := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, "_test.go") {
			source, err := os.ReadFile(path)
			for _, found := range definition.FindAllStringSubmatch(string(source), -1) {
				there[found[1]] = append(there[found[1]], filepath.Dir(path))
			}
			return err
		}
		return err
	})
	require.NoError(t, err)
	return there
}

// TestRacelessTests: a test that `make test` runs without the race detector is in one of the
// packages in which it looks for such tests, and so is each that says so. No other has its name,
// which would be run nowhere.
func TestRacelessTests(t *testing.T) {
	makefile, there := sources(t, "Makefile"), tests(t)
	list := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + `\s*:= (.+)$`).FindStringSubmatch(makefile)
		require.NotNil(t, found, name)
		return found[1]
	}
	packages := strings.Fields(strings.ReplaceAll(list("RACELESS_PACKAGES"), "./", ""))
	raceless := strings.Split(list("RACELESS"), "|")
	for _, name := range raceless {
		require.Len(t, there[name], 1, name)
		require.Contains(t, packages, there[name][0], name)
	}
	skips := regexp.MustCompile("(?m)^func (Test\\w+)\\(|t\\.Skip\\(\".*`make test` runs it without the race detector")
	skipped := 0
	for _, dir := range packages {
		test := ""
		for _, found := range skips.FindAllStringSubmatch(sources(t, filepath.Join(dir, "*_test.go")), -1) {
			if found[1] != "" {
				test = found[1]
				continue
			}
			skipped++
			require.Contains(t, raceless, test, "it says that it runs without the race detector")
		}
	}
	require.Greater(t, skipped, 5)
}

// TestDocsNameTests: every test, fuzz target, benchmark and example that the documents name is
// there.
func TestDocsNameTests(t *testing.T) {
	there := tests(t)
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, path := range append(documents, "README.md", "SECURITY.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)\\w*)`").FindAllStringSubmatch(string(text), -1) {
			named++
			require.NotEmpty(t, there[found[1]], "%s names %s", path, found[1])
		}
	}
	require.Greater(t, named, 80)
}

// TestFeatures: the rows of docs/features.md are numbered without a gap, what they name is there,
// what works or differs is shown by something, and the sums at the top are those of the rows.
func TestFeatures(t *testing.T) {
	page, err := os.ReadFile("docs/features.md")
	require.NoError(t, err)
	names := surfaceNames(t)
	states := []string{"works", "differs", "left out", "not yet"}
	row := regexp.MustCompile(`^\| <a id="([a-z]\d+)"></a>([A-Z]\d+) \| [^|]+ \| ([a-z ]+) \| ([^|]*) \| ([^|]*) \|$`)
	shown := regexp.MustCompile("`(?:Test|Fuzz|Benchmark|Example)\\w*`|\\.\\./examples/")
	quoted := regexp.MustCompile("`([A-Z][\\w.]*)`")
	var sums, counted [][]int
	all := make([]int, len(states)+1)
	number := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if found := regexp.MustCompile(`^\| \S.*((?: \| \d+){5}) \|$`).FindStringSubmatch(line); found != nil {
			sums = append(sums, integers(t, found[1]))
		}
		switch found := row.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "## "):
			number = 0
		case found != nil:
			if number++; number == 1 {
				counted = append(counted, make([]int, len(states)+1))
			}
			require.Equal(t, strings.ToUpper(found[1]), found[2], line)
			require.Equal(t, []int{number}, integers(t, found[2][1:]), line)
			state := slices.Index(states, found[3])
			require.GreaterOrEqual(t, state, 0, line)
			for _, sum := range [][]int{all, counted[len(counted)-1]} {
				sum[0]++
				sum[1+state]++
			}
			require.True(t, state >= 2 || shown.MatchString(found[5]), "nothing shows: %s", line)
			require.NotEmpty(t, found[5], line)
			for _, name := range quoted.FindAllStringSubmatch(found[4], -1) {
				require.True(t, names[name[1]], "%s: no %s", line, name[1])
			}
		default:
			require.NotContains(t, line, "<a id=", "this row cannot be read")
		}
	}
	require.Equal(t, append(counted, all), sums, "the sums at the top must be these")
}

// surfaceNames are the exported names, with their types before them: Coordinator.Run.
func surfaceNames(t *testing.T) map[string]bool {
	surface, err := os.ReadFile("testdata/surface.txt")
	require.NoError(t, err)
	names := map[string]bool{}
	for line := range strings.Lines(string(surface)) {
		if method := regexp.MustCompile(`^func \(\w+ \*?(\w+)\) (\w+)`).FindStringSubmatch(line); method != nil {
			names[method[1]+"."+method[2]] = true
			continue
		}
		words := strings.Fields(line)
		if slices.Contains([]string{"const", "func", "type", "var"}, words[0]) {
			words = words[1:]
		}
		name, _, _ := strings.Cut(words[0], "(")
		names[name] = true
	}
	return names
}

// integers are those that a text has.
func integers(t *testing.T, text string) (all []int) {
	for _, digits := range regexp.MustCompile(`\d+`).FindAllString(text, -1) {
		n, err := strconv.Atoi(digits)
		require.NoError(t, err)
		all = append(all, n)
	}
	return all
}

// goTool runs the go command without a network.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command")
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	require.NoError(t, err, "go %v", args)
	return string(out)
}

// What a program compiles that imports the library: go-redis with what it needs, the cron parser,
// and nothing else.
func TestDependencies(t *testing.T) {
	allowed := []string{
		"github.com/tenure-go/tenure",
		"github.com/redis/go-redis/v9",
		"github.com/cespare/xxhash/v2",     // of go-redis
		"github.com/dgryski/go-rendezvous", // of an old go-redis
		"go.uber.org/atomic",               // of a new one
		"golang.org/x/sys",                 // of go-redis
		"github.com/robfig/cron/v3",
	}
	direct := []string{"github.com/redis/go-redis/v9", "github.com/robfig/cron/v3"}
	used := map[string]bool{}
	for line := range strings.Lines(goTool(t, "list", "-deps", "-f", `{{with .Module}}{{.Path}} {{join $.Imports " "}}{{end}}`, ".")) {
		module, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		if module == "" {
			continue // the standard library
		}
		used[module] = true
		require.Contains(t, allowed, module)
		if module != allowed[0] {
			continue
		}
		for path := range strings.FieldsSeq(imports) {
			standard := !strings.Contains(strings.Split(path, "/")[0], ".")
			ours := strings.HasPrefix(path, allowed[0]+"/")
			ok := standard || ours || slices.ContainsFunc(direct, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
			require.True(t, ok, "tenure imports %s", path)
		}
	}
	require.True(t, used[allowed[0]] && used[allowed[1]])
}

// The overview of the public surface fits two screens.
func TestGoDocFitsTwoScreens(t *testing.T) {
	doc := goTool(t, "doc", "-short", ".")
	require.LessOrEqual(t, strings.Count(doc, "\n"), 100, doc)
}

// TestSurface: the exported names and their types are those of testdata/surface.txt. They are
// frozen with the first tag: what is added is added there, by TENURE_UPDATE=1, and nothing else
// changes.
func TestSurface(t *testing.T) {
	const path = "testdata/surface.txt"
	list, err := surface.List(".")
	require.NoError(t, err)
	lines := strings.Join(list, "\n") + "\n"
	if os.Getenv("TENURE_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(lines), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), lines)
}
