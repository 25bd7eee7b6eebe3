package tenure

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/surface"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// floors are the files of this package from the ground up. A file may name what files below it
// have, and what the others of its own floor have.
var floors = [][]string{
	{"doc.go"},
	{"errors.go"},
	{"bounded.go"},
	{"term.go"},
	{"tasks_schedule.go"},
	{"events.go"},
	{"scripts.go"},
	{"instance.go"},
	{"options.go"},
	{"transfer.go"},
	{"guarantees.go"},
	{"election_status.go"},
	{"election_work.go"},
	{"tasks.go", "tasks_roles.go"},
	{"tasks_status.go"},
	{"tasks_control.go"},
	{"events_log.go"},
	{"election_calls.go", "election_loop.go"},
	{"election.go"},
	{"once.go"},
	{"registry.go"},
	{"registry_status.go"},
	{"registry_log.go"},
	{"registry_sweep.go"},
	{"registry_metrics.go"},
	{"heartbeat.go"},
	{"tasks_loop.go", "tasks_consult.go", "tasks_run.go", "tasks_wait.go"}, // one loop
	{"snapshots.go"},
	{"control.go"},
	{"roles.go"},
	{"coordinator.go", "control_run.go"}, // commands come by a hint, and drain
	{"doctor.go"},
	{"standalone.go"},
	{"env.go"},
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

// reference is a place in one file of this package that names something of another.
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

// TestDocsNameTests: every test, fuzz target, benchmark and example that the documents name is
// there.
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
		for _, found := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)\\w*)`").FindAllStringSubmatch(string(text), -1) {
			named++
			require.True(t, there[found[1]], "%s names %s", path, found[1])
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

// What a program compiles that imports this package: go-redis with what it needs, the cron parser,
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

// TestWordsOfTheStore: what the store calls the status of a run, or of an instance, is what this
// package exports.
func TestWordsOfTheStore(t *testing.T) {
	for word, stored := range map[RunState]store.RunState{
		RunRunning: store.RunRunning, RunSucceeded: store.RunSucceeded, RunFailed: store.RunFailed, RunInterrupted: store.RunInterrupted,
		RunAbandoned: store.RunAbandoned, RunCanceled: store.RunCanceled,
	} {
		require.EqualValues(t, word, stored)
	}
	require.EqualValues(t, InstanceActive, store.WordActive)
	require.EqualValues(t, InstanceUnknown, store.WordUnknown)
}

// TestSnapshotsAreAContract: the JSON of the public snapshots, whole and empty. Programs that are
// not written in Go read it: a name here changes for nobody.
func TestSnapshotsAreAContract(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 250e6, time.FixedZone("CEST", 7200))
	failed := errors.New("no \"route\"")
	for _, c := range []struct {
		snapshot any
		want     string
	}{
		{Event{Type: EventRedisUp, InstanceID: "a"}, `{"type":"redis_up","instance_id":"a"}`},
		{
			Event{
				Type: EventTaskFailed, Time: at, InstanceID: "a", Role: "r", Token: 7, Subject: "b", Former: "c", Work: "w", Task: "t", Slot: at, Attempt: 2, Count: 3,
				Step: -time.Minute, Took: 1500 * time.Millisecond, State: RunFailed, Reason: "lost", Until: at, By: "me", Err: failed, Remote: true, Dropped: 4,
			},
			`{"type":"task_failed","time":"2026-07-01T10:00:00.25Z","instance_id":"a","role":"r","token":7,"subject":"b","former":"c","work":"w","task":"t",` +
				`"slot":"2026-07-01T10:00:00.25Z","attempt":2,"count":3,"state":"failed","reason":"lost","by":"me","until":"2026-07-01T10:00:00.25Z",` +
				`"remote":true,"dropped":4,"step_seconds":-60,"took_seconds":1.5,"error":"no \"route\""}`,
		},
		{
			ElectionStatus{},
			`{"role":"","state":"","token":0,"leader":"","leader_token":0,"waiting":"","history_witness":false,"subscription":{"active":false},"calls_in_flight":0}`,
		},
		{
			ElectionStatus{
				Role: "r", State: ElectionLeading, Token: 7, Deadline: at, Leader: "a", LeaderToken: 7, LastAnswer: at, Waiting: "hold", WaitingUntil: at,
				HistoryWitness: true, Subscription: Subscription{Active: true, Since: at, Err: failed}, CallsInFlight: 1, Err: failed,
			},
			`{"role":"r","state":"leading","token":7,"deadline":"2026-07-01T10:00:00.25Z","leader":"a","leader_token":7,"last_answer":"2026-07-01T10:00:00.25Z",` +
				`"waiting":"hold","waiting_until":"2026-07-01T10:00:00.25Z","history_witness":true,` +
				`"subscription":{"active":true,"since":"2026-07-01T10:00:00.25Z","error":"no \"route\""},"calls_in_flight":1,"error":"no \"route\""}`,
		},
		{LeaderInfo{Remaining: -1}, `{"role":"","instance_id":"","token":0,"remaining_seconds":-1}`},
		{
			LeaderInfo{Role: "r", InstanceID: "a", Token: 7, Since: at, Remaining: 1234 * time.Millisecond},
			`{"role":"r","instance_id":"a","token":7,"since":"2026-07-01T10:00:00.25Z","remaining_seconds":1.234}`,
		},
		{
			Event{Type: EventClusterChanged, InstanceID: "a", Counts: &Counts{Active: 2, Total: 2}},
			`{"type":"cluster_changed","instance_id":"a","counts":{"joining":0,"active":2,"draining":0,"drifted":0,"down":0,"unknown":0,"total":2,"malformed":0}}`,
		},
		{Change{ID: "1-0", Type: ChangeLeft}, `{"id":"1-0","type":"left"}`},
		{
			Change{ID: "1-0", Time: store.Time(1), Type: ChangeEnded, InstanceID: "a", Role: "r", Token: 7, Reason: "lapsed", Count: 2, Instances: []Instance{}},
			`{"id":"1-0","time":"1970-01-01T00:00:00.001Z","type":"ended","instance_id":"a","role":"r","token":7,"reason":"lapsed","count":2}`,
		},
		{TermRecord{Token: 7}, `{"role":"","token":7}`},
		{
			TermRecord{Role: "r", Token: 7, InstanceID: "a", Began: at, Ended: at, Reason: "lapsed", Gap: 1500 * time.Millisecond},
			`{"role":"r","token":7,"instance_id":"a","began":"2026-07-01T10:00:00.25Z","ended":"2026-07-01T10:00:00.25Z","reason":"lapsed","gap_seconds":1.5}`,
		},
		{
			ClusterStatus{
				Namespace: "shop", Counts: Counts{Active: 1, Total: 1}, Leader: LeaderInfo{InstanceID: "a", Token: 7, Remaining: time.Second, Address: "a:80"},
				Held: 1, Lost: 2, MinInstances: 3, Problems: []string{"p"},
			},
			`{"namespace":"shop","counts":{"joining":0,"active":1,"draining":0,"drifted":0,"down":0,"unknown":0,"total":1,"malformed":0},` +
				`"leader":{"role":"","instance_id":"a","token":7,"address":"a:80","remaining_seconds":1},"held":1,"lost":2,"min_instances":3,` +
				`"healthy":false,"problems":["p"]}`,
		},
		{Instance{}, `{"instance_id":"","incarnation":"","state":"","worker_count":0,"worker_id":0,"age_seconds":0}`},
		{
			Instance{
				ID: "a", Incarnation: "i", State: InstanceActive, StartedAt: at, LastHeartbeat: at, Age: time.Second, WorkerCount: 4,
				WorkerID: 2, Address: "a:80", Host: "h", Version: "1", Ports: map[string]int{"grpc": 81}, Roles: []string{"api"},
				Leading: []string{"", "r"}, Capabilities: []string{"gpu"}, Load: Load{Connections: 1, Jobs: 2, CPU: 0.5, Memory: 0.25},
				LoadLimit: Load{CPU: 1}, Metadata: map[string]string{"k": "<v>"},
			},
			`{"instance_id":"a","incarnation":"i","state":"active","started_at":"2026-07-01T10:00:00.25Z","last_heartbeat":"2026-07-01T10:00:00.25Z",` +
				`"worker_count":4,"worker_id":2,"address":"a:80","host":"h","version":"1","ports":{"grpc":81},"roles":["api"],"leading":["","r"],` +
				`"capabilities":["gpu"],"load":{"connections":1,"jobs":2,"cpu":0.5,"memory":0.25},` +
				`"load_limit":{"connections":0,"jobs":0,"cpu":1,"memory":0},"metadata":{"k":"\u003cv\u003e"},"age_seconds":1}`,
		},
		{
			Counts{Joining: 1, Active: 2, Draining: 3, Drifted: 4, Down: 5, Unknown: 6, Total: 7, Malformed: 8},
			`{"joining":1,"active":2,"draining":3,"drifted":4,"down":5,"unknown":6,"total":7,"malformed":8}`,
		},
		{TaskStatus{Name: "t"}, `{"name":"t","known":false,"role":"","schedule":"","overdue":false,"paused":false,"running":false,"failures":0,"skipped":0,"token":0}`},
		{
			TaskStatus{
				Name: "t", Known: true, Role: "r", Schedule: "every 1h0m0s", Next: at, Overdue: true, Paused: true, Pause: TaskPause{By: "b", Reason: "r", At: at}, Running: true, LastSuccess: at, Failures: 3, Skipped: 2, Token: 7, Err: failed,
				Last: RunRecord{Task: "t", ID: "x", Slot: at, Started: at, Finished: at, State: RunFailed, Attempt: 2, Token: 7, InstanceID: "a", Error: "e"},
			},
			`{"name":"t","known":true,"role":"r","schedule":"every 1h0m0s","next":"2026-07-01T10:00:00.25Z","overdue":true,"paused":true,"pause":{"by":"b","reason":"r","at":"2026-07-01T10:00:00.25Z"},"running":true,` +
				`"last":{"task":"t","id":"x","slot":"2026-07-01T10:00:00.25Z","started":"2026-07-01T10:00:00.25Z","finished":"2026-07-01T10:00:00.25Z",` +
				`"state":"failed","attempt":2,"token":7,"instance_id":"a","error":"e"},"last_success":"2026-07-01T10:00:00.25Z","failures":3,"skipped":2,"token":7,"error":"no \"route\""}`,
		},
	} {
		rendered, err := json.Marshal(c.snapshot)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(rendered))
		again, err := json.Marshal([]any{c.snapshot})
		require.NoError(t, err)
		require.Equal(t, "["+string(rendered)+"]", string(again))
	}
}

// TestSnapshotsOfFarTimes: a time of Redis that JSON has no text for spoils no listing.
func TestSnapshotsOfFarTimes(t *testing.T) {
	for _, far := range []time.Time{time.UnixMilli(1 << 52), time.UnixMilli(-1 << 52)} {
		for _, snapshot := range []any{
			[]TaskStatus{{Next: far, Last: RunRecord{Slot: far, Started: far, Finished: far}}}, []Instance{{StartedAt: far, LastHeartbeat: far}},
			LeaderInfo{Since: far}, TermRecord{Began: far, Ended: far}, Event{Time: far, Slot: far, Until: far}, ElectionStatus{Deadline: far, LastAnswer: far, WaitingUntil: far, Subscription: Subscription{Since: far}},
		} {
			_, err := json.Marshal(snapshot)
			require.NoError(t, err)
		}
	}
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

// TestMain takes the scripts of TENURE_SCRIPTS in place of the embedded ones, if it is set: that
// is how `make bugs` breaks them.
func TestMain(m *testing.M) {
	if path := os.Getenv("TENURE_SCRIPTS"); path != "" {
		source, err := os.ReadFile(path)
		if err == nil {
			contract, err = redisstore.Load(string(source))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	// miniredis builds a Lua state for each script, and all of it is garbage at once.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	m.Run()
}

// together lets the parts of a test run beside each other. The test itself runs alone, since others
// of this package need the machine to have one processor (see simnet.Exact).
func together(t *testing.T) {
	t.Helper()
	t.Parallel()
}
